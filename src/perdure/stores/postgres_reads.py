"""Queries, one function each.

Above: PostgresStore calls these with a connection from its pool. Below: PostgreSQL. Each query is one statement, so it
sees a consistent snapshot. If one needs several statements, its docstring says so.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from perdure.core.compaction import part_of_run
from perdure.stores.base import (
    Head,
    KeptRecord,
    LaunchProgress,
    Owner,
    Place,
    Receipt,
    Records,
    SessionRecord,
    Stored,
    TurnRow,
)
from perdure.stores.launch_rows import progress_of
from perdure.stores.postgres_connections import Connection, Row, ask
from perdure.stores.shared import News

NUMBER_MAX = 2**63 - 1
"""PostgreSQL's largest integer. Requests may contain any position."""
TURN_MAX = 2**31 - 1
POSITION_BITS = 63
"""A position combines the transaction id with the row's position, in this many low bits."""

_KEY = "(SELECT session_key FROM heads WHERE session_id = %s)"
_LOAD = """
    SELECT machine_state, last_seq, decided_seq, owner, incarnation, fencing_token
    FROM heads JOIN sessions USING (session_key) WHERE session_id = %s"""
_READ = "SELECT * FROM perdure_read_v1(%s, %s, %s, %s, %s)"
_NEWS = "SELECT * FROM perdure_news_v1(%s::text[], %s::bigint[], %s, %s)"
_SIZE = f"""
    SELECT coalesce(sum(size), 0)::bigint FROM (
        SELECT octet_length(body) AS size FROM events
        WHERE session_key = {_KEY} AND seq > %s AND seq <= %s
        ORDER BY seq LIMIT %s) AS sizes"""  # noqa: S608  no user input
# Must match the condition of the partial index, or PostgreSQL won't use the index.
_OF_TURNS = "type IN ('user_message', 'turn_start', 'history_changed')"
_BEGIN = f"""
    SELECT seq - 1 FROM events
    WHERE session_key = {_KEY} AND turn >= %s AND {_OF_TURNS} AND type <> 'history_changed'
    ORDER BY turn, seq LIMIT 1"""  # noqa: S608  no user input
_CHANGED = f"""
    SELECT seq, seq, type, turn, body FROM events
    WHERE session_key = {_KEY} AND turn BETWEEN %s AND %s AND {_OF_TURNS} AND type = 'history_changed' AND seq > %s
    ORDER BY seq"""  # noqa: S608  no user input
_RECORDS = f"""
    SELECT turn, seq, size, record FROM (
        SELECT *, row_number() OVER (ORDER BY turn) AS number,
            sum(size) OVER (ORDER BY turn ROWS UNBOUNDED PRECEDING) AS total
        FROM (
            SELECT * FROM turn_records WHERE session_key = {_KEY} AND turn BETWEEN %s AND %s AND seq <= %s
            ORDER BY turn LIMIT %s) AS found
    ) AS counted
    WHERE number = 1 OR total <= %s
    ORDER BY turn"""  # noqa: S608  no user input
_TURNS = f"""
    SELECT turn, visible, public FROM turns
    WHERE session_key = {_KEY} AND turn >= %s AND turn < %s AND (visible OR %s)
    ORDER BY turn DESC LIMIT %s"""  # noqa: S608  no user input
_RECEIPT = f"""
    SELECT message_id, digest, answer, seq FROM receipts
    WHERE session_key = {_KEY} AND message_id = %s"""  # noqa: S608  no user input
# For the launch whose row was written last, the current offset is in the session's head.
_LAUNCHES = """
    SELECT launch_id, session_id, launches.agent, driver, phase,
        CASE WHEN mark = launch_mark THEN heads.output_offset ELSE launches.output_offset END,
        performed_seq, input_total, pending_input, driver_state
    FROM launches JOIN heads USING (session_key) {} ORDER BY launch_key"""
