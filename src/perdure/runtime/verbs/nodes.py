"""The verbs for nodes: list, drain, resume, remove, and move sessions from one node to another.

Above: surfaces. Below: the store's table of nodes, and the heartbeats of other nodes as this server sees them. These
are actions that a person asks for; automatic ones (heartbeats, takeovers) are in runtime/running/node.py. A server on
SQLite is the only node: it can only be listed.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast

import msgspec

from perdure import __version__
from perdure.core import commands as cmd
from perdure.core import state as st
from perdure.core.errors import UNREADABLE, Refused, StoreDamaged
from perdure.core.session import decide
from perdure.runtime.log.journal import DECISIVE
from perdure.runtime.log.log import Log
from perdure.runtime.log.quarantine import refusal, restored
from perdure.runtime.running.facts import Facts
from perdure.stores.base import Node, Owner, Query, SessionRecord
from perdure.stores.shared import Load, SharedStore

T = TypeVar("T")
State = Literal["alive", "silent", "draining", "dead"]

SILENT_AFTER_S = 30.0
"""For a node that doesn't publish its own `takeover_after_s`."""
STORE_SILENT_S = 12.0
"""After this long without an answer from the store, requests should go to other nodes. Longer than two heartbeats."""
LIST_PAGE = 500
MOVE_ATTEMPTS = 5
"""How many times to try a move while others write to the session."""
MOVES_AT_ONCE = 8
DETACH_S = 15.0
DETACH_LOOK_S = 0.1
"""How long to wait for the owner to end an idle agent before its session moves, and how often to check."""
ONLY_NODE = "This server is the only node, because it uses SQLite. Several nodes need PostgreSQL; see docs/nodes.md."


class Heartbeats(Protocol):
    """The other nodes' heartbeats as this server sees them."""

    def unchanged_s(self, node_id: str, row: Node | None = None) -> float | None:
        """How long a node's heartbeat has not changed; None if this server never saw one. `row`: its row, if just
        read."""
        ...

    def name_of(self, node_id: str) -> str: ...


class Unwatched:
    """For servers that don't watch heartbeats: no node is ever silent."""

    def unchanged_s(self, node_id: str, row: Node | None = None) -> float | None:
        return None

    def name_of(self, node_id: str) -> str:
        return node_id


