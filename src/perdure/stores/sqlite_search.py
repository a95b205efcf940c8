"""Lists of sessions: filters, pages and full-text search.

Above: SqliteStore calls it in a reader thread. Below: SQLite and FTS5. A search only filters: lists are always sorted
by latest activity, so paging works the same with and without a search.
"""

import sqlite3
from typing import Any

import msgspec

from perdure.stores.base import Found, Page, Query, Workdir
from perdure.stores.list_cursors import ListCursor, read_cursor, write_cursor
from perdure.stores.sqlite_errors import code_of

PAGE_MAX = 1_000
"""Maximum number of sessions on a page, whatever the request says."""
SNIPPET_WORDS = 16
QUERY_MAX_WORDS = 32

_BY_COLUMN = ("project", "agent", "state", "status", "workdir", "parent", "archived")

# Leaves out turns that a rewind has hidden.
_HITS = """
    SELECT phrases.session_key, phrases.phrase_key, phrases.turn, phrases_index.rank AS badness
    FROM phrases_index JOIN phrases ON phrases.phrase_key = phrases_index.rowid
    WHERE phrases_index MATCH ? AND NOT EXISTS (
        SELECT 1 FROM turns
        WHERE turns.session_key = phrases.session_key AND turns.turn = phrases.turn AND NOT turns.visible)"""

_IS_HIT = f"session_key IN (SELECT session_key FROM ({_HITS}))"  # noqa: S608  no user input
# Lists show the title anyway, so prefer a match in a turn. Ranks are always negative.
_BEST = f"""
    SELECT session_key, phrase_key, turn, MIN(CASE turn WHEN 0 THEN 0.0 ELSE badness END) FROM ({_HITS})
    WHERE session_key IN (SELECT value FROM json_each(?))
    GROUP BY session_key"""  # noqa: S608  no user input
_SNIPPETS = """
    SELECT rowid, snippet(phrases_index, 0, '[', ']', '...', ?) FROM phrases_index
    WHERE phrases_index MATCH ? AND rowid IN (SELECT value FROM json_each(?))"""

_WORKDIRS = """
    SELECT workdir, COUNT(*), MAX(last_active_at) AS used_at FROM (
        SELECT workdir, last_active_at FROM sessions ORDER BY last_active_at DESC, session_key DESC LIMIT ?)
    GROUP BY workdir ORDER BY used_at DESC, workdir"""
_LAST = """
    SELECT page.value, CAST((SELECT MAX(seq) FROM events WHERE session_key = page.value) AS INTEGER)
    FROM json_each(?) AS page"""
_OWNERS = """
    SELECT session_key, CAST(owner AS BLOB) FROM heads WHERE session_key IN (SELECT value FROM json_each(?))
        AND owner IS NOT NULL"""


def list_sessions(connection: sqlite3.Connection, query: Query) -> Page:
    conditions: list[str] = []
    parameters: list[Any] = []
    for column in _BY_COLUMN:
        value = getattr(query, column)
        if value is not None:
            conditions.append(f"{column} = ?")
            parameters.append(value)
    if query.below is not None:
        inside = f"{query.below.rstrip('/')}/"
        conditions.append("(workdir = ? OR substr(workdir, 1, ?) = ?)")
        parameters.extend((query.below, len(inside), inside))
    if query.label is not None:
        conditions.append("EXISTS (SELECT 1 FROM json_each(labels) WHERE json_each.value = ?)")
        parameters.append(query.label)
    match = None
    if query.q is not None and query.q.strip():
        match = match_expression(query.q)
        if not match:
            return Page([], None)
        conditions.append(_IS_HIT)
        parameters.append(match)
    if query.cursor is not None:
        cursor = read_cursor(query.cursor)
        conditions.append("(last_active_at, session_key) < (?, ?)")
        parameters.extend((cursor.last_active_at, cursor.session_key))
    limit = min(max(1, query.limit), PAGE_MAX)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    statement = (
        f"SELECT session_key, session_id, public, last_active_at FROM sessions {where}"  # noqa: S608  no user input
        " ORDER BY last_active_at DESC, session_key DESC LIMIT ?"
    )
    rows = connection.execute(statement, (*parameters, limit + 1)).fetchall()
    more = len(rows) > limit
    rows = rows[:limit]
    keys = [row[0] for row in rows]
    snippets = _snippets(connection, match, keys) if match and rows else {}
    last = _last_numbers(connection, keys)
    owners = {key: str(owner, "utf-8", "replace") for key, owner in connection.execute(_OWNERS, (_array(keys),))}
    found = []
    for key, session_id, public, _ in rows:
        snippet, turn = snippets.get(key, (None, None))
        found.append(Found(session_id, public, snippet, turn, last.get(key) or 0, owners.get(key)))
    return Page(found, write_cursor(ListCursor(rows[-1][3], rows[-1][0])) if more else None)


def workdirs(connection: sqlite3.Connection, newest: int) -> list[Workdir]:
    return [Workdir(*row) for row in connection.execute(_WORKDIRS, (newest,))]


def match_expression(text: str) -> str:
    """Return the FTS5 expression for a search: all words must match, each also as a prefix. Input is always text, never
    FTS5 syntax. Returns "" if no word is left."""
    # A NUL would truncate the expression, and a lone surrogate can't be encoded.
    text = text.replace("\0", " ").encode("utf-8", "replace").decode()
    words = [word for word in text.split() if any(character.isalnum() for character in word)]
    return " ".join('"' + word.replace('"', '""') + '"*' for word in words[:QUERY_MAX_WORDS])


def _snippets(connection: sqlite3.Connection, match: str, keys: list[int]) -> dict[int, tuple[str, int | None]]:
    """Return a snippet of the best match of each session, and its turn. Only these get a snippet, because making one
    costs more than finding the match."""
    best = connection.execute(_BEST, (match, _array(keys))).fetchall()
    session_of = {phrase_key: (session_key, turn or None) for session_key, phrase_key, turn, _ in best}
    places = connection.execute(_SNIPPETS, (SNIPPET_WORDS, match, _array(list(session_of)))).fetchall()
    found = {}
    for phrase_key, snippet in places:
        session_key, turn = session_of[phrase_key]
        found[session_key] = (snippet, turn)
    return found


def _last_numbers(connection: sqlite3.Connection, keys: list[int]) -> dict[int, int | None]:
    """Return the last event number of each session on a page. As part of the list query, this would run for every row
    that is sorted."""
    try:
        return dict(connection.execute(_LAST, (_array(keys),)).fetchall())
    except sqlite3.Error as error:
        if code_of(error) != sqlite3.SQLITE_CORRUPT:
            raise
        # List the sessions anyway. Opening one with unreadable events reports the damage.
        return {}


def _array(values: list[int]) -> str:
    return msgspec.json.encode(values).decode()