# Transactions below this are finished, so no commit can be inserted before them any more.
_SETTLED = "pg_snapshot_xmin(pg_current_snapshot())"
_NEWEST = f"SELECT {_SETTLED}::text::bigint"
_CHANGES = f"""
    SELECT found.xid::text::bigint, found.position, heads.session_id, found.seq, found.type, events.turn, events.body
    FROM (
        SELECT * FROM changes
        WHERE (xid, position) > (%s::text::xid8, %s) AND xid < {_SETTLED} AND type = ANY (%s)
        ORDER BY xid, position LIMIT %s
    ) AS found
    JOIN heads ON heads.session_key = found.session_key
    JOIN events ON events.session_key = found.session_key AND events.seq = found.seq
    ORDER BY found.xid, found.position"""  # noqa: S608  no user input
_HEADS = """
    SELECT session_id, last_seq, decided_seq, owner, incarnation, fencing_token FROM heads
    WHERE session_id = ANY (%s::text[])"""

_decode_cuts = msgspec.json.Decoder(list[int]).decode


def bounded(value: int | None, most: int = NUMBER_MAX) -> int:
    return most if value is None else max(-most, min(value, most))


def owner_of(name: str | None, incarnation: int | None) -> Owner | None:
    return None if name is None or incarnation is None else Owner(name, incarnation)


async def load(connection: Connection, session_id: str) -> SessionRecord | None:
    rows = await ask(connection, _LOAD, session_id)
    if not rows:
        return None
    ((state, last_seq, decided_seq, name, incarnation, token),) = rows
    return SessionRecord(state, last_seq, decided_seq, owner_of(name, incarnation), token)


async def heads(connection: Connection, session_ids: Sequence[str]) -> dict[str, Head]:
    rows = await ask(connection, _HEADS, list(session_ids))
    return {
        session_id: Head(last_seq, decided_seq, owner_of(name, incarnation), token)
        for session_id, last_seq, decided_seq, name, incarnation, token in rows
    }


async def read(
    connection: Connection, session_id: str, after: int, limit: int, upto: int | None, max_bytes: int | None
) -> list[Stored]:
    after = max(0, bounded(after))
    limit = min(bounded(limit), NUMBER_MAX if upto is None else upto - after)
    if limit <= 0:
        return []
    room = None if max_bytes is None else bounded(max_bytes)
    rows = await ask(connection, _READ, session_id, after, bounded(upto), limit, room)
    return list(_within(rows, after, upto))


async def news(connection: Connection, positions: Mapping[str, int], limit: int, max_bytes: int) -> dict[str, News]:
    afters = [max(0, bounded(after)) for after in positions.values()]
    rows = await ask(connection, _NEWS, list(positions), afters, bounded(limit), bounded(max_bytes))
    found: dict[str, News] = {}
    for session_id, last_seq, decided_seq, name, incarnation, token, after, seq, *rest in rows:
        one = found.get(session_id)
        if one is None:
            one = found[session_id] = News(Head(last_seq, decided_seq, owner_of(name, incarnation), token), [])
        if seq is not None:
            one.events.extend(_within([(seq, *rest)], after, None))
    return found


def _within(rows: Sequence[Row], after: int, upto: int | None) -> Iterator[Stored]:
    """Return events as stored, but cut joined runs to the part within the bounds."""
    for seq, first_seq, type_, turn, body, packed_cuts in rows:
        cuts = [] if packed_cuts is None else _decode_cuts(packed_cuts)
        if first_seq <= after or (upto is not None and seq > upto):
            body = part_of_run(body, first_seq, cuts, after, upto)
            begin, end = max(first_seq, after + 1), seq if upto is None else min(seq, upto)
            cuts = cuts[begin - first_seq : end + 1 - first_seq]
            seq, first_seq = end, begin
        yield Stored(seq, first_seq, type_, turn, body, cuts if seq > first_seq else [])


async def size(connection: Connection, session_id: str, after: int, limit: int, upto: int | None) -> int:
    ((found,),) = await ask(connection, _SIZE, session_id, max(0, bounded(after)), bounded(upto), bounded(limit))
    return int(found)


