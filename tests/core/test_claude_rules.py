"""Facts that only Claude Code reports: turns that it starts itself, usage limits, failures outside of the turn."""

from typing import Any

import pytest

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.clock import seconds
from perdure.core.errors import Refused
from perdure.core.observe import AGENTS_OWN, UNKNOWN_RESET_S, observe
from perdure.core.permissions import Rule
from perdure.core.session import QUEUE_MAX
from tests.core.stage import ALLOW, REJECT, START_S, Stage, attached, last, prompt, types, working


def own_turn() -> Stage:
    stage = attached()
    stage.see(ob.TurnBegun("A task ended."))
    return stage


def test_work_that_the_agent_starts_while_a_message_arrives_is_part_of_its_turn() -> None:
    stage = attached()
    stage.send("hello")
    said = ev.AssistantText(turn=AGENTS_OWN, block=0, delta="The task is done.")
    tasks = ev.Config(turn=AGENTS_OWN, config_id="background_tasks", value=0)
    events = stage.see(ob.TurnBegun("A task ended."), said, prompt(AGENTS_OWN), tasks)
    assert [(event.turn, ev.type_of(event)) for event in events] == [
        (2, "assistant_text"),
        (2, "pending_prompt"),
        (2, "config"),
    ]
    assert stage.see(ob.TurnFinished(AGENTS_OWN, "end_turn")) == []
    assert list(stage.state.prompts) == ["p1"]


def test_facts_that_could_not_be_stored_are_decided_again_with_the_same_result() -> None:
    stage = own_turn()
    facts = [ev.AssistantText(turn=AGENTS_OWN, block=0, delta="x"), prompt(AGENTS_OWN)]
    first, second = (observe(stage.state, stage.launch_id, facts, stage.world()) for _ in range(2))
    assert first.events == second.events != []


@pytest.mark.parametrize(("held", "context"), [(True, "live"), (False, "fresh")])
def test_after_a_failure_that_the_native_session_holds_no_transcript_is_needed(held: bool, context: str) -> None:
    stage = attached()
    stage.send()
    stage.finish("failed", error_code="api_unavailable", error_message="Overloaded.", held=held)
    stage.send()
    assert stage.state.turn is not None and stage.state.turn.context == context


def test_how_often_a_session_waited_for_its_limit_is_counted_until_a_turn_succeeds() -> None:
    stage = attached()
    for count in (1, 2):
        stage.send()
        stage.finish("failed", error_code="usage_limit", error_message="Limit.", held=True, retry_at=int(START_S) + 60)
        assert stage.state.waits == count
    stage.a_turn()
    assert stage.state.waits == 0


def test_a_limit_without_a_reset_time_also_delays_the_session_and_its_queue() -> None:
    stage = working()
    stage.queue()
    stage.finish("failed", error_code="usage_limit", error_message="Limit.")
    assert stage.state.phase == "idle" and len(stage.state.queue) == 1
    assert stage.state.waiting_until is not None
    assert seconds(stage.state.waiting_until) == START_S + UNKNOWN_RESET_S
    assert "turn_start" in types(stage.do(cmd.EndWait("go on")))
    assert stage.state.queue == []


@pytest.mark.parametrize(("how", "falls_back"), [("stuck", True), ("start_timeout", True), ("lost", False)])
def test_only_an_unresponsive_streaming_process_is_replaced_by_one_per_turn(how: Any, falls_back: bool) -> None:
    stage = Stage(driver="claude-stream")
    stage.send()
    stage.launch()
    events = stage.see(ob.AgentExited(how, delivered=False, fallback="claude-resume"))
    assert ("driver_fallback" in types(events)) is falls_back
    assert (stage.state.drivers == {"alpha": "claude-resume"}) is falls_back
    assert stage.state.working


@pytest.mark.parametrize(
    ("fact", "poisoned"),
    [
        (ob.AgentExited("exited", exit_code=1), ["n1"]),
        (ob.AgentExited("signalled", signal=9), []),
        (ob.AgentExited("memory"), []),
        (ob.AgentExited("lost"), []),
    ],
)
def test_only_a_process_that_exited_on_its_own_poisons_its_native_session(
    fact: ob.AgentExited, poisoned: list[str]
) -> None:
    stage = attached()
    stage.do(cmd.DetachAgent("idle"))
    stage.send()
    stage.launch("n1")
    stage.see(fact)
    assert stage.state.turn is not None and stage.state.turn.context == "fresh"
    assert stage.state.poisoned == poisoned


