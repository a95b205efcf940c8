"""Every message reaches the agent's context exactly once, whatever is killed in between."""

from itertools import pairwise

import pytest

from tests.end_to_end.claude.columns import STREAMING, Stage
from tests.end_to_end.victims import kill, until_said
from tests.harness import no_holes
from tests.model.log import common_prefix

pytestmark = pytest.mark.timeout(240)


@pytest.mark.smoke
def test_three_turns_are_sent_once_each_in_one_native_session(stage: Stage) -> None:
    session = stage.serve().session()
    said = ["say one", "think a while\nsay two", "say three"]
    natives = set()
    for number, text in enumerate(said, 1):
        assert stage.turn(session, text)["stop_reason"] == "end_turn"
        assert stage.server.text(session, number) == text.rpartition("say ")[2]
        natives.add(stage.native_id(session))
    assert stage.recalled(session) == said
    assert len(natives | {stage.native_id(session)}) == 1
    follows = "live" if stage.column.streams else "resumed"
    assert stage.contexts(session) == ["fresh", follows, follows, follows]
    assert stage.server.session(session)["usage"]["input_tokens"] > 0
    no_holes(stage.server.log(session))
    if stage.column.real:
        asked = stage.model.log.asked
        assert len(asked) == 4 and all(common_prefix(first, second).whole for first, second in pairwise(asked))


def test_nothing_is_lost_when_agent_and_server_die_between_turns(stage: Stage) -> None:
    session = stage.serve().session()
    said = []

    def say(text: str) -> None:
        assert stage.turn(session, f"say {text}")["stop_reason"] == "end_turn"
        said.append(f"say {text}")

    say("one")
    stage.kill_agent(session)
    say("after the agent was killed")
    stage.server.stop()
    stage.server.restart()
    say("after the server was stopped")
    stage.server.kill()
    stage.server.restart()
    say("after the server was killed")
    assert stage.recalled(session) == said
    assert len({event["native_session_id"] for event in stage.events(session, "agent_attached")}) == 1


def test_a_suspended_session_wakes_with_its_whole_history(stage: Stage) -> None:
    session = stage.serve(limits="idle_timeout_s = 1").session()
    stage.turn(session, "say one")
    native = stage.native_id(session)
    stage.suspended(session)
    stage.turn(session, "say two")
    stage.suspended(session)
    assert stage.recalled(session) == ["say one", "say two"]
    assert stage.contexts(session) == ["fresh", "resumed", "resumed"]
    assert stage.native_id(session) == native


def test_a_turn_continues_if_the_server_is_killed_during_it(stage: Stage) -> None:
    session = stage.serve().session()
    stage.turn(session, "say one")
    stage.server.send(session, "stream 60 50\nsay end")
    until_said(stage.server, session, 2, "w3 ")
    stage.server.kill()
    stage.server.restart()
    stage.idle(session)
    assert stage.at(session, 2)["stop_reason"] == "end_turn"
    words = "".join(f"w{number} " for number in range(60))
    assert stage.server.text(session, 2) == words + "\nend"
    assert stage.recalled(session) == ["say one", "stream 60 50\nsay end"]
    no_holes(stage.server.log(session))


@pytest.mark.parametrize("column", STREAMING, ids=lambda column: column.name)
def test_an_agent_killed_right_after_its_answer_is_resumed_or_gets_a_replay(stage: Stage) -> None:
    session = stage.serve().session()
    said = [f"say {number}" for number in range(4)]
    for text in said:
        viewer = stage.server.watch(session)
        stage.server.send(session, text)
        pid = stage.server.wait(session, lambda found: found["pid"] is not None, 60)["pid"]
        viewer.until("turn_end")
        kill(pid)
        viewer.close()
        stage.gone_from(session, pid)
    assert stage.recalled(session) == said
