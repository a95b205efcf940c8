"""Sums of the cost of turns.

Above: SqliteStore calls it in a reader thread. Below: the table `spent`, with one row for each turn that ran here.
"""

import sqlite3

from perdure.stores.base import UsageGroup, UsageKey, UsageQuery

_KEYS: dict[UsageKey, str] = {
    "day": "substr(started_at, 1, 10)",
    "agent": "spent.agent",
    "project": "COALESCE(sessions.project, '')",
    "session": "sessions.session_id",
    "model": "COALESCE(spent.model, '')",
}
_FILTERS = {
    "since": "started_at >= ?",
    "until": "started_at < ?",
    "agent": "spent.agent = ?",
    "project": "sessions.project = ?",
    "session": "sessions.session_id = ?",
}
_SUMS = """
    COUNT(*), SUM(input_tokens), SUM(output_tokens), SUM(cache_read_tokens), SUM(cache_write_tokens), SUM(cost_usd),
    SUM(context = 'live'), SUM(context = 'resumed'), SUM(context = 'fresh'), SUM(input_bytes), SUM(duration_ms),
    SUM(CASE WHEN context = 'fresh' THEN 0 ELSE COALESCE(held_bytes, 0) END)"""
# A live or resumed agent already had the earlier conversation; a fresh one would have had to receive it again.
_HELD = """
    SELECT *, SUM(said_bytes) OVER (
        PARTITION BY session_key ORDER BY turn ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS held_bytes
    FROM spent"""


def usage(connection: sqlite3.Connection, query: UsageQuery) -> list[UsageGroup]:
    """Return one row per group, sorted by its keys; without keys, one row for everything."""
    keys = ", ".join(_KEYS[key] for key in query.group_by) or "''"
    given = {name: value for name in _FILTERS if (value := getattr(query, name)) is not None}
    where = " AND ".join(["1", *(_FILTERS[name] for name in given)])
    statement = (
        f"SELECT {keys}, {_SUMS} FROM ({_HELD}) AS spent JOIN sessions USING (session_key) "  # noqa: S608  no user input
        f"WHERE {where} GROUP BY {keys} ORDER BY {keys}"
    )
    width = max(1, len(query.group_by))
    rows = connection.execute(statement, list(given.values()))
    return [UsageGroup([str(key) for key in row[:width]], *(figure or 0 for figure in row[width:])) for row in rows]
