"""The interface of a store for several nodes, in addition to what every store does (stores/base.py).

Above: the parts of the runtime that deal with other nodes. Below: PostgreSQL. SQLite does not implement this: a server
on SQLite is the only node.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from msgspec import Struct

from perdure.stores.base import Head, Owner, Store, Stored


class News(Struct, frozen=True):
    """A session's head and its events after a position: all of them, or the first ones if there are many."""

    head: Head
    events: list[Stored]


class SlotTaker(NamedTuple):
    session_id: str
    title: str


class Load(NamedTuple):
    """How many sessions that have not ended a node owns, and how many of them have a running turn."""

    sessions: int
    running: int


class SharedStore(Store, Protocol):
    async def epoch(self) -> int:
        """Return the epoch of event ids. It increases after a restore or a failover, when the database may assign
        numbers that it has assigned before."""
        ...

    async def time(self) -> float:
        """Return the time of the database's clock, in seconds since 1970."""
        ...

    # Nodes

    async def declare_dead(self, owner: Owner, heartbeat: int) -> bool:
        """Mark a node dead if it still has this incarnation and heartbeat. Returns whether it is dead now."""
        ...

    async def set_draining(self, node: str, draining: bool) -> bool:
        """Return whether the node exists."""
        ...

    async def remove_node(self, node: str) -> bool:
        """Remove a node and return whether it existed. Its sessions then have no owner, and a server still running as
        this node must stop."""
        ...

    async def move(self, session_id: str, to: Owner, expect: int) -> bool:
        """Make another node the owner, regardless of the current one, if there is no decisive event after `expect`. The
        fencing token increases."""
        ...

    async def abandoned(self, limit: int, *, node: str | None = None, skip: int = 0) -> list[str]:
        """Return sessions with a running turn (state `processing` or `waiting`) whose owner is dead, removed or not
        set. With `node`: also that node's own sessions, which it has to run. Leaves out the first `skip`."""
        ...

    async def former_nodes(self, session_id: str) -> list[str]:
        """Return every node that has ever owned the session."""
        ...

    async def loads(self) -> dict[str, Load]:
        """Return the load of each node."""
        ...

    # Following

    async def news(self, positions: Mapping[str, int], *, limit: int, max_bytes: int) -> dict[str, News]:
        """Return the events of many sessions after their positions, in one round trip. `limit` and `max_bytes` bound
        the events of each session, but at least one is returned if there is any. Unknown sessions are left out."""
        ...

    async def document_marks(self) -> dict[str, int]:
        """Return a number for each kind of document. It changes whenever a document of that kind is put or removed."""
        ...

    # Slots of projects

    async def reserve_slot(self, project: str, session_id: str, limit: int, hold_s: float) -> list[SlotTaker]:
        """Reserve one of a project's slots for a turn that is about to begin. Returns an empty list on success, else
        the sessions that occupy the slots. A reservation ends with `free_slot` or after `hold_s`; once the turn runs,
        `takes_slot` holds the slot."""
        ...

    async def free_slot(self, project: str, session_id: str) -> None: ...

    async def slot_takers(self, project: str) -> list[SlotTaker]:
        """Return the sessions whose turns occupy a slot (`takes_slot`), and those with a reservation."""
        ...

    # Files of a session: attachments of its messages, and records of its changes

    async def put_file(self, session_id: str, name: str, data: bytes, *, early: bool = True) -> bool:
        """Store a file, and return whether it is stored. `erase` deletes it with the session. With `early`, the session
        need not exist yet; without it, a late write stores nothing if the session was erased."""
        ...

    async def file(self, session_id: str, name: str) -> bytes | None: ...

    async def drop_file(self, session_id: str, name: str) -> None: ...

    async def file_names(self, session_id: str, prefix: str) -> list[str]:
        """Return the names of a session's files that begin with `prefix`, in order."""
        ...

    # Operation

    async def finish_rollout(self, format_version: int) -> None:
        """Run the migrations that must wait until every living node writes at least this format."""
        ...

    async def inspect(self) -> list[str]:
        """Return problems of the database, as sentences for people: an old transaction that delays the change feed of
        all sessions, autovacuum turned off, an unsupported version."""
        ...
