"""Open Design's runs: whether the native session was resumed, and questions answered with tool results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.core.errors import Refused
from perdure.surfaces.http.open_design import ToolResultTaken, TurnRun
from perdure.surfaces.http.open_design_answers import answers_in
from tests.harness import eventually
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem

AGENTS = ["rehearsal", "rehearsal-stream", "rehearsal-resume"]
QUESTION = "ask Which one? | red | blue"


def run_of(server: LocalServer, run_id: str) -> Any:
    found = server.get(f"/api/runs/{run_id}")
    msgspec.convert(found, TurnRun)
    return found


def asked(server: LocalServer, run_id: str) -> Any:
    """The question that the run is waiting for."""
    return eventually(lambda: run_of(server, run_id)["pending_prompts"], f"a question of {run_id}")[0]


def tool_use_id(prompt: Any) -> str:
    return str(prompt["tool_id"] or prompt["prompt_id"])


def result(server: LocalServer, run_id: str, **body: Any) -> Any:
    return server.http.post(f"/api/runs/{run_id}/tool-result", json=body)


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_run_shows_its_turn_and_whether_the_session_was_resumed(server: LocalServer) -> None:
    session = server.create(agent="rehearsal-resume")
    first = server.send(session, "say one")["run_id"]
    assert first == f"{session}.1"
    server.wait_idle(session)
    second = server.turn(session, "say two")["run_id"]
    fresh = server.turn(session, "say three", forceFreshSession=True)["run_id"]
    found = [run_of(server, run_id) for run_id in (first, second, fresh)]
    assert [run["sessionResumed"] for run in found] == [False, True, False]
    assert [run["context"] for run in found] == ["fresh", "resumed", "fresh"]
    assert [(run["session_id"], run["status"]) for run in found] == [(session, "completed")] * 3
    turns = server.session(session)["turns"]
    assert [{key: run[key] for key in turns[0]} for run in found] == turns


def test_a_turn_in_a_live_process_counts_as_resumed(server: LocalServer) -> None:
    session = server.create(agent="rehearsal")
    server.turn(session, "say one")
    found = run_of(server, server.turn(session, "say two")["run_id"])
    assert (found["context"], found["sessionResumed"]) == ("live", True)


@pytest.mark.parametrize(
    ("text", "status"), [("say x", "completed"), ("crash 3", "failed"), ("say x\nhang", "running")], ids=str
)
def test_a_run_has_a_status(server: LocalServer, text: str, status: str) -> None:
    session = server.create()
    run_id = server.send(session, text)["run_id"]
    if status == "running":
        assert run_of(server, run_id)["status"] == "running"
        server.post(f"/api/sessions/{session}/abort", expect=202)
        status = "cancelled"
    server.wait_idle(session)
    assert run_of(server, run_id)["status"] == status


@pytest.mark.parametrize("name", ["nothing", "s_nothing.1", "{session}.9", "{session}.0", "{session}.x", "{session}"])
def test_an_unknown_run_is_not_found(server: LocalServer, name: str) -> None:
    session = server.create()
    server.turn(session, "say x")
    path = f"/api/runs/{name.format(session=session)}"
    assert is_problem(server.http.get(path), 404, "not_found")
    assert is_problem(
        server.http.post(f"{path}/tool-result", json={"toolUseId": "t", "content": "x"}), 404, "not_found"
    )


# Answers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", AGENTS)
def test_a_question_is_answered_with_a_tool_result_even_in_a_resumed_turn(server: LocalServer, agent: str) -> None:
    session = server.create(agent=agent)
    for turn, answer in enumerate(("blue", "red"), 1):
        run_id = server.send(session, QUESTION)["run_id"]
        prompt = asked(server, run_id)
        taken = result(server, run_id, toolUseId=tool_use_id(prompt), content=answer)
        assert taken.status_code == 200
        assert taken.json() == {
            "ok": True,
            "prompt_id": prompt["prompt_id"],
            "by": "person",
            "outcome": "answered",
            "delivered": True,
        }
        msgspec.convert(taken.json(), ToolResultTaken)
        server.wait_idle(session)
        assert server.text(session, turn) == f"answer: {answer}"
        assert run_of(server, run_id)["sessionResumed"] is (turn == 2)


@pytest.mark.parametrize("agent", AGENTS[1:])
def test_a_question_of_claude_is_identified_by_its_tool_id(server: LocalServer, agent: str) -> None:
    session = server.create(agent=agent)
    run_id = server.send(session, QUESTION)["run_id"]
    prompt = asked(server, run_id)
    uses = [event for event in server.log(session) if event["type"] == "tool_use"]
    assert [(event["tool_id"], event["name"]) for event in uses] == [(prompt["tool_id"], "AskUserQuestion")]
    server.post(f"/api/sessions/{session}/stop")


@pytest.mark.parametrize("agent", AGENTS)
def test_an_error_as_tool_result_cancels_the_question(server: LocalServer, agent: str) -> None:
    session = server.create(agent=agent)
    run_id = server.send(session, QUESTION)["run_id"]
    prompt = asked(server, run_id)
    taken = result(server, run_id, toolUseId=tool_use_id(prompt), content="not now", isError=True)
    assert (taken.status_code, taken.json()["outcome"]) == (200, "cancelled")
    server.wait_idle(session)
    assert server.text(session, 1).startswith("no answer")


def test_a_second_answer_is_refused(server: LocalServer) -> None:
    session = server.create(agent="rehearsal-stream")
    run_id = server.send(session, f"{QUESTION}\nhang")["run_id"]
    known = tool_use_id(asked(server, run_id))
    assert result(server, run_id, toolUseId=known, content="red").status_code == 200
    assert is_problem(result(server, run_id, toolUseId=known, content="blue"), 409, "prompt_resolved")
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait_idle(session)
    assert is_problem(result(server, run_id, toolUseId=known, content="blue"), 409, "prompt_resolved")


def test_an_answer_that_fits_no_question_is_refused_and_the_question_stays_open(server: LocalServer) -> None:
    session = server.create()
    run_id = server.send(session, QUESTION)["run_id"]
    known = tool_use_id(asked(server, run_id))
    assert is_problem(result(server, run_id, toolUseId="another", content="red"), 404, "not_found")
    for body in ({"content": "red"}, {"toolUseId": known}, {"toolUseId": known, "content": " "}):
        assert is_problem(result(server, run_id, **body), 400, "invalid")
    assert is_problem(result(server, run_id, toolUseId=known, content={"nothing": "red"}), 400, "invalid")
    assert tool_use_id(asked(server, run_id)) == known
    server.post(f"/api/sessions/{session}/stop")


def test_a_permission_cannot_be_granted_with_a_tool_result(server: LocalServer) -> None:
    session = server.create()
    run_id = server.send(session, "permit Deploy")["run_id"]
    prompt = asked(server, run_id)
    answer = result(server, run_id, toolUseId=prompt["tool_id"], content="yes")
    assert is_problem(answer, 400, "invalid") and prompt["prompt_id"] in answer.json()["error"]
    server.post(f"/api/sessions/{session}/stop")


def test_a_question_can_be_answered_after_a_restart(make_server: Callable[..., LocalServer]) -> None:
    server = make_server()
    session = server.create(agent="rehearsal-stream")
    run_id = server.send(session, QUESTION)["run_id"]
    known = tool_use_id(asked(server, run_id))
    server.stop()
    server.start()
    assert result(server, run_id, toolUseId=known, content="blue").status_code == 200
    server.wait_idle(session)
    assert server.text(session, 1) == "answer: blue"


# Matching answers to questions ----------------------------------------------------------------------------------------

COLOUR = {"question_id": "q1", "question": "Which colour?", "header": "Colour", "multiple": False, "options": []}
SIZES = {"question_id": "q2", "question": "Which sizes?", "header": "Sizes", "multiple": True, "options": []}


@pytest.mark.parametrize(
    ("content", "answers"),
    [
        ("red", {"q1": "red"}),
        (["red", "blue"], {"q1": ["red", "blue"]}),
        ([{"type": "text", "text": "red"}], {"q1": "red"}),
        ({"q1": "red"}, {"q1": "red"}),
        ({"Which colour?": "red"}, {"q1": "red"}),
        ('{"answers": {"Colour": "red"}}', {"q1": "red"}),
        ("{not JSON", {"q1": "{not JSON"}),
        (7, {"q1": "7"}),
        (True, {"q1": "true"}),
    ],
)
def test_the_answer_to_one_question_may_have_many_shapes(content: Any, answers: Any) -> None:
    assert answers_in(content, [COLOUR]) == answers


@pytest.mark.parametrize(
    ("content", "answers"),
    [
        ("red\nlarge", {"q1": "red", "q2": "large"}),
        (["red", "large"], {"q1": "red", "q2": "large"}),
        ({"q1": "red", "Sizes": ["small", "large"]}, {"q1": "red", "q2": ["small", "large"]}),
        ({"q2": "large"}, {"q2": "large"}),
    ],
)
def test_several_questions_get_one_answer_each(content: Any, answers: Any) -> None:
    assert answers_in(content, [COLOUR, SIZES]) == answers


@pytest.mark.parametrize("content", ["red", "a\nb\nc", ["red"], {}, {"q3": "x"}, None, 5, {"q1": {"deep": 1}}])
def test_an_ambiguous_answer_to_several_questions_is_refused(content: Any) -> None:
    with pytest.raises(Refused):
        answers_in(content, [COLOUR, SIZES])


# One field with two names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/messages", "/api/sessions/{session}/messages"])
@pytest.mark.full
def test_force_fresh_session_is_accepted_wherever_fresh_is(server: LocalServer, path: str) -> None:
    session = server.create(agent="rehearsal-resume")
    server.turn(session, "say one")
    for fields, context in (
        ({}, "resumed"),
        ({"fresh": True}, "fresh"),
        ({"forceFreshSession": True}, "fresh"),
        ({"fresh": True, "forceFreshSession": True}, "fresh"),
        ({"fresh": False, "forceFreshSession": False}, "resumed"),
    ):
        body = {"text": "say more", "session_id": session, **fields}
        run_id = server.post(path.format(session=session), body, expect=202)["run_id"]
        server.wait_idle(session)
        assert run_of(server, run_id)["context"] == context, fields
    for one in (True, False):
        body = {"text": "say x", "session_id": session, "fresh": one, "forceFreshSession": not one}
        assert is_problem(server.http.post(path.format(session=session), json=body), 400, "invalid")


@pytest.mark.full
def test_teamhq_and_diane_accept_force_fresh_session_too(server: LocalServer, tmp_path: Path) -> None:
    project = server.post("/api/projects", {"name": "fresh", "path": str(tmp_path)}, expect=201)["id"]
    session = server.create(project=project, agent="rehearsal-resume", message="say one")
    server.wait_idle(session)
    teamhq, diane = (
        f"/api/projects/{project}/sessions/{session}/message",
        f"/agents/rehearsal-resume/sessions/{session}",
    )
    for turn, name in ((2, "fresh"), (3, "forceFreshSession")):
        server.post(teamhq, {"message": "say more", name: True}, expect=202)
        server.wait_idle(session)
        assert run_of(server, f"{session}.{turn}")["context"] == "fresh"
    assert server.post(f"{diane}/prompt", {"prompt": "say more", "forceFreshSession": True})["turn_number"] == 4
    assert run_of(server, f"{session}.4")["context"] == "fresh"
    differing = {"message": "x", "prompt": "x", "fresh": True, "forceFreshSession": False}
    for path in (teamhq, f"{diane}/prompt"):
        assert is_problem(server.http.post(path, json=differing), 400, "invalid")


def test_a_queued_message_keeps_its_request_for_a_fresh_session(server: LocalServer) -> None:
    session = server.create(agent="rehearsal-stream")
    server.turn(session, "say one")
    server.send(session, "hang")
    server.send(session, "say two", when_busy="queue", forceFreshSession=True)
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait(session, lambda found: found["state"] == "idle" and found["turn_count"] == 3)
    assert run_of(server, f"{session}.3")["context"] == "fresh"


@pytest.mark.full
def test_plan_and_retry_accept_both_names_too(server: LocalServer) -> None:
    session = server.create(agent="rehearsal-resume")
    server.turn(session, "say one")
    path = f"/api/sessions/{session}"
    for fields, context in (({}, "resumed"), ({"fresh": True}, "fresh"), ({"forceFreshSession": True}, "fresh")):
        assert server.post(f"{path}/plan", fields, expect=200)["context"] == context
    differing = {"turn": 1, "fresh": True, "forceFreshSession": False}
    for verb in ("plan", "retry"):
        assert is_problem(server.http.post(f"{path}/{verb}", json=differing), 400, "invalid")
    run_id = server.post(f"{path}/retry", {"turn": 1, "forceFreshSession": True}, expect=202)["run_id"]
    server.wait_idle(session)
    assert run_of(server, run_id)["context"] == "fresh"
    assert run_of(server, f"{session}.1")["status"] == "completed", "a run that was taken back is still known"
