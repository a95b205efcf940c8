"""Reading a log a little at a time, so that a long one keeps nobody else waiting.

Above: the log, histories, the compactor and runners. Below: the store. What is done with a batch is done on the event
loop, so a batch is as much as that takes a few milliseconds for; between batches everybody else has a turn. What was
said in turns is read from their records where there are any, else from the log: it is the same.
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
"""How much of a log each reader has in memory at once."""
RECORDS_AT_ONCE = 64


async def batches(store: Store, session_id: str, after: int, upto: int | None = None) -> AsyncIterator[list[Stored]]:
    """The events after this position, in order; with `upto`, up to that one."""
    while batch := await store.read(session_id, after, limit=READ_BATCH, upto=upto, max_bytes=READ_BYTES):
        yield batch
        after = batch[-1].seq


async def size_of_turns(store: Store, session_id: str, first: int, last: int, upto: int) -> int:
    """How many bytes the first batch of these turns would have, were it not cut at `READ_BYTES`."""
    place = await store.find_turns(session_id, first, last)
    end = upto if place.upto is None else min(upto, place.upto)
    return await store.size(session_id, place.after, limit=READ_BATCH, upto=end)


async def of_turns(
    store: Store, session_id: str, first: int, last: int | None, upto: int
) -> AsyncIterator[list[Stored]]:
    """The events of these turns, as they are known at position `upto`. Others are not read."""
    place = await store.find_turns(session_id, first, last)
    end = upto if place.upto is None else min(upto, place.upto)
    async for batch in batches(store, session_id, place.after, end):
        yield [
            row for row in batch if row.turn is not None and first <= row.turn and (last is None or row.turn <= last)
        ]
    yield [row for row in place.changes if row.seq <= upto]


def read_records(session_id: str, found: Records, upto: int) -> Iterator[tuple[int, list[ev.AnyEvent]]]:
    """Each turn that has a record, and what was said in it, as it is known at position `upto`. A record that can't be
    read is left out."""
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
        what = "it is of another turn"
    logger.warning(
        "session %s: the record of turn %s can't be read (%s); the turn is read from the log",
        *(session_id, record.turn, what),
    )
    return None


async def said_in_turns(
    store: Store, session_id: str, first: int, last: int | None, upto: int
) -> AsyncIterator[list[ev.AnyEvent]]:
    """What was said in these turns, as it is known at position `upto`: events that tell the same as all of them."""
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
            # The last of them can't be read.
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
