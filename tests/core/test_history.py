"""Changes to the history: what is refused, which native sessions are out of date, which processes are detached."""

from typing import Any

import msgspec
import pytest

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.errors import Refused
from perdure.core.history import take_over
from perdure.core.scope import turns_of
from perdure.core.session import create
from perdure.core.view import TurnView, public_turn
from tests.core.stage import Stage, last, limited, limited_busy, prompt, replayed, working


def two_agents() -> Stage:
    """alpha, beta, alpha."""
    stage = Stage()
    stage.a_turn("one")
    stage.a_turn("two", native="b1", agent="beta")
    stage.send("three", agent="alpha")
    stage.open("n1", resumed=True)
    stage.finish()
    return stage


def test_an_edit_bumps_only_agents_that_hold_the_turn() -> None:
    stage = two_agents()
    change = last(stage.do(cmd.EditMessage(turn=3, message_id="m3", text="other")), ev.HistoryChanged)
    assert (change.change, change.turn, change.bumped, change.text) == ("edit", 3, ["alpha"], "other")
    change = last(stage.do(cmd.EditMessage(turn=2, message_id="m2", text="other")), ev.HistoryChanged)
    assert change.bumped == ["alpha", "beta"]
    assert turns_of(stage.state.visible) == [1, 2, 3]


def test_turns_that_other_agents_did_not_see_do_not_affect_their_epochs() -> None:
    stage = Stage()
    stage.a_turn("one")
    stage.a_turn("two", native="b1", agent="beta")
    change = last(stage.do(cmd.Rewind(turn=2)), ev.HistoryChanged)
    assert change.bumped == ["beta"]
    stage.send("three", agent="alpha")
    assert stage.state.turn is not None
    assert (stage.state.turn.turn, stage.state.turn.context, stage.state.turn.catch_up) == (3, "resumed", 0)


def test_a_process_with_an_outdated_context_is_detached_immediately() -> None:
    stage = Stage()
    stage.a_turn("one")
    events = stage.do(cmd.EditMessage(turn=1, message_id="m1", text="other"))
    assert last(events, ev.AgentDetached).reason == "history_changed"
    assert stage.state.attached is None


def test_turn_numbers_are_never_reused() -> None:
    stage = Stage()
    for text in ("one", "two", "three"):
        stage.a_turn(text)
    stage.do(cmd.Rewind(turn=2))
    assert (stage.state.turn_count, turns_of(stage.state.visible), stage.state.turn) == (1, [1], None)
    stage.send("four")
    assert stage.turn == 4
    assert turns_of(stage.state.visible) == [1, 4]


def test_all_turns_can_be_rewound_and_the_next_one_is_a_first_turn_again() -> None:
    stage = Stage()
    stage.a_turn("one")
    stage.do(cmd.Rewind(turn=1))
    stage.send("again")
    assert stage.state.turn is not None
    assert (stage.state.turn.context, stage.state.turn.context_reason) == ("fresh", "first_turn")


def test_a_retry_is_one_step_and_always_fresh() -> None:
    stage = Stage()
    stage.a_turn("one")
    stage.a_turn("two")
    events = stage.do(cmd.RetryTurn(turn=2, message_id="m9", text="two again"))
    assert [ev.type_of(event) for event in events] == [
        "history_changed",
        "agent_detached",
        "user_message",
        "turn_start",
    ]
    start = last(events, ev.TurnStart)
    assert (start.turn, start.context, start.context_reason, start.seen) == (3, "fresh", "fresh_requested", 0)


def test_the_title_follows_the_first_message_until_a_person_sets_one() -> None:
    stage = Stage()
    stage.a_turn("one")
    stage.a_turn("two")
    stage.do(cmd.EditMessage(turn=2, message_id="m2", text="other"))
    assert stage.state.title == "one"
    stage.do(cmd.EditMessage(turn=1, message_id="m1", text="won"))
    assert stage.state.title == "won"
    stage.do(cmd.UpdateSession(title="Mine"))
    stage.do(cmd.EditMessage(turn=1, message_id="m1", text="one"))
    assert stage.state.title == "Mine"
    stage = Stage()
    stage.a_turn("one")
    stage.do(cmd.RetryTurn(turn=1, message_id="m9", text="other"))
    assert stage.state.title == "other"


def titled_by_the_agent() -> Stage:
    stage = Stage()
    stage.a_turn("one")
    stage.a_turn("two")
    stage.see(ev.Title(title="One and two", by="agent"))
    assert stage.state.title == "One and two"
    return stage


