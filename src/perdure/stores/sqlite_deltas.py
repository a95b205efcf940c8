"""A fast path for the most common steps: deltas, in which an agent continues its text.

Above: the writer (sqlite_writer.py), which hands all other steps to a Group. Below: SQLite. A delta step has only
pieces of text and the launch's new offset, and nothing in it can be rejected. `_is_plain` defines it.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain

from perdure.stores.base import Append, Kept
from perdure.stores.launch_rows import only_offset_differs
from perdure.stores.sqlite_group import EVENTS, CachedHead, Known, Row

ALONE_ROWS = 8
"""Up to this many rows are written as a single statement, without an explicit transaction."""


def write_deltas(connection: sqlite3.Connection, known: Known, steps: Sequence[Append]) -> list[Kept] | None:
    """Write these steps in the open transaction. Returns None, with nothing written, if one is not a delta step."""
    count = _count(known, steps)
    if not count:
        return None
    EVENTS.write(connection, _rows(known, steps, known.positions(connection, count).start))
    return _kept(known, steps)


def commit_deltas(connection: sqlite3.Connection, known: Known, steps: Sequence[Append]) -> list[Kept] | None:
    """Like `write_deltas`, as a single statement that also checks the store's owner and commits. Also returns None,
    with nothing written, if there are too many rows, or if another server has claimed the store."""
    count = _count(known, steps)
    if not 0 < count <= ALONE_ROWS or not known.has_positions(count):
        return None
    rows = _rows(known, steps, known.positions(connection, count).start)
    written = connection.execute(_alone(count), [*chain.from_iterable(rows), known.generation])
    return _kept(known, steps) if written.rowcount == count else None


@cache
def _alone(count: int) -> str:
    rows = ",".join([f"({','.join('?' * EVENTS.width)})"] * count)
    return f"{EVENTS.begin} SELECT * FROM (VALUES {rows}) WHERE (SELECT generation FROM meta) = ?"  # noqa: S608  constant


def _count(known: Known, steps: Sequence[Append]) -> int:
    """Return the number of events; 0 if one is not a delta step, or if two belong to the same session."""
    if len(steps) > 1 and len({step.session_id for step in steps}) < len(steps):
        return 0
    count = 0
    for step in steps:
        head = known.heads.get(step.session_id)
        if head is None or step.generation != known.generation or not _is_plain(step, head):
            return 0
        count += len(step.events)
    return count


def _is_plain(step: Append, head: CachedHead) -> bool:
    if step.progress is None or head.launch is None or not only_offset_differs(step.progress, head.launch):
        return False
    if step.token != head.token or step.expect != head.decided_seq or not step.events:
        return False
    if step.state or step.listed or step.receipt or step.claim or step.expect_last is not None or step.hidden:
        return False
    for draft in step.events:
        if draft.decisive:
            return False
    return not (step.turns or step.phrases or step.issued or step.records)


def _rows(known: Known, steps: Sequence[Append], position: int) -> list[Row]:
    rows: list[Row] = []
    for step in steps:
        head, progress = known.heads[step.session_id], step.progress
        assert progress is not None
        seq, last = head.last_seq, head.last_seq + len(step.events)
        for draft in step.events:
            seq += 1
            offset = progress.offset if seq == last else None
            rows.append((position, head.key, seq, draft.type, draft.turn, 0, draft.body, offset))
            position += 1
    return rows


def _kept(known: Known, steps: Sequence[Append]) -> list[Kept]:
    """Update the cached heads after the steps were written."""
    kept = []
    for step in steps:
        head, progress = known.heads[step.session_id], step.progress
        assert progress is not None
        kept.append(Kept(head.last_seq + 1, head.token, head.owner))
        head.last_seq += len(step.events)
        head.launch_offset = progress.offset
    return kept
