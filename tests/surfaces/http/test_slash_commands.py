"""An agent's slash commands over HTTP: sent unchanged, or refused with advice if a replay would hide them."""

from typing import Any

import pytest

from tests.harness import eventually
from tests.surfaces.http.local import LocalServer

DO_THIS = "Send an ordinary message first, then send /compact."


@pytest.fixture
def session(server: LocalServer) -> str:
    created = server.create(agent="rehearsal")
    assert server.turn(created, "say hello")["stop_reason"] == "end_turn"
    eventually(lambda: server.session(created)["commands"], "the agent has named its commands")
    return created


def post(server: LocalServer, session: str, text: str, **fields: Any) -> Any:
    return server.http.post(f"/api/sessions/{session}/messages", json={"text": text, **fields})


def test_a_command_reaches_an_agent_that_holds_the_conversation(server: LocalServer, session: str) -> None:
    server.turn(session, "/compact keep the plan")
    assert server.text(session, 2) == "Compacted 2 messages, with a view to: keep the plan."
    start = [event for event in server.log(session) if event["type"] == "turn_start"][-1]
    assert start["slash_command"] == "compact"


def test_a_command_can_start_a_session(server: LocalServer) -> None:
    created = server.create(agent="rehearsal")
    server.turn(created, "/status")
    assert server.text(created, 1) == "The rehearsal agent works with model rehearsal-1 in mode ask."


def test_a_command_that_would_follow_a_replay_is_refused_and_not_stored(server: LocalServer, session: str) -> None:
    before = len(server.log(session))
    answer = post(server, session, "/compact", fresh=True)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert answer.json()["slash_command"] == "compact"
    assert answer.json()["error"].endswith(DO_THIS)
    assert len(server.log(session)) == before
    server.turn(session, "say go on", fresh=True)
    server.turn(session, "/compact")
    assert server.text(session, 3).startswith("Compacted")


def test_text_that_looks_like_a_command_stays_text(server: LocalServer, session: str) -> None:
    server.turn(session, "/etc is full\nrecall", fresh=True)
    assert '"/etc is full\\nrecall"' in server.text(session, 2)


def test_a_retry_of_a_command_is_refused_and_the_turn_stays(server: LocalServer, session: str) -> None:
    server.turn(session, "/compact")
    answer = server.http.post(f"/api/sessions/{session}/retry", json={"turn": 2})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "a retry has to replay the conversation" in answer.json()["error"]
    assert [turn["turn"] for turn in server.session(session)["turns"]] == [1, 2]


def test_a_message_edited_into_a_command_is_not_retried_as_text(server: LocalServer, session: str) -> None:
    server.turn(session, "say more")
    message = server.session(session)["turns"][1]["message_id"]
    path = f"/api/sessions/{session}/messages/{message}"
    assert server.http.patch(path, json={"text": "/compact"}).status_code == 200
    assert server.http.post(f"/api/sessions/{session}/retry", json={"turn": 2}).status_code == 409


def test_a_queued_command_that_would_need_a_replay_fails_visibly(server: LocalServer, session: str) -> None:
    server.send(session, "hang")
    sent = post(server, session, "/compact", agent="rehearsal-stream", when_busy="queue").json()
    later = post(server, session, "say and this", when_busy="queue").json()
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait_idle(session)
    turns = {turn["message_id"]: turn for turn in server.session(session)["turns"]}
    failed = turns[sent["message_id"]]
    assert (failed["stop_reason"], failed["agent"]) == ("failed", "rehearsal-stream")
    assert "/compact" in failed["error"] and failed["error"].rstrip(".").split(". ")[1].startswith("Send an ordinary")
    assert turns[later["message_id"]]["stop_reason"] == "end_turn"


@pytest.mark.one_server
def test_a_fork_knows_the_commands_of_its_agent_before_it_has_run(server: LocalServer, session: str) -> None:
    fork = server.http.post(f"/api/sessions/{session}/fork", json={}).json()["id"]
    assert post(server, fork, "/compact").json()["error"].endswith(DO_THIS)
    assert post(server, fork, "/etc is full").status_code == 202


def test_an_agent_lists_the_commands_that_it_last_offered(server: LocalServer, session: str) -> None:
    offered = server.get("/api/agents/rehearsal")["commands"]
    assert [command["name"] for command in offered] == ["compact", "status"]
    assert all(command["description"] for command in offered)
