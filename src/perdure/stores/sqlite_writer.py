"""The writer: the only connection that writes. Its thread uses it, or the event loop while the thread is idle.

Above: SqliteStore queues steps and other work from the event loop. Below: Group writes steps, sqlite_upkeep.py does the
rest. Everything in the queue shares one commit and one callback to the event loop. There is no timer: the work of one
loop iteration is handed over at its end, and the next group collects while a commit runs.

While the thread is idle, the event loop itself commits small steps (`append_now`): a commit without fsync is a few
writes to the page cache, which is cheaper than two thread switches. If the disk stalls, the first commit that takes
long shows it; for the next second all commits go to the thread, so that the event loop does not block.

The queue is bounded, so that a stalled disk does not fill the memory: when it is full, `append` and `submit` raise
StoreBusy immediately and store nothing.
"""

import asyncio
import contextlib
import resource
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from perdure.core.errors import StoreBusy, StoreError
from perdure.stores.base import Append, Kept
from perdure.stores.sqlite_checkpoints import Checkpoints
from perdure.stores.sqlite_deltas import commit_deltas, write_deltas
from perdure.stores.sqlite_errors import code_of, told
from perdure.stores.sqlite_group import Group, Known

GROUP_MAX_STEPS = 500
QUEUE_MAX_STEPS = 10_000
"""Limit on uncommitted steps. A session has at most one, so this is also a limit on sessions."""
QUEUE_MAX_BYTES = 64 * 1024 * 1024
"""The same in bytes. The step that exceeds it is still accepted, because a single step may be larger."""
QUEUE_MAX_TASKS = 1_000
"""Limit on other queued work. It is separate, so that upkeep continues no matter how many steps wait."""
STEP_BYTES = 1_000
"""Approximate size of a step apart from its content."""
COMMIT_PAGES = 2
STEP_PAGES = 10
"""Approximate pages that a commit writes, and that each step or other work in it adds. A delta step adds one."""
NOW_MAX_STEPS = 256
NOW_MAX_BYTES = 256 * 1024
"""Limits on what the event loop commits itself."""
RUSAGE_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)  # macOS has only the latter
SLOW_COMMIT_S = 0.005
AVOID_S = 1.0
"""After a slow commit, the event loop makes no commits for this long."""
LOCK_TIMEOUT_S = 5.0
"""How long to wait for the lock of another server on the same file."""

