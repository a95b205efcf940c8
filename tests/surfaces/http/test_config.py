"""A session's model, mode and other options. Setting one returns the effective value or an error with a reason, and
only after the agent has responded."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.core import events as ev
from perdure.core.errors import Refused
from perdure.core.observations import SessionOpened
from perdure.core.observe import observe
from perdure.runtime.verbs import configuring
from perdure.runtime.verbs.waiting import until
from perdure.surfaces.http.sessions import Configured
from tests.harness import eventually
from tests.surfaces.http.diane_client import Diane
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem
from tests.surfaces.http.test_contract import fits

Json = dict[str, Any]
KEPT = ["rehearsal", "rehearsal-stream"]
"""Agents whose process stays alive between turns."""
EACH = [*KEPT, "rehearsal-resume"]
MODES = {"rehearsal": "auto", "rehearsal-stream": "plan", "rehearsal-resume": "plan"}


def choose(server: LocalServer, session: str, config_id: str, value: Any) -> Json:
    answer = server.http.post(f"/api/sessions/{session}/config", json={"config_id": config_id, "value": value})
    assert answer.status_code == 200, answer.text
    fits(answer.json(), Configured)
    found: Json = answer.json()
    return found


def refused(server: LocalServer, session: str, config_id: str, value: Any, status: int = 400) -> str:
    answer = server.http.post(f"/api/sessions/{session}/config", json={"config_id": config_id, "value": value})
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"])


def current(answer: Json) -> dict[str, Any]:
    return {option["id"]: option["currentValue"] for option in answer["config_options"]}


@pytest.mark.parametrize("agent", KEPT)
def test_a_running_agent_has_applied_the_value_before_the_response(server: LocalServer, agent: str) -> None:
    session = server.create(agent=agent)
    server.turn(session, "say hello")
    for config_id, value in (("model", "rehearsal-2"), ("mode", MODES[agent])):
        answer = choose(server, session, config_id, value)
        assert (answer["config_id"], answer["value"], answer["applied"]) == (config_id, value, True)
        assert current(answer)[config_id] == value
        assert server.session(session)[config_id] == value
        # Setting the same value again changes nothing, and also gets a response.
        assert choose(server, session, config_id, value)["applied"] is True


@pytest.mark.parametrize("agent", KEPT)
def test_a_value_can_be_set_in_the_middle_of_a_turn(server: LocalServer, agent: str) -> None:
    session = server.create(agent=agent)
    server.send(session, "say working\nhang")
    server.wait(session, lambda found: found["attached"] == "live" and found["models"] is not None)
    assert choose(server, session, "mode", MODES[agent])["applied"] is True
    server.post(f"/api/sessions/{session}/abort")
    server.wait_idle(session)


def test_a_listed_value_that_the_agent_refuses_is_an_error_with_its_reason(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say hello")
    choose(server, session, "effort", "high")
    sentence = refused(server, session, "effort", "unavailable")
    assert "effort was not set to 'unavailable'" in sentence and "has no value" in sentence
    shown = server.session(session)
    assert current(shown)["effort"] == "high"


@pytest.mark.parametrize("agent", KEPT)
def test_an_agent_that_never_ran_is_started_to_ask_for_its_options(server: LocalServer, agent: str) -> None:
    session = server.create(agent=agent)
    assert "rehearsal-1, rehearsal-2" in refused(server, session, "model", "nonsense")
    assert "one of: " in refused(server, session, "colour", "red")
    answer = choose(server, session, "model", "rehearsal-2")
    assert (answer["value"], answer["applied"]) == ("rehearsal-2", True)
    assert server.turn(session, "say hello")["model"] == "rehearsal-2"


def test_an_agent_with_a_process_per_turn_gets_the_value_with_its_next_turn(server: LocalServer) -> None:
    session = server.create(agent="rehearsal-resume")
    assert choose(server, session, "model", "rehearsal-2")["applied"] is False
    assert server.turn(session, "say hello")["model"] == "rehearsal-2"
    assert "rehearsal-1, rehearsal-2" in refused(server, session, "model", "nonsense")
    answer = choose(server, session, "model", "rehearsal-1")
    assert (answer["value"], answer["applied"]) == ("rehearsal-1", False)
    assert server.turn(session, "say hello")["model"] == "rehearsal-1"


def test_an_agent_that_cannot_be_started_is_an_error(make_server: Any) -> None:
    server = make_server(agents={"broken": {"driver": "acp", "command": ["false"]}})
    session = server.create(agent="broken")
    assert "could not be started" in refused(server, session, "model", "any", 503)
    assert server.session(session)["model"] is None


def test_an_agent_that_does_not_answer_is_an_error_and_the_request_stays_in_effect(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = server.create()
    server.turn(session, "say hello")
    pid = server.session(session)["pid"]
    monkeypatch.setattr(configuring, "ANSWER_S", 0.5)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert "has not answered" in refused(server, session, "model", "rehearsal-2", 503)
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: current(server.session(session))["model"] == "rehearsal-2", "it is set late")


async def told(server: LocalServer, session: str, value: str, *facts: Any) -> Json:
    """Set the model of an agent that does not respond, and record these facts as if they came from it."""
    sessions = server.server.sessions
    journal = await sessions.log.open(session)
    wish = asyncio.create_task(sessions.configure(session, "model", value))
    await until(journal, lambda: journal.state.config.get("model") == value)
    attached = journal.state.attached
    assert attached is not None
    launch = attached.launch_id
    await journal.record(lambda state: observe(state, launch, facts, sessions.facts.world(state)))
    answer: Json = await wish
    return answer


@pytest.fixture
def silent(server: LocalServer) -> Iterator[str]:
    session = server.create()
    server.turn(session, "say hello")
    pid = server.session(session)["pid"]
    os.kill(pid, signal.SIGSTOP)
    yield session
    os.kill(pid, signal.SIGCONT)


def test_a_report_of_the_same_value_for_another_option_is_no_confirmation(
    server: LocalServer, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuring, "ANSWER_S", 0.5)
    with pytest.raises(Refused, match="has not answered"):
        server.run(told(server, silent, "rehearsal-2", ev.Config(config_id="effort", value="rehearsal-2")))


def test_an_option_may_be_confirmed_under_the_agents_own_name_for_it(server: LocalServer, silent: str) -> None:
    named = [{"id": "picker", "category": "model", "currentValue": "rehearsal-1"}]
    opened = SessionOpened("n", resumed=False, config_options=named)
    answer = server.run(told(server, silent, "rehearsal-2", opened, ev.Config(config_id="picker", value="other")))
    assert (answer["value"], answer["applied"]) == ("other", True)


def test_an_option_may_be_refused_under_the_agents_own_name_for_it(server: LocalServer, silent: str) -> None:
    opened = SessionOpened("n", resumed=False, config_options=[{"id": "picker", "category": "model"}])
    refusal = (
        ev.System(code="config_refused", message="not today"),
        ev.Config(config_id="picker", value=None, refused=True),
    )
    with pytest.raises(Refused, match="not today"):
        server.run(told(server, silent, "rehearsal-2", opened, *refusal))


def test_an_agent_that_dies_meanwhile_gets_the_value_when_it_restarts(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say hello")
    os.kill(server.session(session)["pid"], signal.SIGKILL)
    answer = choose(server, session, "model", "rehearsal-2")
    assert answer["value"] == "rehearsal-2"
    assert server.turn(session, "say hello")["model"] == "rehearsal-2"


@pytest.mark.parametrize("agent", EACH)
def test_every_driver_lists_the_agents_options(server: LocalServer, agent: str) -> None:
    session = server.create(agent=agent)
    server.turn(session, "say hello")
    shown = server.session(session)
    options = {option["id"]: option for option in shown["config_options"]}
    assert {"mode", "model"} <= set(options)
    values = {name: [one["value"] for one in option["options"]] for name, option in options.items()}
    assert {"rehearsal-1", "rehearsal-2"} <= set(values["model"]) and MODES[agent] in values["mode"]
    for name in ("mode", "model"):
        assert options[name]["type"] == "select" and options[name]["category"] == name
        assert options[name]["currentValue"]


@pytest.mark.parametrize("agent", EACH)
def test_every_node_knows_the_models_and_modes_of_an_agent(server: LocalServer, agent: str) -> None:
    server.turn(server.create(agent=agent), "say hello")

    def offered() -> bool:
        asked = [server.get(f"/api/agents/{agent}") for _ in range(8)]
        return all(shown["models"] and shown["modes"] for shown in asked)

    eventually(offered, "all nodes know its models and modes")


@pytest.mark.one_server
@pytest.mark.parametrize("agent", EACH)
def test_diane_shows_the_agents_models_and_modes_when_a_session_starts(
    server: LocalServer, agent: str, tmp_path: Path
) -> None:
    server.turn(server.create(agent=agent), "say hello")
    made = Diane(server, agent).start(workdir=str(tmp_path))
    assert made["models"]["available_models"] and made["modes"]["available_modes"]
    assert made["modes"]["current_mode_id"]


def test_diane_gets_the_same_result(server: LocalServer) -> None:
    diane = Diane(server)
    path = f"{diane.sessions}/{diane.start()['session_id']}/config"
    answer = server.post(path, {"config_id": "effort", "value": "high"}, expect=200)
    assert (answer["value"], answer["applied"], current(answer)["effort"]) == ("high", True, "high")
    assert is_problem(server.http.post(path, json={"config_id": "effort", "value": "unavailable"}), 400, "invalid")
