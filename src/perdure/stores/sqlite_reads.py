"""Queries, one function each.

Above: SqliteStore calls these in a reader thread, with a read-only connection. Below: SQLite. In WAL mode they see the
last commit and never wait for the writer.
"""

import sqlite3
from collections.abc import Iterator

import msgspec

from perdure.core.compaction import part_of_run
from perdure.stores.base import (
    MAX_COUNT,
    KeptRecord,
    LaunchProgress,
    Place,
    Receipt,
    Records,
    SessionRecord,
    Stored,
    TurnRow,
)
from perdure.stores.launch_rows import progress_of
from perdure.stores.sqlite_owners import DECIDED_SEQ, LAST_SEQ, OWNERSHIP, count, ownership

_LOAD = f"""
    SELECT machine_state, {LAST_SEQ}, {DECIDED_SEQ}, {OWNERSHIP}
    FROM sessions LEFT JOIN heads USING (session_key) WHERE session_id = ?"""  # noqa: S608  no user input
_READ = """
    SELECT seq, COALESCE(first_seq, seq), type, turn, body, cuts FROM events
    WHERE session_key = (SELECT session_key FROM sessions WHERE session_id = ?) AND seq > ?
    ORDER BY seq LIMIT ?"""
_SIZE = """
    SELECT COALESCE(SUM(size), 0) FROM (
        SELECT LENGTH(body) AS size FROM events
        WHERE session_key = (SELECT session_key FROM sessions WHERE session_id = ?) AND seq > ? AND seq <= ?
        ORDER BY seq LIMIT ?)"""
# Must be identical to the condition of the partial index, or SQLite won't use the index.
_OF_TURNS = "type IN ('user_message', 'turn_start', 'history_changed')"
_BEGIN = f"""
    SELECT seq - 1 FROM events
    WHERE session_key = (SELECT session_key FROM sessions WHERE session_id = ?) AND turn >= ? AND {_OF_TURNS}
        AND type <> 'history_changed'
    ORDER BY turn, seq LIMIT 1"""  # noqa: S608  no user input
_CHANGED = f"""
    SELECT seq, seq, type, turn, body FROM events INDEXED BY events_of_turns
    WHERE session_key = (SELECT session_key FROM sessions WHERE session_id = ?) AND turn BETWEEN ? AND ? AND {_OF_TURNS}
        AND type = 'history_changed' AND seq > ?
    ORDER BY seq"""  # noqa: S608  no user input
_RECORDS = """
    SELECT turn, seq, size, record FROM turn_records
    WHERE session_key = (SELECT session_key FROM sessions WHERE session_id = ?) AND turn BETWEEN ? AND ? AND seq <= ?
    ORDER BY turn LIMIT ?"""
_TURNS = """
    SELECT turn, visible, public FROM turns
    WHERE session_key = (SELECT session_key FROM sessions WHERE session_id = ?) AND turn >= ? AND turn < ?
        AND visible >= ?
    ORDER BY turn DESC LIMIT ?"""
_RECEIPT = """
    SELECT message_id, digest, answer, seq FROM receipts
    WHERE session_key = (SELECT session_key FROM sessions WHERE session_id = ?) AND message_id = ?"""
# The offset of a launch is in its row or, if it was the last row written for the session, with a later event.
_LAUNCHES = """
    SELECT launch_id, session_id, launches.agent, driver, phase, COALESCE(
            CASE WHEN written_seq = (
                SELECT MAX(written_seq) FROM launches AS others WHERE others.session_key = launches.session_key)
            THEN (
                SELECT output_offset FROM events WHERE events.session_key = launches.session_key
                    AND events.seq > written_seq AND output_offset IS NOT NULL
                ORDER BY seq DESC LIMIT 1)
            END, offset),
        performed_seq, input_total, pending_input, driver_state
    FROM launches JOIN sessions USING (session_key){} ORDER BY launches.rowid"""
