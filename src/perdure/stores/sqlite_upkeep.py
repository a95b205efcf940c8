"""Changes other than steps: claim, release, compact, erase, documents.

Above: the writer runs each in its own transaction. Below: SQLite. Nothing here commits.
"""

import secrets
import sqlite3

import msgspec

from perdure.core.errors import StoreDamaged
from perdure.stores.base import MAX_COUNT, Joined
from perdure.stores.sqlite_group import check_generation, find_head, read_generation, write_owner
from perdure.stores.sqlite_jobs import forget_session

_KEY = "SELECT session_key FROM sessions WHERE session_id = ?"
_RANGE = """
    SELECT COUNT(*), MIN(COALESCE(first_seq, seq)), MAX(seq), SUM(seq - COALESCE(first_seq, seq) + 1), MAX(decisive),
        COUNT(DISTINCT type)
    FROM events WHERE session_key = ? AND seq BETWEEN ? AND ?"""
_JOIN = "UPDATE events SET body = ?, first_seq = ?, cuts = ? WHERE session_key = ? AND seq = ?"
_DROP = "DELETE FROM events WHERE session_key = ? AND seq >= ? AND seq < ?"
_NATIVES = """
    SELECT DISTINCT native_session_id FROM natives JOIN sessions USING (session_key) WHERE session_id = ?"""
ERASE_EVENTS = 1_000
ERASE_RECORDS = 100
ERASE_PHRASES = 50
"""How many rows one step deletes. Small, so that commits of other sessions don't wait long."""
_SOME = (
    (
        "DELETE FROM events WHERE position IN (SELECT position FROM events WHERE session_key = ? LIMIT ?)",
        ERASE_EVENTS,
    ),
    (
        "DELETE FROM turn_records WHERE rowid IN (SELECT rowid FROM turn_records WHERE session_key = ? LIMIT ?)",
        ERASE_RECORDS,
    ),
    (
        "DELETE FROM phrases WHERE phrase_key IN (SELECT phrase_key FROM phrases WHERE session_key = ? LIMIT ?)",
        ERASE_PHRASES,
    ),
)
# Followers store positions, so the newest position must not go back when its event is erased.
_NOTE_NEWEST = """
    UPDATE meta SET erased_position = MAX(
        CASE typeof(erased_position) WHEN 'integer' THEN erased_position ELSE 0 END,
        COALESCE((SELECT MAX(position) FROM events), 0))"""
SCRUB_DUE = ("upkeep", "scrub")
_OF_A_SESSION = (
    *("events", "turn_records", "turns", "spent", "receipts", "launches", "phrases", "natives", "heads", "sessions"),
)


def claim(connection: sqlite3.Connection) -> int:
    (last,) = connection.execute("SELECT MAX(position) FROM events").fetchone()
    if last is not None and last > MAX_COUNT:
        # Every append would fail, because there is no position left for its rows.
        raise StoreDamaged(f"a row of the table events has position {last}, which leaves no room for more")
    connection.execute("UPDATE meta SET generation = generation + 1")
    return read_generation(connection)


def release(connection: sqlite3.Connection, session_id: str, token: int, expect: int, generation: int) -> bool:
    check_generation(generation, read_generation(connection))
    head = find_head(connection, session_id)
    if head is None or (head.token, head.decided_seq) != (token, expect):
        return False
    if head.owner is not None:
        write_owner(connection, head.key, None, token)
    return True


def compact(connection: sqlite3.Connection, session_id: str, generation: int, runs: list[Joined]) -> None:
    check_generation(generation, read_generation(connection))
    key = _find(connection, session_id)
    if key is None:
        return
    for run in runs:
        if _still_separate(connection, key, run):
            cuts = msgspec.json.encode(run.cuts)
            connection.execute(_JOIN, (run.body, run.first_seq, cuts, key, run.seq))
            connection.execute(_DROP, (key, run.first_seq, run.seq))


def _still_separate(connection: sqlite3.Connection, key: int, run: Joined) -> bool:
    """Return whether the log still has exactly this range as several deltas. If not, it was compacted in the meantime,
    and there is nothing to do."""
    assert len(run.cuts) == run.seq - run.first_seq + 1, "a run has one cut per event number"
    row = connection.execute(_RANGE, (key, run.first_seq, run.seq)).fetchone()
    rows, first, last, numbers, decisive, types = row
    whole = (first, last, numbers) == (run.first_seq, run.seq, len(run.cuts))
    return bool(whole and rows > 1 and not decisive and types == 1)


def erase_some(connection: sqlite3.Connection, session_id: str, generation: int) -> bool:
    """Do one step of erasing a session. Returns whether there is more to do. The last step deletes the session's own
    row and records that the files need a scrub."""
    check_generation(generation, read_generation(connection))
    key = _find(connection, session_id)
    if key is None:
        return False
    connection.execute(_NOTE_NEWEST)
    for statement, count in _SOME:
        if connection.execute(statement, (key, count)).rowcount:
            return True
    forget_session(connection, session_id)
    for table in _OF_A_SESSION:
        connection.execute(f"DELETE FROM {table} WHERE session_key = ?", (key,))  # noqa: S608  no user input
    # A unique value: a scrub that started earlier must not clear this mark.
    put_document(connection, *SCRUB_DUE, secrets.token_hex(8).encode())
    return False


def natives(connection: sqlite3.Connection, session_id: str) -> list[str]:
    return [native for (native,) in connection.execute(_NATIVES, (session_id,)).fetchall()]


def put_document(connection: sqlite3.Connection, kind: str, key: str, value: bytes | None) -> None:
    if value is None:
        connection.execute("DELETE FROM documents WHERE kind = ? AND key = ?", (kind, key))
    else:
        connection.execute("INSERT OR REPLACE INTO documents (kind, key, value) VALUES (?, ?, ?)", (kind, key, value))


def add_document(connection: sqlite3.Connection, kind: str, key: str, value: bytes) -> bool:
    statement = "INSERT INTO documents (kind, key, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    return connection.execute(statement, (kind, key, value)).rowcount > 0


def take_document(connection: sqlite3.Connection, kind: str, key: str) -> bytes | None:
    statement = "DELETE FROM documents WHERE kind = ? AND key = ? RETURNING value"
    rows = connection.execute(statement, (kind, key)).fetchall()
    return rows[0][0] if rows else None


def drop_document(connection: sqlite3.Connection, kind: str, key: str, value: bytes) -> None:
    """Delete a document if it still has this value."""
    connection.execute("DELETE FROM documents WHERE kind = ? AND key = ? AND value = ?", (kind, key, value))


def _find(connection: sqlite3.Connection, session_id: str) -> int | None:
    row = connection.execute(_KEY, (session_id,)).fetchone()
    return None if row is None else int(row[0])