class Readiness:
    """Whether a load balancer should send new requests here. `store_silent_s` returns how long the store has not
    answered."""

    def __init__(
        self, is_draining: Callable[[], bool] = lambda: False, store_silent_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._is_draining = is_draining
        self._store_silent_s = store_silent_s
        self.is_stopping = False

    def reason(self) -> str | None:
        """Why this node should get no new requests; None if it should get them."""
        if self.is_stopping:
            return "This server is stopping. Send requests to another node."
        if self._is_draining():
            return "This node is draining. Send requests to another node."
        if self._store_silent_s() > STORE_SILENT_S:
            return "The store is not answering. The server keeps retrying; see its log."
        return None


class _Known(NamedTuple):
    """A node's row, decoded."""

    row: Node
    about: dict[str, Any]
    name: str
    state: State

    @property
    def lives(self) -> bool:
        """Whether its server may still write to the store."""
        return self.state in ("alive", "draining")


class Nodes:
    def __init__(self, log: Log, facts: Facts, heartbeats: Heartbeats | None = None) -> None:
        self._log = log
        self._facts = facts
        self._heartbeats = heartbeats or Unwatched()

    @property
    def this(self) -> str | None:
        """The id of this server's own node."""
        return self._log.node.node if self._log.node is not None else None

    # Reading --------------------------------------------------------------------------------------------------------

    async def all(self) -> list[dict[str, Any]]:
        """All nodes, sorted by name; on SQLite only this one."""
        loads = await self._loads()
        return [self._public(known, loads.get(known.row.node, Load(0, 0))) for known in await self._known()]

    async def _known(self) -> list[_Known]:
        rows = await self._log.store.nodes()
        if not self._log.store.is_shared:
            # Rows of other nodes come from a copied data directory.
            rows = [row for row in rows if row.node == self.this]
        found = [self._read(row) for row in rows]
        return sorted(found, key=lambda known: (known.name, known.row.node))

    def _read(self, row: Node) -> _Known:
        about = _decoded(row.about)
        if row.node == self.this:
            about = {**self._own(), **about}
        name = _as(about.get("name"), str, "") or self._heartbeats.name_of(row.node)
        return _Known(row, about, name, self._state(row, about))

    def _own(self) -> dict[str, Any]:
        """Facts about this server that its row may lack."""
        slots, agents = self._facts.config.slots, self._facts.agents.names()
        return {"version": __version__, "slots": slots, "agents": agents}

    def _state(self, row: Node, about: dict[str, Any]) -> State:
        if row.dead:
            return "dead"
        limit_s = _as(about.get("takeover_after_s"), float, 0.0) or SILENT_AFTER_S
        unchanged_s = None if row.node == self.this else self._heartbeats.unchanged_s(row.node, row)
        if unchanged_s is not None and unchanged_s > limit_s:
            return "silent"
        return "draining" if row.draining else "alive"

    def _public(self, known: _Known, load: Load) -> dict[str, Any]:
        row, about = known.row, known.about
        is_this = row.node == self.this
        unchanged_s = None if is_this else self._heartbeats.unchanged_s(row.node)
        return {
            "id": row.node,
            "name": known.name,
            "url": _as(about.get("url"), str, "") or None,
            "version": _as(about.get("version"), str, "") or None,
            "state": known.state,
            "draining": row.draining,
            "this": is_this,
            "started_at": _as(about.get("started_at"), str, "") or None,
            "last_seen_s": None if unchanged_s is None else round(unchanged_s, 1),
            "sessions": load.sessions,
            "running": load.running,
            "slots": _as(about.get("slots"), int | None, None),
            "labels": _as(about.get("labels"), list[str], []),
            "workdirs": "shared" if about.get("workdirs") == "shared" else "local",
            "agents": _as(about.get("agents"), list[str], []),
        }

    async def _loads(self) -> dict[str, Load]:
        if self._log.store.is_shared:
            return await cast(SharedStore, self._log.store).loads()
        if self.this is None:
            return {}
        running = await self._count(Query(state="processing", limit=LIST_PAGE))
        return {self.this: Load(await self._count(Query(status="running", limit=LIST_PAGE)), running)}

    async def _count(self, query: Query) -> int:
        count = 0
        while True:
            page = await self._log.store.list_sessions(query)
            count += len(page.found)
            if page.next_cursor is None:
                return count
            query = msgspec.structs.replace(query, cursor=page.next_cursor)

    # Changing -------------------------------------------------------------------------------------------------------

    async def drain(self, node: str) -> dict[str, Any]:
        """Start nothing new on a node. Running turns continue to their end."""
        return await self._set_draining(node, True)

    async def resume(self, node: str) -> dict[str, Any]:
        return await self._set_draining(node, False)

    async def _set_draining(self, node: str, draining: bool) -> dict[str, Any]:
        store = self._shared()
        known = _find(await self._known(), node)
        if not await store.set_draining(known.row.node, draining):
            raise _unknown(node)
        return await self._get(known.row.node)

    async def remove(self, node: str) -> dict[str, Any]:
        """Remove a node that is gone for good. Its sessions then have no owner, and another node can run them."""
        store = self._shared()
        known = _find(await self._known(), node)
        if known.row.node == self.this:
            raise Refused("conflict", "A node can't remove itself. Stop this server and remove it from another node.")
        if known.lives:
            what = "Stop it first, or drain it and stop it when nothing is running there."
            raise Refused("conflict", f"Node {known.name} is alive. {what}")
        load = (await store.loads()).get(known.row.node, Load(0, 0))
        if not await store.remove_node(known.row.node):
            raise _unknown(node)
        return {"id": known.row.node, "name": known.name, "sessions": load.sessions}

    async def _get(self, node_id: str) -> dict[str, Any]:
        for node in await self.all():
            if node["id"] == node_id:
                return node
        raise _unknown(node_id)

    # Moving sessions ------------------------------------------------------------------------------------------------

    async def move(self, to: str, *, session_ids: Sequence[str] = (), source: str | None = None) -> dict[str, Any]:
        """Make a node the owner of these sessions, or of all sessions of another node that have not ended. Returns the
        moved and the failed ones, with reasons. If a single given session can't be moved, raises Refused instead."""
        self._shared()
        if bool(session_ids) == (source is not None):
            raise Refused("invalid", "Give either session_ids or from.", fields=["session_ids", "from"])
        known = await self._known()
        target = _target(_find(known, to))
        wanted = list(dict.fromkeys(session_ids))
        if source is not None:
            wanted = await self._sessions_of(_source(_find(known, source), target))
        living = {each.row.node: each.name for each in known if each.lives}
        if source is None and len(wanted) == 1:
            await self._move(wanted[0], target, living)
            return {"to": target.row.node, "moved": wanted, "failed": []}
        return {"to": target.row.node, **await self._move_all(wanted, target, living)}

    async def _sessions_of(self, source: _Known) -> list[str]:
        query, found = Query(status="running", limit=LIST_PAGE), list[str]()
        while True:
            page = await self._log.store.list_sessions(query)
            found += [each.session_id for each in page.found if each.node == source.row.node]
            if page.next_cursor is None:
                return found
            query = msgspec.structs.replace(query, cursor=page.next_cursor)

    async def _move_all(self, wanted: list[str], target: _Known, living: dict[str, str]) -> dict[str, Any]:
        moved, failed = list[str](), list[dict[str, str]]()
        left = iter(wanted)
        while some := list(islice(left, MOVES_AT_ONCE)):
            moves = (self._move(session_id, target, living) for session_id in some)
            for session_id, problem in zip(some, await asyncio.gather(*moves, return_exceptions=True), strict=True):
                if problem is None:
                    moved.append(session_id)
                elif isinstance(problem, Refused):
                    failed.append({"session_id": session_id, "code": problem.code, "error": problem.detail})
                else:
                    raise problem
        return {"moved": moved, "failed": failed}

    async def _move(self, session_id: str, target: _Known, living: dict[str, str]) -> None:
        store = self._shared()
        for _ in range(MOVE_ATTEMPTS):
            record = await store.load(session_id)
            if record is None:
                raise Refused("not_found", f"There is no session {session_id}.")
            state, owner = _restored(session_id, record), record.owner
            if state.phase == "ended":
                raise Refused("session_ended", f"Session {session_id} has ended and no longer needs a node.")
            if owner is not None and owner.node == target.row.node:
                return
            if state.working and owner is not None and owner.node in living:
                what = f"A turn is running on node {living[owner.node]}. Abort it, or wait until it ends."
                turn = None if state.turn is None else state.turn.turn
                raise Refused("turn_active", what, state=state.state, turn=turn)
            if state.attached is not None and not state.working:
                await self._detach(session_id, state.attached.launch_id, owner, living)
                continue
            if await store.move(session_id, Owner(target.row.node, target.row.incarnation), record.decided_seq):
                self._wake(session_id)
                return
        raise Refused("conflict", f"Session {session_id} keeps changing. Try again in a moment.")

    async def _detach(self, session_id: str, launch_id: str, owner: Owner | None, living: dict[str, str]) -> None:
        """Make the owner end the session's idle agent before another node starts one."""
        journal = await self._log.open(session_id)
        with contextlib.suppress(Refused):
            await journal.record(lambda state: decide(state, cmd.DetachAgent("moved"), self._facts.world(state)))
        if owner is None or owner.node not in living:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DETACH_S):
                while await self._log.store.launches(launch_id):  # noqa: ASYNC110  rows of another node
                    await asyncio.sleep(DETACH_LOOK_S)

    def _wake(self, session_id: str) -> None:
        """Wake the old and the new owner after a change of owner."""
        journal = self._log.journals.get(session_id)
        if journal is not None:
            self._log.catch_up_soon(journal)
        self._log.changed(session_id)
        self._log.wakeups.announce(f"{DECISIVE}{session_id}", self._log)

    def _shared(self) -> SharedStore:
        if not self._log.store.is_shared:
            raise Refused("conflict", ONLY_NODE)
        return cast(SharedStore, self._log.store)


