"""Lists of sessions: filters, pages and full-text search.

Above: PostgresStore. Below: PostgreSQL's tsvector. Words are folded here (postgres_group.fold), so it needs no
extension and no language setting. A search only filters: lists are always sorted by latest activity.
"""

import re
from typing import Any

from perdure.stores.base import Found, Page, Query, Workdir
from perdure.stores.list_cursors import ListCursor, read_cursor, write_cursor
from perdure.stores.postgres_connections import Connection, ask, clean
from perdure.stores.postgres_group import WORD_MAX_BYTES, fold

PAGE_MAX = 1_000
"""Maximum number of sessions on a page, whatever the request says."""
SNIPPET_WORDS = 16
SNIPPET_BEFORE = 4
"""Number of words in a snippet before the first match."""
SNIPPET_MAX_CHARS = 200_000
QUERY_MAX_WORDS = 32

_BY_COLUMN = ("project", "agent", "state", "status", "workdir", "parent", "archived")

# Leaves out turns that a rewind has hidden.
_HITS = """
    phrases.words @@ %s::tsquery AND NOT EXISTS (
        SELECT 1 FROM turns
        WHERE turns.session_key = phrases.session_key AND turns.turn = phrases.turn AND NOT turns.visible)"""
_IS_HIT = f"sessions.session_key IN (SELECT phrases.session_key FROM phrases WHERE {_HITS})"  # noqa: S608  no user input
# Lists show the title anyway, so prefer a match in a turn.
_BEST = f"""
    SELECT DISTINCT ON (session_key) session_key, turn, text FROM phrases
    WHERE session_key = ANY (%s::bigint[]) AND {_HITS}
    ORDER BY session_key, turn = 0, ts_rank(words, %s::tsquery, 1) DESC, phrase_key"""  # noqa: S608  no user input
_WORKDIRS = """
    SELECT workdir, count(*), max(last_active_at) AS used_at FROM (
        SELECT workdir, last_active_at FROM sessions ORDER BY last_active_at DESC, session_key DESC LIMIT %s) AS active
    GROUP BY workdir ORDER BY used_at DESC, workdir"""
_WORD = re.compile(r"[^\W_]+")


async def list_sessions(connection: Connection, query: Query) -> Page:
    """One statement, and a second one if there are snippets to show."""
    conditions: list[str] = []
    parameters: list[Any] = []
    for column in _BY_COLUMN:
        value = getattr(query, column)
        if value is not None:
            conditions.append(f"{column} = %s")
            parameters.append(value)
    if query.below is not None:
        conditions.append("(workdir = %s OR starts_with(workdir, %s))")
        parameters.extend((query.below, f"{query.below.rstrip('/')}/"))
    if query.label is not None:
        conditions.append("%s = ANY (labels)")
        parameters.append(query.label)
    words: list[list[str]] = []
    if query.q is not None and query.q.strip():
        words = asked_words(query.q)
        if not words or any(len(part.encode()) > WORD_MAX_BYTES for parts in words for part in parts):
            return Page([], None)
        conditions.append(_IS_HIT)
        parameters.append(match_expression(words))
    if query.cursor is not None:
        cursor = read_cursor(query.cursor)
        conditions.append("(last_active_at, sessions.session_key) < (%s, %s)")
        parameters.extend((cursor.last_active_at, cursor.session_key))
    limit = min(max(1, query.limit), PAGE_MAX)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    statement = (
        "SELECT sessions.session_key, session_id, public, last_active_at, last_seq, owner"  # noqa: S608  no user input
        f" FROM sessions JOIN heads ON heads.session_key = sessions.session_key {where}"
        " ORDER BY last_active_at DESC, sessions.session_key DESC LIMIT %s"
    )
    rows = await ask(connection, statement, *parameters, limit + 1)
    more = len(rows) > limit
    rows = rows[:limit]
    snippets = await _snippets(connection, words, [row[0] for row in rows]) if words and rows else {}
    found = []
    for key, session_id, public, _, last_seq, owner in rows:
        snippet, turn = snippets.get(key, (None, None))
        found.append(Found(session_id, public, snippet, turn, last_seq, owner))
    return Page(found, write_cursor(ListCursor(rows[-1][3], rows[-1][0])) if more else None)


async def workdirs(connection: Connection, newest: int) -> list[Workdir]:
    return [Workdir(*row) for row in await ask(connection, _WORKDIRS, newest)]


def asked_words(text: str) -> list[list[str]]:
    """Return the words of a search, each as the parts that are compared: `well-known` has two."""
    words = [fold(word).split() for word in clean(text).split()]
    return [parts for parts in words if parts][:QUERY_MAX_WORDS]


def match_expression(words: list[list[str]]) -> str:
    """Return the tsquery: all words must match, each also as a prefix. Folded parts need no escaping."""
    return " & ".join(
        "(" + " <-> ".join([*(f"'{part}'" for part in parts[:-1]), f"'{parts[-1]}':*"]) + ")" for parts in words
    )


async def _snippets(
    connection: Connection, words: list[list[str]], keys: list[int]
) -> dict[int, tuple[str | None, int | None]]:
    """Return a snippet of the best match of each session, and its turn."""
    match = match_expression(words)
    rows = await ask(connection, _BEST, keys, match, match)
    return {key: (snippet_of(text, words), turn or None) for key, turn, text in rows}


def snippet_of(text: str, words: list[list[str]]) -> str:
    """Return some words around the first match, with matches in brackets."""
    parts = tuple(part for word in words for part in word)
    places: list[tuple[int, int, bool]] = []
    first: int | None = None
    for match in _WORD.finditer(text[:SNIPPET_MAX_CHARS]):
        is_hit = fold(match[0]).startswith(parts)
        if is_hit and first is None:
            first = max(0, len(places) - SNIPPET_BEFORE)
        places.append((match.start(), match.end(), is_hit))
        if first is not None and len(places) >= first + SNIPPET_WORDS:
            break
    shown = places[first or 0 :][:SNIPPET_WORDS]
    if not shown:
        return ""
    begin, end = shown[0][0], shown[-1][1]
    made = [] if begin == places[0][0] else ["..."]
    done = begin if made else 0
    for start, stop, is_hit in shown:
        made += (text[done:start], f"[{text[start:stop]}]" if is_hit else text[start:stop])
        done = stop
    rest = text[end:]
    made.append("..." if _WORD.search(rest) else rest)
    return "".join(made)