@pytest.mark.parametrize(
    ("change", "title"),
    [
        (cmd.EditMessage(turn=1, message_id="m1", text="won"), "won"),
        (cmd.EditMessage(turn=2, message_id="m2", text="too"), "one"),
        (cmd.Rewind(turn=2), "one"),
        (cmd.RetryTurn(turn=2, message_id="m3", text="too"), "one"),
        (cmd.RetryTurn(turn=1, message_id="m3", text="won"), "won"),
    ],
)
def test_an_agents_title_is_dropped_when_the_history_changes(change: cmd.Command, title: str) -> None:
    stage = titled_by_the_agent()
    stage.do(change)
    assert (stage.state.title, stage.state.title_by) == (title, "message")


def test_after_a_replay_the_agents_title_is_ignored() -> None:
    stage = Stage()
    stage.a_turn("one")
    stage.send("two", fresh=True)
    stage.open("n2")
    stage.see(ev.Title(turn=2, title="Continue an earlier conversation", by="agent"))
    stage.finish()
    stage.see(ev.Title(title="Continue an earlier conversation", by="agent"))
    assert stage.state.title == "one"
    stage.a_turn("three")
    stage.see(ev.Title(title="Counting", by="agent"))
    assert stage.state.title == "Counting"


@pytest.mark.parametrize(
    "command",
    [
        cmd.EditMessage(turn=1, message_id="m1", text="other"),
        cmd.Rewind(turn=1),
        cmd.RetryTurn(turn=1, message_id="m9", text="again"),
    ],
)
def test_a_change_is_refused_while_a_turn_runs_or_with_an_old_revision(command: cmd.Command) -> None:
    with pytest.raises(Refused) as refusal:
        working().do(command)
    assert refusal.value.code == "turn_active"
    stage = Stage()
    stage.a_turn("one")
    stage.do(cmd.EditMessage(turn=1, message_id="m1", text="won", revision=0))
    with pytest.raises(Refused) as refusal:
        stage.do(msgspec.structs.replace(command, revision=0))
    assert (refusal.value.code, refusal.value.facts["revision"]) == ("conflict", 1)
    with pytest.raises(Refused) as refusal:
        stage.do(msgspec.structs.replace(command, turn=2))
    assert refusal.value.code == "not_found"


def test_a_history_that_is_too_long_is_shortened_up_to_three_times_and_then_the_turn_fails() -> None:
    stage = Stage()
    stage.a_turn("one")
    stage.send("two", agent="beta")
    for times in range(1, 4):
        stage.open(f"b{times}")
        stage.finish("failed", error_code="context_too_long", error_message="Too long.", poisoned=True)
        assert stage.state.turn is not None
        assert (stage.state.phase, stage.state.turn.shortened) == ("working", times)
        assert f"b{times}" in stage.state.poisoned
    stage.open("b4")
    stage.finish("failed", error_code="context_too_long", error_message="Too long.", poisoned=True)
    assert stage.state.phase == "idle" and stage.state.turn is not None
    # A message that was too long on its own doesn't affect the next one.
    assert (stage.state.turn.stop_reason, stage.state.shortened) == ("failed", {})


def test_a_smaller_budget_is_remembered_until_the_model_changes() -> None:
    stage = Stage()
    stage.a_turn("one")
    stage.send("two", agent="beta")
    stage.open("b1")
    stage.finish("failed", error_code="context_too_long", error_message="Too long.", poisoned=True)
    stage.open("b2")
    stage.finish()
    assert stage.state.shortened == {"beta": 1}
    stage.do(cmd.SetConfig("model", "large"))
    assert stage.state.shortened == {}


@pytest.mark.parametrize("change", [cmd.Rewind(turn=2), cmd.EditMessage(turn=2, message_id="m2", text="other")])
def test_a_turn_started_by_the_agent_does_not_confirm_an_incomplete_native_session(change: cmd.Command) -> None:
    """After a turn failed in a live process, its native session may hold an unknown part of that turn."""
    stage = Stage()
    stage.a_turn("one")
    stage.send("two")
    stage.finish("failed", error_message="Overloaded.")
    own = [ob.TurnBegun("By itself."), ob.TurnFinished(0, "end_turn")]
    stage.see(*own)
    stage.do(change)
    assert stage.state.attached is None
    stage.send("three")
    assert stage.state.turn is not None and stage.state.turn.context == "fresh"


