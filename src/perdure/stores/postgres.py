"""The PostgreSQL store, for any number of servers at the same time.

Above: the log and the engine, through the SharedStore interface. Below: a writer that sends appends in groups
(postgres_writer.py), and a few connections for everything else (postgres_connections.py). Everything works through a
pooler in transaction mode. The database checks the rules that must hold across servers, in the functions of
stores/sql/postgres. This code holds no lock across a round trip, and caches nothing that another server could
invalidate.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

import psycopg

from perdure.core.errors import Conflict, NotOwner, StoreError
from perdure.stores import (
    postgres_jobs,
    postgres_migrate,
    postgres_owners,
    postgres_reads,
    postgres_search,
    postgres_upkeep,
    postgres_usage,
)
from perdure.stores.base import (
    Append,
    Head,
    JobRow,
    Joined,
    Kept,
    LaunchProgress,
    Node,
    Owner,
    Page,
    Place,
    Query,
    Receipt,
    Records,
    RunRow,
    SessionRecord,
    Stored,
    TurnRow,
    UsageGroup,
    UsageQuery,
    Workdir,
)
from perdure.stores.postgres_connections import Connection, Connector, Pool
from perdure.stores.postgres_writer import Writer
from perdure.stores.shared import Load, News, SlotTaker

logger = logging.getLogger(__name__)

CONNECTIONS_MIN = 2
VITAL = 1
WRITERS = 1
GENERATION = 1
"""The same for every server: sessions have owners, the store has none."""
PARTITIONS_EVERY_S = 3600.0


class PostgresStore:
    """See SharedStore. `connections` is the maximum for this server, not counting those for wake-ups."""

    is_shared = True

    def __init__(self, url: str, *, connections: int = 6) -> None:
        connector = Connector(url)
        self._pool = Pool(connector, max(connections, CONNECTIONS_MIN) - WRITERS - VITAL)
        self._vital = Pool(Connector(url), VITAL)
        """Only for node liveness (heartbeats and related queries): a busy node must not look dead."""
        self._writer = Writer(connector, WRITERS, self._look_at)
        self._partitions_due_s = 0.0
        self._partitioning: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._pool.open()
        self._vital.open()
        try:
            await self._pool.work(self._begin)
        except BaseException:
            await self._close_pools()
            raise
        self._writer.open()

    async def open_to_look(self) -> bool:
        """Open for reading only, without any change. Returns whether a server has ever started on this database."""
        self._pool.open()
        self._vital.open()
        await self._pool.work(postgres_migrate.check_server)
        return await self._pool.read(postgres_upkeep.is_in_use)

    async def _begin(self, connection: Connection) -> None:
        await postgres_migrate.check_server(connection)
        await postgres_migrate.migrate(connection, postgres_migrate.shipped())
        try:
            await postgres_upkeep.make_partitions(connection)
        except psycopg.Error as error:
            # Until then, rows go into the default partition.
            logger.warning("could not create the log's next partitions; retrying in an hour: %s", error)
        self._partitions_due_s = time.monotonic() + PARTITIONS_EVERY_S
        await self._look_at(connection)

    async def _look_at(self, connection: Connection) -> None:
        """Runs on each new connection of the writer, which is the first to reach another server after a failover."""
        await postgres_upkeep.raise_epoch(connection)

    async def close(self) -> None:
        if self._partitioning is not None:
            self._partitioning.cancel()
            await asyncio.gather(self._partitioning, return_exceptions=True)
        await self._writer.close()
        await self._close_pools()

    async def _close_pools(self) -> None:
        await self._pool.close()
        await self._vital.close()

    async def claim(self) -> int:
        return GENERATION

    # Appends

    async def append(self, step: Append) -> Kept:
        return await self._writer.append(step)

    def append_now(self, steps: Sequence[Append]) -> list[Kept | Exception] | None:
        """Always None: a commit takes a round trip."""
        return None

    async def append_all(self, steps: Sequence[Append]) -> list[Kept | Exception]:
        return await self._writer.append_all(steps)

    async def claim_session(self, session_id: str, owner: Owner, generation: int) -> int | None:
        step = Append(session_id=session_id, generation=generation, expect=None, claim=owner)
        try:
            kept = await self._writer.append(step)
        except Conflict:
            return None  # without `expect`, the only conflict is a missing session
        return kept.token if kept.owner == owner else None

    async def release(self, session_id: str, token: int, expect: int, generation: int) -> bool:
        step = Append(session_id=session_id, generation=generation, expect=expect, token=token)
        try:
            await self._writer.release(step)
        except (Conflict, NotOwner):
            return False
        return True

    # Sessions

    async def load(self, session_id: str) -> SessionRecord | None:
        return await self._pool.read(postgres_reads.load, session_id)

    async def read(
        self, session_id: str, after: int, *, limit: int, upto: int | None = None, max_bytes: int | None = None
    ) -> list[Stored]:
        return await self._pool.read(postgres_reads.read, session_id, after, limit, upto, max_bytes)

    async def size(self, session_id: str, after: int, *, limit: int, upto: int | None = None) -> int:
        return await self._pool.read(postgres_reads.size, session_id, after, limit, upto)

    async def find_turns(self, session_id: str, first: int, last: int | None) -> Place:
        return await self._pool.read(postgres_reads.find_turns, session_id, first, last)

    async def read_records(
        self, session_id: str, first: int, last: int | None, upto: int, *, limit: int, max_bytes: int | None = None
    ) -> Records:
        return await self._pool.read(postgres_reads.read_records, session_id, first, last, upto, limit, max_bytes)

    async def read_turns(
        self,
        session_id: str,
        *,
        from_turn: int = 1,
        before: int | None = None,
        last: int | None = None,
        hidden: bool = False,
    ) -> list[TurnRow]:
        return await self._pool.read(postgres_reads.read_turns, session_id, from_turn, before, last, hidden)

    async def find_receipt(self, session_id: str, message_id: str) -> Receipt | None:
        return await self._pool.read(postgres_reads.find_receipt, session_id, message_id)

    async def list_sessions(self, query: Query) -> Page:
        return await self._pool.read(postgres_search.list_sessions, query)

    async def workdirs(self, newest: int) -> list[Workdir]:
        return await self._pool.read(postgres_search.workdirs, newest)

    async def list_changes(
        self, after: int, types: tuple[str, ...], limit: int, *, max_bytes: int | None = None
    ) -> list[tuple[int, str, Stored]]:
        return await self._pool.read(postgres_reads.list_changes, after, types, limit, max_bytes)

    async def usage(self, query: UsageQuery) -> list[UsageGroup]:
        return await self._pool.read(postgres_usage.usage, query)

    async def launches(self, launch_id: str | None = None, *, node: str | None = None) -> list[LaunchProgress]:
        return await self._pool.read(postgres_reads.launches, launch_id, node)

    async def issued_twice(self) -> set[tuple[str, str]]:
        return await self._pool.read(postgres_reads.issued_twice)

    async def natives(self, session_id: str) -> list[str]:
        return await self._pool.read(postgres_reads.natives, session_id)

    async def heads(self, session_ids: Sequence[str]) -> dict[str, Head]:
        return await self._pool.read(postgres_reads.heads, session_ids)

    async def news(self, positions: Mapping[str, int], *, limit: int, max_bytes: int) -> dict[str, News]:
        return await self._pool.read(postgres_reads.news, positions, limit, max_bytes)

    # Upkeep

    async def compact(self, session_id: str, generation: int, runs: list[Joined]) -> None:
        if runs:
            await self._pool.write(postgres_upkeep.compact, session_id, runs)

    async def erase(self, session_id: str, generation: int) -> None:
        while await self._pool.write(postgres_upkeep.erase_some, session_id):
            pass

    async def scrub(self, *, whole: bool) -> bool:
        """Free the space of deleted rows, so that PostgreSQL overwrites it over time. It can't overwrite it
        immediately, and its write-ahead log keeps old data until it is recycled."""
        if dropped := await self._pool.write(postgres_upkeep.drop_partitions):
            logger.info("dropped %d empty partitions of the log", dropped)
        due = await self.document(*postgres_upkeep.SCRUB_DUE)
        if due is None or not whole:
            return True
        for table in postgres_upkeep.SCRUBBED:
            await self._pool.work(postgres_upkeep.vacuum, table)
        await self._pool.write(postgres_upkeep.forget_scrub, due)
        return True

    async def put_document(self, kind: str, key: str, value: bytes | None) -> None:
        await self._pool.write(postgres_upkeep.put_document, kind, key, value)

    async def documents(self, kind: str) -> dict[str, bytes]:
        return await self._pool.read(postgres_upkeep.documents, kind)

    async def document(self, kind: str, key: str) -> bytes | None:
        return await self._pool.read(postgres_upkeep.document, kind, key)

    async def add_document(self, kind: str, key: str, value: bytes) -> bool:
        return await self._pool.write(postgres_upkeep.add_document, kind, key, value)

    async def take_document(self, kind: str, key: str) -> bytes | None:
        return await self._pool.write(postgres_upkeep.take_document, kind, key)

    async def document_marks(self) -> dict[str, int]:
        return await self._pool.read(postgres_upkeep.document_marks)

    # Nodes

    async def join(self, node: str, about: bytes) -> int:
        return await self._pool.write(postgres_owners.join, node, about)

    async def beat(self, owner: Owner) -> bool:
        is_alive = await self._vital.write(postgres_owners.beat, owner)
        if time.monotonic() >= self._partitions_due_s:
            # In a task, because it may wait for a lock or a connection, which must not delay the next heartbeat.
            self._partitions_due_s = time.monotonic() + PARTITIONS_EVERY_S
            self._partitioning = asyncio.create_task(self._prepare_partitions(), name="partitions")
        return is_alive

    async def _prepare_partitions(self) -> None:
        """Create the partitions of the coming months, because a server may run for years."""
        try:
            await self._pool.write(postgres_upkeep.make_partitions)
        except StoreError as error:
            logger.warning("could not create the log's next partitions; will retry in an hour: %s", error)

    async def nodes(self) -> list[Node]:
        return await self._vital.read(postgres_owners.nodes)

    async def declare_dead(self, owner: Owner, heartbeat: int) -> bool:
        return await self._vital.write(postgres_owners.declare_dead, owner, heartbeat)

    async def set_draining(self, node: str, draining: bool) -> bool:
        return await self._pool.write(postgres_owners.set_draining, node, draining)

    async def remove_node(self, node: str) -> bool:
        return await self._pool.write(postgres_owners.remove_node, node)

    async def move(self, session_id: str, to: Owner, expect: int) -> bool:
        return await self._pool.write(postgres_owners.move, session_id, to, expect)

    async def waiting(self, node: str | None = None) -> list[str]:
        return await self._pool.read(postgres_owners.waiting, node)

    async def due_sessions(self, until: str, limit: int) -> list[str]:
        return await self._pool.read(postgres_owners.due_sessions, until, limit)

    async def abandoned(self, limit: int, *, node: str | None = None, skip: int = 0) -> list[str]:
        return await self._pool.read(postgres_owners.abandoned, limit, node, skip)

    async def former_nodes(self, session_id: str) -> list[str]:
        return await self._pool.read(postgres_owners.former_nodes, session_id)

    async def loads(self) -> dict[str, Load]:
        return await self._pool.read(postgres_owners.loads)

    async def reserve_slot(self, project: str, session_id: str, limit: int, hold_s: float) -> list[SlotTaker]:
        return await self._pool.write(postgres_owners.reserve_slot, project, session_id, limit, hold_s)

    async def free_slot(self, project: str, session_id: str) -> None:
        await self._pool.write(postgres_owners.free_slot, project, session_id)

    async def slot_takers(self, project: str) -> list[SlotTaker]:
        return await self._pool.read(postgres_owners.slot_takers, project)

    # Files attached to messages

    async def put_file(self, session_id: str, name: str, data: bytes, *, early: bool = True) -> bool:
        return await self._pool.write(postgres_upkeep.put_file, session_id, name, data, early)

    async def file(self, session_id: str, name: str) -> bytes | None:
        return await self._pool.read(postgres_upkeep.file, session_id, name)

    async def drop_file(self, session_id: str, name: str) -> None:
        await self._pool.write(postgres_upkeep.drop_file, session_id, name)

    async def file_names(self, session_id: str, prefix: str) -> list[str]:
        return await self._pool.read(postgres_upkeep.file_names, session_id, prefix)

    # Jobs

    async def put_job(
        self,
        row: JobRow,
        generation: int,
        *,
        expect: int | None,
        new: Sequence[RunRow] = (),
        changed: Sequence[RunRow] = (),
    ) -> None:
        await self._pool.write(postgres_jobs.put_job, row, expect, new, changed)

    async def remove_job(self, job_id: str, generation: int) -> None:
        await self._pool.write(postgres_jobs.remove_job, job_id)

    async def load_job(self, job_id: str) -> JobRow | None:
        return await self._pool.read(postgres_jobs.load_job, job_id)

    async def jobs(self) -> list[JobRow]:
        return await self._pool.read(postgres_jobs.jobs)

    async def due_jobs(self, limit: int) -> list[JobRow]:
        return await self._pool.read(postgres_jobs.due_jobs, limit)

    async def open_runs(self, job_id: str | None = None) -> list[RunRow]:
        return await self._pool.read(postgres_jobs.open_runs, job_id)

    async def list_runs(
        self, job_id: str, *, limit: int, before: tuple[int, str] | None = None, held: bool = False
    ) -> list[RunRow]:
        return await self._pool.read(postgres_jobs.list_runs, job_id, limit, before, held)

    async def load_run(self, job_id: str, run_id: str) -> RunRow | None:
        return await self._pool.read(postgres_jobs.load_run, job_id, run_id)

    async def trim_runs(self, job_id: str, keep: int, generation: int) -> None:
        await self._pool.write(postgres_jobs.trim_runs, job_id, keep)

    # Operation

    async def epoch(self) -> int:
        # Always ask: a pooler may have connected to another server without its clients noticing.
        return await self._vital.read(postgres_upkeep.raise_epoch)

    async def time(self) -> float:
        return await self._vital.read(postgres_upkeep.time)

    async def finish_rollout(self, format_version: int) -> None:
        await self._pool.work(postgres_migrate.finish, postgres_migrate.shipped(), format_version)

    async def inspect(self) -> list[str]:
        return await self._pool.read(postgres_upkeep.inspect)
