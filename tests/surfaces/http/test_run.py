"""A single run: start, one prompt, collect, close, in one call."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.surfaces.http.messages import Accepted
from perdure.surfaces.http.runs import SingleRun
from perdure.surfaces.http.sessions import Session
from tests.harness import WAIT_S, eventually, marked_processes
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem


def run(server: LocalServer, text: str, **fields: Any) -> Any:
    answer = server.post("/api/run", {"text": text, **fields}, expect=200)
    msgspec.convert(answer, SingleRun)
    return answer


def outcomes(server: LocalServer, session: str) -> list[tuple[str, str]]:
    return [(event["by"], event["outcome"]) for event in server.log(session) if event["type"] == "prompt_resolved"]


# The response ---------------------------------------------------------------------------------------------------------


def test_a_run_returns_the_agents_answer(server: LocalServer) -> None:
    found = run(server, "tool Read\nsay the answer", agent="rehearsal")
    assert (found["status"], found["stop_reason"], found["text"]) == ("completed", "end_turn", "the answer")
    assert found["output"] == [{"role": "agent", "parts": [{"content_type": "text/plain", "content": "the answer"}]}]
    assert (found["agent_name"], found["turn_number"]) == ("rehearsal", 1)
    assert "error" not in found
    turn = server.session(found["session_id"])["turns"][0]
    assert (found["run_id"], found["message_id"]) == (turn["run_id"], turn["message_id"])
    assert (found["created_at"], found["finished_at"]) == (turn["started_at"], turn["ended_at"])


def test_usage_is_reported(server: LocalServer) -> None:
    assert run(server, "usage 10 20")["usage"]["output_tokens"] == 20


def test_a_failed_run_returns_its_error_and_its_output_so_far(server: LocalServer) -> None:
    found = run(server, "say partly\ncrash 3")
    assert (found["status"], found["stop_reason"]) == ("failed", "failed")
    assert "partly" in found["text"] and found["error"]["code"] == "agent_exited"


def test_a_run_that_takes_too_long_is_stopped(server: LocalServer) -> None:
    found = run(server, "say so far\nhang", timeout_s=0.2)
    assert (found["status"], found["stop_reason"], found["error"]["code"]) == ("failed", "timed_out", "turn_timeout")
    assert found["text"] in ("", "so far")
    assert server.session(found["session_id"])["status"] == "completed"


def test_a_run_that_is_aborted_is_cancelled(server: LocalServer) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, server, "hang", labels=["to-abort"])
        session = eventually(lambda: server.get("/api/sessions?label=to-abort")["sessions"], "the run's session")[0][
            "id"
        ]
        server.wait(session, lambda found: found["state"] == "processing")
        server.post(f"/api/sessions/{session}/abort", expect=202)
        assert waiting.result(WAIT_S)["status"] == "cancelled"


# Its session ----------------------------------------------------------------------------------------------------------


def test_the_session_of_a_run_is_closed_but_not_erased(server: LocalServer) -> None:
    session = server.session(run(server, "say kept", title="Once")["session_id"])
    msgspec.convert(session, Session)
    assert (session["state"], session["status"], session["attached"]) == ("ended", "completed", "ended")
    assert (session["title"], session["single_shot"]) == ("Once", True)
    assert server.text(session["id"], 1) == "kept"
    answer = server.http.post(f"/api/sessions/{session['id']}/messages", json={"text": "say more"})
    assert is_problem(answer, 409, "session_ended")


def test_the_session_of_a_run_can_be_purged(server: LocalServer) -> None:
    session = run(server, "say gone")["session_id"]
    assert server.http.delete(f"/api/sessions/{session}", params={"purge": "true"}).status_code == 200
    assert server.http.get(f"/api/sessions/{session}").status_code == 404


@pytest.mark.parametrize("agent", ["rehearsal", "rehearsal-stream", "rehearsal-resume"])
def test_a_run_leaves_no_process(make_server: Callable[..., LocalServer], agent: str) -> None:
    server = make_server()
    assert run(server, "say done", agent=agent)["text"] == "done"
    eventually(lambda: not marked_processes(server.data), "the agent's process is gone")


def test_a_run_uses_the_given_directory_or_project(server: LocalServer, tmp_path: Path) -> None:
    run(server, "edit notes.txt", workdir=str(tmp_path), permissions=[{"tool": "*", "action": "allow"}])
    assert (tmp_path / "notes.txt").exists()
    project = server.post("/api/projects", {"name": "runs", "path": str(tmp_path)}, expect=201)["id"]
    session = server.session(run(server, "say hi", project=project)["session_id"])
    assert (session["project"], session["workdir"]) == (project, str(tmp_path))
    assert os.path.isdir(server.session(run(server, "say hi")["session_id"])["workdir"])


def test_a_run_may_choose_its_model_and_mode(server: LocalServer) -> None:
    session = server.session(run(server, "say hi", model="rehearsal-2", mode="auto")["session_id"])
    assert (session["model"], session["mode"]) == ("rehearsal-2", "auto")


@pytest.mark.smoke
def test_a_run_survives_a_server_restart_and_still_closes_its_session(make_server: Callable[..., LocalServer]) -> None:
    server = make_server()
    body = {"text": "sleep 1\npermit Deploy\nsay after", "message_id": "over a restart"}
    begun = server.post("/api/run?wait=false", body, expect=202)
    server.wait(begun["session_id"], lambda found: found["pid"])
    server.stop()
    server.start()
    found = server.post("/api/run", body, expect=200)
    assert found["session_id"] == begun["session_id"] and found["text"].endswith("after")
    assert outcomes(server, found["session_id"]) == [("server", "denied")]
    assert server.session(found["session_id"])["status"] == "completed"


# Prompts without a person ---------------------------------------------------------------------------------------------


def test_a_permission_request_in_a_run_is_denied(server: LocalServer) -> None:
    found = run(server, "permit Deploy\nsay went on")
    assert found["status"] == "completed" and found["text"].endswith("went on")
    assert outcomes(server, found["session_id"]) == [("server", "denied")]


def test_permission_rules_of_a_run_are_applied(server: LocalServer) -> None:
    rules = [{"tool": "Deploy", "action": "allow"}]
    session = run(server, "permit Deploy\npermit Other", permissions=rules)["session_id"]
    assert outcomes(server, session) == [("rule", "allowed"), ("server", "denied")]
    assert server.session(session)["permissions"] == [{"tool": "Deploy", "pattern": "*", "action": "allow"}]


def test_permission_rules_of_the_project_apply_to_a_run_too(server: LocalServer, tmp_path: Path) -> None:
    rules = [{"tool": "Deploy", "action": "allow"}]
    project = server.post("/api/projects", {"name": "p", "path": str(tmp_path), "permissions": rules}, expect=201)["id"]
    session = run(server, "permit Deploy", project=project)["session_id"]
    assert outcomes(server, session) == [("rule", "allowed")]


def test_a_question_in_a_run_is_cancelled(server: LocalServer) -> None:
    found = run(server, "ask Which one? | red | green")
    assert found["status"] == "completed"
    assert outcomes(server, found["session_id"]) == [("server", "cancelled")]


# Idempotence, and not waiting -----------------------------------------------------------------------------------------


def test_a_repeated_message_id_returns_the_same_run(server: LocalServer) -> None:
    first = run(server, "say once", message_id="run-once")
    assert run(server, "say once", message_id="run-once") == first
    answer = server.http.post("/api/run", json={"text": "say twice", "message_id": "run-once"})
    assert is_problem(answer, 409, "conflict")


def test_a_run_and_a_message_with_the_same_id_are_independent(server: LocalServer) -> None:
    found = run(server, "say a run", message_id="shared-id")
    sent = server.post("/api/messages", {"text": "say a message", "message_id": "shared-id"}, expect=202)
    assert sent["session_id"] != found["session_id"]


def test_concurrent_calls_with_the_same_message_id_get_the_same_run(server: LocalServer) -> None:
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(run, server, "sleep 0.2\nsay one", message_id="at-once") for _ in range(2)]
        first, second = (call.result(WAIT_S) for call in calls)
    assert first == second


def test_a_run_started_without_waiting_can_be_watched_like_any_session(server: LocalServer) -> None:
    begun = server.post("/api/run?wait=false", {"text": "say hello"}, expect=202)
    msgspec.convert(begun, Accepted)
    with server.watch(begun["session_id"], str(begun["seq"] - 1)) as stream:
        types = [kind for _, kind, _ in stream.frames()]
    assert types[:2] == ["user_message", "turn_start"]
    assert types[-3:] == ["turn_end", "agent_detached", "session_end"]


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": ""},
        {"text": " "},
        {"text": "say hi", "timeout_s": -1},
        {"text": "say hi", "timeout_s": "soon"},
        {"text": "say hi", "permissions": [{"tool": "Bash", "action": "maybe"}]},
        {"text": "say hi", "permissions": "all"},
        {"text": "say hi", "workdir": "relative"},
        {"text": "say hi", "workdir": "/", "project": "none"},
        [],
    ],
)
def test_an_invalid_run_is_refused(server: LocalServer, body: Any) -> None:
    answer = server.http.post("/api/run", json=body)
    assert answer.status_code in (400, 404), answer.text
    assert server.http.post("/api/run?wait=perhaps", json={"text": "say hi"}).status_code == 400


def test_an_unknown_agent_or_project_is_not_found(server: LocalServer) -> None:
    for body in ({"agent": "nobody"}, {"project": "nowhere"}):
        assert is_problem(server.http.post("/api/run", json={"text": "say hi", **body}), 404, "not_found")


def test_a_run_without_a_free_slot_is_refused_on_request(
    make_server: Callable[..., LocalServer],
) -> None:
    server = make_server(slots=1)
    server.send(server.create(), "hang")
    body = {"text": "say hi", "when_full": "refuse"}
    assert is_problem(server.http.post("/api/run", json=body), 409, "slots_full")


def test_a_run_waits_for_a_free_slot_and_returns_when_it_has_ended(make_server: Callable[..., LocalServer]) -> None:
    server = make_server(slots=1)
    holder = server.create()
    server.send(holder, "hang")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, server, "say hi")
        eventually(lambda: waiting_runs(server), "the run is accepted")
        server.post(f"/api/sessions/{holder}/abort", expect=202)
        found = waiting.result()
    assert (found["status"], found["text"]) == ("completed", "hi")


def test_a_run_aborted_while_it_waits_returns_as_cancelled(make_server: Callable[..., LocalServer]) -> None:
    server = make_server(slots=1)
    server.send(server.create(), "hang")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, server, "say hi")
        [session] = eventually(lambda: waiting_runs(server), "the run is accepted")
        server.post(f"/api/sessions/{session}/abort", expect=202)
        found = waiting.result()
    assert (found["status"], found["stop_reason"], found["text"]) == ("cancelled", "cancelled", "")
    assert (found["run_id"], found["turn_number"], found["agent_name"]) == (f"{session}.1", 1, "rehearsal")
    assert server.session(session)["status"] == "completed"


def waiting_runs(server: LocalServer) -> list[str]:
    return [one["id"] for one in server.get("/api/sessions?state=accepted")["sessions"]]


def test_a_run_with_an_agent_that_cannot_be_started_is_refused(make_server: Callable[..., LocalServer]) -> None:
    server = make_server(agents={"missing": {"driver": "acp", "command": ["no-such-program"]}})
    answer = server.http.post("/api/run", json={"text": "say hi", "agent": "missing"})
    assert is_problem(answer, 503, "agent_unavailable")


def test_a_run_fails_if_its_agent_breaks_while_it_starts(make_server: Callable[..., LocalServer]) -> None:
    server = make_server(agents={"broken": {"driver": "acp", "command": ["false"]}})
    found = run(server, "say hi", agent="broken")
    assert found["status"] == "failed" and found["error"]["message"]
    assert server.session(found["session_id"])["status"] == "completed"
