"""Nodes, which node owns which session, and the slots of projects.

Above: PostgresStore. Below: the tables `nodes`, `heads` and `slot_reservations`. Claims and releases are steps and go
through the writer. This module has what does not come from a session: a node joins, an operator moves a session.
Detecting missed heartbeats is the runtime's job, not the store's.
"""

from perdure.stores.base import Node, Owner
from perdure.stores.postgres_connections import Connection, ask, change
from perdure.stores.shared import Load, SlotTaker

_NODES = "SELECT node, incarnation, heartbeat, dead, about, draining FROM nodes ORDER BY node"
_BEAT = "UPDATE nodes SET heartbeat = heartbeat + 1 WHERE node = %s AND incarnation = %s AND NOT dead"
# Returns whether the node is dead now, even if another node marked it first.
_DECLARE_DEAD = """
    WITH declared AS (
        UPDATE nodes SET dead = true WHERE node = %s AND incarnation = %s AND heartbeat = %s AND NOT dead RETURNING 1)
    SELECT EXISTS (SELECT 1 FROM declared)
        OR EXISTS (SELECT 1 FROM nodes WHERE node = %s AND incarnation = %s AND dead)"""
_DRAIN = "UPDATE nodes SET draining = %s WHERE node = %s"
# Whether a living node owns the session.
_IS_OWNED = "EXISTS (SELECT 1 FROM nodes WHERE nodes.node = heads.owner AND NOT nodes.dead)"
_WAITING = f"""
    SELECT session_id FROM sessions JOIN heads USING (session_key)
    WHERE state = 'accepted' AND (%s::text IS NULL OR owner IS NULL OR owner = %s OR NOT {_IS_OWNED})
    ORDER BY last_active_at, session_key"""  # noqa: S608  no user input
_DUE = """
    SELECT session_id FROM sessions JOIN heads USING (session_key)
    WHERE due_at <= %s ORDER BY due_at, session_key LIMIT %s"""
_ABANDONED = f"""
    SELECT session_id FROM sessions JOIN heads USING (session_key)
    WHERE state IN ('processing', 'waiting') AND (NOT {_IS_OWNED} OR owner = %s)
    ORDER BY session_key LIMIT %s OFFSET %s"""  # noqa: S608  no user input
_FORMER = """
    SELECT node FROM former_owners
    WHERE session_key = (SELECT session_key FROM heads WHERE session_id = %s) ORDER BY node"""
_LOADS = """
    SELECT owner, count(*) FILTER (WHERE state <> 'ended'), count(*) FILTER (WHERE state IN ('processing', 'waiting'))
    FROM heads JOIN sessions USING (session_key) WHERE owner IS NOT NULL GROUP BY owner"""


async def join(connection: Connection, node: str, about: bytes) -> int:
    ((incarnation,),) = await ask(connection, "SELECT perdure_join_v1(%s, %s)", node, about)
    return int(incarnation)


async def beat(connection: Connection, owner: Owner) -> bool:
    return await change(connection, _BEAT, owner.node, owner.incarnation) > 0


async def nodes(connection: Connection) -> list[Node]:
    return [Node(*row) for row in await ask(connection, _NODES)]


async def declare_dead(connection: Connection, owner: Owner, heartbeat: int) -> bool:
    life = (owner.node, owner.incarnation)
    ((is_dead,),) = await ask(connection, _DECLARE_DEAD, *life, heartbeat, *life)
    return bool(is_dead)


async def set_draining(connection: Connection, node: str, draining: bool) -> bool:
    return await change(connection, _DRAIN, draining, node) > 0


async def remove_node(connection: Connection, node: str) -> bool:
    ((was_there,),) = await ask(connection, "SELECT perdure_remove_node_v1(%s)", node)
    return bool(was_there)


async def move(connection: Connection, session_id: str, to: Owner, expect: int) -> bool:
    ((moved,),) = await ask(
        connection, "SELECT perdure_move_v1(%s, %s, %s, %s)", session_id, to.node, to.incarnation, expect
    )
    return bool(moved)


async def waiting(connection: Connection, node: str | None) -> list[str]:
    return [session_id for (session_id,) in await ask(connection, _WAITING, node, node)]


async def due_sessions(connection: Connection, until: str, limit: int) -> list[str]:
    return [session_id for (session_id,) in await ask(connection, _DUE, until, limit)]


async def abandoned(connection: Connection, limit: int, node: str | None, skip: int) -> list[str]:
    return [session_id for (session_id,) in await ask(connection, _ABANDONED, node, limit, skip)]


async def former_nodes(connection: Connection, session_id: str) -> list[str]:
    return [node for (node,) in await ask(connection, _FORMER, session_id)]


async def loads(connection: Connection) -> dict[str, Load]:
    return {node: Load(sessions, running) for node, sessions, running in await ask(connection, _LOADS)}


async def reserve_slot(
    connection: Connection, project: str, session_id: str, limit: int, hold_s: float
) -> list[SlotTaker]:
    rows = await ask(
        connection, "SELECT * FROM perdure_reserve_slot_v1(%s, %s, %s, %s)", project, session_id, limit, float(hold_s)
    )
    return [SlotTaker(*row) for row in rows]


async def free_slot(connection: Connection, project: str, session_id: str) -> None:
    await ask(connection, "DELETE FROM slot_reservations WHERE project = %s AND session_id = %s", project, session_id)


async def slot_takers(connection: Connection, project: str) -> list[SlotTaker]:
    rows = await ask(connection, "SELECT * FROM perdure_slot_takers_v1(%s, NULL)", project)
    return [SlotTaker(*row) for row in rows]