NOT_OPEN = "the store is not open"

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]
Step = tuple[Append | Sequence[Append], "asyncio.Future[Any]"]
"""One step, or several that share one answer."""
WriteTask = tuple[Work, Collection[str] | None, bool, "asyncio.Future[Any]"]
"""Other work; the sessions whose cached heads it makes stale (None: all); whether it runs outside a transaction; and
the future for its result."""
Item = Step | WriteTask | None
"""None ends the thread."""
Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Writer:
    def __init__(
        self, path: Path, connect: Callable[[], sqlite3.Connection], checkpoints: Checkpoints, *, syncs: bool
    ) -> None:
        self._path = path
        self._syncs = syncs
        """Whether each commit syncs to disk."""
        self._connect = connect
        self._checkpoints = checkpoints
        self._queue: SimpleQueue[list[Item]] = SimpleQueue()
        self._gathered: list[Item] = []
        self._steps: dict[asyncio.Future[Any], int] = {}
        """Steps without an answer yet, with their sizes. They stay here even if the caller is cancelled."""
        self._steps_bytes = 0
        self._tasks: set[asyncio.Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="perdure-store-writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: asyncio.Future[None] | None = None
        self._closed = False
        self._now_again_s = 0.0
        # The rest belongs to the thread while any step or task is unanswered, and otherwise to the event loop.
        self._connection: sqlite3.Connection | None = None
        self._known = Known()
        self._work_pages = 0
        self._waits_for_lock = True

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._opened = self._loop.create_future()
        self._thread.start()
        await self._opened

    async def close(self) -> None:
        """Write what is queued, then end the thread. Idempotent."""
        if self._closed or self._loop is None:
            self._closed = True
            return
        self._closed = True
        self._gathered.append(None)
        self._hand_over()
        # Bounded by the queue. The loop must keep running meanwhile, to deliver the last answers.
        await asyncio.to_thread(self._thread.join)

    def append(self, step: Append) -> "asyncio.Future[Kept]":
        return self._enqueue(step, _size(step))

    def _enqueue(self, given: Append | Sequence[Append], size: int) -> "asyncio.Future[Any]":
        loop = self._open_loop()
        if len(self._steps) >= QUEUE_MAX_STEPS or self._steps_bytes >= QUEUE_MAX_BYTES:
            raise StoreBusy(f"{len(self._steps)} steps ({self._steps_bytes} bytes) are waiting to be written")
        future: asyncio.Future[Any] = loop.create_future()
        self._steps[future] = size
        self._steps_bytes += size
        self._gather((given, future))
        return future

    def append_all(self, steps: Sequence[Append]) -> "asyncio.Future[list[Kept | Exception]]":
        """Append steps in one commit, with one answer."""
        return self._enqueue(steps, sum(map(_size, steps)))

    def append_now(self, steps: Sequence[Append]) -> list[Kept | Exception] | None:
        """Commit these steps synchronously. Returns None, with nothing written, if they must go to `append_all`."""
        if self._closed:
            raise StoreError(NOT_OPEN)
        is_busy = self._steps or self._tasks or self._gathered or self._syncs
        if self._connection is None or is_busy or len(steps) > NOW_MAX_STEPS:
            return None
        if sum(map(_size, steps)) > NOW_MAX_BYTES:
            return None
        began, waits = time.monotonic(), _waits()
        if began < self._now_again_s or self._checkpoints.hold_up():
            return None
        try:
            if self._waits_for_lock:
                self._wait_for_lock(False)
            kept = self._commit_now(self._connection, steps)
        except Exception:  # noqa: BLE001  nothing was stored; the thread retries the steps one by one and finds the cause
            kept = None
        now = time.monotonic()
        if now - began > SLOW_COMMIT_S and _waits() != waits:
            self._now_again_s = now + AVOID_S
        return kept

    def _commit_now(self, connection: sqlite3.Connection, steps: Sequence[Append]) -> list[Kept | Exception]:
        try:
            kept = commit_deltas(connection, self._known, steps)
        except BaseException:
            self._known.forget()
            raise
        if kept is None:
            return self._in_transaction(lambda _: self._write(connection, steps))
        self._checkpoints.written(COMMIT_PAGES + len(steps))
        return list(kept)

    def submit(self, work: Work, *, stale: Collection[str] | None = (), plainly: bool = False) -> "asyncio.Future[Any]":
        """Run work in its own transaction (with `plainly`: without one), after everything queued before it. Afterwards
        drops the cached heads of the `stale` sessions; None: all heads."""
        loop = self._open_loop()
        if len(self._tasks) >= QUEUE_MAX_TASKS:
            raise StoreBusy(f"{len(self._tasks)} changes are waiting to be written")
        future: asyncio.Future[Any] = loop.create_future()
        self._tasks.add(future)
        self._gather((work, stale, plainly, future))
        return future

    def _gather(self, item: Item) -> None:
        """Collect items until the end of the loop iteration. Waking the thread for the first one would make it commit
        that one alone, and compete with the loop for the GIL."""
        assert self._loop is not None
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(item)

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._queue.put(gathered)

    def _open_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._closed:
            raise StoreError(NOT_OPEN)
        return self._loop

    # In the thread, or (for `append_now`) on the event loop -----------------------------------------------------------

    def _run(self) -> None:
        assert self._opened is not None
        try:
            self._connection = self._connect()
        except Exception as error:  # noqa: BLE001  pass it to the caller of open()
            self._answer([(self._opened, None, told(error, self._path))])
            return
        self._checkpoints.start()
        self._answer([(self._opened, None, None)])
        try:
            going = True
            while going:
                going = self._serve(self._next_batch())
        finally:
            # Before this connection: closing the last one checkpoints, which needs exclusive access.
            self._checkpoints.close()
            self._connection.close()

    def _next_batch(self) -> list[Item]:
        batch = self._queue.get()
        try:
            while len(batch) < GROUP_MAX_STEPS:
                batch += self._queue.get_nowait()
        except Empty:
            pass
        return batch

    def _serve(self, batch: list[Item]) -> bool:
        """Process a batch in order; consecutive steps form one group. Returns False after the last batch."""
        with contextlib.suppress(sqlite3.Error):  # the first commit will fail too, and report it
            self._wait_for_lock(True)
        steps: list[Step] = []
        for item in batch:
            if item is not None and len(item) == 2:
                steps.append(item)
                continue
            self._keep(steps)
            steps = []
            if item is None:
                return False
            self._answer([self._do(item)])
        self._keep(steps)
        return True

    def _keep(self, items: list[Step]) -> None:
        if not items:
            return
        steps: list[Append] = []
        for given, _ in items:
            steps += [given] if isinstance(given, Append) else given
        made = iter(self._commit(steps))
        answers: list[Answer] = []
        for given, future in items:
            if not isinstance(given, Append):
                answers.append((future, [next(made) for _ in given], None))
            elif isinstance(outcome := next(made), Exception):
                answers.append((future, None, outcome))
            else:
                answers.append((future, outcome, None))
        self._answer(answers)

    def _commit(self, steps: list[Append]) -> list[Kept | Exception]:
        try:
            return self._in_transaction(lambda connection: self._write(connection, steps))
        except sqlite3.Error as error:
            if code_of(error) == sqlite3.SQLITE_BUSY:
                # Another server holds the lock. Retrying each step alone would wait as long again for each.
                return [told(error, self._path) for _ in steps]
            return [self._commit_alone(step) for step in steps]
        except Exception:  # noqa: BLE001  retry alone, so that each caller gets its own error
            return [self._commit_alone(step) for step in steps]

    def _commit_alone(self, step: Append) -> Kept | Exception:
        """Commit one step of a group that failed. One step may have failed the whole group (too large for the free
        space, for example); the others still succeed."""
        try:
            return self._in_transaction(lambda connection: self._write(connection, [step]))[0]
        except Exception as error:  # noqa: BLE001  pass it to the caller; keep the thread running
            return told(error, self._path)

    def _write(self, connection: sqlite3.Connection, steps: Sequence[Append]) -> list[Kept | Exception]:
        self._known.refresh(connection)
        if (kept := write_deltas(connection, self._known, steps)) is not None:
            self._work_pages = len(steps)
            return list(kept)
        self._work_pages = STEP_PAGES * len(steps)
        group = Group(connection, self._known)
        made: list[Kept | Exception] = []
        for step in steps:
            try:
                made.append(group.take(step))
            except StoreError as error:
                made.append(error)
        group.write()
        return made

    def _do(self, task: WriteTask) -> Answer:
        work, stale, plainly, future = task
        assert self._connection is not None
        try:
            self._work_pages = STEP_PAGES
            result = work(self._connection) if plainly else self._in_transaction(work)
        except Exception as error:  # noqa: BLE001  pass it to the caller; keep the thread running
            return (future, None, told(error, self._path))
        if stale is None:
            self._known.heads.clear()
        else:
            for session_id in stale:
                self._known.heads.pop(session_id, None)
        return (future, result, None)

    def _wait_for_lock(self, waits: bool) -> None:
        """Set whether SQLite waits for the lock of another server. The event loop must not wait."""
        assert self._connection is not None
        if waits != self._waits_for_lock:
            self._connection.execute(f"PRAGMA busy_timeout = {int(LOCK_TIMEOUT_S * 1000) if waits else 0}").fetchall()
            self._waits_for_lock = waits

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        assert connection is not None
        try:
            connection.execute("BEGIN IMMEDIATE")
            result = work(connection)
            connection.execute("COMMIT")
            self._checkpoints.written(COMMIT_PAGES + self._work_pages)
        except BaseException:
            self._known.forget()
            # After some errors, such as a full disk, SQLite has already rolled back.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _answer(self, answers: list[Answer]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._hand_out, answers)
        except RuntimeError:
            # The loop was closed without closing the store. No caller is waiting, and the commits are done.
            self._closed = True

    def _hand_out(self, answers: list[Answer]) -> None:
        """Set the results. Runs on the event loop."""
        for future, result, error in answers:
            self._steps_bytes -= self._steps.pop(future, 0)
            self._tasks.discard(future)
            if future.done():
                continue  # the caller was cancelled
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


def _waits() -> int:
    """Return how often this thread has blocked. A thread that was only preempted did not wait for the disk, and another
    thread would be no faster."""
    return resource.getrusage(RUSAGE_THREAD).ru_nvcsw


def _size(step: Append) -> int:
    """Return the approximate size of a queued step in bytes."""
    size = STEP_BYTES
    for draft in step.events:
        size += len(draft.body)
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
