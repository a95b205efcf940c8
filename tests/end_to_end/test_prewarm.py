"""A streaming Claude process starts with its session, so that it is ready for the first message."""

import os
import signal

import pytest

from tests.harness import LiveServer


def test_a_new_session_has_its_process_before_its_first_message(server: LiveServer) -> None:
    session = server.create(agent="rehearsal-stream")
    warm = server.wait(session, lambda found: found["native_session_id"] and found["pid"])
    assert (warm["state"], warm["turn_count"], warm["attached"]) == ("idle", 0, "live")
    turn = server.turn(session, "say hello")
    assert (turn["context"], turn["context_reason"]) == ("fresh", "first_turn")
    assert server.session(session)["pid"] == warm["pid"]
    assert server.recalled(session) == ["say hello"]


def test_a_message_sent_while_the_process_starts_is_delivered_when_it_is_ready(server: LiveServer) -> None:
    session = server.create(agent="rehearsal-stream")
    turn = server.turn(session, "say at once")
    assert turn["stop_reason"] == "end_turn"
    assert [event["type"] for event in server.log(session)].count("agent_launched") == 1


def test_a_warm_process_that_dies_is_started_again_with_the_first_message(server: LiveServer) -> None:
    session = server.create(agent="rehearsal-stream")
    pid = server.wait(session, lambda found: found["pid"])["pid"]
    os.kill(pid, signal.SIGKILL)
    server.wait(session, lambda found: found["attached"] == "suspended")
    assert server.turn(session, "say hello")["stop_reason"] == "end_turn"


@pytest.mark.smoke
def test_a_warm_process_outlives_the_server(server: LiveServer) -> None:
    session = server.create(agent="rehearsal-stream")
    pid = server.wait(session, lambda found: found["pid"])["pid"]
    server.kill()
    server.restart()
    assert server.turn(session, "say hello")["stop_reason"] == "end_turn"
    assert server.session(session)["pid"] == pid


def test_other_agents_start_with_the_first_message_unless_asked(server: LiveServer) -> None:
    for agent in ("rehearsal", "rehearsal-resume"):
        session = server.create(agent=agent)
        server.turn(server.create(agent="rehearsal"), "say something else first")
        assert server.session(session)["attached"] == "suspended"
