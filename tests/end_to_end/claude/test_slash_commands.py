"""Claude's own slash commands: they work, also in a resumed session, and are never part of a replay."""

import pytest

from tests.end_to_end.claude.columns import REAL, Stage

pytestmark = [pytest.mark.timeout(240), pytest.mark.full]


def listed(stage: Stage, session: str) -> list[str]:
    return [command["name"] for command in stage.server.session(session)["commands"]]


@pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)
def test_compact_shortens_the_agents_memory_and_the_conversation_continues(stage: Stage) -> None:
    session = stage.serve().session()
    stage.turn(session, "say one")
    stage.turn(session, "say two")
    assert "compact" in listed(stage, session)
    turn = stage.turn(session, "/compact keep the numbers")
    assert turn["stop_reason"] == "end_turn"
    assert "compacted" in stage.codes(session)
    assert stage.turn(session, "say three")["context"] in ("live", "resumed")


@pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)
def test_a_command_is_refused_if_the_conversation_must_be_replayed(stage: Stage) -> None:
    session = stage.serve().session()
    stage.turn(session, "say one")
    refused = stage.server.post(f"/api/sessions/{session}/messages", {"text": "/compact", "fresh": True}, expect=409)
    assert refused["error"].endswith("Send an ordinary message first, then send /compact.")
    stage.turn(session, "say two", fresh=True)
    stage.turn(session, "say three")
    assert stage.turn(session, "/compact")["stop_reason"] == "end_turn"
    assert "compacted" in stage.codes(session)


@pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)
def test_a_command_survives_a_suspended_process(stage: Stage) -> None:
    session = stage.serve(limits="idle_timeout_s = 1").session()
    stage.turn(session, "say one")
    stage.turn(session, "say two")
    stage.suspended(session)
    turn = stage.turn(session, "/compact")
    assert (turn["context"], turn["stop_reason"]) == ("resumed", "end_turn")