# Uses the index of decisive events, which is sorted by position; never scans deltas.
_CHANGES = """
    SELECT position, session_id, seq, type, turn, body FROM events JOIN sessions USING (session_key)
    WHERE decisive = 1 AND position > ? AND type IN (SELECT value FROM json_each(?))
        AND typeof(body) = 'blob' AND typeof(seq) = 'integer'
    ORDER BY position LIMIT ?"""
_ISSUED_TWICE = "SELECT DISTINCT program, native_session_id FROM natives WHERE twice = 1"
# Ignores an impossible value, which is damage.
_NEWEST = """
    SELECT MAX(COALESCE((SELECT MAX(position) FROM events), 0),
        CASE WHEN typeof(erased_position) = 'integer' AND typeof(positions) = 'integer' AND erased_position <= positions
            THEN erased_position ELSE 0 END)
    FROM meta"""

NUMBER_MAX = 2**63 - 1
"""SQLite's largest integer. Requests may contain any position."""

_decode_cuts = msgspec.json.Decoder(list[int]).decode


def load(connection: sqlite3.Connection, session_id: str) -> SessionRecord | None:
    row = connection.execute(_LOAD, (session_id,)).fetchone()
    return None if row is None else SessionRecord(row[0], count(row[1]), count(row[2]), *ownership(*row[3:]))


def read(
    connection: sqlite3.Connection, session_id: str, after: int, limit: int, upto: int | None, max_bytes: int | None
) -> list[Stored]:
    after = min(max(0, after), NUMBER_MAX)
    limit = min(limit, NUMBER_MAX, NUMBER_MAX if upto is None else upto - after)
    if limit <= 0:
        return []
    found: list[Stored] = []
    size = 0
    rows = connection.execute(_READ, (session_id, after, limit))
    for event in _within(rows, after, upto):
        size += len(event.body)
        if max_bytes is not None and found and size > max_bytes:
            break
        found.append(event)
    rows.close()
    return found


def _within(rows: sqlite3.Cursor, after: int, upto: int | None) -> Iterator[Stored]:
    """Return events as stored, but cut joined runs to the part within the bounds."""
    for seq, first_seq, type_, turn, body, packed_cuts in rows:
        if upto is not None and first_seq > upto:
            return
        cuts = [] if packed_cuts is None else _decode_cuts(packed_cuts)
        if first_seq <= after or (upto is not None and seq > upto):
            body = part_of_run(body, first_seq, cuts, after, upto)
            begin, end = max(first_seq, after + 1), seq if upto is None else min(seq, upto)
            cuts = cuts[begin - first_seq : end + 1 - first_seq]
            seq, first_seq = end, begin
        yield Stored(seq, first_seq, type_, turn, body, cuts if seq > first_seq else [])


def size(connection: sqlite3.Connection, session_id: str, after: int, limit: int, upto: int | None) -> int:
    after, limit = min(max(0, after), NUMBER_MAX), min(limit, NUMBER_MAX)
    upto = NUMBER_MAX if upto is None else min(upto, NUMBER_MAX)
    found: int = connection.execute(_SIZE, (session_id, after, upto, limit)).fetchone()[0]
    return found


def find_turns(connection: sqlite3.Connection, session_id: str, first: int, last: int | None) -> Place:
    first, last = min(first, NUMBER_MAX), None if last is None else min(last, NUMBER_MAX - 1)
    begin = connection.execute(_BEGIN, (session_id, first)).fetchone()
    if begin is None:
        return Place(NUMBER_MAX, None, [])
    end = None if last is None else connection.execute(_BEGIN, (session_id, last + 1)).fetchone()
    if end is None:
        return Place(begin[0], None, [])
    changes = connection.execute(_CHANGED, (session_id, first, last, end[0])).fetchall()
    return Place(begin[0], end[0], [Stored(*row) for row in changes])


