"""Reads a log in batches, so that a long one doesn't block the event loop.

Above: the log, history_verbs.py, the compactor and runners. Below: the store. Batches are processed on the event loop,
so a batch takes at most a few milliseconds; other tasks run in between. The conversation of a turn is read from its
record if it has one, otherwise from the log. The result is the same.
"""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator

from perdure.core import events as ev
from perdure.core.turn_record import BROKEN, read_record
from perdure.stores.base import KeptRecord, Records, Store, Stored

logger = logging.getLogger(__name__)

READ_BATCH = 1_000
READ_BYTES = 1024 * 1024
"""How much of a log a reader holds in memory at a time."""
RECORDS_AT_ONCE = 64


async def batches(store: Store, session_id: str, after: int, upto: int | None = None) -> AsyncIterator[list[Stored]]:
    """The events after this position, in order; with `upto`, up to and including that one."""
    while batch := await store.read(session_id, after, limit=READ_BATCH, upto=upto, max_bytes=READ_BYTES):
        yield batch
        after = batch[-1].seq


async def size_of_turns(store: Store, session_id: str, first: int, last: int, upto: int) -> int:
    """The size in bytes of the first batch of these turns without the limit of `READ_BYTES`."""
    place = await store.find_turns(session_id, first, last)
    end = upto if place.upto is None else min(upto, place.upto)
    return await store.size(session_id, place.after, limit=READ_BATCH, upto=end)


async def of_turns(
    store: Store, session_id: str, first: int, last: int | None, upto: int
) -> AsyncIterator[list[Stored]]:
    """The events of these turns as of position `upto`. Reads no other turns."""
    place = await store.find_turns(session_id, first, last)
    end = upto if place.upto is None else min(upto, place.upto)
    async for batch in batches(store, session_id, place.after, end):
        yield [
            row for row in batch if row.turn is not None and first <= row.turn and (last is None or row.turn <= last)
        ]
    yield [row for row in place.changes if row.seq <= upto]


def read_records(session_id: str, found: Records, upto: int) -> Iterator[tuple[int, list[ev.AnyEvent]]]:
    """Each turn that has a record, with its conversation as of position `upto`. Skips unreadable records."""
    changes: dict[int | None, list[Stored]] = defaultdict(list)
    for row in found.changes:
        changes[row.turn].append(row)
    for record in found.kept:
        if (said := _said(session_id, record)) is not None:
            later = [row for row in changes[record.turn] if record.seq < row.seq <= upto]
            yield record.turn, [*said, *(ev.decode(row.body) for row in later)]


def _said(session_id: str, record: KeptRecord) -> list[ev.AnyEvent] | None:
    try:
        said = read_record(record.body)
    except BROKEN as error:
        what = str(error)
    else:
        if all(event.turn == record.turn for event in said):
            return said
        what = "it belongs to another turn"
    logger.warning(
        "session %s: could not read the record of turn %s (%s); reading the turn from the log",
        *(session_id, record.turn, what),
    )
    return None


async def said_in_turns(
    store: Store, session_id: str, first: int, last: int | None, upto: int
) -> AsyncIterator[list[ev.AnyEvent]]:
    """The conversation in these turns as of position `upto`, as events. They can be fewer than those in the log, but
    give the same result."""
    turn = first
    while True:
        found = await store.read_records(session_id, turn, last, upto, limit=RECORDS_AT_ONCE, max_bytes=READ_BYTES)
        for recorded, said in read_records(session_id, found, upto):
            if recorded > turn:
                async for events in _logged(store, session_id, turn, recorded - 1, upto):
                    yield events
            yield said
            turn = recorded + 1
        if not found.kept:
            break
        if turn <= (newest := found.kept[-1].turn):
            # The last record is unreadable.
            async for events in _logged(store, session_id, turn, newest, upto):
                yield events
            turn = newest + 1
    if last is None or turn <= last:
        async for events in _logged(store, session_id, turn, last, upto):
            yield events


async def _logged(
    store: Store, session_id: str, first: int, last: int | None, upto: int
) -> AsyncIterator[list[ev.AnyEvent]]:
    async for batch in of_turns(store, session_id, first, last, upto):
        yield [ev.decode(row.body) for row in batch]
