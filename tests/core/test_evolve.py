"""How events change the state: totals, limits, bindings; and that an event never changes afterwards."""

import copy

import pytest

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.evolve import CHANGES, POISONED_KEPT, RESOLVED_PROMPTS_KEPT, evolve
from perdure.core.state import dump
from tests.core.stage import SITUATIONS, Stage, attached, idle, replayed, working


@pytest.mark.parametrize("kind", ev.AnyEvent.__args__)
def test_an_event_that_is_not_decisive_has_no_effect(kind: type[ev.Event]) -> None:
    assert kind.decisive or kind not in CHANGES


@pytest.mark.parametrize("situation", SITUATIONS)
def test_folding_changes_the_state_and_not_the_events(situation: object) -> None:
    assert callable(situation)
    log = situation().log
    before = copy.deepcopy(log)
    replayed(log)
    assert log == before


def test_a_later_value_of_an_option_does_not_change_the_event_that_listed_it() -> None:
    stage = working()
    listed = ev.Config(config_id="model", value="a", options=[{"id": "model", "currentValue": "a"}])
    events = stage.see(listed, ev.Config(config_id="model", value="b"))
    assert stage.state.config_options == [{"id": "model", "currentValue": "b"}]
    assert events[0].options == [{"id": "model", "currentValue": "a"}]  # type: ignore[attr-defined]
    opened = stage.see(
        ob.SessionOpened("n1", False, config_options=[{"id": "model"}]), ev.Config(config_id="model", value="c")
    )
    assert opened[0].config_options == [{"id": "model"}]  # type: ignore[attr-defined]


def test_figures_of_a_turn_are_absolute_and_a_sessions_are_their_sum() -> None:
    stage = attached()
    for used in (10, 30):
        stage.send()
        stage.see(
            ev.Usage(turn=stage.turn, input_tokens=used - 5, context_used=7),
            ev.Usage(turn=stage.turn, input_tokens=used, cost_usd=0.5),
        )
        stage.finish()
        assert stage.state.turn is not None
        assert stage.state.turn.usage == {"input_tokens": used, "cost_usd": 0.5, "context_used": 7}
    assert stage.state.usage == {"input_tokens": 40, "cost_usd": 1.0}


def test_resolved_prompts_and_poisoned_sessions_are_bounded() -> None:
    stage = working()
    for number in range(RESOLVED_PROMPTS_KEPT + 5):
        stage.state.prompts.clear()
        evolve(stage.state, ev.PromptResolved(prompt_id=f"p{number}", by="agent", outcome="withdrawn", delivered=False))
    assert len(stage.state.resolved_prompts) == RESOLVED_PROMPTS_KEPT
    assert stage.state.resolved_prompts[-1] == f"p{number}"
    for number in range(POISONED_KEPT + 5):
        evolve(stage.state, ev.AgentAttached(agent="alpha", pid=1, native_session_id=f"n{number}", reason="started",
                                             launch_id="l1"))  # fmt: skip
        evolve(stage.state, ev.ContextFallback(turn=1, reason="refused", poisoned=True))
    assert len(stage.state.poisoned) == POISONED_KEPT


def test_a_native_session_is_bound_when_its_id_is_known_and_confirmed_when_the_agent_ends_a_turn() -> None:
    stage = Stage()
    stage.send()
    stage.launch()
    assert stage.state.bindings == {}
    stage.see(ob.SessionOpened("n1", False))
    binding = stage.state.bindings["alpha"]
    assert (binding.native_session_id, binding.confirmed, binding.last_turn) == ("n1", False, 0)
    stage.finish()
    binding = stage.state.bindings["alpha"]
    assert (binding.confirmed, binding.last_turn) == (True, 1)
    stage.send()
    assert not stage.state.bindings["alpha"].confirmed


def test_the_turn_of_one_agent_confirms_nothing_of_another() -> None:
    stage = attached()
    stage.a_turn("two", native="b1", agent="beta")
    assert {name: found.last_turn for name, found in stage.state.bindings.items()} == {"alpha": 1, "beta": 2}


def test_events_of_another_process_change_nothing() -> None:
    stage = working()
    before = dump(stage.state)
    for event in (
        ev.AgentAttached(agent="alpha", pid=1, native_session_id="n9", reason="started", launch_id="older"),
        ev.AgentDetached(agent="alpha", pid=1, native_session_id="n9", reason="exited", launch_id="older"),
    ):
        evolve(stage.state, event)
    assert dump(stage.state) == before


def test_a_usage_limit_and_a_summary_are_part_of_the_state() -> None:
    stage = idle()
    evolve(stage.state, ev.WaitingUntil(until="2027-01-01T00:00:00.000Z", reason="limit"))
    assert stage.state.waiting_until is not None
    stage = idle()
    stage.do(cmd.UpdateSession(summary="short", labels=("a", "b")))
    assert (stage.state.summary, stage.state.labels, stage.state.archived) == ("short", ["a", "b"], False)


def test_only_messages_prompts_answers_and_turns_are_activity() -> None:
    stage = working()

    def moved(event: ev.Event) -> bool:
        """Whether an event an hour later counts as activity of the session."""
        stage.at_s += 3600
        before, event.at = stage.state.last_active_at, stage.world().now
        evolve(stage.state, event)
        return stage.state.last_active_at != before

    asked = ev.PendingPrompt(turn=1, prompt_id="p1", kind="permission", title="Deploy")
    answered = ev.PromptResolved(turn=1, prompt_id="p1", by="person", outcome="allowed", delivered=True)
    closed = ev.PromptResolved(turn=1, prompt_id="p2", by="server", outcome="agent_lost", delivered=False)
    launch = stage.state.attached.launch_id if stage.state.attached else ""
    assert moved(ev.MessageQueued(message_id="m9", text="later", agent=None))
    assert moved(asked) and moved(answered) and not moved(closed)
    assert not moved(ev.Config(config_id="mode", value="plan", requested=True))
    assert moved(ev.TurnEnd(turn=1, stop_reason="end_turn", exit_code=None, duration_ms=1))
    assert not moved(ev.AgentDetached(agent="alpha", pid=1, native_session_id="n1", reason="idle", launch_id=launch))
    assert stage.state.attached is None
    assert not moved(ev.Title(title="x", by="person"))
    assert moved(ev.HistoryChanged(change="rewind", turn=1, bumped=[]))
    assert not moved(ev.SessionEnd(status="timed-out", reason="idle_timeout"))
