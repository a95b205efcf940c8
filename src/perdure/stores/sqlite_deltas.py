"""The steps that come most often, written with as little work as they allow: an agent goes on with its text.

Above: the writer (sqlite_writer.py), which gives anything else to a Group. Below: SQLite. Such a step has only pieces
of text and how far the launch was read for them, and nothing in it can be rejected. What makes it one is all here.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain

from perdure.stores.base import Append, Kept
from perdure.stores.launch_rows import only_offset_differs
from perdure.stores.sqlite_group import EVENTS, CachedHead, Known, Row

ALONE_ROWS = 8
"""As many can be one statement that needs no transaction around it."""


def write_deltas(connection: sqlite3.Connection, known: Known, steps: Sequence[Append]) -> list[Kept] | None:
    """Put these steps into the open transaction; None, and nothing is done, if one of them is not as described."""
    count = _count(known, steps)
    if not count:
        return None
    EVENTS.write(connection, _rows(known, steps, known.positions(connection, count).start))
    return _kept(known, steps)


def commit_deltas(connection: sqlite3.Connection, known: Known, steps: Sequence[Append]) -> list[Kept] | None:
    """The same as a transaction of one statement, which begins, checks who owns the store, writes and commits. None,
    and nothing is done, also if there are more rows than fit one, or if somebody else has claimed the store."""
    count = _count(known, steps)
    if not 0 < count <= ALONE_ROWS or not known.has_positions(count):
        return None
    rows = _rows(known, steps, known.positions(connection, count).start)
    written = connection.execute(_alone(count), [*chain.from_iterable(rows), known.generation])
    return _kept(known, steps) if written.rowcount == count else None


@cache
def _alone(count: int) -> str:
    rows = ",".join([f"({','.join('?' * EVENTS.width)})"] * count)
    return f"{EVENTS.begin} SELECT * FROM (VALUES {rows}) WHERE (SELECT generation FROM meta) = ?"  # noqa: S608  our own


def _count(known: Known, steps: Sequence[Append]) -> int:
    """How many events they have; 0 if one is not as described, or if two are of one session."""
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
    if step.checkpoint is None or head.launch is None or not only_offset_differs(step.checkpoint, head.launch):
        return False
    if step.token != head.token or step.expect != head.decided_seq or not step.events:
        return False
    if step.state or step.listed or step.receipt or step.claim or step.expect_last is not None or step.hidden:
        return False
    for draft in step.events:
        if draft.decisive:
            return False
    return not (step.turns or step.phrases or step.given or step.records)


def _rows(known: Known, steps: Sequence[Append], position: int) -> list[Row]:
    rows: list[Row] = []
    for step in steps:
        head, checkpoint = known.heads[step.session_id], step.checkpoint
        assert checkpoint is not None
        seq, last = head.last_seq, head.last_seq + len(step.events)
        for draft in step.events:
            seq += 1
            offset = checkpoint.offset if seq == last else None
            rows.append((position, head.key, seq, draft.type, draft.turn, 0, draft.body, offset))
            position += 1
    return rows


def _kept(known: Known, steps: Sequence[Append]) -> list[Kept]:
    """They are written: what is known of their sessions moves."""
    kept = []
    for step in steps:
        head, checkpoint = known.heads[step.session_id], step.checkpoint
        assert checkpoint is not None
        kept.append(Kept(head.last_seq + 1, head.token, head.owner))
        head.last_seq += len(step.events)
        head.launch_offset = checkpoint.offset
    return kept