def _find(known: list[_Known], given: str) -> _Known:
    """The node with this id, or the only one with this name."""
    found = [each for each in known if each.row.node == given] or [each for each in known if each.name == given]
    if len(found) > 1:
        what = f"{len(found)} nodes have the name {given!r}. Give an id; `perdure nodes --json` shows the ids."
        raise Refused("not_found", what)
    if not found:
        raise _unknown(given)
    return found[0]


def _unknown(given: str) -> Refused:
    return Refused("not_found", f"There is no node {given!r}. `perdure nodes` lists them.")


def _target(target: _Known) -> _Known:
    if target.state != "alive":
        instead = "Resume it, or choose another one." if target.state == "draining" else "Choose another one."
        raise Refused("conflict", f"Node {target.name} is {target.state}, so sessions can't move there. {instead}")
    return target


def _source(source: _Known, target: _Known) -> _Known:
    if source.row.node == target.row.node:
        raise Refused("invalid", "from must name another node: these sessions are already there.", fields=["from"])
    if source.state == "alive":
        raise Refused("conflict", f"Node {source.name} is alive. Drain it first, so that nothing new starts there.")
    return source


def _restored(session_id: str, record: SessionRecord) -> st.Session:
    """The session's state. Raises Refused if it is damaged, so that other sessions can still be moved."""
    try:
        return restored(session_id, record)
    except (StoreDamaged, *UNREADABLE) as error:
        raise refusal(session_id) from error


def _decoded(about: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(about, type=dict[str, Any])
    except UNREADABLE:
        return {}


def _as(value: Any, kind: Any, otherwise: T) -> T:
    """The value as this type, or the default: another version may have written something else or nothing."""
    try:
        return cast(T, msgspec.convert(value, kind))
    except msgspec.ValidationError:
        return otherwise
