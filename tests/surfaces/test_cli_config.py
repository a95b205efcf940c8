"""`perdure config` and the Python clients: setting options, and errors."""

import json

import pytest

from perdure.surfaces.async_client import AsyncClient
from perdure.surfaces.client import Problem
from tests.surfaces.conftest import ServerProcess


@pytest.fixture
def session(server: ServerProcess) -> str:
    with server.client() as client:
        sent = client.send("say hello")
        stream = client.events(sent["session_id"], 0)
        next(event for event in stream if event.type == "turn_end")
        stream.close()
        return str(sent["session_id"])


def test_options_are_listed_and_set(server: ServerProcess, session: str) -> None:
    listed = server.run("config", session)
    assert listed.returncode == 0
    assert [line.split()[:2] for line in listed.stdout.splitlines()][1:] == [
        ["mode", "ask"],
        ["model", "rehearsal-1"],
        ["effort", "normal"],
    ]
    changed = server.run("config", "last", "model", "rehearsal-2")
    assert (changed.returncode, changed.stdout) == (0, "Set model to rehearsal-2.\n")
    answer = json.loads(server.run("config", session, "effort", "high", "--json").stdout)
    assert (answer["value"], answer["applied"]) == ("high", True)
    shown = json.loads(server.run("config", session, "--json").stdout)["config_options"]
    assert [option["currentValue"] for option in shown] == ["ask", "rehearsal-2", "high"]


def test_a_refused_option_is_reported(server: ServerProcess, session: str) -> None:
    for option, value, words in (
        ("model", "nonsense", "rehearsal-1, rehearsal-2"),
        ("effort", "unavailable", "The agent refused it: effort was not set"),
    ):
        answer = server.run("config", session, option, value)
        assert answer.returncode == 1 and words in answer.stderr
    assert server.run("config", session, "model").returncode == 2


def test_an_option_for_an_agent_that_is_not_running_is_applied_later(server: ServerProcess) -> None:
    with server.client() as client:
        made = client.create_session(agent="rehearsal-resume")["id"]
    listed = server.run("config", made)
    assert "Not known yet" in listed.stdout + listed.stderr
    answer = server.run("config", made, "model", "rehearsal-2")
    assert answer.returncode == 0 and "takes effect when the agent starts" in answer.stdout


async def test_the_clients_return_the_value_or_raise(server: ServerProcess, session: str) -> None:
    with server.client() as client:
        assert client.set_config(session, "mode", "auto")["value"] == "auto"
        with pytest.raises(Problem, match="agent refused it"):
            client.set_config(session, "effort", "unavailable")
    async with AsyncClient(server.address) as there:
        assert (await there.set_config(session, "mode", "ask"))["applied"] is True
