"""The SQLite store: the default, one file in the data directory.

Above: the log and the engine, through the Store interface. Below: one writer thread (sqlite_writer.py) and a few reader
threads (sqlite_reads.py, sqlite_search.py). The event loop itself does only small commits that don't wait for the disk.
This store is for one machine: a second server that claims the same file fences the first.
"""

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

from perdure.core.errors import Conflict, StoreDamaged, StoreError
from perdure.stores import (
    sqlite_jobs,
    sqlite_owners,
    sqlite_reads,
    sqlite_scrub,
    sqlite_search,
    sqlite_upkeep,
    sqlite_usage,
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
from perdure.stores.migrate import migrate, shipped
from perdure.stores.sqlite_checkpoints import Checkpoints
from perdure.stores.sqlite_errors import MISSHAPEN, misread
from perdure.stores.sqlite_writer import LOCK_TIMEOUT_S, Writer

logger = logging.getLogger(__name__)

Durability = Literal["normal", "full"]

READER_THREADS = 2
CACHED_STATEMENTS = 256
WAL_KEEP_BYTES = 64 << 20
WAL_MAX_PAGES = 16_000
"""Size of the write-ahead log at which the writer checkpoints, if the checkpoint thread can't keep up."""

P = ParamSpec("P")
T = TypeVar("T")


class SqliteStore:
    """See Store. A commit survives a killed server with `durability` "normal", and also a power cut with "full"."""

    is_shared = False

    def __init__(self, path: str | os.PathLike[str], *, durability: Durability = "normal") -> None:
        self._path = Path(path)
        self._durability = durability
        self._writer = Writer(self._path, self._connect_writer, Checkpoints(self._connect), syncs=durability == "full")
        self._readers: ThreadPoolExecutor | None = None
        self._reader_of_thread = threading.local()
        self._reader_connections: list[sqlite3.Connection] = []

    async def open(self) -> None:
        await self._writer.open()
        self._readers = ThreadPoolExecutor(READER_THREADS, "perdure-store-reader")

    async def close(self) -> None:
        await self._writer.close()
        readers, self._readers = self._readers, None
        if readers is not None:
            await asyncio.to_thread(readers.shutdown)
            for connection in self._reader_connections:
                connection.close()

    async def claim(self) -> int:
        generation: int = await self._writer.submit(sqlite_upkeep.claim, stale=None)
        return generation

    async def append(self, step: Append) -> Kept:
        return await self._writer.append(step)

    def append_now(self, steps: Sequence[Append]) -> list[Kept | Exception] | None:
        return self._writer.append_now(steps)

    async def append_all(self, steps: Sequence[Append]) -> list[Kept | Exception]:
        return await self._writer.append_all(steps)

    async def load(self, session_id: str) -> SessionRecord | None:
        return await self._read(sqlite_reads.load, session_id)

    async def read(
        self, session_id: str, after: int, *, limit: int, upto: int | None = None, max_bytes: int | None = None
    ) -> list[Stored]:
        return await self._read(sqlite_reads.read, session_id, after, limit, upto, max_bytes)

    async def size(self, session_id: str, after: int, *, limit: int, upto: int | None = None) -> int:
        return await self._read(sqlite_reads.size, session_id, after, limit, upto)

    async def find_turns(self, session_id: str, first: int, last: int | None) -> Place:
        return await self._read(sqlite_reads.find_turns, session_id, first, last)

    async def read_records(
        self, session_id: str, first: int, last: int | None, upto: int, *, limit: int, max_bytes: int | None = None
    ) -> Records:
        return await self._read(sqlite_reads.read_records, session_id, first, last, upto, limit, max_bytes)

    async def read_turns(
        self,
        session_id: str,
        *,
        from_turn: int = 1,
        before: int | None = None,
        last: int | None = None,
        hidden: bool = False,
    ) -> list[TurnRow]:
        return await self._read(sqlite_reads.read_turns, session_id, from_turn, before, last, hidden)

    async def find_receipt(self, session_id: str, message_id: str) -> Receipt | None:
        return await self._read(sqlite_reads.find_receipt, session_id, message_id)

    async def list_sessions(self, query: Query) -> Page:
        return await self._read(sqlite_search.list_sessions, query)

    async def workdirs(self, newest: int) -> list[Workdir]:
        return await self._read(sqlite_search.workdirs, newest)

    async def list_changes(
        self, after: int, types: tuple[str, ...], limit: int, *, max_bytes: int | None = None
    ) -> list[tuple[int, str, Stored]]:
        return await self._read(sqlite_reads.list_changes, after, types, limit, max_bytes)

    async def usage(self, query: UsageQuery) -> list[UsageGroup]:
        return await self._read(sqlite_usage.usage, query)

    async def launches(self, launch_id: str | None = None, *, node: str | None = None) -> list[LaunchProgress]:
        return await self._read(sqlite_reads.launches, launch_id, node)

    async def issued_twice(self) -> set[tuple[str, str]]:
        return await self._read(sqlite_reads.issued_twice)

    async def compact(self, session_id: str, generation: int, runs: list[Joined]) -> None:
        await self._writer.submit(lambda connection: sqlite_upkeep.compact(connection, session_id, generation, runs))

    async def erase(self, session_id: str, generation: int) -> None:
        def work(connection: sqlite3.Connection) -> bool:
            return sqlite_upkeep.erase_some(connection, session_id, generation)

        while await self._writer.submit(work, stale=None):
            pass

    async def natives(self, session_id: str) -> list[str]:
        return await self._read(sqlite_upkeep.natives, session_id)

    async def scrub(self, *, whole: bool) -> bool:
        kind, key = sqlite_upkeep.SCRUB_DUE
        due = (await self.documents(kind)).get(key)
        if due is None:
            return True
        try:
            for number in range(sqlite_scrub.MERGES_MAX):
                if not await self._writer.submit(partial(sqlite_scrub.merge_index, first=number == 0)):
                    break
        except StoreDamaged as error:
            # Do the rest anyway.
            logger.warning("the search index is damaged and may still contain words of erased sessions: %s", error)
        if whole and not await self._writer.submit(sqlite_scrub.vacuum, plainly=True):
            limit_gib = sqlite_scrub.VACUUM_MAX_BYTES / (1 << 30)
            logger.warning(
                "copies of erased data may remain in %s: the server does not rewrite files over %g GiB. "
                "To remove them, stop the server and run: sqlite3 %s VACUUM",
                *(self._path, limit_gib, self._path),
            )
        if not await self._writer.submit(sqlite_scrub.empty_log, plainly=True):
            return False
        if whole:
            await self._writer.submit(lambda connection: sqlite_upkeep.drop_document(connection, kind, key, due))
        return True

    async def put_document(self, kind: str, key: str, value: bytes | None) -> None:
        await self._writer.submit(lambda connection: sqlite_upkeep.put_document(connection, kind, key, value))

    async def documents(self, kind: str) -> dict[str, bytes]:
        return await self._read(sqlite_reads.documents, kind)

    async def document(self, kind: str, key: str) -> bytes | None:
        return await self._read(sqlite_reads.document, kind, key)

    async def add_document(self, kind: str, key: str, value: bytes) -> bool:
        added: bool = await self._writer.submit(
            lambda connection: sqlite_upkeep.add_document(connection, kind, key, value)
        )
        return added

    async def take_document(self, kind: str, key: str) -> bytes | None:
        taken: bytes | None = await self._writer.submit(
            lambda connection: sqlite_upkeep.take_document(connection, kind, key)
        )
        return taken

    async def join(self, node: str, about: bytes) -> int:
        incarnation: int = await self._writer.submit(lambda connection: sqlite_owners.join(connection, node, about))
        return incarnation

    async def beat(self, owner: Owner) -> bool:
        alive: bool = await self._writer.submit(lambda connection: sqlite_owners.beat(connection, owner))
        return alive

    async def nodes(self) -> list[Node]:
        return await self._read(sqlite_owners.nodes)

    async def claim_session(self, session_id: str, owner: Owner, generation: int) -> int | None:
        step = Append(session_id=session_id, generation=generation, expect=None, claim=owner)
        try:
            kept = await self._writer.append(step)
        except Conflict:
            return None  # without `expect`, the only conflict is a missing session
        return kept.token if kept.owner == owner else None

    async def release(self, session_id: str, token: int, expect: int, generation: int) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            return sqlite_upkeep.release(connection, session_id, token, expect, generation)

        released: bool = await self._writer.submit(work, stale=(session_id,))
        return released

    async def heads(self, session_ids: Sequence[str]) -> dict[str, Head]:
        return await self._read(sqlite_owners.heads, session_ids)

    async def waiting(self, node: str | None = None) -> list[str]:
        return await self._read(sqlite_owners.waiting, node)

    async def due_sessions(self, until: str, limit: int) -> list[str]:
        return await self._read(sqlite_owners.due_sessions, until, limit)

    async def put_job(
        self,
        row: JobRow,
        generation: int,
        *,
        expect: int | None,
        new: Sequence[RunRow] = (),
        changed: Sequence[RunRow] = (),
    ) -> None:
        await self._writer.submit(
            lambda connection: sqlite_jobs.put_job(connection, row, generation, expect, new, changed)
        )

    async def remove_job(self, job_id: str, generation: int) -> None:
        await self._writer.submit(lambda connection: sqlite_jobs.remove_job(connection, job_id, generation))

    async def load_job(self, job_id: str) -> JobRow | None:
        return await self._read(sqlite_jobs.load_job, job_id)

    async def jobs(self) -> list[JobRow]:
        return await self._read(sqlite_jobs.jobs)

    async def due_jobs(self, limit: int) -> list[JobRow]:
        return await self._read(sqlite_jobs.due_jobs, limit)

    async def open_runs(self, job_id: str | None = None) -> list[RunRow]:
        return await self._read(sqlite_jobs.open_runs, job_id)

    async def list_runs(
        self, job_id: str, *, limit: int, before: tuple[int, str] | None = None, held: bool = False
    ) -> list[RunRow]:
        return await self._read(sqlite_jobs.list_runs, job_id, limit, before, held)

    async def load_run(self, job_id: str, run_id: str) -> RunRow | None:
        return await self._read(sqlite_jobs.load_run, job_id, run_id)

    async def trim_runs(self, job_id: str, keep: int, generation: int) -> None:
        await self._writer.submit(lambda connection: sqlite_jobs.trim_runs(connection, job_id, keep, generation))

    async def _read(
        self, question: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self._readers is None:
            raise StoreError("the store is not open")

        def ask() -> T:
            try:
                return question(self._reader(), *args, **kwargs)
            except (sqlite3.Error, *MISSHAPEN) as error:
                raise misread(error, self._path) from error

        return await asyncio.get_running_loop().run_in_executor(self._readers, ask)

    def _connect_writer(self) -> sqlite3.Connection:
        # Conversations are private: only the user may read the file. SQLite creates the WAL with the same mode.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        # The writer makes sure that two threads never use it at the same time.
        connection = self._connect(check_same_thread=False)
        try:
            for setting in (
                "journal_mode = WAL",
                f"synchronous = {self._durability.upper()}",
                f"journal_size_limit = {WAL_KEEP_BYTES}",
                f"wal_autocheckpoint = {WAL_MAX_PAGES}",
                "secure_delete = ON",
            ):
                connection.execute(f"PRAGMA {setting}").fetchall()
            migrate(connection, shipped())
        except BaseException:
            connection.close()
            raise
        return connection

    def _reader(self) -> sqlite3.Connection:
        """Return the connection of the current reader thread. `close` closes it, from another thread."""
        connection: sqlite3.Connection | None = getattr(self._reader_of_thread, "connection", None)
        if connection is None:
            connection = self._connect(check_same_thread=False)
            self._reader_connections.append(connection)
            connection.execute("PRAGMA query_only = ON").fetchall()
            self._reader_of_thread.connection = connection
        return connection

    def _connect(self, *, check_same_thread: bool = True) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path,
            timeout=LOCK_TIMEOUT_S,
            isolation_level=None,
            cached_statements=CACHED_STATEMENTS,
            check_same_thread=check_same_thread,
        )
