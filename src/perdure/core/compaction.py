"""Compaction: joins runs of text deltas of a finished turn into one event each, and preserves every position.

Above: the compactor runs it after a turn; stores save the result and serve positions inside a run. Below: nothing.
It never joins across a block, a turn or another event, so readers assemble the same text before and after.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from perdure.core.events import DELTA_TYPES

JOINED_MAX_BYTES = 256 * 1024
"""A joined event is sent as one frame, so a longer run becomes several events."""


class Joined(Struct, frozen=True):
    """A run of deltas of one block, joined into one event. `cuts` are the lengths of the original deltas in characters,
    so that a position inside the run can still be served."""

    first_seq: int
    seq: int
    body: bytes
    cuts: list[int]


class Row(Protocol):
    """The fields of a stored event that compaction reads."""

    @property
    def seq(self) -> int: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def turn(self) -> int | None: ...
    @property
    def body(self) -> bytes: ...
    @property
    def cuts(self) -> Sequence[int]: ...


# Bodies are decoded as plain objects, not as event types, so that fields of a newer version survive.
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def leave_out(body: bytes, n: int) -> bytes:
    """The event without the first n characters of its delta."""
    event = _decode(body)
    event["delta"] = event["delta"][n:]
    return _encode(event)


def part_of_run(body: bytes, first_seq: int, cuts: Sequence[int], after: int, upto: int | None) -> bytes:
    """The part of a joined event with numbers in (after, upto]."""
    begin = sum(cuts[: max(0, after + 1 - first_seq)])
    if upto is None or upto >= first_seq + len(cuts) - 1:
        return leave_out(body, begin)
    event = _decode(body)
    event["delta"] = event["delta"][begin : sum(cuts[: upto + 1 - first_seq])]
    return _encode(event)


class Joiner:
    """Finds runs of adjacent deltas in events that arrive in order, in batches. A single delta is not changed."""

    def __init__(self) -> None:
        self._run: _Run | None = None

    def take(self, rows: Iterable[Row]) -> list[Joined]:
        """The runs that these events complete."""
        runs: list[Joined] = []
        for row in rows:
            if self._run is not None and self._run.take(row):
                continue
            runs += self.end()
            self._run = _Run(row) if _may_be_joined(row) else None
        return runs

    def end(self) -> list[Joined]:
        run, self._run = self._run, None
        return run.joined() if run is not None else []


def _may_be_joined(row: Row) -> bool:
    if row.type not in DELTA_TYPES:
        return False
    return row.first_seq == row.seq or len(row.cuts) == row.seq - row.first_seq + 1


class _Run:
    """Consecutive deltas of one block."""

    def __init__(self, row: Row) -> None:
        self._first = row
        self._last = row
        self._event = _decode(row.body)
        self._deltas: list[str] = []
        self._cuts: list[int] = []
        self._bytes = 0
        self._count = 0
        self._add(row, self._event)

    def _add(self, row: Row, event: dict[str, Any]) -> None:
        delta = event["delta"]
        self._last = row
        self._event = event
        self._deltas.append(delta)
        self._cuts.extend(row.cuts or (len(delta),))
        self._bytes += len(row.body)
        self._count += 1

    def take(self, row: Row) -> bool:
        """Add the event if it continues the run. Returns whether it was added."""
        if not _may_be_joined(row) or row.first_seq != self._last.seq + 1:
            return False
        if row.type != self._first.type or row.turn != self._first.turn:
            return False
        if self._bytes + len(row.body) > JOINED_MAX_BYTES:
            return False
        event = _decode(row.body)
        if event.get("block") != self._event.get("block"):
            return False
        self._add(row, event)
        return True

    def joined(self) -> list[Joined]:
        if self._count == 1:
            return []
        # The joined event has the number of the last one, so it also takes its other fields, above all its time.
        body = _encode({**self._event, "delta": "".join(self._deltas)})
        return [Joined(self._first.first_seq, self._last.seq, body, self._cuts)]
