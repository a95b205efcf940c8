"""Denied and interrupted tools are distinguished from failed ones, and waiting time from working time."""

from typing import Any

import pytest

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.permissions import Rule
from perdure.core.transcript import History
from perdure.core.view import TurnView
from tests.core.stage import Stage, last, working

DIFF = [{"path": "/srv/a.py", "old_text": "one", "new_text": "two"}]


def asking(tool: str = "Bash", *, rules: list[Rule] | None = None) -> Stage:
    """A tool that asks for permission."""
    stage = working()
    stage.rules = rules or []
    stage.see(
        ev.ToolUse(turn=1, tool_id="t", name=tool, kind="execute", title="git push", input={"command": "git push"})
    )
    stage.ask(tool_id="t", tool=tool, input={"command": "git push"})
    return stage


def answer(stage: Stage, option_id: str) -> None:
    stage.do(cmd.AnswerPrompt(prompt_id="p1", option_id=option_id))


def failed(stage: Stage, **given: Any) -> ev.ToolResult:
    result: ev.ToolResult = last(
        stage.see(ev.ToolResult(turn=1, tool_id="t", status="failed", is_error=True, content="No.", **given)),
        ev.ToolResult,
    )
    return result


def test_a_tool_denied_by_a_person_is_denied_and_its_waiting_time_is_separate() -> None:
    stage = asking()
    stage.at_s = 30
    answer(stage, "no")
    stage.at_s = 31
    assert (failed(stage).outcome, stage.log[-1].waited_ms) == ("denied", 30_000)  # type: ignore[attr-defined]


def test_a_tool_denied_by_a_rule_is_denied_immediately() -> None:
    stage = asking(rules=[Rule("Bash", "*", "deny")])
    result = failed(stage)
    assert (result.outcome, result.waited_ms) == ("denied", 0)


def test_a_tool_that_was_allowed_and_then_fails_has_failed() -> None:
    stage = asking()
    stage.at_s = 12
    answer(stage, "yes")
    result = failed(stage)
    assert (result.outcome, result.waited_ms) == (None, 12_000)


def test_a_denied_tool_stays_denied_even_if_the_agent_reports_it_as_completed() -> None:
    stage = asking()
    answer(stage, "no")
    result = last(stage.see(ev.ToolResult(turn=1, tool_id="t", content="The user said no.")), ev.ToolResult)
    assert result.outcome == "denied"


def test_a_denied_tool_without_a_result_is_closed_as_denied_when_the_turn_ends() -> None:
    stage = asking()
    answer(stage, "no")
    assert last(stage.finish(), ev.ToolResult).outcome == "denied"


@pytest.mark.parametrize("end", ["result", "silence", "death"])
def test_an_open_tool_of_an_aborted_turn_is_interrupted(end: str) -> None:
    stage = working()
    stage.see(ev.ToolUse(turn=1, tool_id="t", name="Bash"))
    if end == "death":
        events = stage.see(ob.AgentExited("signalled", signal=9))
    else:
        stage.do(cmd.AbortTurn())
        if end == "result":
            assert failed(stage).outcome == "interrupted"
            return
        events = stage.finish("cancelled")
    assert last(events, ev.ToolResult).outcome == "interrupted"


def test_a_tool_that_completes_while_its_turn_is_aborted_is_completed() -> None:
    stage = working()
    stage.see(ev.ToolUse(turn=1, tool_id="t", name="Bash"))
    stage.do(cmd.AbortTurn())
    assert last(stage.see(ev.ToolResult(turn=1, tool_id="t")), ev.ToolResult).outcome is None


def test_an_unanswered_prompt_of_an_aborted_turn_interrupts_its_tool() -> None:
    stage = asking()
    stage.do(cmd.AbortTurn())
    assert last(stage.finish("cancelled"), ev.ToolResult).outcome == "interrupted"


def test_a_denied_edit_is_shown_as_denied_and_without_its_diff() -> None:
    stage = asking("Edit")
    stage.see(ev.ToolUpdate(turn=1, tool_id="t", diff=DIFF))
    answer(stage, "no")
    failed(stage)
    stage.finish()
    history, view = History(), TurnView(1)
    for event in stage.log:
        history.fold(event)
        view.fold(event)
    assert view.tools["t"]["outcome"] == "denied"
    [_, said] = history.said([1])
    [tool] = [piece for piece in said.pieces if piece.is_tool]
    assert tool.text == "[tool Edit: git push (denied, not done)]"
    assert tool.result == "No."
