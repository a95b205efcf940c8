"""Abort at every stage of a turn: the output stays, nothing keeps running, and the next turn works."""

from pathlib import Path

import pytest

from tests.end_to_end.claude.columns import REAL, Stage
from tests.end_to_end.victims import gone, until_said
from tests.harness import eventually

pytestmark = pytest.mark.timeout(240)

LETS_ALL_RUN = 'permissions = [ { tool = "Bash", action = "allow" } ]'


def test_a_turn_is_stopped_during_its_text_and_before_its_first_word(stage: Stage) -> None:
    session = stage.serve().session()
    flood = "stream 10000 20"
    stage.server.send(session, flood)
    until_said(stage.server, session, 1, "w3 ")
    stage.abort(session)
    stage.idle(session)
    assert stage.at(session, 1)["stop_reason"] == "cancelled"
    assert stage.server.text(session, 1).startswith("w0 w1 w2 w3 ")
    stage.server.send(session, stage.words.slow)
    if stage.column.real:
        stage.model.log.wait(lambda request: request.conversation.script == stage.words.slow)
    else:
        attached = 1 if stage.column.streams else 2
        eventually(lambda: len(stage.events(session, "agent_attached")) == attached, "the agent runs", 60)
    stage.abort(session)
    stage.idle(session)
    assert (stage.at(session, 2)["stop_reason"], stage.server.text(session, 2)) == ("cancelled", "")
    assert stage.turn(session, "say again")["stop_reason"] == "end_turn"
    assert stage.recalled(session) == [flood, stage.words.slow, "say again"]
    assert not stage.events(session, "error", "context_fallback")


@pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)
def test_a_running_tool_is_ended_with_its_turn(stage: Stage) -> None:
    session = stage.serve(project=LETS_ALL_RUN).session(project="here")
    message = "say half\nbash echo $$ > tool.pid; while true; do sleep 0.5; done\nsay never"
    stage.server.send(session, message)
    note = stage.workdir / "tool.pid"
    pid = int(eventually(lambda: note.exists() and note.read_text().strip(), "the tool runs", 60))
    assert not gone(pid)
    stage.abort(session)
    stage.idle(session)
    turn = stage.at(session, 1)
    assert (turn["stop_reason"], stage.server.text(session, 1)) == ("cancelled", "half")
    eventually(lambda: gone(pid), "the tool's process is gone")
    assert [result["status"] for result in stage.events(session, "tool_result")] == ["failed"]
    stage.turn(session, "say again")
    assert stage.recalled(session) == [message, "say again"]


@pytest.mark.smoke
def test_a_turn_is_stopped_while_it_asks(stage: Stage) -> None:
    session = stage.serve().session()
    stage.server.send(session, stage.words.asks)
    stage.server.prompt(session, 60)
    stage.abort(session)
    stage.idle(session)
    assert stage.at(session, 1)["stop_reason"] == "cancelled"
    assert [event["outcome"] for event in stage.events(session, "prompt_resolved")] == ["cancelled"]
    assert not Path(stage.workdir, "made-by-the-tool").exists()
    assert stage.recalled(session) == [stage.words.asks]


@pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)
def test_a_turn_is_stopped_while_the_program_retries_its_api(stage: Stage) -> None:
    session = stage.serve(env={"CLAUDE_CODE_MAX_RETRIES": "10"}).session()
    stage.server.send(session, "fail 500")
    told = stage.until(session, "system", lambda event: event["code"] == "api_retry")
    assert "500" in told["message"] and "of 10" in told["message"]
    stage.abort(session)
    stage.idle(session)
    assert stage.at(session, 1)["stop_reason"] == "cancelled"
    stage.turn(session, "say again")
    assert stage.recalled(session) == ["fail 500", "say again"]
