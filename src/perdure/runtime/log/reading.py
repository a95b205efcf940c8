"""Reading a log a little at a time, so that a long one keeps nobody else waiting.

Above: the log, histories, the compactor and runners. Below: the store. What is done with a batch is done on the event
loop, so a batch is as much as that takes a few milliseconds for; between batches everybody else has a turn.
"""

from collections.abc import AsyncIterator

from perdure.stores.base import Store, Stored

READ_BATCH = 1_000
READ_BYTES = 1024 * 1024
"""How much of a log each reader has in memory at once."""


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
