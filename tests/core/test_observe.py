"""How the machine handles facts: content, the end of a turn, the exit of a process; and which facts it ignores."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.observe import OBSERVED, deltas_only, exit_words
from perdure.core.permissions import Rule
from perdure.core.state import dump
from tests.core.stage import (
    ALLOW,
    REJECT,
    SITUATIONS,
    Stage,
    aborting,
    asking,
    attached,
    busy,
    last,
    limited,
    limited_busy,
    prompt,
    resuming,
    single_run,
    types,
    without_a_slot,
    working,
)


def content(turn: int) -> list[ev.Event]:
    return [
        ev.AssistantText(turn=turn, block=0, delta="x"),
        ev.AssistantThinking(turn=turn, block=0, delta="x"),
        ev.ToolUse(turn=turn, tool_id="t", name="Bash"),
        ev.ToolUpdate(turn=turn, tool_id="t"),
        ev.ToolResult(turn=turn, tool_id="t"),
        ev.Plan(turn=turn, entries=[]),
        prompt(turn, "p9"),
    ]


def all_facts(stage: Stage) -> Iterator[Any]:
    """Every fact, in all variants, as this session's agent would report it."""
    turn = stage.state.turn.turn if stage.state.turn else 1
    yield from content(turn)
    yield ev.Usage(turn=turn, input_tokens=1)
    yield ev.Config(config_id="mode", value="plan")
    yield ev.Title(title="t", by="agent")
    yield ev.System(message="m", code="c")
    yield ob.SessionOpened("n2", False)
    yield ob.PromptWithdrawn("p1")
    yield ob.Noise("{", "broken")
    yield ob.ResumeRefused("unknown id")
    yield ob.ResumeRefused("unknown id", reopens=False)
    yield ob.StartFailed("needs_login", "Sign in.")
    yield ob.TurnFinished(turn, "end_turn")
    yield ob.TurnFinished(turn, "failed", "overflow", "Too long.", poisoned=True)
    yield ob.AgentExited("exited", exit_code=1)
    yield ob.AgentExited("lost", delivered=False)
    yield ob.TurnBegun("A background task ended.")


def with_a_tool() -> Stage:
    stage = working()
    stage.see(ev.ToolUse(turn=1, tool_id="t", name="Bash"))
    return stage


def with_a_tool_and_busy() -> Stage:
    stage = with_a_tool()
    stage.queue()
    return stage


def busy_without_a_slot() -> Stage:
    return without_a_slot(with_a_tool_and_busy())


def with_a_tool_in_a_single_run() -> Stage:
    stage = single_run()
    stage.see(ev.ToolUse(turn=1, tool_id="t", name="Bash"))
    return stage


def test_the_table_says_exactly_which_facts_change_the_phase() -> None:
    happened: dict[str, dict[str, set[str]]] = {}
    for situation in (*SITUATIONS, with_a_tool, with_a_tool_and_busy, busy_without_a_slot, with_a_tool_in_a_single_run):
        for number in range(len(list(all_facts(situation())))):
            stage = situation()
            fact = list(all_facts(stage))[number]
            name, phase = type(fact).__name__, stage.state.phase
            if stage.see(fact) and (phase in OBSERVED.get(name, {}) or stage.state.phase != phase):
                happened.setdefault(name, {}).setdefault(phase, set()).add(stage.state.phase)
    assert happened == {name: {phase: set(targets) for phase, targets in row.items()} for name, row in OBSERVED.items()}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_facts_of_an_earlier_launch_change_nothing(situation: Callable[[], Stage]) -> None:
    stage = situation()
    before = dump(stage.state)
    for fact in all_facts(stage):
        assert stage.see(fact, launch="older") == []
    assert dump(stage.state) == before


def test_facts_of_an_earlier_turn_do_not_affect_a_newer_one() -> None:
    stage = busy()
    stage.finish()
    before = dump(stage.state)
    late = [*content(1), ev.Usage(turn=1, input_tokens=9), ob.TurnFinished(1, "failed", error_message="late")]
    assert stage.see(*late) == []
    assert (dump(stage.state), stage.turn, stage.state.phase) == (before, 2, "working")


def test_content_after_a_turn_is_ignored() -> None:
    stage = attached()
    before = dump(stage.state)
    assert stage.see(*content(1), ob.TurnFinished(1, "end_turn")) == []
    stage.see(ev.Usage(context_used=5))
    assert dump(stage.state) == before


