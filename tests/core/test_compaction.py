"""Compaction: which deltas are joined, which are not, and parts of a joined run."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.core import compaction
from perdure.core.compaction import Joined, Joiner, leave_out, part_of_run
from perdure.core.events import AssistantText, AssistantThinking, decode, encode
from perdure.stores.base import Stored


def text(seq: int, delta: str, block: int = 0, turn: int = 1, at: str = "") -> Stored:
    return Stored(seq, seq, "assistant_text", turn, encode(AssistantText(at=at, turn=turn, block=block, delta=delta)))


def thought(seq: int, delta: str) -> Stored:
    return Stored(seq, seq, "assistant_thinking", 1, encode(AssistantThinking(turn=1, block=0, delta=delta)))


def delta_of(body: bytes) -> str:
    event = decode(body)
    assert isinstance(event, AssistantText | AssistantThinking)
    return event.delta


def ranges(runs: list[Joined]) -> list[tuple[int, int]]:
    return [(run.first_seq, run.seq) for run in runs]


def join_runs(rows: list[Stored]) -> list[Joined]:
    joiner = Joiner()
    return [*joiner.take(rows), *joiner.end()]


def test_adjacent_deltas_become_one_event_with_the_number_and_time_of_the_last() -> None:
    [run] = join_runs([text(4, "one ", at="a"), text(5, "", at="b"), text(6, "two", at="c")])
    assert (run.first_seq, run.seq, run.cuts) == (4, 6, [4, 0, 3])
    assert decode(run.body) == AssistantText(at="c", turn=1, block=0, delta="one two")


def test_nothing_is_joined_across_blocks_turns_types_gaps_or_other_events() -> None:
    plan = Stored(8, 8, "plan", 1, b"{}")
    rows = [
        text(1, "a"),
        text(2, "b", block=1),
        text(3, "c", turn=2),
        thought(4, "d"),
        text(6, "e"),
        plan,
        text(9, "f"),
    ]
    assert join_runs(rows) == []


def test_a_run_of_deltas_ends_where_another_event_begins() -> None:
    rows = [text(1, "a"), text(2, "b"), thought(3, "c"), thought(4, "d"), Stored(5, 5, "plan", 1, b"{}"), text(6, "e")]
    assert ranges(join_runs(rows)) == [(1, 2), (3, 4)]


def test_a_run_that_is_already_joined_grows_and_keeps_its_cuts() -> None:
    [first] = join_runs([text(1, "ab"), text(2, "c")])
    joined = Stored(first.seq, first.first_seq, "assistant_text", 1, first.body, first.cuts)
    assert join_runs([joined]) == []
    [grown] = join_runs([joined, text(3, "def")])
    assert (grown.first_seq, grown.seq, grown.cuts, delta_of(grown.body)) == (1, 3, [2, 1, 3], "abcdef")


def test_a_joined_event_without_cuts_is_not_changed() -> None:
    rows = [Stored(2, 1, "assistant_text", 1, text(2, "ab").body), text(3, "c"), text(4, "d")]
    assert ranges(join_runs(rows)) == [(3, 4)]


def test_a_long_run_becomes_several_events_of_bounded_size() -> None:
    piece = "x" * (compaction.JOINED_MAX_BYTES // 4)
    runs = join_runs([text(number, piece) for number in range(1, 10)])
    assert ranges(runs) == [(1, 3), (4, 6), (7, 9)]
    assert all(len(run.body) <= compaction.JOINED_MAX_BYTES for run in runs)


def test_fields_of_a_newer_version_are_preserved() -> None:
    body = b'{"type":"assistant_text","at":"","session_id":"","turn":1,"block":0,"delta":"a\\u00e9b","new":{"x":1}}'
    assert leave_out(body, 2) == body.replace(b"a\\u00e9b", b"b")


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=2, max_size=12), st.data())
def test_any_part_of_a_run_is_the_text_of_its_events(deltas: list[str], data: st.DataObject) -> None:
    [run] = join_runs([text(10 + number, delta) for number, delta in enumerate(deltas)])
    after = data.draw(st.integers(0, run.seq - 1))
    upto = data.draw(st.none() | st.integers(max(after + 1, 10), run.seq + 3))
    part = part_of_run(run.body, run.first_seq, run.cuts, after, upto)
    end = None if upto is None else max(0, upto - 9)
    assert delta_of(part) == "".join(deltas[max(0, after - 9) : end])


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.booleans()), max_size=30),
    st.lists(st.integers(1, 5), max_size=30),
)
def test_events_in_batches_are_joined_like_events_in_one_go(
    said: list[tuple[str, int, bool]], sizes: list[int]
) -> None:
    rows = [
        text(seq, words, block) if is_text else thought(seq, words)
        for seq, (words, block, is_text) in enumerate(said, 1)
    ]
    joiner, found, rest = Joiner(), list[Joined](), rows
    for size in sizes:
        found += joiner.take(rest[:size])
        rest = rest[size:]
    assert [*found, *joiner.take(rest), *joiner.end()] == join_runs(rows)
