"""Prompts wait: for a new viewer, across a server crash, for one answer."""

import pytest

from tests.harness import LiveServer


def answer(server: LiveServer, session: str, prompt_id: str, body: dict[str, object], expect: int) -> str:
    """The code of a refusal, or the outcome."""
    told = server.post(f"/api/sessions/{session}/prompts/{prompt_id}", body, expect=expect)
    return str(told.get("code") or told["outcome"])


@pytest.mark.parametrize("killed", [False, True], ids=["same server", "next server"])
def test_a_permission_request_waits_for_the_first_valid_answer(server: LiveServer, killed: bool) -> None:
    session = server.create()
    server.send(session, "permit Deploy\nsay on")
    prompt = server.prompt(session)
    if killed:
        server.kill()
        server.restart()
    viewer = server.watch(session)
    shown = viewer.until("snapshot")[-1][2]
    assert [waiting["prompt_id"] for waiting in shown["pending_prompts"]] == [prompt["prompt_id"]]
    assert server.prompt(session) == prompt
    assert answer(server, session, prompt["prompt_id"], {"option_id": "no_such"}, 400) == "invalid"
    assert answer(server, session, "no_such", {"option_id": "allow_once"}, 404) == "not_found"
    assert answer(server, session, prompt["prompt_id"], {"option_id": "allow_once"}, 200) == "allowed"
    assert answer(server, session, prompt["prompt_id"], {"option_id": "allow_once"}, 409) == "prompt_resolved"
    seen = viewer.until("turn_end")
    viewer.close()
    assert seen[-1][2]["stop_reason"] == "end_turn"
    assert "allowed Deploy" in server.text(session, 1) and server.text(session, 1).endswith("on")


@pytest.mark.parametrize("killed", [False, True], ids=["same server", "next server"])
def test_a_question_waits_for_its_answer(server: LiveServer, killed: bool) -> None:
    session = server.create()
    server.send(session, "ask Which one? | red | blue")
    prompt = server.prompt(session)
    assert prompt["kind"] == "question"
    if killed:
        server.kill()
        server.restart()
    question = prompt["questions"][0]["question_id"]
    assert answer(server, session, prompt["prompt_id"], {"option_id": "red"}, 400) == "invalid"
    assert answer(server, session, prompt["prompt_id"], {"answers": {question: "blue"}}, 200) == "answered"
    server.wait_idle(session)
    assert server.text(session, 1) == "answer: blue"


@pytest.mark.smoke
def test_an_answer_accepted_before_the_server_was_killed_reaches_the_agent(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "permit Deploy\nsay on")
    prompt = server.prompt(session)
    answer(server, session, prompt["prompt_id"], {"option_id": "reject_once"}, 200)
    server.kill()
    server.restart()
    server.wait_idle(session)
    assert "denied Deploy" in server.text(session, 1)
    assert answer(server, session, prompt["prompt_id"], {"option_id": "allow_once"}, 409) == "prompt_resolved"


def test_aborting_a_turn_that_asks_closes_its_prompt(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "permit Deploy")
    server.prompt(session)
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait_idle(session)
    assert server.transcript(session)[0]["stop_reason"] == "cancelled"
    assert server.get(f"/api/sessions/{session}/prompts") == {"prompts": []}


def test_stopping_a_session_that_asks_discards_its_prompt(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "permit Deploy")
    server.prompt(session)
    server.post(f"/api/sessions/{session}/stop", expect=200)
    resolved = [event for event in server.log(session) if event["type"] == "prompt_resolved"]
    assert [event["outcome"] for event in resolved] == ["discarded"]
