"""Abort and stop: the partial answer stays, the session is idle or ended, and nothing keeps running."""

import os
import signal
from collections.abc import Callable

import pytest

from tests.end_to_end.victims import closed_order, keeper_of, none_left, until_said
from tests.harness import LiveServer, no_holes


def abort(server: LiveServer, session: str) -> None:
    server.post(f"/api/sessions/{session}/abort", expect=202)


@pytest.mark.parametrize("work", ["hang", "stream 100000 5", "sleep 300", "permit Deploy"])
def test_an_aborted_turn_keeps_its_partial_answer(server: LiveServer, work: str) -> None:
    session = server.create()
    server.send(session, f"say half\n{work}")
    until_said(server, session, 1, "^half")
    abort(server, session)
    server.wait_idle(session)
    turn = server.transcript(session)[0]
    assert turn["stop_reason"] == "cancelled" and server.text(session, 1).startswith("half")
    assert closed_order(server.log(session), 1) == ["user_message", "turn_start", "turn_end", "waiting_for_input"]
    assert server.recalled(session) == [f"say half\n{work}"]
    told = server.post(f"/api/sessions/{session}/abort", expect=409)
    assert told["code"] == "no_turn_active"


def test_a_turn_aborted_before_its_agent_has_opened_is_cancelled(server: LiveServer) -> None:
    for _ in range(5):
        session = server.create()
        server.send(session, "say one")
        server.http.post(f"/api/sessions/{session}/abort")
        server.wait_idle(session)
        assert server.transcript(session)[0]["stop_reason"] in ("cancelled", "end_turn")
        assert server.recalled(session) == ["say one"]


def test_a_turn_whose_agent_never_opens_can_be_aborted(make_server: Callable[..., LiveServer]) -> None:
    silent = '[agents.silent]\ndriver = "acp"\ncommand = ["sleep", "300"]\n'
    server = make_server("[server]\nslots = 0\nproject_slots = 0\nabort_grace_s = 1\n" + silent)
    session = server.create(agent="silent")
    server.send(session, "say one")
    abort(server, session)
    server.wait_idle(session)
    assert server.transcript(session)[0]["stop_reason"] == "cancelled"
    assert server.recalled(session, agent="rehearsal") == ["say one"]


def test_an_agent_that_does_not_open_in_time_fails_the_turn(make_server: Callable[..., LiveServer]) -> None:
    silent = '[agents.silent]\ndriver = "acp"\ncommand = ["sleep", "300"]\n'
    server = make_server("[server]\nslots = 0\nproject_slots = 0\nstart_timeout_s = 1\n" + silent)
    session = server.create(agent="silent")
    turn = server.turn(session, "say one")
    assert turn["stop_reason"] == "failed" and "in time" in turn["error"]
    none_left(server)


def test_a_turn_whose_keeper_hangs_can_be_aborted(make_server: Callable[..., LiveServer]) -> None:
    graces = "abort_grace_s = 1\neof_grace_s = 0\nterm_grace_s = 0\n"
    server = make_server("[server]\nslots = 0\nproject_slots = 0\n" + graces)
    session = server.create()
    server.send(session, "say half\nhang")
    until_said(server, session, 1, "^half$")
    os.kill(keeper_of(server, session), signal.SIGSTOP)
    abort(server, session)
    server.wait_idle(session)
    assert server.transcript(session)[0]["stop_reason"] == "cancelled"
    none_left(server)
    assert server.recalled(session) == ["say half\nhang"]


def test_a_session_stopped_during_a_flood_has_no_output_after_its_end(server: LiveServer) -> None:
    for _ in range(5):
        session = server.create()
        server.send(session, "stream 1000000")
        until_said(server, session, 1, "w100 ")
        server.post(f"/api/sessions/{session}/stop", expect=200)
        log = server.log(session)
        assert log[-1]["type"] == "session_end"
        none_left(server)
        assert server.log(session)[-1]["type"] == "session_end"
        no_holes(server.log(session))
        assert closed_order(log, 1) == ["user_message", "turn_start", "turn_end"]


@pytest.mark.smoke
def test_an_abort_survives_a_crash_of_the_server(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "say half\nhang")
    until_said(server, session, 1, "^half$")
    abort(server, session)
    server.kill()
    server.restart()
    server.wait_idle(session)
    assert server.transcript(session)[0]["stop_reason"] == "cancelled"
    assert server.text(session, 1) == "half"
