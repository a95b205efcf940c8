"""Slash commands of an agent: which texts call one; and that none of them is ever sent after a replay."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.errors import Refused
from perdure.core.evolve import evolve
from perdure.core.scope import turns_of
from perdure.core.slash_commands import called, names
from tests.core.stage import Stage, attached, facts, last, types

KNOWN = ("compact", "memory", "memory show", "nested/review", "mcp:list")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/compact", "compact"),
        ("  /compact keep the plan", "compact"),
        ("/compact\nkeep the plan", "compact"),
        ("/memory", "memory"),
        ("/memory show", "memory show"),
        ("/memory shown", "memory"),
        ("/nested/review it", "nested/review"),
        ("/mcp:list", "mcp:list"),
        ("/etc is full", ""),
        ("/compacting is slow", ""),
        ("/", ""),
        ("compact", ""),
        ("see /compact", ""),
    ],
)
def test_a_text_calls_a_command_if_it_begins_with_its_name(text: str, name: str) -> None:
    assert called(text, KNOWN) == name


@pytest.mark.parametrize(
    ("text", "name"), [("/compact", "compact"), ("/etc is full", "etc"), ("/etc/hosts is wrong", ""), ("no", "")]
)
def test_for_an_agent_that_never_ran_anything_that_looks_like_a_command_may_be_one(text: str, name: str) -> None:
    assert called(text, None) == name


def test_command_names_are_found_in_whatever_an_agent_reports() -> None:
    assert names([{"name": "/a"}, {"name": "b"}, {"name": 7}, {"name": "/"}, {}, "c"]) == ("a", "b")


def talking() -> Stage:
    stage = attached()
    stage.offer("compact")
    return stage


def refused(stage: Stage, text: str = "/compact", **given: Any) -> Refused:
    log = list(stage.log)
    with pytest.raises(Refused) as caught:
        stage.send(text, **given)
    assert stage.log == log
    return caught.value


def test_an_agent_that_holds_the_conversation_gets_the_command() -> None:
    stage = talking()
    stage.send("/compact now")
    assert last(stage.log, ev.TurnStart).slash_command == "compact"
    stage.open()
    stage.finish()
    stage.do(cmd.DetachAgent("idle_timeout"))
    stage.send("/compact")
    assert last(stage.log, ev.TurnStart).context == "resumed"


def test_a_first_message_may_be_a_command_whether_it_is_known_or_not() -> None:
    stage = Stage()
    stage.send("/compact")
    start = last(stage.log, ev.TurnStart)
    assert (start.replayed, start.slash_command) == (0, "")
    stage = Stage()
    stage.known = facts(commands=("compact",))
    stage.send("/compact")
    assert last(stage.log, ev.TurnStart).slash_command == "compact"


def test_a_command_that_would_follow_a_replay_is_refused_and_says_what_to_do() -> None:
    refusal = refused(talking(), fresh=True)
    assert (refusal.code, refusal.facts["context_reason"]) == ("conflict", "fresh_requested")
    assert refusal.detail == (
        "/compact is a command of alpha, but this turn has to replay the conversation to alpha, and the command would "
        "arrive as plain text. Send an ordinary message first, then send /compact."
    )
    stage = talking()
    stage.send("go on", fresh=True)
    stage.open("n2")
    stage.finish()
    stage.send("/compact")
    assert last(stage.log, ev.TurnStart).context == "live"


def test_text_that_is_not_a_known_command_is_replayed_like_any_other() -> None:
    stage = talking()
    stage.send("/etc is full", fresh=True)
    start = last(stage.log, ev.TurnStart)
    assert (start.replayed, start.slash_command) == (1, "")


def test_turns_that_the_agent_missed_count_as_a_replay() -> None:
    stage = talking()
    stage.a_turn("over to you", native="n2", agent="beta")
    refusal = refused(stage, agent="alpha")
    assert refusal.facts == {"slash_command": "compact", "context_reason": "native_session_confirmed"}
    stage.send("/compact", agent="beta", when_busy="reject")


def test_each_agent_of_a_session_has_its_own_commands() -> None:
    stage = talking()
    stage.known = facts(commands=())
    stage.a_turn("hi", native="n2", agent="beta")
    assert stage.state.commands == []
    stage.offer("review")
    assert refused(stage, agent="alpha").facts["slash_command"] == "compact"
    stage.send("/review is a folder of mine", agent="alpha")
    assert [command["name"] for command in stage.state.commands] == ["compact"]


def test_for_an_agent_that_never_ran_here_its_last_reported_commands_count() -> None:
    stage = talking()
    stage.known = facts(commands=("review",))
    assert refused(stage, "/review it", agent="beta").facts["slash_command"] == "review"
    stage.send("/compact the logs", agent="beta")


def test_for_an_agent_that_never_ran_a_refused_command_comes_with_advice() -> None:
    stage = talking()
    refusal = refused(stage, "/review it", agent="beta")
    assert "/review looks like a command of beta" in refusal.detail
    assert refusal.detail.endswith("If you mean it as text, begin with another word.")


def test_a_retry_of_a_command_is_refused_unless_it_was_the_first_message() -> None:
    stage = talking()
    stage.a_turn("/compact")
    log = list(stage.log)
    with pytest.raises(Refused) as caught:
        stage.do(cmd.RetryTurn(turn=2, message_id="r", text="/compact"))
    assert stage.log == log
    assert caught.value.detail.endswith("Rewind to before it, send an ordinary message, then send /compact.")
    stage.do(cmd.RetryTurn(turn=1, message_id="r", text="/compact"))
    assert last(stage.log, ev.TurnStart).replayed == 0


def test_a_queued_command_with_a_restarted_context_is_refused_immediately() -> None:
    stage = talking()
    stage.send("work")
    assert refused(stage, fresh=True, when_busy="queue").code == "conflict"
    stage.queue("/compact")
    assert len(stage.state.queue) == 1


def test_a_queued_message_can_not_be_edited_into_a_command_that_can_not_be_sent() -> None:
    stage = talking()
    stage.send("first")
    stage.do(cmd.SubmitMessage(message_id="fresh", text="second", fresh=True, when_busy="queue"))
    stage.do(cmd.SubmitMessage(message_id="live", text="third", when_busy="queue"))
    with pytest.raises(Refused, match="replay") as refusal:
        stage.do(cmd.EditQueuedMessage("fresh", "/compact"))
    assert refusal.value.code == "conflict" and stage.state.queue[0].text == "second"
    stage.do(cmd.EditQueuedMessage("live", "/compact"))


def test_a_queued_command_whose_turn_needs_a_replay_fails_and_the_queue_continues() -> None:
    stage = talking()
    stage.send("work")
    stage.queue("/compact")
    stage.queue("/compact again")
    stage.queue("and then this")
    events = stage.finish(forgotten=True)
    assert types(events)[1:] == [
        *["message_unqueued", "user_message", "turn_start", "error", "turn_end"] * 2,
        *["message_unqueued", "agent_detached", "user_message", "turn_start"],
    ]
    errors = [event for event in events if isinstance(event, ev.Error)]
    assert [error.code for error in errors] == ["command_refused"] * 2
    assert "Send an ordinary message first" in errors[0].message
    ends = [event for event in events if isinstance(event, ev.TurnEnd)]
    assert [(end.turn, end.stop_reason) for end in ends] == [(2, "end_turn"), (3, "failed"), (4, "failed")]
    assert (stage.state.phase, stage.turn) == ("working", 5)


def test_a_failed_command_does_not_affect_the_native_session() -> None:
    stage = talking()
    stage.a_turn("over to you", native="n2", agent="beta")
    binding = msgspec.to_builtins(stage.state.bindings["alpha"])
    stage.send("work", agent="beta")
    stage.send("/compact", agent="alpha", when_busy="queue")
    stage.finish()
    assert (stage.state.phase, stage.state.error is not None) == ("idle", True)
    assert msgspec.to_builtins(stage.state.bindings["alpha"]) == binding
    stage.send("go on", agent="alpha")
    start = last(stage.log, ev.TurnStart)
    assert (start.context, start.catch_up) == ("resumed", 3)


@pytest.mark.parametrize(
    "fact",
    [
        ob.ResumeRefused("it is gone", reopens=False),
        ob.ResumeRefused("it is gone", reopens=True),
        ob.AgentExited(how="exited", exit_code=1),
        ob.StartFailed("busy", "try again", passing=True),
    ],
)
def test_a_command_whose_turn_has_to_start_over_fails_instead_of_being_replayed(fact: Any) -> None:
    stage = talking()
    stage.do(cmd.DetachAgent("idle_timeout"))
    stage.send("/compact")
    stage.launch("n1")
    stage.queue("go on")
    events = stage.see(fact)
    assert "context_fallback" not in types(events)
    error = last(events, ev.Error)
    assert (error.code, error.turn) == ("command_refused", 2)
    assert last(events, ev.TurnStart).turn == 3
    assert stage.state.phase == "working"


def test_a_first_turn_with_a_command_may_start_over() -> None:
    stage = Stage()
    stage.known = facts(commands=("compact",))
    stage.send("/compact")
    stage.launch()
    assert "context_fallback" in types(stage.see(ob.AgentExited(how="exited", exit_code=1, delivered=False)))


STEPS = ("turn", "command", "queued", "detach", "forgotten", "fail", "refuse", "crash", "edit", "rewind", "retry")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(("alpha", "beta")), st.booleans()), max_size=25))
def test_no_command_is_ever_sent_after_a_replay(steps: list[tuple[str, str, bool]]) -> None:
    stage = Stage()
    stage.known = facts(commands=("compact",))
    for step, agent, flag in steps:
        play(stage, step, agent, flag)
    starts = [event for event in stage.log if isinstance(event, ev.TurnStart)]
    over = {event.turn for event in stage.log if isinstance(event, ev.Error) and event.code == "command_refused"}
    fallen = {event.turn for event in stage.log if isinstance(event, ev.ContextFallback)}
    said = {event.turn: event.text for event in stage.log if isinstance(event, ev.UserMessage)}
    for start in starts:
        assert (start.slash_command == "compact") == said[start.turn].startswith("/compact")
        if start.slash_command and start.turn not in over:
            assert start.catch_up == start.replayed == 0
            assert start.turn not in fallen or not first_views(stage, start)


def first_views(stage: Stage, start: ev.TurnStart) -> list[int]:
    """The turns that were visible when this one began."""
    replayed = Stage()
    for event in stage.log[1 : stage.log.index(start)]:
        evolve(replayed.state, event)
    return [turn for turn in turns_of(replayed.state.visible) if turn != start.turn]


def play(stage: Stage, step: str, agent: str, flag: bool) -> None:
    """One step; a refused command is ignored."""
    state = stage.state
    try:
        if step == "turn" and state.phase == "idle":
            stage.a_turn("hello", native=f"n{stage.launches}", agent=agent, fresh=flag)
        elif step == "command" and state.phase == "idle":
            stage.send("/compact", agent=agent, fresh=flag)
            binding = stage.state.bindings.get(agent)
            resumed = stage.state.turn is not None and stage.state.turn.context == "resumed"
            if stage.state.attached is None:
                stage.launch(binding.native_session_id if resumed and binding else None)
        elif step == "queued":
            stage.send("/compact" if flag else "later", agent=agent, when_busy="queue")
        elif step == "detach" and state.phase == "idle":
            stage.do(cmd.DetachAgent("idle_timeout"))
        elif step in ("forgotten", "fail") and state.attached is not None and state.working:
            stage.see(ob.SessionOpened(f"n{stage.launches}", False))
            stage.finish("failed" if step == "fail" else "end_turn", forgotten=step == "forgotten")
        elif step == "refuse":
            stage.see(ob.ResumeRefused("gone", reopens=flag))
        elif step == "crash":
            stage.see(ob.AgentExited(how="exited", exit_code=1, delivered=flag))
        elif step == "edit" and state.visible:
            stage.do(cmd.EditMessage(turn=state.visible[0].first, message_id="m", text="/compact" if flag else "x"))
        elif step in ("rewind", "retry") and state.visible:
            turn = state.visible[-1].last if flag else state.visible[0].first
            retry = cmd.RetryTurn(turn=turn, message_id=f"r{len(stage.log)}", text="/compact", agent=agent)
            stage.do(retry if step == "retry" else cmd.Rewind(turn=turn))
    except Refused:
        return