def test_a_wait_for_a_limit_ends_when_its_turn_is_rewound() -> None:
    stage = limited()
    stage.do(cmd.Rewind(turn=1))
    assert stage.state.waiting_until is None
    stage = limited_busy()
    stage.do(cmd.Rewind(turn=1))
    assert stage.state.waiting_until is not None, "the message that waits would meet the same limit"


def test_a_fork_has_the_agent_and_model_of_its_session_but_no_remembered_answers() -> None:
    stage = Stage()
    stage.a_turn("one")
    stage.a_turn("two", native="b1", agent="beta")
    decision = create(
        cmd.CreateSession(session_id="f", project=None, agent="beta", workdir="/srv", model="large"), stage.world()
    )
    always = ev.PromptResolved(
        turn=1, prompt_id="p", by="person", outcome="allowed", delivered=True, answer={"kind": "allow_always"}
    )
    asked = prompt(1, "p")
    asked.at = always.at = stage.log[2].at
    log = [*stage.log[:3], asked, always, *stage.log[3:]]
    take_over(decision, log, {1})
    assert (decision.state.agent, decision.state.model, decision.state.remembered) == ("beta", "large", [])
    assert decision.state.choices == {}
    assert replayed(decision.events) == decision.state


def test_a_fork_shows_where_each_turn_got_its_context() -> None:
    stage = Stage()
    stage.a_turn("one")
    stage.do(cmd.DetachAgent("idle_timeout"))
    stage.send("two")
    stage.launch("n1")
    stage.see(ob.ResumeRefused("no such session"))
    stage.see(ob.SessionOpened("n2", False))
    stage.see(ob.TranscriptShortened(2, (1,), (), 10))
    stage.finish()
    assert stage.state.turn is not None and stage.state.turn.context == "fresh"
    decision = create(cmd.CreateSession(session_id="f", project=None, agent="alpha", workdir="/srv"), stage.world())
    take_over(decision, stage.log, {1, 2})
    theirs, ours = public_turn(decision.turns[2]), public_turn(stage.state.turn)
    for name in ("context", "context_reason", "catch_up", "digested", "left_out"):
        assert theirs[name] == ours[name], name
    shown = [[part["type"] for part in parts_of(log, 2)] for log in (stage.log, decision.events)]
    assert shown[0] == shown[1] and {"context_fallback", "history_shortened"} <= set(shown[0])
    assert decision.state.poisoned == [] and replayed(decision.events) == decision.state


def parts_of(log: list[ev.Event], turn: int) -> list[dict[str, Any]]:
    view = TurnView(turn)
    for event in log:
        view.fold(event)
    return view.show()


def test_deltas_of_a_finished_text_are_copied_as_one() -> None:
    stage = Stage()
    stage.send("one")
    stage.open()
    for piece in ("a", "b", "c"):
        stage.see(ev.AssistantText(turn=1, block=0, delta=piece))
    stage.see(ev.ToolUse(turn=1, tool_id="t", name="Bash"), ev.AssistantText(turn=1, block=0, delta="d"))
    stage.finish()
    decision = create(cmd.CreateSession(session_id="f", project=None, agent="alpha", workdir="/srv"), stage.world())
    take_over(decision, stage.log, {1})
    assert [event.delta for event in decision.events if isinstance(event, ev.AssistantText)] == ["abc", "d"]
    assert [event.delta for event in stage.log if isinstance(event, ev.AssistantText)] == ["a", "b", "c", "d"]


def test_a_turn_in_which_a_tool_ran_is_not_retried() -> None:
    stage = Stage()
    stage.a_turn("one")
    stage.send("two", agent="beta")
    stage.open("b1")
    stage.see(ev.ToolUse(turn=2, tool_id="t", name="Bash"))
    stage.finish("failed", error_code="context_too_long", error_message="Too long.", poisoned=True)
    assert stage.state.phase == "idle" and stage.state.shortened == {}


def test_a_shortened_history_is_recorded_with_the_turn() -> None:
    stage = Stage()
    stage.a_turn("one")
    stage.send("two", agent="beta")
    stage.open("b1")
    [event] = stage.see(ob.TranscriptShortened(2, (3, 4), (1, 2), 180))
    assert isinstance(event, ev.HistoryShortened)
    assert event.message == (
        "The conversation is too long for beta: turns 1 and 2 are left out, turns 3 and 4 are told in short form."
    )
    assert stage.state.turn is not None
    assert (stage.state.turn.digested, stage.state.turn.left_out) == (2, 2)
    assert stage.see(ob.TranscriptShortened(1, (1,), (), 10)) == []
