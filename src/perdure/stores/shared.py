"""What a store for several nodes must do besides what every store does (stores/base.py).

Above: the parts of the runtime that know of other nodes. Below: PostgreSQL. A server on SQLite has none of this: it is
the only node there is.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from msgspec import Struct

from perdure.stores.base import Head, Owner, Store, Stored


class News(Struct, frozen=True):
    """A session's head, and its events after a position: all of them, or the first ones where they are many."""

    head: Head
    events: list[Stored]


class SlotTaker(NamedTuple):
    session_id: str
    title: str


class Load(NamedTuple):
    """How many sessions a node owns that have not ended, and in how many of them a turn runs."""

    sessions: int
    running: int


class SharedStore(Store, Protocol):
    async def epoch(self) -> int:
        """The epoch of event ids. It rises when numbers may have been given twice: after a restore or a failover."""
        ...

    async def time(self) -> float:
        """The database's clock, in seconds since 1970."""
        ...

    # Nodes

    async def declare_dead(self, owner: Owner, heartbeat: int) -> bool:
        """Mark a node dead if it is still this incarnation with this heartbeat; whether it is dead now."""
        ...

    async def set_draining(self, node: str, draining: bool) -> bool:
        """Whether there is such a node."""
        ...

    async def remove_node(self, node: str) -> bool:
        """Forget a node: its sessions have no owner from then on, and a server that still runs as it must stop. Whether
        there was such a node."""
        ...

    async def move(self, session_id: str, to: Owner, expect: int) -> bool:
        """Make another node the owner, whoever is now, if nothing was decided after `expect`. The token rises."""
        ...

    async def abandoned(self, limit: int, *, node: str | None = None, skip: int = 0) -> list[str]:
        """Sessions with a running turn (state `processing`) whose owner is dead or removed, or that have no owner; and
        those of a node, which has to run them. Without the first `skip` ones."""
        ...

    async def former_nodes(self, session_id: str) -> list[str]:
        """Every node that has ever owned the session."""
        ...

    async def loads(self) -> dict[str, Load]:
        """By node."""
        ...

    # Following

    async def news(self, positions: Mapping[str, int], *, limit: int, max_bytes: int) -> dict[str, News]:
        """For many sessions at once, in one round trip, what came after a position. `limit` and `max_bytes` bound the
        events of each session; at least one is returned, if there is any. A session that does not exist is left out."""
        ...

    async def document_marks(self) -> dict[str, int]:
        """For each kind of documents a number that changes when one of them is put or removed."""
        ...

    # Slots of projects

    async def reserve_slot(self, project: str, session_id: str, limit: int, hold_s: float) -> list[SlotTaker]:
        """Reserve one of a project's slots for a turn that is about to begin; empty if that succeeded, else who takes
        them. A reservation ends with `free_slot`, or after `hold_s`; the turn itself takes a slot by `takes_slot`."""
        ...

    async def free_slot(self, project: str, session_id: str) -> None: ...

    async def slot_takers(self, project: str) -> list[SlotTaker]:
        """The sessions whose turns take a slot (`takes_slot`), and those with a reservation."""
        ...

    # Files that came with messages

    async def put_file(self, session_id: str, name: str, data: bytes) -> None:
        """They may be stored before their session is; `erase` removes them."""
        ...

    async def file(self, session_id: str, name: str) -> bytes | None: ...

    async def drop_file(self, session_id: str, name: str) -> None: ...

    # Operation

    async def finish_rollout(self, format_version: int) -> None:
        """Run the migrations that may run only when every living node writes at least this format."""
        ...

    async def inspect(self) -> list[str]:
        """What is wrong with the database, in sentences for people: an old transaction that holds up the order of all
        sessions, no autovacuum, a version that is not supported."""
        ...