def test_a_duplicate_result_ends_a_turn_once() -> None:
    stage = busy()
    events = stage.see(ob.TurnFinished(1, "end_turn"), ob.TurnFinished(1, "end_turn"))
    assert types(events).count("turn_end") == 1
    assert stage.turn == 2


# How turns end -------------------------------------------------------------------------------------------------------


def test_a_failed_turn_ends_with_an_error_and_leaves_the_session_idle() -> None:
    stage = working()
    stage.see(ev.ToolUse(turn=1, tool_id="t", name="Bash"))
    events = stage.finish("failed", error_code="rate_limit", error_message="Try later.")
    assert types(events) == ["tool_result", "error", "turn_end", "waiting_for_input"]
    assert events[1].code == "rate_limit"  # type: ignore[attr-defined]
    assert (stage.state.state, stage.state.error) == ("idle", "Try later.")
    assert stage.state.turn is not None
    assert stage.state.turn.error == "Try later."


def test_a_failure_without_a_reason_still_has_an_error() -> None:
    events = working().finish("failed")
    assert types(events) == ["error", "turn_end", "waiting_for_input"]


def test_a_process_that_dies_fails_its_turn_with_the_end_of_its_stderr() -> None:
    stage = asking()
    events = stage.see(ob.AgentExited("signalled", signal=9, stderr="boom"))
    assert types(events) == ["prompt_resolved", "agent_detached", "error", "turn_end", "waiting_for_input"]
    assert events[0].outcome == "agent_lost"  # type: ignore[attr-defined]
    assert events[2].detail == "boom"  # type: ignore[attr-defined]
    assert (stage.state.state, stage.state.attached) == ("idle", None)


def test_a_process_that_dies_while_idle_is_only_detached() -> None:
    assert types(attached().see(ob.AgentExited("exited", exit_code=0))) == ["agent_detached"]


@pytest.mark.parametrize(
    "how", ["exited", "signalled", "ended", "orphaned", "spawn_failed", "never_started", "lost", "memory"]
)
def test_the_end_of_a_process_is_described_in_words(how: Any) -> None:
    words = exit_words(ob.AgentExited(how, exit_code=3, signal=9 if how == "signalled" else None, error="no such file"))
    assert words and "None" not in words


def test_a_message_that_certainly_never_arrived_is_sent_again_only_once() -> None:
    stage = working()
    events = stage.see(ob.AgentExited("lost", delivered=False))
    assert types(events) == ["agent_detached", "context_fallback"]
    assert (stage.state.phase, stage.turn) == ("working", 1)
    stage.launch()
    assert "turn_end" in types(stage.see(ob.AgentExited("lost", delivered=False)))


def test_a_launch_that_never_started_is_not_an_attempt_and_the_turn_keeps_its_plan() -> None:
    stage = resuming()
    for _ in range(3):
        assert types(stage.see(ob.AgentExited("never_started", delivered=False))) == ["agent_detached"]
        assert stage.state.turn is not None
        assert (stage.state.phase, stage.state.turn.context, stage.state.turn.attempt) == ("working", "resumed", 1)
        stage.launch("n1")


def test_a_turn_that_used_a_tool_is_never_sent_again() -> None:
    for fact in (ob.AgentExited("lost", delivered=False), ob.ResumeRefused("late")):
        stage = working()
        stage.see(ev.ToolUse(turn=1, tool_id="t", name="Bash"))
        assert last(stage.see(fact), ev.TurnEnd).stop_reason == "failed"


def test_a_program_that_can_not_be_started_is_not_retried() -> None:
    stage = resuming()
    events = stage.see(ob.AgentExited("spawn_failed", error="no such file", delivered=False))
    assert "could not be started: no such file" in last(events, ev.Error).message


# Turns that the agent begins -----------------------------------------------------------------------------------------


def test_a_turn_started_by_the_agent_is_a_turn_and_is_never_sent_again() -> None:
    stage = attached()
    events = stage.see(ob.TurnBegun("A background task ended."), ev.AssistantText(turn=0, block=0, delta="Done."))
    assert types(events) == ["user_message", "turn_start", "assistant_text"]
    assert [event.turn for event in events] == [2, 2, 2]
    assert stage.see(ob.TurnBegun("Another."), ob.TurnFinished(2, "end_turn")) == []
    exited = working()
    exited.finish()
    exited.see(ob.TurnBegun("A background task ended."))
    assert "turn_end" in types(exited.see(ob.AgentExited("lost", delivered=False)))
    assert types(stage.see(ob.TurnFinished(0, "end_turn"))) == ["turn_end", "waiting_for_input"]
    assert stage.see(ob.TurnFinished(0, "end_turn"), ev.AssistantText(turn=0, block=0, delta="Late.")) == []


