"""The writer: queues appends and sends everything in the queue to the database as one call.

Above: PostgresStore queues steps. Below: a Group turns them into one call, on a dedicated connection. There is no
timer: the work of one loop iteration is sent at its end, and the next group collects while a commit is in progress. A
group has at most one step of each session, so the steps of a session stay in order.

The queue is bounded: when it is full, `append` raises StoreBusy immediately and stores nothing. If the database rejects
a whole group (a deadlock, a full disk), the group is retried, and then each of its steps alone. If the connection is
lost after the call was sent, the outcome is unknown: the error says so, and nothing is retried.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg
from psycopg import generators, pq, waiting

from perdure.core.errors import StoreBusy, StoreError, StoreUnavailable
from perdure.stores.base import Append, Kept
from perdure.stores.postgres_connections import NOT_OPEN, Connection, Connector, is_cut
from perdure.stores.postgres_errors import AGAIN, LOCKED, LOST_CLASS, UNKNOWN, UNREACHABLE, code_of, told
from perdure.stores.postgres_group import FORMATS, ONE_CALL, TYPES, Entry, Group, Launches

logger = logging.getLogger(__name__)

GROUP_MAX_STEPS = 500
GROUP_MAX_BYTES = 8 * 1024 * 1024
QUEUE_MAX_STEPS = 10_000
"""Limit on uncommitted steps. A session has at most one, so this is also a limit on sessions."""
QUEUE_MAX_BYTES = 64 * 1024 * 1024
"""The same in bytes. The step that exceeds it is still accepted, because a single step may be larger."""
STEP_BYTES = 1_000
"""Approximate size of a step apart from its content."""
COMMIT_TIMEOUT_S = 30.0
"""After this the connection is closed, and the outcome of the call is unknown."""
TRIES = 3
"""Number of attempts for a group that hits a deadlock. After that, each of its steps is sent alone."""
WAIT_INTERVAL_S = 1.0

Prepare = Callable[[Connection], Awaitable[None]]


class Batch:
    """Steps that share one answer."""

    __slots__ = ("entries", "future", "left")

    def __init__(self, entries: list[Entry], future: "asyncio.Future[Any]") -> None:
        self.entries = entries
        self.future = future
        self.left = len(entries)


class Writer:
    def __init__(self, connector: Connector, lanes: int, prepare: Prepare) -> None:
        self._connector = connector
        self._lanes = lanes
        self._prepare = prepare
        """Runs on each new connection before the first write."""
        self._launches = Launches()
        self._queues: dict[str, deque[tuple[Entry, Batch]]] = {}
        """The steps of each session, in order, including those being sent."""
        self._ready: dict[str, None] = {}
        """The sessions with a step to send and none being sent, in order."""
        self._steps = 0
        self._steps_bytes = 0
        self._is_closed = True
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._tasks = [asyncio.create_task(self._run(), name=f"store-writer-{number}") for number in range(self._lanes)]

    async def close(self) -> None:
        """Write what is queued, then stop. Idempotent."""
        self._is_closed = True
        self._wake()
        tasks, self._tasks = self._tasks, []
        # Bounded by the queue: each call has a timeout.
        await asyncio.gather(*tasks)

    def append(self, step: Append) -> "asyncio.Future[Kept]":
        return self._enqueue([Entry(step, _size(step))], one=True)

    def append_all(self, steps: Sequence[Append]) -> "asyncio.Future[list[Kept | Exception]]":
        return self._enqueue([Entry(step, _size(step)) for step in steps], one=False)

    def release(self, step: Append) -> "asyncio.Future[Kept]":
        """Queue a step that gives up ownership of its session."""
        return self._enqueue([Entry(step, STEP_BYTES, releases=True)], one=True)

    def _enqueue(self, entries: list[Entry], *, one: bool) -> "asyncio.Future[Any]":
        if self._is_closed or self._loop is None:
            raise StoreError(NOT_OPEN)
        if self._steps >= QUEUE_MAX_STEPS or self._steps_bytes >= QUEUE_MAX_BYTES:
            raise StoreBusy(f"{self._steps} steps ({self._steps_bytes} bytes) are waiting to be written")
        future: asyncio.Future[Any] = self._loop.create_future()
        if not entries:
            future.set_result([])
            return future
        batch = Batch([] if one else entries, future)
        batch.left = len(entries)
        self._steps += len(entries)
        for entry in entries:
            self._steps_bytes += entry.size
            session_id = entry.step.session_id
            queue = self._queues.get(session_id)
            if queue is None:
                self._queues[session_id] = deque(((entry, batch),))
                self._ready[session_id] = None
            else:
                queue.append((entry, batch))
        self._wake()
        return future

    def _wake(self) -> None:
        if self._idle:
            waits = self._idle.pop()
            if not waits.done():
                # The task resumes after the rest of this loop iteration.
                waits.set_result(None)

    # A lane: one connection, one call at a time -----------------------------------------------------------------------

    async def _run(self) -> None:
        assert self._loop is not None
        lane = Lane(self._connector, self._prepare)
        try:
            while True:
                while not self._ready:
                    if self._is_closed:
                        self._wake()
                        return
                    waits: asyncio.Future[None] = self._loop.create_future()
                    self._idle.append(waits)
                    await waits
                await self._send(lane, self._next())
        finally:
            await lane.close()

    def _next(self) -> list[tuple[Entry, Batch]]:
        """Take the next step of each ready session, up to the limits. These sessions are then no longer ready."""
        taken: list[tuple[Entry, Batch]] = []
        size = 0
        for session_id in self._ready:
            pair = self._queues[session_id][0]
            size += pair[0].size
            if taken and (size > GROUP_MAX_BYTES or len(taken) >= GROUP_MAX_STEPS):
                break
            taken.append(pair)
        for entry, _ in taken:
            del self._ready[entry.step.session_id]
        return taken

    async def _send(self, lane: "Lane", pairs: list[tuple[Entry, Batch]]) -> None:
        try:
            await self._keep(lane, [entry for entry, _ in pairs])
        except Exception as error:  # noqa: BLE001  pass it to the caller; keep the writer running
            for entry, _ in pairs:
                entry.outcome = entry.outcome or error
        for entry, batch in pairs:
            session_id = entry.step.session_id
            queue = self._queues[session_id]
            queue.popleft()
            if queue:
                self._ready[session_id] = None
            else:
                del self._queues[session_id]
            self._steps -= 1
            self._steps_bytes -= entry.size
            batch.left -= 1
            if batch.left == 0:
                _answer(entry, batch)
        if self._ready:
            self._wake()

    async def _keep(self, lane: "Lane", entries: list[Entry]) -> None:
        """Set the outcome of each entry."""
        for attempt in range(TRIES):
            group = Group(self._launches)
            try:
                for entry in entries:
                    group.add(entry)
                parameters = group.parameters()
            except Exception:  # noqa: BLE001  retry alone, so that each caller gets its own error
                break
            try:
                again = group.take(await lane.call(parameters))
            except psycopg.Error as error:
                code = code_of(error)
                if code in UNREACHABLE and attempt == 0:
                    continue  # on a new connection, perhaps to another server
                # After a lock timeout, don't wait for the lock again: that would delay everything else again.
                if code in AGAIN and code != LOCKED and attempt < TRIES - 1:
                    continue
                if code in UNREACHABLE or len(entries) == 1:
                    _fail(entries, told(error))
                    return
                break
            if not again:
                return
            entries = again
        await self._keep_each(lane, entries)

    async def _keep_each(self, lane: "Lane", entries: list[Entry]) -> None:
        """Send each step alone. One step may have failed the whole group (too large for the free space, for example);
        the others still succeed."""
        for entry in entries:
            entry.needs_launch = True
            group = Group(self._launches)
            try:
                group.add(entry)
                group.take(await lane.call(group.parameters()))
            except (StoreUnavailable, UnknownOutcome) as error:
                _fail([each for each in entries if each.outcome is None], error)
                return
            except Exception as error:  # noqa: BLE001  pass it to the caller; keep the writer running
                entry.outcome = told(error)


class UnknownOutcome(StoreError):
    """The connection was lost during the commit."""


class Lane:
    """A connection for sequential calls."""

    def __init__(self, connector: Connector, prepare: Prepare) -> None:
        self._connector = connector
        self._prepare = prepare
        self._connection: Connection | None = None

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def call(self, parameters: Sequence[bytes | None]) -> list[bytes | None]:
        """Make the call and commit it. Raises StoreUnavailable or psycopg.Error if nothing was stored, and
        UnknownOutcome if that is unknown."""
        connection = await self._ready()
        results = await self._exchange(connection, parameters)
        failed = next((result for result in results if result.status == pq.ExecStatus.FATAL_ERROR), None)
        if failed is None and results:
            return [results[0].get_value(0, column) for column in range(results[0].nfields)]
        if pq.TransactionStatus(connection.pgconn.transaction_status) != pq.TransactionStatus.IDLE:
            await self.close()
        if failed is None or len(results) > 1:
            # The rows arrived, so the call was finished and its commit had started.
            await self.close()
            raise UnknownOutcome(UNKNOWN)
        error = psycopg.errors.error_from_result(failed, encoding="utf-8")
        if not code_of(error) or code_of(error).startswith(LOST_CLASS):
            # A pooler reports this for a server that it has lost, which may have committed.
            await self.close()
            raise UnknownOutcome(UNKNOWN) from error
        if code_of(error) in UNREACHABLE:
            await self.close()
        raise error

    async def _ready(self) -> Connection:
        if self._connection is not None and is_cut(self._connection):
            await self.close()
        if self._connection is None:
            connection = await self._connector.connect()
            try:
                await self._prepare(connection)
            except psycopg.Error as error:
                await connection.close()
                raise told(error) from error
            self._connection = connection
        return self._connection

    async def _exchange(self, connection: Connection, parameters: Sequence[bytes | None]) -> list[Any]:
        """Send the call and return the results. Not with a cursor: it hides whether the rows arrived before the
        connection was lost."""
        pgconn = connection.pgconn
        try:
            pgconn.send_query_params(ONE_CALL, parameters, TYPES, FORMATS, pq.Format.BINARY)
        except psycopg.Error as error:
            await self.close()
            raise StoreUnavailable(f"the connection to the database was lost ({error})") from error
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_S):
                return await waiting.wait_async(generators.execute(pgconn), pgconn.socket, WAIT_INTERVAL_S)
        except (psycopg.Error, TimeoutError, asyncio.CancelledError) as error:
            await self.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise UnknownOutcome(UNKNOWN) from error


def _answer(entry: Entry, batch: Batch) -> None:
    if batch.future.done():
        return  # the caller was cancelled
    if batch.entries:
        batch.future.set_result([each.outcome for each in batch.entries])
    elif isinstance(entry.outcome, Exception):
        batch.future.set_exception(entry.outcome)
    else:
        batch.future.set_result(entry.outcome)


def _fail(entries: Sequence[Entry], error: Exception) -> None:
    for entry in entries:
        entry.outcome = error


def _size(step: Append) -> int:
    """Return the approximate size of a queued step in bytes."""
    size = STEP_BYTES + sum([len(draft.body) for draft in step.events])
    if step.progress is not None:
        size += len(step.progress.driver_state)
        for line in step.progress.pending_input:
            size += len(line)
    if step.state is not None:
        size += len(step.state) + sum(len(turn.public) for turn in step.turns)
        size += sum(len(phrase.text) for phrase in step.phrases)
    if step.listed is not None:
        size += len(step.listed.public)
    return size
