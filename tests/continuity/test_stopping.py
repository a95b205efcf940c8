"""A turn is aborted while a command of a real agent runs: the command ends with it, and the conversation goes on."""

import pytest

from tests.continuity.agents import Agent
from tests.continuity.stage import GONE_S, WAIT_S, Stage
from tests.end_to_end.victims import gone
from tests.harness import eventually

pytestmark = pytest.mark.timeout(900)


def test_a_command_that_runs_is_ended_with_its_turn(stage: Stage, agent: Agent) -> None:
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
