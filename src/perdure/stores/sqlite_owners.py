"""Nodes, and which node owns which session.

Above: SqliteStore, for requests of nodes; the group commit (sqlite_group.py), for claims inside a step. Below: the
tables `nodes` and `heads`. The file admits one server at a time, so a node that joins marks all others dead. Detecting
missed heartbeats is the runtime's job, not the store's.

An impossible value is damage to one session or one node; functions that read many rows skip that row.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.core.errors import StoreDamaged
from perdure.stores.base import MAX_COUNT, Head, Node, Owner


def number(expression: str) -> str:
    """SQL for a number column that reads a text value as b"". A text that is not UTF-8 would fail the whole query."""
    return f"CASE typeof({expression}) WHEN 'text' THEN X'' ELSE {expression} END"


OWNERSHIP = f"CAST(heads.owner AS BLOB), {number('heads.incarnation')}, {number('heads.fencing_token')}"
LAST_SEQ = f"""
    COALESCE((SELECT {number("MAX(seq)")} FROM events WHERE events.session_key = sessions.session_key), 0)"""  # noqa: S608  no user input
DECIDED_SEQ = number("decided_seq")
_HEADS = f"""
    SELECT session_id, {LAST_SEQ}, {DECIDED_SEQ}, {OWNERSHIP}
    FROM sessions LEFT JOIN heads USING (session_key)
    WHERE session_id IN (SELECT value FROM json_each(?))"""  # noqa: S608  no user input
# A node keeps its sessions across a restart: it is alive until it is marked dead, whatever its incarnation.
_LIVING = "SELECT 1 FROM nodes WHERE node = ? AND dead = 0"
_NODES = f"""
    SELECT CAST(node AS BLOB), {number("incarnation")}, {number("heartbeat")}, {number("dead")}, CAST(about AS BLOB)
    FROM nodes ORDER BY node"""  # noqa: S608  no user input
_LIVES = """
    SELECT incarnation FROM nodes WHERE node = ?1 AND typeof(incarnation) = 'integer'
    UNION ALL SELECT incarnation FROM heads WHERE owner = ?1 AND typeof(incarnation) = 'integer'"""
# The counter continues from the previous incarnation, so that other nodes always see it change.
_JOIN = """
    INSERT INTO nodes (node, incarnation, heartbeat, dead, about) VALUES (?, ?, 0, 0, ?)
    ON CONFLICT (node) DO UPDATE SET incarnation = excluded.incarnation, dead = 0, about = excluded.about,
        heartbeat = {next}"""
_BEAT = "UPDATE nodes SET heartbeat = {next} WHERE node = ? AND incarnation = ? AND dead = 0"
_NEXT = f"""
    CASE WHEN typeof(heartbeat) = 'integer' AND heartbeat BETWEEN 0 AND {MAX_COUNT - 1} THEN heartbeat + 1 ELSE 0 END"""
_WAITING = """
    SELECT CAST(session_id AS BLOB) FROM sessions LEFT JOIN heads USING (session_key)
    WHERE state = 'accepted' AND (?1 IS NULL OR owner IS NULL OR owner = ?1
        OR NOT EXISTS (SELECT 1 FROM nodes WHERE node = heads.owner AND dead = 0))
    ORDER BY last_active_at, sessions.session_key"""
_DUE = "SELECT CAST(session_id AS BLOB) FROM sessions WHERE due_at <= ? ORDER BY due_at LIMIT ?"


def ownership(owner: Any, incarnation: Any, token: Any) -> tuple[Owner | None, int]:
    """Return a session's owner and fencing token from the columns OWNERSHIP. Raises StoreDamaged."""
    if owner is None and incarnation is None and token is None:
        return None, 0
    if not is_count(token) or (owner is None) != (incarnation is None):
        raise StoreDamaged(f"invalid row in table heads: owner {owner!r}, incarnation {incarnation!r}, token {token!r}")
    if owner is None:
        return None, token
    return Owner(name_of(owner), count(incarnation)), token


def may_be_taken(connection: sqlite3.Connection, owner: Owner | None, claimer: Owner) -> bool:
    """Return whether the claimer may take over a session with this owner."""
    if owner is None:
        return True
    if owner.node == claimer.node:
        return claimer.incarnation >= owner.incarnation
    return connection.execute(_LIVING, (owner.node,)).fetchone() is None


def join(connection: sqlite3.Connection, node: str, about: bytes) -> int:
    lives = [life for (life,) in connection.execute(_LIVES, (node,)) if is_count(life)]
    incarnation = max(lives, default=0) + 1
    connection.execute(_JOIN.format(next=_NEXT), (node, incarnation, about))
    connection.execute("UPDATE nodes SET dead = 1 WHERE node <> ?", (node,))
    return incarnation


def beat(connection: sqlite3.Connection, owner: Owner) -> bool:
    return connection.execute(_BEAT.format(next=_NEXT), (owner.node, owner.incarnation)).rowcount > 0


def nodes(connection: sqlite3.Connection) -> list[Node]:
    return [node for row in connection.execute(_NODES).fetchall() if (node := _node(row)) is not None]


def heads(connection: sqlite3.Connection, session_ids: Sequence[str]) -> dict[str, Head]:
    asked = msgspec.json.encode(session_ids).decode()
    found = {}
    for session_id, last_seq, decided_seq, *columns in connection.execute(_HEADS, (asked,)).fetchall():
        try:
            found[session_id] = Head(count(last_seq), count(decided_seq), *ownership(*columns))
        except StoreDamaged:
            continue
    return found


def waiting(connection: sqlite3.Connection, node: str | None) -> list[str]:
    return _names(connection.execute(_WAITING, (node,)))


def due_sessions(connection: sqlite3.Connection, until: str, limit: int) -> list[str]:
    return _names(connection.execute(_DUE, (until, limit)))


def _names(rows: sqlite3.Cursor) -> list[str]:
    """Decode session ids, and skip unreadable ones."""
    found = []
    for (session_id,) in rows.fetchall():
        try:
            found.append(name_of(session_id))
        except StoreDamaged:
            continue
    return found


def _node(row: tuple[Any, ...]) -> Node | None:
    name, incarnation, heartbeat, dead, about = row
    try:
        is_dead = count(dead) != 0
        return Node(name_of(name), count(incarnation), count(heartbeat), is_dead, about)
    except StoreDamaged:
        return None


def name_of(value: Any) -> str:
    try:
        name = str(value, "utf-8")
    except (TypeError, UnicodeError):
        name = ""
    if not name:
        raise StoreDamaged(f"{value!r} is not a name")
    return name


def count(value: Any) -> int:
    """Return a number in the range that this server writes. Raises StoreDamaged."""
    if not is_count(value):
        raise StoreDamaged(f"{value!r} is not a number that this server could have written")
    return int(value)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= MAX_COUNT