def test_a_process_that_resumed_a_session_never_receives_the_transcript_too() -> None:
    stage = attached()
    stage.do(cmd.DetachAgent("idle"))
    stage.send("never sent")
    stage.launch("n1")
    stage.do(cmd.AbortTurn())
    stage.finish("cancelled", sent=False)
    stage.see(ob.SessionOpened("n1", True))
    launch = stage.launch_id
    stage.send("next")
    assert stage.state.turn is not None and stage.state.turn.context == "fresh"
    assert stage.launch_id != launch


def test_choices_belong_to_one_agent_and_are_restored_when_the_session_returns_to_it() -> None:
    stage = Stage(model="opus", mode="plan")
    stage.a_turn()
    stage.do(cmd.SetConfig("model", "haiku"))
    stage.a_turn("over to you", native="n2", agent="beta")
    assert (stage.state.agent, stage.state.model, stage.state.mode, stage.state.config) == ("beta", None, None, {})
    stage.a_turn("and back", native="n3", agent="alpha")
    assert (stage.state.model, stage.state.mode, stage.state.config) == ("haiku", "plan", {"model": "haiku"})


def test_a_choice_that_the_agent_refused_is_undone() -> None:
    stage = attached()
    stage.do(cmd.SetConfig("mode", "plan"))
    assert stage.state.mode == "plan"
    stage.see(ev.Config(config_id="mode", value="default", refused=True))
    assert (stage.state.mode, stage.state.config) == ("default", {})


def test_the_queue_is_bounded() -> None:
    stage = working()
    for _ in range(QUEUE_MAX):
        stage.queue()
    with pytest.raises(Refused, match="Too many messages") as refused:
        stage.queue()
    assert refused.value.code == "queue_full"


def test_a_line_that_is_not_understood_is_stored_and_reported_once() -> None:
    stage = working()
    events = stage.see(ob.Noise("x", "an unknown type of line", raw='{"type":"x"}'))
    assert types(events) == ["system", "unrecognised"]
    assert last(events, ev.Unrecognised).raw == '{"type":"x"}'
    assert types(stage.see(ob.Noise("x", "an unknown type of line", raw="y", told=False))) == ["unrecognised"]


def test_an_always_answer_holds_for_every_process() -> None:
    stage = working()
    always = ev.PromptOption("ok", "Always", "allow_always")
    options = [ALLOW, always, REJECT]
    stage.ask("p1", input={"command": "make [all]"}, options=options, always=["Bash(make *)"])
    stage.do(cmd.AnswerPrompt(prompt_id="p1", option_id="ok"))
    assert stage.state.granted == {"alpha": ["Bash(make *)"]}
    resolved = last(stage.see(prompt(1, "p2", input={"command": "make [all]"}, options=options)), ev.PromptResolved)
    assert (resolved.by, resolved.outcome) == ("rule", "allowed")
    stage.ask("p3", input={"command": "make al"}, options=options)
    stage.ask("p4", input={"command": "make [all]", "path": "/elsewhere"}, options=options)
    assert list(stage.state.prompts) == ["p3", "p4"]


def test_a_request_without_input_is_never_remembered() -> None:
    stage = working()
    options = [ev.PromptOption("ok", "Always", "allow_always"), REJECT]
    stage.ask("p1", tool="execute", input=None, options=options)
    stage.do(cmd.AnswerPrompt(prompt_id="p1", option_id="ok"))
    stage.ask("p2", tool="execute", input=None, options=options)
    assert list(stage.state.prompts) == ["p2"]


def test_a_deny_rule_of_the_project_overrides_an_earlier_always() -> None:
    stage = working()
    always = ev.PromptOption("ok", "Always", "allow_always")
    stage.ask("p1", input="x", options=[always, REJECT])
    stage.do(cmd.AnswerPrompt(prompt_id="p1", option_id="ok"))
    stage.rules = [Rule("*", "*", "deny")]
    resolved = last(stage.see(prompt(1, "p2", input="x", options=[always, REJECT])), ev.PromptResolved)
    assert resolved.outcome == "denied"
