"""Transcripts and logs, generated in pieces.

Above: history_verbs.py and the HTTP surface, which sends one piece at a time and applies backpressure for slow readers.
Below: the store. These are objects and not generators, because a suspended generator keeps the last piece alive in its
variables. A small piece is returned immediately. Before a large piece, the iterator returns None and holds nothing; the
caller asks again when there is memory for it.
"""

from collections.abc import Callable, Sequence

from perdure.core import events as ev
from perdure.core.transcript import History
from perdure.runtime.log.log import Log
from perdure.runtime.log.reading import READ_BATCH, of_turns, read_records, size_of_turns

SMALL_BYTES = 256 * 1024
"""Size of the stored events. The generated text is about as long."""
TURNS_AT_ONCE = 16


class TurnPieces:
    """Turns as of a position, several per piece; a long turn is a piece on its own."""

    def __init__(
        self,
        log: Log,
        session_id: str,
        upto: int,
        turns: Sequence[int],
        shown: Callable[[int, History], bytes],
        *,
        begin: bytes,
        between: bytes = b"",
        end: bytes = b"",
    ) -> None:
        self._log = log
        self._session_id = session_id
        self._upto = upto
        self._turns = turns
        self._shown = shown
        self._lead, self._between, self._end = begin, between, end
        self._count, self._most = 1, TURNS_AT_ONCE
        self._has_begun = self._is_over = False
        self._was_large = self._may_be_large = False

    def __aiter__(self) -> "TurnPieces":
        return self

    async def __anext__(self) -> bytes | None:
        may_be_large, self._may_be_large = self._may_be_large, False
        while self._turns:
            some = self._turns[: self._count]
            history = None
            if may_be_large or not self._was_large:
                history = await self._history(some, None if may_be_large else SMALL_BYTES)
            if history is None and self._count > 1:
                self._count = self._most = self._count // 2
            elif history is None:
                self._may_be_large, self._was_large = True, False
                return None
            else:
                self._turns = self._turns[len(some) :]
                # Grow the maximum slowly, because turns of a similar length would not fit either. If it didn't grow
                # again, every turn after a long one would be a piece on its own.
                self._most = min(self._most + 1, TURNS_AT_ONCE)
                self._count = 1 if may_be_large else min(2 * self._count, self._most)
                shown = [text for turn in some if (text := self._shown(turn, history))]
                del history
                # In Markdown a turn without a message is empty, and an empty piece would end the document.
                if shown:
                    self._was_large = sum(map(len, shown)) > SMALL_BYTES
                    return self._joined(shown)
        if self._is_over:
            raise StopAsyncIteration
        self._is_over = True
        return self._end if self._has_begun else self._lead + self._end

    async def _history(self, turns: Sequence[int], max_bytes: int | None) -> History | None:
        """Read these turns. Returns None if they exceed `max_bytes`, which it checks before reading, because a single
        event can be that large."""
        known = self._log.store, self._session_id, turns[0], turns[-1], self._upto
        found = await self._log.store.read_records(*known[1:], limit=turns[-1] - turns[0] + 1, max_bytes=max_bytes)
        if max_bytes is not None and sum(record.size for record in found.kept) > max_bytes:
            return None
        recorded = History()
        for _, said in read_records(self._session_id, found, self._upto):
            for event in said:
                recorded.fold(event)
        if all(turn in recorded.views for turn in turns):
            return recorded
        if max_bytes is not None and await size_of_turns(*known) > max_bytes:
            return None
        history, size = History(), 0
        async for batch in of_turns(*known):
            size += sum(len(row.body) for row in batch)
            if max_bytes is not None and size > max_bytes:
                return None
            for row in batch:
                history.fold(ev.decode(row.body))
        return history

    def _joined(self, shown: list[bytes]) -> bytes:
        parts = []
        for text in shown:
            parts += [self._lead, text]
            self._lead, self._has_begun = self._between, True
        return b"".join(parts)


class LogPieces:
    """The events after a position, at most `limit`, one per line."""

    def __init__(self, log: Log, session_id: str, after: int, limit: int) -> None:
        self._log = log
        self._session_id = session_id
        self._after = after
        self._left = limit
        self._may_be_large = False

    def __aiter__(self) -> "LogPieces":
        return self

    async def __anext__(self) -> bytes | None:
        may_be_large, self._may_be_large = self._may_be_large, False
        await self._log.open(self._session_id)
        store, limit = self._log.store, min(self._left, READ_BATCH)
        if not may_be_large and await store.size(self._session_id, self._after, limit=min(limit, 1)) > SMALL_BYTES:
            # The next read returns this event only: `max_bytes` limits reads of more than one event.
            self._may_be_large = True
            return None
        rows = await store.read(self._session_id, self._after, limit=limit, max_bytes=SMALL_BYTES)
        if not rows:
            raise StopAsyncIteration
        self._after = rows[-1].seq
        self._left -= len(rows)
        return b"".join(ev.with_seq(row.seq, row.body, row.first_seq) + b"\n" for row in rows)
