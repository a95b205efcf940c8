"""What the machine makes of facts that Claude Code alone brings: work of its own, limits, failures that lie outside."""

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


def test_what_the_agent_does_by_itself_while_a_message_comes_in_is_a_part_of_that_turn() -> None:
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


def test_facts_that_could_not_be_stored_are_decided_on_again_with_the_same_outcome() -> None:
    stage = own_turn()
    facts = [ev.AssistantText(turn=AGENTS_OWN, block=0, delta="x"), prompt(AGENTS_OWN)]
    first, second = (observe(stage.state, stage.launch_id, facts, stage.world()) for _ in range(2))
    assert first.events == second.events != []


@pytest.mark.parametrize(("held", "context"), [(True, "live"), (False, "fresh")])
def test_a_failure_that_the_native_session_holds_costs_no_transcript(held: bool, context: str) -> None:
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


def test_a_limit_that_names_no_moment_is_waited_for_too_and_the_queue_waits_with_it() -> None:
    stage = working()
    stage.queue()
    stage.finish("failed", error_code="usage_limit", error_message="Limit.")
    assert stage.state.phase == "idle" and len(stage.state.queue) == 1
    assert stage.state.waiting_until is not None
    assert seconds(stage.state.waiting_until) == START_S + UNKNOWN_RESET_S
    assert "turn_start" in types(stage.do(cmd.EndWait("go on")))
    assert stage.state.queue == []


@pytest.mark.parametrize(("how", "falls_back"), [("stuck", True), ("start_timeout", True), ("lost", False)])
def test_a_streaming_process_is_replaced_by_one_for_each_turn_only_if_it_did_not_answer(
    how: Any, falls_back: bool
) -> None:
    stage = Stage(driver="claude-stream")
    stage.send()
    stage.launch()
    events = stage.see(ob.AgentExited(how, delivered=False))
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
def test_only_a_process_that_ended_by_itself_says_something_of_its_native_session(
    fact: ob.AgentExited, poisoned: list[str]
) -> None:
    stage = attached()
    stage.do(cmd.DetachAgent("idle"))
    stage.send()
    stage.launch("n1")
    stage.see(fact)
    assert stage.state.turn is not None and stage.state.turn.context == "fresh"
    assert stage.state.poisoned == poisoned


def test_a_process_that_resumed_an_old_session_is_never_given_the_transcript_too() -> None:
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


def test_a_choice_is_of_one_agent_and_is_there_again_when_the_session_comes_back_to_it() -> None:
    stage = Stage(model="opus", mode="plan")
    stage.a_turn()
    stage.do(cmd.SetConfig("model", "haiku"))
    stage.a_turn("over to you", native="n2", agent="beta")
    assert (stage.state.agent, stage.state.model, stage.state.mode, stage.state.config) == ("beta", None, None, {})
    stage.a_turn("and back", native="n3", agent="alpha")
    assert (stage.state.model, stage.state.mode, stage.state.config) == ("haiku", "plan", {"model": "haiku"})


def test_a_choice_that_the_agent_refused_is_taken_back() -> None:
    stage = attached()
    stage.do(cmd.SetConfig("mode", "plan"))
    assert stage.state.mode == "plan"
    stage.see(ev.Config(config_id="mode", value="default", refused=True))
    assert (stage.state.mode, stage.state.config) == ("default", {})


def test_only_so_many_messages_may_wait() -> None:
    stage = working()
    for _ in range(QUEUE_MAX):
        stage.queue()
    with pytest.raises(Refused, match="Too many messages") as refused:
        stage.queue()
    assert refused.value.code == "queue_full"


def test_a_line_that_is_not_understood_is_kept_and_told_once() -> None:
    stage = working()
    events = stage.see(ob.Noise("x", "a line of unknown type", raw='{"type":"x"}'))
    assert types(events) == ["system", "unrecognised"]
    assert last(events, ev.Unrecognised).raw == '{"type":"x"}'
    assert types(stage.see(ob.Noise("x", "a line of unknown type", raw="y", told=False))) == ["unrecognised"]


def test_what_was_always_allowed_is_not_asked_again_whichever_process_asks() -> None:
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


def test_a_request_that_does_not_say_what_it_is_about_is_asked_each_time() -> None:
    stage = working()
    options = [ev.PromptOption("ok", "Always", "allow_always"), REJECT]
    stage.ask("p1", tool="execute", input=None, options=options)
    stage.do(cmd.AnswerPrompt(prompt_id="p1", option_id="ok"))
    stage.ask("p2", tool="execute", input=None, options=options)
    assert list(stage.state.prompts) == ["p2"]


def test_what_the_project_denies_is_denied_though_a_person_once_said_always() -> None:
    stage = working()
    always = ev.PromptOption("ok", "Always", "allow_always")
    stage.ask("p1", input="x", options=[always, REJECT])
    stage.do(cmd.AnswerPrompt(prompt_id="p1", option_id="ok"))
    stage.rules = [Rule("*", "*", "deny")]
    resolved = last(stage.see(prompt(1, "p2", input="x", options=[always, REJECT])), ev.PromptResolved)
    assert resolved.outcome == "denied"
