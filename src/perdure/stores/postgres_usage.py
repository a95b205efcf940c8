"""Sums of the cost of turns.

Above: PostgresStore. Below: the table `spent`, with one row for each turn that ran here.
"""

from perdure.stores.base import UsageGroup, UsageKey, UsageQuery
from perdure.stores.postgres_connections import Connection, ask

_KEYS: dict[UsageKey, str] = {
    "day": "substr(started_at, 1, 10)",
    "agent": "spent.agent",
    "project": "coalesce(sessions.project, '')",
    "session": "heads.session_id",
    "model": "coalesce(spent.model, '')",
}
_FILTERS = {
    "since": "started_at >= %s",
    "until": "started_at < %s",
    "agent": "spent.agent = %s",
    "project": "sessions.project = %s",
    "session": "heads.session_id = %s",
}
_SUMS = """
    count(*), sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(cache_read_tokens)::bigint,
    sum(cache_write_tokens)::bigint, sum(cost_usd), count(*) FILTER (WHERE context = 'live'),
    count(*) FILTER (WHERE context = 'resumed'), count(*) FILTER (WHERE context = 'fresh'), sum(input_bytes)::bigint,
    sum(duration_ms)::bigint, sum(CASE WHEN context = 'fresh' THEN 0 ELSE coalesce(held_bytes, 0) END)::bigint"""
# A live or resumed agent already had the earlier conversation; a fresh one would have had to receive it again.
_HELD = """
    SELECT *, sum(said_bytes) OVER (
        PARTITION BY session_key ORDER BY turn ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS held_bytes
    FROM spent"""


async def usage(connection: Connection, query: UsageQuery) -> list[UsageGroup]:
    """Return one row per group, sorted by its keys; without keys, one row for everything."""
    names = [_KEYS[key] for key in query.group_by]
    given = {name: value for name in _FILTERS if (value := getattr(query, name)) is not None}
    where = " AND ".join(["true", *(_FILTERS[name] for name in given)])
    by = ", ".join(str(number) for number in range(1, len(names) + 1))
    grouping = f"GROUP BY {by} ORDER BY {by}" if names else "HAVING count(*) > 0"
    statement = (
        f"SELECT {', '.join(names) or chr(39) * 2}, {_SUMS} FROM ({_HELD}) AS spent"  # noqa: S608  no user input
        " JOIN sessions ON sessions.session_key = spent.session_key"
        f" JOIN heads ON heads.session_key = spent.session_key WHERE {where} {grouping}"
    )
    width = max(1, len(names))
    rows = await ask(connection, statement, *given.values())
    return [UsageGroup([str(key) for key in row[:width]], *(figure or 0 for figure in row[width:])) for row in rows]
