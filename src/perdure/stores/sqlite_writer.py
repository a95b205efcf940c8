"""The writer: one connection through which every change goes. One thread uses it, or the event loop while that rests.

Above: SqliteStore puts steps and other work into its queue from the event loop. Below: Group writes steps, upkeep does
the rest. Whatever waits in the queue shares one commit and one call back to the loop. There is no timer: what one
turn of the loop brings is handed over at its end, and the next group gathers while a commit runs.

A few small steps are committed by the event loop itself (`append_now`) while the thread has nothing to do: a commit
without a sync is a few writes into the page cache, and takes less than two changes of threads. A disk that stalls is
noticed by the first commit that takes long; those of the next second go to the thread, so that nobody else waits.

What waits is bounded, so that a disk that stalls does not fill the memory: beyond the bounds `append` and `submit`
raise StoreBusy at once and keep nothing.
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
"""Steps that are not committed yet. A session has one at a time, so these are the steps of as many sessions."""
QUEUE_MAX_BYTES = 64 * 1024 * 1024
"""The same in bytes. The step that exceeds it is still taken, as one alone may be larger."""
QUEUE_MAX_ERRANDS = 1_000
"""Other work that waits. It has its own bound, so that upkeep goes on however many steps wait."""
STEP_BYTES = 1_000
"""What a step takes beside its content, about."""
COMMIT_PAGES = 2
STEP_PAGES = 10
"""What a commit, and a step or other work in it, writes, about. Of a plain delta it is one page."""
NOW_MAX_STEPS = 256
NOW_MAX_BYTES = 256 * 1024
"""What the event loop commits itself: at most this many steps and bytes."""
RUSAGE_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)  # macOS has the latter only
SLOW_COMMIT_S = 0.005
AVOID_S = 1.0
"""After a slow commit the event loop makes none for so long."""
LOCK_TIMEOUT_S = 5.0
"""How long another server on the same file may hold the lock."""

NOT_OPEN = "the store is not open"

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]
Step = tuple[Append | Sequence[Append], "asyncio.Future[Any]"]
"""One step, or several that share one answer."""
Errand = tuple[Work, Collection[str] | None, bool, "asyncio.Future[Any]"]
"""What else is to be written, the sessions whose heads are stale afterwards (None: all of them), whether it is done
outside of a transaction, and who waits."""
Item = Step | Errand | None
"""None is the last."""
Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Writer:
    def __init__(
        self, path: Path, connect: Callable[[], sqlite3.Connection], checkpoints: Checkpoints, *, syncs: bool
    ) -> None:
        self._path = path
        self._syncs = syncs
        """Whether each commit waits for the disk."""
        self._connect = connect
        self._checkpoints = checkpoints
        self._queue: SimpleQueue[list[Item]] = SimpleQueue()
        self._gathered: list[Item] = []
        self._steps: dict[asyncio.Future[Any], int] = {}
        """The steps that are not answered yet, with their sizes. Not bound to who waits: that one may be cancelled."""
        self._steps_bytes = 0
        self._errands: set[asyncio.Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="perdure-store-writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: asyncio.Future[None] | None = None
        self._closed = False
        self._now_again_s = 0.0
        # What follows belongs to the thread while anything is not answered, and to the event loop else.
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
        """Write what waits, then end the thread. Again: nothing happens."""
        if self._closed or self._loop is None:
            self._closed = True
            return
        self._closed = True
        self._gathered.append(None)
        self._hand_over()
        # Bounded by what is queued; the loop goes on meanwhile, as it has to hand the last answers out.
        await asyncio.to_thread(self._thread.join)

    def append(self, step: Append) -> "asyncio.Future[Kept]":
        return self._enqueue(step, _size(step))

    def _enqueue(self, given: Append | Sequence[Append], size: int) -> "asyncio.Future[Any]":
        loop = self._open_loop()
        if len(self._steps) >= QUEUE_MAX_STEPS or self._steps_bytes >= QUEUE_MAX_BYTES:
            raise StoreBusy(f"{len(self._steps)} steps of {self._steps_bytes} bytes wait to be written")
        future: asyncio.Future[Any] = loop.create_future()
        self._steps[future] = size
        self._steps_bytes += size
        self._gather((given, future))
        return future

    def append_all(self, steps: Sequence[Append]) -> "asyncio.Future[list[Kept | Exception]]":
        """In one commit, and with one answer."""
        return self._enqueue(steps, sum(map(_size, steps)))

    def append_now(self, steps: Sequence[Append]) -> list[Kept | Exception] | None:
        """Commit these steps at once, or None: then nothing was done, and they are for `append_all`."""
        if self._closed:
            raise StoreError(NOT_OPEN)
        is_busy = self._steps or self._errands or self._gathered or self._syncs
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
        except Exception:  # noqa: BLE001  nothing was kept; the thread tries again, one by one, and finds the cause
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
        """Do something in a transaction of its own, or `plainly` without one, after all that was put before it. The
        heads of the `stale` sessions are forgotten afterwards; None: all of them."""
        loop = self._open_loop()
        if len(self._errands) >= QUEUE_MAX_ERRANDS:
            raise StoreBusy(f"{len(self._errands)} changes wait to be written")
        future: asyncio.Future[Any] = loop.create_future()
        self._errands.add(future)
        self._gather((work, stale, plainly, future))
        return future

    def _gather(self, item: Item) -> None:
        """Woken by the first step, the thread would fight for the interpreter with a loop that brings more of them,
        and commit the first one alone."""
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

    # In the thread, or, for `append_now`, on the loop -----------------------------------------------------------------

    def _run(self) -> None:
        assert self._opened is not None
        try:
            self._connection = self._connect()
        except Exception as error:  # noqa: BLE001  whoever opens the store is told
            self._answer([(self._opened, None, told(error, self._path))])
            return
        self._checkpoints.start()
        self._answer([(self._opened, None, None)])
        try:
            going = True
            while going:
                going = self._serve(self._next_batch())
        finally:
            # Before the last connection: whoever closes that one checkpoints, and must be alone.
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
        """Keep the order: steps up to the next errand are one group. False when it was the last batch."""
        with contextlib.suppress(sqlite3.Error):  # whatever it is, the first commit meets it too, and says so
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
                # Another server holds the lock: each step alone would wait as long again.
                return [told(error, self._path) for _ in steps]
            return [self._commit_alone(step) for step in steps]
        except Exception:  # noqa: BLE001  each step finds its own cause, and its caller is told
            return [self._commit_alone(step) for step in steps]

    def _commit_alone(self, step: Append) -> Kept | Exception:
        """One step may be to blame for its whole group (too large for the room that is left): the others get in."""
        try:
            return self._in_transaction(lambda connection: self._write(connection, [step]))[0]
        except Exception as error:  # noqa: BLE001  the caller is told, the thread lives on
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

    def _do(self, errand: Errand) -> Answer:
        work, stale, plainly, future = errand
        assert self._connection is not None
        try:
            self._work_pages = STEP_PAGES
            result = work(self._connection) if plainly else self._in_transaction(work)
        except Exception as error:  # noqa: BLE001  the caller is told, the thread lives on
            return (future, None, told(error, self._path))
        if stale is None:
            self._known.heads.clear()
        else:
            for session_id in stale:
                self._known.heads.pop(session_id, None)
        return (future, result, None)

    def _wait_for_lock(self, waits: bool) -> None:
        """Whether SQLite waits while another server holds the lock; the event loop must not."""
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
            # On some errors, a full disk among them, SQLite has already rolled back.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _answer(self, answers: list[Answer]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._hand_out, answers)
        except RuntimeError:
            # The loop was closed without closing the store: nobody waits any more, and what was kept is kept.
            self._closed = True

    def _hand_out(self, answers: list[Answer]) -> None:
        """On the loop."""
        for future, result, error in answers:
            self._steps_bytes -= self._steps.pop(future, 0)
            self._errands.discard(future)
            if future.done():
                continue  # whoever waited was cancelled
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


def _waits() -> int:
    """How often this thread has waited for anything. One that only lost the processor to others was not held up by the
    disk, and another thread would not be quicker."""
    return resource.getrusage(RUSAGE_THREAD).ru_nvcsw


def _size(step: Append) -> int:
    """How many bytes a step takes until it is written, about."""
    size = STEP_BYTES
    for draft in step.events:
        size += len(draft.body)
    if step.checkpoint is not None:
        size += len(step.checkpoint.driver_state)
        for line in step.checkpoint.pending_input:
            size += len(line)
    if step.state is not None:
        size += len(step.state) + sum(len(turn.public) for turn in step.turns)
        size += sum(len(phrase.text) for phrase in step.phrases)
    if step.listed is not None:
        size += len(step.listed.public)
    return size
