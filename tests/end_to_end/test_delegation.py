"""A sub-agent through a real server, in each family of agents: its work stands inside of the tool that started it."""

from typing import Any

import pytest

from tests.harness import LiveServer, eventually, no_holes

FAMILIES = ["rehearsal", "rehearsal-stream", "rehearsal-resume"]


def of_type(server: LiveServer, session: str, kind: str) -> list[Any]:
    return [event for event in server.log(session) if event["type"] == kind]


@pytest.mark.parametrize("agent", FAMILIES)
def test_a_sub_agents_tools_stand_inside_and_its_words_are_no_answer(server: LiveServer, agent: str) -> None:
    session = server.create(agent=agent)
    turn = server.turn(session, "delegate reviewer Look at the notes\nsay The review is in.")
    outer, command, edit = of_type(server, session, "tool_use")
    assert (outer["name"], outer["parent_tool_id"]) == ("Agent", None)
    assert [use["parent_tool_id"] for use in (command, edit)] == [outer["tool_id"]] * 2
    assert (command["kind"], edit["kind"]) == ("execute", "edit")
    # Its words: progress while it works, and its last ones are the tool's result.
    heard = [one["content"] for one in of_type(server, session, "tool_update") if one["tool_id"] == outer["tool_id"]]
    assert next(words for words in heard if words) == "I look at what is there first."
    results = {one["tool_id"]: one for one in of_type(server, session, "tool_result")}
    assert results[outer["tool_id"]]["content"] == "There was no trouble. Look into reviewer.md."
    assert [results[use["tool_id"]]["status"] for use in (outer, command, edit)] == ["completed"] * 3
    assert server.text(session, 1) == "The review is in."
    shown = {part["tool_id"]: part for part in turn["parts"] if part["type"] == "tool"}
    assert shown[edit["tool_id"]]["parent_tool_id"] == outer["tool_id"]
    assert all(part["started_at"] < part["ended_at"] for part in shown.values())
    assert server.recalled(session) == ["delegate reviewer Look at the notes\nsay The review is in."]
    no_holes(server.log(session))


@pytest.mark.parametrize("agent", FAMILIES)
def test_a_sub_agents_failed_tool_is_its_own_and_not_the_turns(server: LiveServer, agent: str) -> None:
    session = server.create(agent=agent)
    turn = server.turn(session, "delegate ../outside")
    assert turn["stop_reason"] == "end_turn"
    outer, command, edit = (part for part in turn["parts"] if part["type"] == "tool")
    assert [part["status"] for part in (outer, command, edit)] == ["completed", "completed", "failed"]
    assert edit["is_error"] and "trouble" in outer["content"]


@pytest.mark.parametrize("agent", FAMILIES)
def test_a_sub_agent_is_stopped_with_its_turn_and_the_session_goes_on(server: LiveServer, agent: str) -> None:
    session = server.create(agent=agent)
    server.send(session, "\n".join(["delegate reviewer"] * 200))
    eventually(lambda: len(of_type(server, session, "tool_use")) > 1, "the sub-agent works")
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait_idle(session)
    (turn,) = server.transcript(session)
    assert turn["stop_reason"] == "cancelled"
    assert {part["status"] for part in turn["parts"] if part["type"] == "tool"} <= {"completed", "failed"}
    assert server.turn(session, "say on")["stop_reason"] == "end_turn"