def read_records(
    connection: sqlite3.Connection,
    session_id: str,
    first: int,
    last: int | None,
    upto: int,
    limit: int,
    max_bytes: int | None,
) -> Records:
    first, last = min(first, NUMBER_MAX), NUMBER_MAX if last is None else min(last, NUMBER_MAX)
    kept: list[KeptRecord] = []
    total = 0
    rows = connection.execute(_RECORDS, (session_id, first, last, min(upto, NUMBER_MAX), min(limit, NUMBER_MAX)))
    for turn, seq, size_, body in rows:
        if not (isinstance(seq, int) and isinstance(size_, int) and isinstance(body, bytes)):
            continue  # damaged; records are only a cache
        total += size_
        if max_bytes is not None and kept and total > max_bytes:
            break
        kept.append(KeptRecord(turn, seq, size_, body))
    rows.close()
    if not kept:
        return Records([], [])
    changes = connection.execute(_CHANGED, (session_id, kept[0].turn, kept[-1].turn, 0)).fetchall()
    return Records(kept, [Stored(*row) for row in changes])


def read_turns(
    connection: sqlite3.Connection,
    session_id: str,
    from_turn: int,
    before: int | None,
    last: int | None,
    hidden: bool,
) -> list[TurnRow]:
    count = NUMBER_MAX if last is None else min(max(0, last), NUMBER_MAX)
    before = NUMBER_MAX if before is None else min(before, NUMBER_MAX)
    parameters = (session_id, min(from_turn, NUMBER_MAX), before, 0 if hidden else 1, count)
    rows = connection.execute(_TURNS, parameters).fetchall()
    return [TurnRow(turn, bool(visible), public) for turn, visible, public in reversed(rows)]


def find_receipt(connection: sqlite3.Connection, session_id: str, message_id: str) -> Receipt | None:
    row = connection.execute(_RECEIPT, (session_id, message_id)).fetchone()
    if row is None:
        return None
    message_id, digest, answer, seq = row
    if seq is not None and not (isinstance(seq, int) and 0 < seq <= MAX_COUNT):
        raise ValueError(f"message {message_id} has an invalid event number {seq!r}")
    return Receipt(message_id, digest, answer, seq=seq)


def list_changes(
    connection: sqlite3.Connection, after: int, types: tuple[str, ...], limit: int, max_bytes: int | None = None
) -> list[tuple[int, str, Stored]]:
    if after < 0:
        row = connection.execute(_NEWEST).fetchone()
        return [(0 if row is None else row[0], "", Stored(0, 0, "", None, b""))]
    found: list[tuple[int, str, Stored]] = []
    size = 0
    rows = connection.execute(_CHANGES, (min(after, NUMBER_MAX), msgspec.json.encode(types).decode(), limit))
    for position, session_id, seq, type_, turn, body in rows:
        size += len(body)
        if max_bytes is not None and found and size > max_bytes:
            break
        found.append((position, session_id, Stored(seq, seq, type_, turn, body)))
    rows.close()
    return found


def launches(connection: sqlite3.Connection, launch_id: str | None, node: str | None) -> list[LaunchProgress]:
    conditions = {"launch_id = ?": launch_id, "substr(launch_id, 1, length(?1)) = ?1": node and f"{node}-"}
    given = {condition: value for condition, value in conditions.items() if value is not None}
    assert len(given) <= 1, "give a launch or a node, not both"
    where = f" WHERE {next(iter(given))}" if given else ""
    return [progress_of(row) for row in connection.execute(_LAUNCHES.format(where), tuple(given.values())).fetchall()]


def issued_twice(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    return set(connection.execute(_ISSUED_TWICE).fetchall())


def document(connection: sqlite3.Connection, kind: str, key: str) -> bytes | None:
    row = connection.execute("SELECT value FROM documents WHERE kind = ? AND key = ?", (kind, key)).fetchone()
    return None if row is None else row[0]


def documents(connection: sqlite3.Connection, kind: str) -> dict[str, bytes]:
    return dict(connection.execute("SELECT key, value FROM documents WHERE kind = ? ORDER BY key", (kind,)).fetchall())