def test_the_end_of_an_agents_own_turn_does_not_end_a_persons() -> None:
    stage = working()
    assert stage.see(ob.TurnBegun("Too late."), ob.TurnFinished(0, "end_turn")) == []


def test_a_process_that_exits_after_its_turn_is_detached_and_the_next_one_resumes() -> None:
    stage = working()
    assert types(stage.finish(leaves=True)) == ["turn_end", "agent_detached", "waiting_for_input"]
    stage.send()
    assert stage.state.turn is not None
    assert stage.state.turn.context == "resumed"


# Refused resumes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fact", [ob.ResumeRefused("unknown id"), ob.ResumeRefused("unknown id", reopens=False), ob.AgentExited("exited")]
)
def test_a_refused_resume_continues_fresh_once_and_never_uses_the_id_again(fact: Any) -> None:
    stage = resuming()
    assert stage.state.turn is not None
    assert (stage.state.turn.context, stage.state.turn.native_session_id) == ("resumed", "n1")
    assert "context_fallback" in types(stage.see(fact))
    assert stage.state.turn is not None
    assert (stage.state.turn.context, stage.state.turn.native_session_id, stage.turn) == ("fresh", None, 2)
    assert stage.state.poisoned == ["n1"]
    assert "alpha" not in stage.state.bindings
    if stage.state.attached is None:
        stage.launch()
    stage.see(ob.SessionOpened("n2", False))
    stage.finish()
    stage.send()
    assert (stage.state.turn.turn, stage.state.turn.context, stage.state.turn.native_session_id) == (3, "live", "n2")


def test_a_refused_resume_of_an_aborted_turn_sends_nothing_more() -> None:
    stage = resuming()
    stage.do(cmd.AbortTurn())
    events = stage.see(ob.ResumeRefused("unknown id"))
    assert "context_fallback" not in types(events)
    assert last(events, ev.TurnEnd).stop_reason == "cancelled"


def test_a_poisoned_native_session_is_never_used_again() -> None:
    stage = working()
    stage.finish("failed", error_message="Over-long.", poisoned=True)
    assert (stage.state.attached, stage.state.bindings, stage.state.poisoned) == (None, {}, ["n1"])
    stage.send()
    assert stage.state.turn is not None and stage.state.turn.context_reason == "native_session_poisoned"
    stage.launch()
    stage.see(ob.SessionOpened("n2", False))
    assert stage.state.unpinned == []


def test_a_crash_leaves_the_native_session_unconfirmed_so_the_next_turn_is_fresh() -> None:
    stage = attached()
    stage.send()
    stage.see(ob.AgentExited("signalled", signal=9))
    stage.send()
    assert stage.state.turn is not None
    assert (stage.state.turn.context, stage.state.turn.context_reason) == ("fresh", "last_turn_not_confirmed")


def test_a_turn_that_the_agent_failed_is_replayed_with_the_next_one() -> None:
    stage = attached()
    stage.send()
    stage.finish("failed", error_message="Overloaded.")
    stage.send()
    assert stage.state.turn is not None
    assert (stage.state.turn.context, stage.state.turn.context_reason) == ("fresh", "last_turn_not_confirmed")


@pytest.mark.parametrize("situation", [attached, resuming])
def test_a_message_that_was_aborted_before_it_was_sent_is_replayed_with_the_next_one(
    situation: Callable[[], Stage],
) -> None:
    stage = situation()
    if not stage.state.working:
        stage.send("lost?")
    stage.do(cmd.AbortTurn())
    stage.finish("cancelled", sent=False)
    stage.send("next")
    assert stage.state.turn is not None
    assert stage.state.turn.context == "fresh"


# Prompts -------------------------------------------------------------------------------------------------------------


