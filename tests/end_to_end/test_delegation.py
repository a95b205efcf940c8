"""A sub-agent through a real server, for each family of agents: its work appears inside the tool that started it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RealAgent
from tests.harness import LiveServer, eventually, no_holes
from tests.model.claude_process import environment
from tests.model.server import running

FAMILIES = ["rehearsal", "rehearsal-stream", "rehearsal-resume"]


def of_type(server: LiveServer, session: str, kind: str) -> list[Any]:
    return [event for event in server.log(session) if event["type"] == kind]


@pytest.mark.smoke
@pytest.mark.parametrize("agent", FAMILIES)
def test_a_sub_agents_tools_are_nested_and_its_text_is_not_the_answer(server: LiveServer, agent: str) -> None:
    session = server.create(agent=agent)
    turn = server.turn(session, "delegate reviewer Look at the notes\nsay The review is in.")
    outer, command, edit = of_type(server, session, "tool_use")
    assert (outer["name"], outer["parent_tool_id"]) == ("Agent", None)
    assert [use["parent_tool_id"] for use in (command, edit)] == [outer["tool_id"]] * 2
    assert (command["kind"], edit["kind"]) == ("execute", "edit")
    # Its text is progress while it works, and its last text is the tool's result.
    heard = [one["content"] for one in of_type(server, session, "tool_update") if one["tool_id"] == outer["tool_id"]]
    assert next(words for words in heard if words) == "I look at what is there first."
    results = {one["tool_id"]: one for one in of_type(server, session, "tool_result")}
    assert results[outer["tool_id"]]["content"] == "There was no trouble. Look into reviewer.md."
    assert [results[use["tool_id"]]["status"] for use in (outer, command, edit)] == ["completed"] * 3
    assert server.text(session, 1) == "The review is in."
    shown = {part["tool_id"]: part for part in turn["parts"] if part["type"] == "tool"}
    assert shown[edit["tool_id"]]["parent_tool_id"] == outer["tool_id"]
    assert all(part["started_at"] <= part["ended_at"] for part in shown.values())
    (change,) = shown[edit["tool_id"]]["diff"]
    assert change["path"].endswith("reviewer.md") and (change["old_text"], change["new_text"]) == (
        None,
        "rehearsed 1\n",
    )
    assert server.recalled(session) == ["delegate reviewer Look at the notes\nsay The review is in."]
    no_holes(server.log(session))


@pytest.mark.parametrize("agent", FAMILIES)
def test_a_sub_agents_failed_tool_does_not_fail_the_turn(server: LiveServer, agent: str) -> None:
    session = server.create(agent=agent)
    turn = server.turn(session, "delegate ../outside")
    assert turn["stop_reason"] == "end_turn"
    outer, command, edit = (part for part in turn["parts"] if part["type"] == "tool")
    assert [part["status"] for part in (outer, command, edit)] == ["completed", "completed", "failed"]
    assert edit["is_error"] and "trouble" in outer["content"]


@pytest.mark.parametrize("agent", FAMILIES)
def test_a_sub_agent_is_stopped_with_its_turn_and_the_session_continues(server: LiveServer, agent: str) -> None:
    session = server.create(agent=agent)
    server.send(session, "delegate reviewer hang")
    eventually(lambda: len(of_type(server, session, "tool_use")) > 1, "the sub-agent works")
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait_idle(session)
    (turn,) = server.transcript(session)
    assert turn["stop_reason"] == "cancelled"
    assert [part["status"] for part in turn["parts"] if part["type"] == "tool"] == ["failed", "failed"]
    assert server.turn(session, "say on")["stop_reason"] == "end_turn"


@pytest.mark.timeout(240)
def test_the_text_of_a_real_sub_agent_over_acp_is_not_the_answer(
    make_server: Callable[..., LiveServer], real_agent: Callable[[str], RealAgent], tmp_path: Path
) -> None:
    agent = real_agent("claude-acp")
    with running() as model:
        env = "\n".join(f"{name} = {json.dumps(value)}" for name, value in environment(model, tmp_path).items())
        program = f'[agents.real]\ndriver = "acp"\ncommand = {json.dumps(agent.argv)}\n[agents.real.env]\n{env}\n'
        server = make_server(f"[server]\nslots = 0\nproject_slots = 0\n{program}")
        session = server.create(agent="real")
        work = "say I look first.\nbash echo from-the-mate\nsay the mate is done"
        given = {"description": "some work", "prompt": work, "subagent_type": "general-purpose"}
        server.send(session, f"tool Agent {json.dumps({**given, 'run_in_background': False})}\nsay all is done")
        server.wait_idle(session, 120)
    outer, inner = of_type(server, session, "tool_use")
    assert (outer["name"], inner["parent_tool_id"]) == ("Agent", outer["tool_id"])
    heard = [one["content"] for one in of_type(server, session, "tool_update") if one["tool_id"] == outer["tool_id"]]
    assert "I look first." in heard
    results = {one["tool_id"]: one["content"] for one in of_type(server, session, "tool_result")}
    assert "from-the-mate" in results[inner["tool_id"]] and "the mate is done" in results[outer["tool_id"]]
    assert server.text(session, 1) == "all is done"
