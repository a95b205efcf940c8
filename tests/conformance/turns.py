"""Finding the events of a turn without reading the others, in every store. See stores.py."""

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.events import Event, HistoryChanged, TurnEnd, TurnStart, UserMessage, WaitingForInput, encode, type_of
from perdure.runtime.log.reading import of_turns
from perdure.stores.base import Draft, KeptRecord, Stored, TurnRecord
from tests.conformance.stores import Owner, delta, generated


def _draft(event: Event) -> Draft:
    return Draft(type_of(event), event.turn, encode(event), True)


def a_turn(number: int, deltas: int, *, said: bool = True) -> list[Draft]:
    """Return the events of a turn. The oldest imported turns have no message."""
    begin = [UserMessage(turn=number, message_id="m", text="hello", agent="a")] if said else []
    start = TurnStart(turn=number, run_id="r", message_id="m", agent="a", context="fresh", context_reason="")
    end = [TurnEnd(turn=number, stop_reason="end_turn"), WaitingForInput(turn=number)]
    said_since = [delta(f"{number}.{piece}", turn=number) for piece in range(deltas)]
    return [*map(_draft, begin), _draft(start), *said_since, *map(_draft, end)]


def an_edit(turn: int) -> Draft:
    return _draft(HistoryChanged(turn=turn, change="edit", bumped=[], message_id="m", text="other"))


async def found(owner: Owner, session: str, first: int, last: int | None, upto: int) -> list[Stored]:
    rows: list[Stored] = []
    async for batch in of_turns(owner.store, session, first, last, upto):
        rows += batch
    return rows


class TurnsSuite:
    @generated
    @given(
        turns=st.lists(
            st.tuples(st.integers(0, 4), st.booleans(), st.lists(st.integers(1, 8), max_size=2)), max_size=8
        ),
        first=st.integers(1, 9),
        last=st.one_of(st.none(), st.integers(1, 9)),
        cut=st.integers(0, 60),
    )
    async def test_all_events_of_some_turns_are_found_including_later_changes(
        self, owner: Owner, turns: list[tuple[int, bool, list[int]]], first: int, last: int | None, cut: int
    ) -> None:
        session = uuid4().hex
        await owner.create(session)
        for number, (deltas, said, edited) in enumerate(turns, 1):
            edits = [an_edit(min(turn, number)) for turn in edited]
            await owner.append(session, *a_turn(number, deltas, said=said), *edits)
        every = await owner.all(session)
        for upto in (every[-1].seq, min(cut, every[-1].seq)):
            wanted = [row for row in every if row.turn and first <= row.turn <= (last or 99) and row.seq <= upto]
            assert await found(owner, session, first, last, upto) == wanted

    async def test_an_unknown_session_has_no_turns(self, owner: Owner) -> None:
        assert await found(owner, "nobody", 1, None, 100) == []
        await owner.create("s", *a_turn(1, 3))
        assert await found(owner, "s", 2, 10**30, 100) == []

    async def test_turns_are_found_after_compaction(self, owner: Owner) -> None:
        await owner.create("s", *a_turn(1, 3), *a_turn(2, 3))
        await owner.compact("s")
        rows = await found(owner, "s", 1, 1, 100)
        assert [row.type for row in rows] == [
            "user_message",
            "turn_start",
            "assistant_text",
            "turn_end",
            "waiting_for_input",
        ]

    async def test_records_are_stored_replaced_and_removed_with_their_step(self, owner: Owner) -> None:
        records = [TurnRecord(number, 10 * number, b"%d" % number) for number in range(1, 5)]
        await owner.create("s", *a_turn(1, 0), records=records, records_after=0)
        await owner.append("s", records=[TurnRecord(2, 7, b"again"), TurnRecord(3)], records_after=4)
        first, second, fourth = KeptRecord(1, 4, 10, b"1"), KeptRecord(2, 4, 7, b"again"), KeptRecord(4, 4, 40, b"4")

        async def kept(turn: int, last: int | None, upto: int = 99, **bounds: int) -> list[KeptRecord]:
            return (await owner.store.read_records("s", turn, last, upto, **({"limit": 99} | bounds))).kept

        assert await kept(1, None) == [first, second, fourth]
        assert await kept(2, 3) == [second]
        assert await kept(1, 10**30, 10**30, limit=10**30) == [first, second, fourth]
        assert await kept(1, None, limit=2) == [first, second]
        assert await kept(1, None, max_bytes=17) == [first, second]
        assert await kept(1, None, max_bytes=0) == [first], "a reader must be able to continue"
        assert await kept(1, None, upto=3) == [], "they were made from later events"
        await owner.store.erase("s", owner.generation)
        assert await kept(1, None) == []

    async def test_a_record_that_lacks_an_event_is_not_stored(self, owner: Owner) -> None:
        await owner.create("s", *a_turn(1, 0), records=[TurnRecord(1, 1, b"1")], records_after=0)
        assert (await owner.store.read_records("s", 1, None, 99, limit=9)).kept == [KeptRecord(1, 4, 1, b"1")]
        # The writer has read three of four events.
        await owner.append(
            "s", *a_turn(2, 1), records=[TurnRecord(1, 1, b"2"), TurnRecord(2, 1, b"3")], records_after=3
        )
        assert (await owner.store.read_records("s", 1, None, 99, limit=9)).kept == []

    async def test_later_changes_of_turns_are_returned_with_the_records(self, owner: Owner) -> None:
        await owner.create("s", *a_turn(1, 0), *a_turn(2, 0), an_edit(1), an_edit(2), *a_turn(3, 0))
        await owner.append("s", records=[TurnRecord(1, 1, b"1"), TurnRecord(3, 1, b"3")], records_after=14)
        found = await owner.store.read_records("s", 1, None, 99, limit=9)
        assert [record.turn for record in found.kept] == [1, 3]
        assert [(row.seq, row.turn) for row in found.changes] == [(9, 1), (10, 2)]
        assert (await owner.store.read_records("s", 3, None, 99, limit=9)).changes == []
