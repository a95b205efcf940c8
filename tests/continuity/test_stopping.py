"""A turn of a real agent is aborted before its first word or while a command runs, and the conversation continues."""

import pytest

from tests.continuity.agents import AGENTS, Agent
from tests.continuity.scenarios import LONG
from tests.continuity.stage import GONE_S, WAIT_S, Stage
from tests.end_to_end.victims import gone
from tests.harness import eventually
from tests.model.log import all_text

pytestmark = pytest.mark.timeout(900)


def test_a_running_command_is_ended_with_its_turn(stage: Stage, agent: Agent) -> None:
    session = stage.asking_session()
    note = stage.workdir / "pid"
    text = agent.running(f"echo $$ > {note}; while true; do sleep 0.5; done")
    number = stage.send(session, text)
    if agent.asks == "before commands":
        stage.choose(session, stage.prompt(session), "allow_once")
    pid = int(eventually(lambda: note.exists() and note.read_text().strip(), "the command runs", WAIT_S))
    assert not gone(pid)
    stage.abort(session)
    stage.ended(session, number, "cancelled")
    eventually(lambda: gone(pid), "the command is gone", GONE_S)
    assert stage.recalled(session) == [text]


@pytest.mark.parametrize("agent", [AGENTS["codex"]], ids=["codex"])
def test_a_command_that_its_agent_no_longer_waits_for_is_ended_with_its_turn(stage: Stage, agent: Agent) -> None:
    """Codex itself ends only a command that it waits for."""
    session, note = stage.asking_session(), stage.workdir / "pid"
    text = agent.running(f"echo $$ > {note}; while true; do sleep 0.5; done")
    number = stage.send(session, text.replace('"cmd"', '"yield_time_ms": 250, "cmd"') + "\nhang")
    stage.choose(session, stage.prompt(session), "allow_once")
    pid = int(eventually(lambda: note.exists() and note.read_text().strip(), "the command runs", WAIT_S))
    stage.model.log.wait(lambda request: "running with session ID" in all_text(request), WAIT_S)
    stage.abort(session)
    stage.ended(session, number, "cancelled")
    eventually(lambda: gone(pid), "the command is gone", GONE_S)
    stage.turn(session, "say on")


def test_a_turn_is_stopped_before_its_first_word(stage: Stage) -> None:
    session = stage.session()
    stage.turn(session, "say one")
    number = stage.send(session, "hang")
    stage.model.log.wait(lambda request: request.conversation.script == "hang", WAIT_S)
    stage.abort(session)
    stage.ended(session, number, "cancelled")
    stage.turn(session, "say two")
    assert stage.recalled(session) == ["say one", "hang", "say two"]


def test_a_turn_is_stopped_as_soon_as_it_is_sent(stage: Stage) -> None:
    session = stage.session()
    stage.turn(session, "say one")
    number = stage.send(session, LONG)
    stage.abort(session)
    stage.ended(session, number, "cancelled")
    assert stage.recalled(session) == ["say one", LONG]
