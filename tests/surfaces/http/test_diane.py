"""Diane's sessions: every example, shape and status that a Diane client relies on."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.surfaces import diane_shapes as shapes
from perdure.surfaces.http.sessions import Configured
from tests.surfaces.http.diane_client import Diane
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem

SHOWN = {
    "session_id",
    "agent_name",
    "agent_key",
    "status",
    "workdir",
    "turn_count",
    "created_at",
    "last_active_at",
    "model_id",
    "mode_id",
}


@pytest.fixture
def diane(server: LocalServer) -> Diane:
    return Diane(server)


def listed(server: LocalServer, path: str, **query: str) -> list[str]:
    answer = server.http.get(path, params=query)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert isinstance(found, list)
    msgspec.convert(found, list[shapes.DianeListed])
    return [entry["session_id"] for entry in found]


# Starting a session ---------------------------------------------------------------------------------------------------


def test_a_started_session_is_active_and_lists_its_agents_models_and_modes(diane: Diane, tmp_path: Path) -> None:
    made = diane.start(workdir=str(tmp_path), title="Auth refactor")
    assert set(made) == {*SHOWN, "title", "models", "modes"}
    assert made["agent_name"] == "rehearsal"
    assert made["agent_key"] == f"rehearsal@{tmp_path}"
    assert (made["status"], made["turn_count"]) == ("active", 0)
    assert (made["workdir"], made["title"]) == (str(tmp_path), "Auth refactor")
    assert made["models"]["current_model_id"] == made["model_id"] == "rehearsal-1"
    assert [model["model_id"] for model in made["models"]["available_models"]] == ["rehearsal-1", "rehearsal-2"]
    assert made["modes"]["current_mode_id"] == made["mode_id"] == "ask"
    assert [mode["id"] for mode in made["modes"]["available_modes"]] == ["ask", "auto"]
    msgspec.convert(made, shapes.DianeSession)


def test_a_session_started_by_diane_is_an_ordinary_session(diane: Diane) -> None:
    made = diane.start(title="One and the same")
    session = diane.server.session(made["session_id"])
    assert (session["agent"], session["title"], session["attached"]) == ("rehearsal", "One and the same", "live")


def test_empty_fields_are_omitted(diane: Diane) -> None:
    made = diane.start()
    assert set(made) == {*SHOWN, "models", "modes"}
    resuming = Diane(diane.server, "rehearsal-resume").start()
    assert not {"title", "summary", "model_id", "models"} & set(resuming)


def test_a_session_without_a_workdir_gets_one(diane: Diane) -> None:
    assert os.path.isdir(diane.start(workdir="")["workdir"])


@pytest.mark.parametrize("workdir", ["relative/path", "/no/such/directory", "/\x00"])
def test_an_unusable_workdir_is_refused(diane: Diane, workdir: str) -> None:
    assert is_problem(diane.server.http.post(diane.sessions, json={"workdir": workdir}), 400, "invalid")


def test_an_unknown_agent_is_not_found(server: LocalServer) -> None:
    for method in ("GET", "POST"):
        answer = server.http.request(method, "/agents/nobody/sessions", json={} if method == "POST" else None)
        assert is_problem(answer, 404, "not_found")


def test_an_agent_that_does_not_start_is_reported_immediately_and_leaves_no_open_session(
    make_server: Callable[..., LocalServer],
) -> None:
    broken = {"driver": "acp", "command": ["false"]}
    server = make_server(agents={"broken": broken, "missing": {"driver": "acp", "command": ["no-such-program"]}})
    for name in ("broken", "missing"):
        answer = server.http.post(f"/agents/{name}/sessions", json={})
        assert is_problem(answer, 503, "agent_unavailable")
    assert listed(server, "/sessions", status="closed") == listed(server, "/agents/broken/sessions", status="closed")
    assert listed(server, "/agents/broken/sessions") == []
    assert server.get("/api/sessions?status=running")["sessions"] == []


# Status words ---------------------------------------------------------------------------------------------------------


def test_a_session_is_active_while_its_process_runs_and_is_used(diane: Diane) -> None:
    session = diane.start()["session_id"]
    diane.prompt(session, "say hello")
    assert diane.get(session)["status"] == "active"


def test_a_session_is_idle_after_five_minutes_without_work(
    make_server: Callable[..., LocalServer],
) -> None:
    diane = Diane(make_server())
    session = diane.start()["session_id"]
    later_s = shapes.IDLE_AFTER_S + 1
    diane.server.ask(lambda: setattr(diane.server.server.log, "now", lambda: time.time() + later_s))
    assert diane.get(session)["status"] == "idle"
    assert listed(diane.server, diane.sessions, status="idle") == [session]
    assert listed(diane.server, diane.sessions, status="active") == []
    diane.prompt(session, "say awake")
    assert diane.get(session)["status"] == "active"


def test_a_session_whose_process_died_is_disconnected_until_its_next_prompt(diane: Diane) -> None:
    session = diane.start()["session_id"]
    diane.prompt(session, "say remember me")
    os.kill(diane.server.session(session)["pid"], signal.SIGKILL)
    diane.server.wait(session, lambda found: found["attached"] == "suspended")
    assert diane.get(session)["status"] == "disconnected"
    assert session in listed(diane.server, diane.sessions, status="disconnected")
    run = diane.prompt(session, "recall")
    assert run["status"] == "completed" and "say remember me" in run["output"][0]["parts"][0]["content"]
    assert diane.get(session)["status"] == "active"


@pytest.mark.smoke
def test_a_server_restart_closes_no_session(make_server: Callable[..., LocalServer]) -> None:
    diane = Diane(make_server())
    session = diane.start()["session_id"]
    diane.prompt(session, "say before")
    diane.server.stop()
    diane.server.start()
    assert diane.get(session)["status"] == "disconnected"
    assert diane.prompt(session, "say after")["turn_number"] == 2


def test_closing_a_session_is_idempotent(diane: Diane) -> None:
    session = diane.start()["session_id"]
    assert diane.close(session) == {"status": "closed"}
    assert diane.close(session) == {"status": "closed"}
    assert diane.get(session)["status"] == "closed"
    assert diane.server.session(session)["status"] == "completed"
    answer = diane.server.http.post(f"{diane.sessions}/{session}/prompt", json={"prompt": "say more"})
    assert is_problem(answer, 409, "session_ended")


# Lists ----------------------------------------------------------------------------------------------------------------


def test_a_list_is_a_bare_array_filtered_by_agent_and_status(diane: Diane) -> None:
    mine, closed = diane.start()["session_id"], diane.start()["session_id"]
    other = Diane(diane.server, "rehearsal-resume").start()["session_id"]
    diane.close(closed)
    everything = listed(diane.server, diane.sessions)
    assert mine in everything and other not in everything
    active = listed(diane.server, diane.sessions, status="active")
    assert mine in active and closed not in active
    assert {mine, other} <= set(listed(diane.server, "/sessions"))
    assert other in listed(diane.server, "/sessions", status="disconnected")


def test_closed_sessions_are_listed_only_on_request(diane: Diane) -> None:
    mine, closed = diane.start()["session_id"], diane.start()["session_id"]
    diane.close(closed)
    for path in (diane.sessions, "/sessions"):
        found = listed(diane.server, path)
        assert mine in found and closed not in found
        found = listed(diane.server, path, status="closed")
        assert closed in found and mine not in found
    assert listed(diane.server, diane.sessions, limit="1") == [mine]


def test_a_list_can_be_filtered_by_working_directory(diane: Diane, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    here = str(tmp_path / "here")
    mine, closed = (diane.start(workdir=here)["session_id"] for _ in range(2))
    diane.start(workdir=str(tmp_path))
    diane.close(closed)
    for path in (diane.sessions, "/sessions"):
        assert listed(diane.server, path, workdir=here) == [mine]
        assert listed(diane.server, path, workdir=f"{here}/") == [mine]
        assert listed(diane.server, path, workdir=here, status="closed") == [closed]
        assert listed(diane.server, path, workdir=f"{here}/nowhere") == []


def test_a_listed_session_counts_its_finished_turns_and_names_its_model(diane: Diane) -> None:
    session = diane.start(title="Counted")["session_id"]
    diane.prompt(session, "say one")
    diane.prompt(session, "say two")
    diane.server.send(session, "hang")
    entry = next(entry for entry in diane.server.get(diane.sessions) if entry["session_id"] == session)
    assert set(entry) == {*SHOWN, "title"}
    assert (entry["turn_count"], entry["model_id"], entry["title"]) == (2, "rehearsal-1", "Counted")


def test_a_list_is_limited(diane: Diane) -> None:
    first, second = diane.start()["session_id"], diane.start()["session_id"]
    assert listed(diane.server, diane.sessions, limit="2") == [second, first]


@pytest.mark.parametrize("query", [{"status": "sleeping"}, {"limit": "0"}, {"limit": "many"}, {"workdir": "here"}])
def test_an_invalid_filter_is_refused(server: LocalServer, query: dict[str, str]) -> None:
    assert is_problem(server.http.get("/sessions", params=query), 400, "invalid")


# Sessions belong to agents --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/prompt", {"prompt": "say hello"}),
        ("POST", "/cancel", None),
        ("POST", "/config", {"config_id": "mode", "value": "auto"}),
    ],
)
def test_a_session_is_not_found_under_another_agents_name(
    diane: Diane, method: str, rest: str, body: dict[str, Any] | None
) -> None:
    session = diane.start()["session_id"]
    for path in (f"/agents/rehearsal-resume/sessions/{session}{rest}", f"{diane.sessions}/s_nothing{rest}"):
        assert is_problem(diane.server.http.request(method, path, json=body), 404, "not_found")
    assert diane.get(session)["turn_count"] == 0


# Settings -------------------------------------------------------------------------------------------------------------


def test_setting_an_option_returns_the_agents_options_and_changes_the_session(diane: Diane) -> None:
    session = diane.start()["session_id"]
    body = {"config_id": "model", "value": "rehearsal-2"}
    answer = diane.server.post(f"{diane.sessions}/{session}/config", body, expect=200)
    assert answer["status"] == "ok" and [option["id"] for option in answer["config_options"]] == [
        "mode",
        "model",
        "effort",
    ]
    msgspec.convert(answer, Configured)
    shown = diane.get(session)
    assert shown["model_id"] == shown["models"]["current_model_id"] == "rehearsal-2"


def test_a_value_unknown_to_the_agent_is_refused(diane: Diane) -> None:
    path = f"{diane.sessions}/{diane.start()['session_id']}/config"
    for body in ({"config_id": "model", "value": "nothing"}, {"config_id": "model"}, {"value": "x"}):
        assert is_problem(diane.server.http.post(path, json=body), 400, "invalid")


def test_a_summary_set_by_a_person_is_shown(diane: Diane) -> None:
    session = diane.start()["session_id"]
    assert diane.server.http.patch(f"/api/sessions/{session}", json={"summary": "What it was about"}).status_code == 200
    assert diane.get(session)["summary"] == "What it was about"
