"""What the agent knows when a turn starts: each earlier message exactly once, whatever happened to its process."""

from functools import partial

import pytest

from tests.end_to_end.victims import agent_of, gone, kill, none_left
from tests.harness import LiveServer, eventually


def suspended(server: LiveServer, session: str) -> None:
    server.wait(session, lambda found: found["attached"] == "suspended")
    none_left(server)


def test_a_message_sent_as_its_agent_is_killed_is_still_answered(server: LiveServer) -> None:
    session = server.create()
    sent = []
    for number in range(5):
        text = f"say answer {number}"
        assert server.turn(session, text)["stop_reason"] == "end_turn"
        sent.append(text)
        agent = agent_of(server, session)
        kill(agent)
        # A dying process may still read a last line from its pipe, and then it is unknown whether it saw the message.
        eventually(partial(gone, agent), "the agent is dead")
        assert server.recalled(session) == sent
        turn = server.transcript(session)[-1]
        assert turn["context"] in ("resumed", "fresh") and turn["context_reason"]
        sent.append("recall")


def test_a_refused_resume_is_one_visible_turn_with_the_whole_history(server: LiveServer) -> None:
    session = server.create(limits={"idle_timeout_s": 1})
    server.turn(session, "say one")
    server.turn(session, "reject-resume")
    suspended(server, session)
    assert server.recalled(session) == ["say one", "reject-resume"]
    turns = server.transcript(session)
    assert [turn["turn"] for turn in turns] == [1, 2, 3]
    assert turns[-1]["context"] == "fresh"
    log = server.log(session)
    assert [event["turn"] for event in log if event["type"] == "context_fallback"] == [3]
    assert [event["type"] for event in log].count("user_message") == 3


@pytest.mark.smoke
def test_a_poisoned_native_session_is_never_used_again(server: LiveServer) -> None:
    session = server.create()
    server.turn(session, "poison")
    failed = server.turn(session, "say two")
    assert failed["stop_reason"] == "failed"
    plan = server.post(f"/api/sessions/{session}/plan", expect=200)
    assert (plan["context"], plan["reason"]) == ("fresh", "native_session_poisoned")
    assert plan["guards"]["has_binding"] and not plan["guards"]["not_poisoned"]
    server.kill()
    server.restart()
    assert server.recalled(session) == ["poison", "say two"]
    turn = server.transcript(session)[-1]
    assert (turn["stop_reason"], turn["context"]) == ("end_turn", "fresh")
    assert turn["context_reason"] == "native_session_poisoned"
    assert server.post(f"/api/sessions/{session}/plan", expect=200)["context"] == "live"


def test_an_aborted_answer_is_known_to_the_agent_of_the_next_turn(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "say half\nhang")
    server.wait(session, lambda found: found["event_count"] > 5)
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait_idle(session)
    agent = agent_of(server, session)
    kill(agent)
    eventually(lambda: gone(agent), "the agent is dead")
    assert server.recalled(session) == ["say half\nhang"]


def test_a_suspended_session_wakes_with_its_context(server: LiveServer) -> None:
    session = server.create(limits={"idle_timeout_s": 1})
    server.turn(session, "say one")
    suspended(server, session)
    assert server.recalled(session) == ["say one"]
    assert server.transcript(session)[-1]["context"] == "resumed"
    detached = [event["reason"] for event in server.log(session) if event["type"] == "agent_detached"]
    assert detached[0] == "idle_timeout"


def test_a_process_past_its_lifetime_is_replaced_between_turns(server: LiveServer) -> None:
    session = server.create(limits={"lifetime_s": 1})
    turn = server.turn(session, "say one\nsleep 2\nsay two")
    assert turn["stop_reason"] == "end_turn"
    suspended(server, session)
    assert server.recalled(session) == ["say one\nsleep 2\nsay two"]
    assert server.transcript(session)[-1]["context"] == "resumed"


def test_a_new_server_wakes_a_session_that_an_older_one_suspended(server: LiveServer) -> None:
    session = server.create(limits={"idle_timeout_s": 1})
    server.turn(session, "say one")
    suspended(server, session)
    server.kill()
    server.restart()
    assert server.recalled(session) == ["say one"]
    assert server.transcript(session)[-1]["context"] == "resumed"