async def find_turns(connection: Connection, session_id: str, first: int, last: int | None) -> Place:
    """Up to three statements. The events they look for never move, and events added meanwhile come later."""
    first, last = bounded(first, TURN_MAX), None if last is None else bounded(last, TURN_MAX - 1)
    begin = await ask(connection, _BEGIN, session_id, first)
    if not begin:
        return Place(NUMBER_MAX, None, [])
    end = [] if last is None else await ask(connection, _BEGIN, session_id, last + 1)
    if not end:
        return Place(begin[0][0], None, [])
    changes = await ask(connection, _CHANGED, session_id, first, last, end[0][0])
    return Place(begin[0][0], end[0][0], [Stored(*row) for row in changes])


async def read_records(
    connection: Connection,
    session_id: str,
    first: int,
    last: int | None,
    upto: int,
    limit: int,
    max_bytes: int | None,
) -> Records:
    """Two statements. The second may return changes made after the first; callers expect that."""
    turns = bounded(first, TURN_MAX), bounded(last, TURN_MAX)
    rows = await ask(connection, _RECORDS, session_id, *turns, bounded(upto), bounded(limit), bounded(max_bytes))
    kept = [KeptRecord(*row) for row in rows]
    if not kept:
        return Records([], [])
    changes = await ask(connection, _CHANGED, session_id, kept[0].turn, kept[-1].turn, 0)
    return Records(kept, [Stored(*row) for row in changes])


async def read_turns(
    connection: Connection, session_id: str, from_turn: int, before: int | None, last: int | None, hidden: bool
) -> list[TurnRow]:
    count = NUMBER_MAX if last is None else max(0, bounded(last))
    # Without `before`, the bound is above every turn number.
    bounds = bounded(from_turn), bounded(before)
    rows = await ask(connection, _TURNS, session_id, *bounds, hidden, count)
    return [TurnRow(turn, visible, public) for turn, visible, public in reversed(rows)]


async def find_receipt(connection: Connection, session_id: str, message_id: str) -> Receipt | None:
    rows = await ask(connection, _RECEIPT, session_id, message_id)
    if not rows:
        return None
    ((_, digest, answer, seq),) = rows
    return Receipt(message_id, digest, answer, seq=seq)


async def list_changes(
    connection: Connection, after: int, types: tuple[str, ...], limit: int, max_bytes: int | None
) -> list[tuple[int, str, Stored]]:
    if after < 0:
        # Right before the next change: everything settled has a lower position.
        ((settled,),) = await ask(connection, _NEWEST)
        return [((settled << POSITION_BITS) - 1, "", Stored(0, 0, "", None, b""))]
    xid, position = after >> POSITION_BITS, after & NUMBER_MAX
    rows = await ask(connection, _CHANGES, str(min(xid, NUMBER_MAX)), position, list(types), bounded(limit))
    found: list[tuple[int, str, Stored]] = []
    total = 0
    for number, place, session_id, seq, type_, turn, body in rows:
        total += len(body)
        if max_bytes is not None and found and total > max_bytes:
            break
        found.append((number << POSITION_BITS | place, session_id, Stored(seq, seq, type_, turn, body)))
    return found


async def launches(connection: Connection, launch_id: str | None, node: str | None) -> list[LaunchProgress]:
    assert launch_id is None or node is None, "give a launch or a node, not both"
    if launch_id is not None:
        rows = await ask(connection, _LAUNCHES.format("WHERE launch_id = %s"), launch_id)
    elif node is not None:
        rows = await ask(connection, _LAUNCHES.format("WHERE starts_with(launch_id, %s)"), f"{node}-")
    else:
        rows = await ask(connection, _LAUNCHES.format(""))
    return [progress_of(row) for row in rows]


async def issued_twice(connection: Connection) -> set[tuple[str, str]]:
    rows = await ask(connection, "SELECT DISTINCT program, native_session_id FROM natives WHERE twice")
    return {(program, native) for program, native in rows}


async def natives(connection: Connection, session_id: str) -> list[str]:
    rows = await ask(
        connection,
        f"SELECT DISTINCT native_session_id FROM natives WHERE session_key = {_KEY}",  # noqa: S608  no user input
        session_id,
    )
    return [native for (native,) in rows]
