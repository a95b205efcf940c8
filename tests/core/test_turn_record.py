"""Turn records: they give the same history and the same fork as the turn's events."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import turn_record
from perdure.core.history import TOLD, take_over
from perdure.core.session import create
from perdure.core.transcript import History
from perdure.core.turn_record import BROKEN, RecordedView, TurnRecord, read_record, record_of, records_of
from tests.core.stage import prompt, world

TURN = 3
T = "2026-01-01T00:00:0{}.000Z"
times = st.sampled_from((T.format(1), T.format(2)))
words = st.text(max_size=8)
tool_ids = st.sampled_from(("a", "b", "none"))
prompt_ids = st.sampled_from(("p1", "p2"))
maybe = st.none() | words
question = ev.Question(question_id="q", question="Which?")
statuses: st.SearchStrategy[Any] = st.sampled_from(("pending", "in_progress", "completed", "failed"))
outcomes: st.SearchStrategy[Any] = st.sampled_from(("allowed", "denied", "answered", "cancelled"))
answers: st.SearchStrategy[Any] = st.sampled_from(
    (None, {"option_id": "yes", "reason": "why"}, {"answers": {"q": "this"}})
)
progress: dict[str, Any] = {
    "turn": st.just(TURN),
    "at": times,
    "tool_id": tool_ids,
    "status": statuses,
    "content": maybe,
    "diff": st.none() | st.lists(st.fixed_dictionaries({"path": words}), max_size=1),
    "locations": st.none() | st.just([{"path": "x"}]),
    "title": maybe,
    "input": st.none() | st.dictionaries(words, st.integers(), max_size=2),
    "is_error": st.booleans(),
}


def of(kind: type[Any], **fields: Any) -> st.SearchStrategy[ev.Event]:
    return st.builds(kind, turn=st.just(TURN), at=times, **fields)


events = st.one_of(
    of(ev.AssistantText, block=st.integers(0, 1), delta=words),
    of(ev.AssistantText, block=st.integers(0, 1), delta=words),
    of(ev.AssistantThinking, block=st.integers(0, 1), delta=words),
    of(ev.ToolUse, tool_id=st.sampled_from(("a", "b")), name=words, title=words, input=st.none() | st.just({"x": 1})),
    st.builds(ev.ToolUpdate, **progress),
    st.builds(ev.ToolUpdate, **progress),
    st.builds(ev.ToolResult, **progress, waited_ms=st.integers(0, 1)),
    of(ev.Plan, entries=st.lists(st.builds(ev.PlanEntry, content=words), max_size=2)),
    of(ev.Image, mime_type=st.just("image/png"), size=st.just(3), data=maybe, tool_id=st.none()),
    st.builds(lambda name, at: prompt(TURN, name, at=at, questions=[question]), prompt_ids, times),
    of(
        ev.PromptResolved,
        prompt_id=prompt_ids,
        by=st.just("person"),
        outcome=outcomes,
        answer=answers,
        delivered=st.just(True),
    ),
    of(ev.System, message=words, code=words),
    of(ev.Error, message=words, code=words),
    of(ev.ContextFallback, reason=words),
    of(ev.HistoryChanged, change=st.just("edit"), bumped=st.just([]), text=words.filter(bool)),
    of(ev.Usage, input_tokens=st.integers(0, 9)),
    of(ev.AgentDetached, agent=st.just("alpha"), reason=st.just("x")),
)
BEGIN: tuple[ev.Event, ...] = (
    ev.UserMessage(turn=TURN, at=T.format(0), message_id="m", text="go", agent="alpha"),
    ev.TurnStart(
        turn=TURN, at=T.format(0), run_id="r", message_id="m", agent="alpha", context="fresh", context_reason=""
    ),
)
END = ev.TurnEnd(turn=TURN, at=T.format(9), stop_reason="cancelled")


def told(folded: list[Any]) -> Any:
    """Everything that a history shows of the turn."""
    history = History()
    for event in folded:
        history.fold(event)
    view = history.views[TURN]
    return view.message, view.show(), view.text(), history.agents, history.stop_reasons, history.said([TURN])


def forked(given_events: list[Any]) -> Any:
    made = create(cmd.CreateSession(session_id="f", project=None, agent="alpha", workdir="/srv"), world())
    take_over(made, given_events, {TURN})
    return told(made.events)


def played(given_events: list[ev.Event], seen: int) -> list[TurnRecord]:
    """The records of a step that contains all but the first `seen` of these events."""
    view = RecordedView(TURN)
    for event in given_events[:seen]:
        view.fold(event)
    before = view.show(), view.text()
    made = list(records_of(view, given_events[seen:], None))
    assert (view.show(), view.text()) == before, "a step that is not kept leaves no trace"
    return made


@given(st.lists(events, max_size=30), st.integers(0, 32))
def test_a_record_gives_the_same_history_as_the_events_of_its_turn(some: list[ev.Event], seen: int) -> None:
    every = [*BEGIN, *some, END]
    [record] = played(every, min(seen, len(every) - 1))
    assert record.turn == TURN and record.body is not None
    read = read_record(record.body)
    assert told(read) == told(every)
    assert forked(read) == forked(every)
    assert read_record(record_of(TURN, read).body or b"") == read, "a record of a record is the same"


@given(st.lists(events, max_size=20), st.integers(0, 22))
def test_an_event_after_the_end_of_a_turn_invalidates_its_record(some: list[ev.Event], seen: int) -> None:
    every = [*BEGIN, *some, END]
    view = RecordedView(TURN)
    for event in every:
        view.fold(event)
    late = every[2 + min(seen, len(some)) : -1]
    expected = [TurnRecord(TURN)] if any(isinstance(event, TOLD) for event in late) else []
    assert list(records_of(view, late, None)) == expected
    assert list(records_of(view, late, TURN)) == [], "the turn runs"


def test_a_turn_whose_start_was_not_seen_gets_no_record() -> None:
    assert list(records_of(RecordedView(None), [*BEGIN[1:], END], None)) == [TurnRecord(TURN)]
    [whole] = records_of(RecordedView(1), [*BEGIN, END], None)
    assert whole.body is not None


@pytest.mark.parametrize("seen", [2, 5])
@pytest.mark.parametrize(
    "large",
    [
        ev.AssistantText(turn=TURN, block=0, delta="x" * turn_record.RECORD_MAX_BYTES),
        ev.ToolResult(turn=TURN, tool_id="t", content="x" * turn_record.RECORD_MAX_BYTES),
        ev.Image(turn=TURN, mime_type="image/png", size=1, data="x" * turn_record.RECORD_MAX_BYTES),
    ],
)
def test_a_long_turn_gets_no_record(large: ev.Event, seen: int) -> None:
    tool = ev.ToolUse(turn=TURN, tool_id="t", name="Bash")
    text = ev.AssistantText(turn=TURN, block=0, delta="word")
    assert played([*BEGIN, tool, large, text, END], seen) == [TurnRecord(TURN)]


@pytest.mark.parametrize("seen", [2, 2_500])
def test_a_turn_of_many_parts_gets_no_record(seen: int) -> None:
    parts = [ev.AssistantText(turn=TURN, block=number, delta="x") for number in range(3_000)]
    assert played([*BEGIN, *parts, END], seen) == [TurnRecord(TURN)]


def test_repeated_output_of_a_tool_is_recorded_once() -> None:
    tool = ev.ToolUse(turn=TURN, tool_id="t", name="Bash")
    updates = [ev.ToolUpdate(turn=TURN, tool_id="t", content="x" * 50 * number) for number in range(1_000)]
    every = [*BEGIN, tool, *updates, END]
    [record] = played(every, len(every) - 1)
    assert 50_000 < record.size < 60_000
    assert record.body is not None and told(read_record(record.body)) == told(every)


def test_a_flipped_bit_never_turns_a_record_into_another_history() -> None:
    body = record_of(TURN, [*BEGIN, END]).body
    assert body is not None
    for bit in range(len(body) * 8):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert read_record(bytes(flipped)) == [*BEGIN, END]
        except BROKEN:
            continue