def test_a_rule_answers_immediately_and_is_recorded_as_the_answerer() -> None:
    stage = working()
    stage.rules = [Rule("Bash", "git *", "allow"), Rule("Bash", "*", "deny")]
    for prompt_id, command, option in (("p1", "git status", ALLOW), ("p2", "rm", REJECT)):
        events = stage.see(prompt(1, prompt_id, input={"command": command}))
        assert types(events) == ["pending_prompt", "prompt_resolved"]
        resolved = last(events, ev.PromptResolved)
        assert (resolved.by, resolved.answer) == ("rule", {"option_id": option.option_id, "kind": option.kind})
    assert stage.state.prompts == {}


def test_a_prompt_of_an_aborting_turn_is_cancelled_immediately() -> None:
    stage = aborting()
    stage.rules = [Rule("*", "*", "allow")]
    resolved = last(stage.see(prompt(1)), ev.PromptResolved)
    assert (resolved.by, resolved.outcome, resolved.answer) == ("server", "cancelled", {"cancel": True})


def test_withdrawing_one_of_several_prompts_does_not_close_the_others() -> None:
    stage = asking()
    stage.ask("p2")
    stage.see(ob.PromptWithdrawn("p1"))
    assert stage.see(ob.PromptWithdrawn("p1")) == []
    assert list(stage.state.prompts) == ["p2"]
    stage.finish()
    assert (stage.state.prompts, stage.state.resolved_prompts) == ({}, ["p1", "p2"])


def test_an_input_with_huge_numbers_is_stored_exactly() -> None:
    stage = working()
    stage.ask(input={"n": 2**80})
    assert stage.state.prompts["p1"].input == {"n": 2**80}


# The fast path -------------------------------------------------------------------------------------------------------


def test_deltas_of_the_running_turn_need_no_decision_and_everything_else_does() -> None:
    stage = working()
    for fact in all_facts(stage):
        expected = isinstance(fact, ev.AssistantText | ev.AssistantThinking | ev.ToolUpdate)
        assert deltas_only(stage.state, "l1", [fact]) is expected
    delta = ev.AssistantText(turn=1, block=0, delta="x")
    assert not deltas_only(stage.state, "older", [delta])
    assert not deltas_only(stage.state, "l1", [ev.AssistantText(turn=2, block=0, delta="x")])
    stage.finish()
    assert not deltas_only(stage.state, "l1", [delta])


def test_events_of_the_fast_path_never_change_the_state() -> None:
    stage = working()
    before = dump(stage.state)
    for fact in content(1):
        if not fact.decisive:
            stage.see(fact)
    assert dump(stage.state) == before


# Limits and other drivers ---------------------------------------------------------------------------------------------


def test_after_a_usage_limit_the_session_waits_and_so_does_its_queue() -> None:
    stage = limited_busy()
    assert stage.state.phase == "idle"
    assert stage.state.waiting_until is not None
    assert len(stage.state.queue) == 1
    assert types(stage.log)[-3:] == ["turn_end", "waiting_until", "waiting_for_input"]


def test_when_the_limit_resets_queued_messages_are_sent_first() -> None:
    stage = limited_busy()
    waiting = stage.state.queue[0].message_id
    events = stage.do(cmd.EndWait("Go on."))
    assert types(events)[0] == "waiting_until"
    assert last(events, ev.TurnStart).message_id == waiting


def test_when_the_limit_resets_and_the_queue_is_empty_the_session_continues() -> None:
    stage = limited()
    events = stage.do(cmd.EndWait("Go on."))
    assert last(events, ev.UserMessage).text == "Go on."
    assert stage.state.waiting_until is None


def test_a_wait_can_be_aborted_and_then_the_reset_does_nothing() -> None:
    stage = limited()
    assert types(stage.do(cmd.AbortTurn())) == ["waiting_until"]
    assert stage.do(cmd.EndWait("Go on.")) == []


def test_a_streaming_process_without_output_is_replaced_by_one_per_turn() -> None:
    stage = Stage(driver="claude-stream")
    stage.a_turn()
    stage.send("again")
    events = stage.see(ob.AgentExited("stuck", delivered=False, fallback="claude-resume"))
    assert types(events) == ["agent_detached", "driver_fallback", "context_fallback"]
    assert stage.state.drivers == {stage.state.agent: "claude-resume"}
    assert stage.state.working


def test_without_another_driver_none_is_tried() -> None:
    stage = Stage()
    stage.a_turn()
    stage.send("again")
    assert types(stage.see(ob.AgentExited("stuck", delivered=False))) == ["agent_detached", "context_fallback"]
