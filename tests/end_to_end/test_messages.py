"""Messages to a busy or ended session: refused, queued, sent twice, and never lost."""

import pytest

from tests.end_to_end.victims import until_said
from tests.harness import LiveServer, no_holes
from tests.sizes import size

KILLS = size("MESSAGE_KILLS", 5, fast=2)


def refused(server: LiveServer, session: str, text: str, **fields: object) -> str:
    told = server.post(f"/api/sessions/{session}/messages", {"text": text, **fields}, expect=409)
    return str(told["code"])


def queue(server: LiveServer, session: str) -> list[str]:
    return [waiting["text"] for waiting in server.get(f"/api/sessions/{session}/queue")["queue"]]


def abort(server: LiveServer, session: str) -> None:
    server.post(f"/api/sessions/{session}/abort", expect=202)


@pytest.mark.one_server
def test_a_message_to_a_busy_session_is_refused_and_leaves_no_trace(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "hang")
    told = server.post(f"/api/sessions/{session}/messages", {"text": "say two"}, expect=409)
    assert (told["code"], told["state"], told["turn"]) == ("turn_active", "processing", 1)
    abort(server, session)
    server.wait_idle(session)
    assert server.recalled(session) == ["hang"]


def test_queued_messages_are_sent_in_order_and_survive_a_crash(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "say one\nhang")
    for text in ("say two", "say three", "say four"):
        assert server.send(session, text, when_busy="queue", message_id=text.replace(" ", "-"))["turn"] is None
    removed = server.http.delete(f"/api/sessions/{session}/queue/say-three")
    assert removed.status_code in (200, 204), removed.text
    assert server.http.delete(f"/api/sessions/{session}/queue/say-three").status_code == 404
    server.kill()
    server.restart()
    assert queue(server, session) == ["say two", "say four"]
    abort(server, session)
    server.wait(session, lambda found: found["turn_count"] == 3 and found["state"] == "idle")
    assert queue(server, session) == []
    assert server.recalled(session) == ["say one\nhang", "say two", "say four"]
    stops = [turn["stop_reason"] for turn in server.transcript(session)]
    assert stops == ["cancelled", "end_turn", "end_turn", "end_turn"]
    log = server.log(session)
    no_holes(log)
    assert [event["turn"] for event in log if event["type"] == "waiting_for_input"] == [3, 4]


def test_an_interrupting_message_goes_first(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "say half\nhang")
    until_said(server, session, 1, "^half$")
    server.send(session, "say later", when_busy="queue")
    server.send(session, "say now", when_busy="interrupt")
    server.wait(session, lambda found: found["turn_count"] == 3 and found["state"] == "idle")
    turns = server.transcript(session)
    assert [turn["message"]["text"] for turn in turns] == ["say half\nhang", "say now", "say later"]
    assert (turns[0]["stop_reason"], server.text(session, 1)) == ("cancelled", "half")


def test_an_interrupt_accepted_before_a_crash_is_carried_out_after_it(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "say half\nhang")
    until_said(server, session, 1, "^half$")
    server.send(session, "say now", when_busy="interrupt")
    server.kill()
    server.restart()
    server.wait(session, lambda found: found["turn_count"] == 2 and found["state"] == "idle")
    assert server.recalled(session) == ["say half\nhang", "say now"]


def test_a_message_id_is_one_message_however_often_it_is_sent(server: LiveServer) -> None:
    session = server.create()
    first = server.send(session, "hang", message_id="m-1")
    assert server.send(session, "hang", message_id="m-1") == first
    assert refused(server, session, "say other", message_id="m-1") == "conflict"
    queued = server.send(session, "say two", message_id="m-2", when_busy="queue")
    assert server.send(session, "say two", message_id="m-2", when_busy="queue") == queued
    server.kill()
    server.restart()
    assert server.send(session, "hang", message_id="m-1") == first
    assert server.send(session, "say two", message_id="m-2") == queued
    abort(server, session)
    server.wait(session, lambda found: found["turn_count"] == 2 and found["state"] == "idle")
    assert server.send(session, "hang", message_id="m-1") == first
    assert server.recalled(session) == ["hang", "say two"]


def test_a_message_to_an_ended_session_is_refused(server: LiveServer) -> None:
    session = server.create()
    server.turn(session, "say one", message_id="m-1")
    server.post(f"/api/sessions/{session}/stop", expect=200)
    server.post(f"/api/sessions/{session}/stop", expect=200)
    assert refused(server, session, "say two") == "session_ended"
    assert refused(server, session, "say two", when_busy="queue") == "session_ended"
    assert server.send(session, "say one", message_id="m-1")["turn"] == 1


@pytest.mark.smoke
def test_a_message_answered_with_202_runs_even_if_the_server_dies_immediately(server: LiveServer) -> None:
    sessions = []
    for number in range(KILLS):
        session = server.create()
        server.send(session, f"say answer {number}")
        server.kill()
        server.restart()
        sessions.append(session)
    for number, session in enumerate(sessions):
        server.wait_idle(session)
        assert server.text(session, 1) == f"answer {number}"
        assert server.recalled(session) == [f"say answer {number}"]
