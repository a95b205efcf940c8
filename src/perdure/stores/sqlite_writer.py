"""The writer: one thread with one connection through which every change goes.

Above: SqliteStore puts steps and other work into its queue from the event loop. Below: Group writes steps, upkeep does
the rest. Whatever waits in the queue shares one commit and one call back to the loop. There is no timer: what one
turn of the loop brings is handed over at its end, and the next group gathers while a commit runs.

What waits is bounded, so that a disk that stalls does not fill the memory: beyond the bounds `append` and `submit`
raise StoreBusy at once and keep nothing.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from perdure.core.errors import StoreBusy, StoreError
from perdure.stores.base import Append, Kept
from perdure.stores.sqlite_checkpoints import Checkpoints
from perdure.stores.sqlite_errors import code_of, told
from perdure.stores.sqlite_group import CachedHead, Group, read_generation

GROUP_MAX_STEPS = 500
QUEUE_MAX_STEPS = 10_000
"""Steps that are not committed yet. A session has one at a time, so these are the steps of as many sessions."""
QUEUE_MAX_BYTES = 64 * 1024 * 1024
"""The same in bytes. The step that exceeds it is still taken, as one alone may be larger."""
QUEUE_MAX_ERRANDS = 1_000
"""Other work that waits. It has its own bound, so that upkeep goes on however many steps wait."""
STEP_BYTES = 1_000
"""What a step takes beside its content, about."""
HEADS_MAX = 10_000
COMMITS_PER_CHECKPOINT = 250

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]
Step = tuple[Append, "asyncio.Future[Kept]"]
Errand = tuple[Work, Collection[str] | None, bool, "asyncio.Future[Any]"]
"""What else is to be written, the sessions whose heads are stale afterwards (None: all of them), whether it is done
outside of a transaction, and who waits."""
Item = Step | Errand | None
"""None is the last."""
Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Writer:
    def __init__(self, path: Path, connect: Callable[[], sqlite3.Connection], checkpoints: Checkpoints) -> None:
        self._path = path
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
        # What follows belongs to the thread.
        self._connection: sqlite3.Connection | None = None
        self._heads: dict[str, CachedHead] = {}
        self._heads_generation = -1
        self._commits = 0

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
        loop = self._open_loop()
        if len(self._steps) >= QUEUE_MAX_STEPS or self._steps_bytes >= QUEUE_MAX_BYTES:
            raise StoreBusy(f"{len(self._steps)} steps of {self._steps_bytes} bytes wait to be written")
        future: asyncio.Future[Kept] = loop.create_future()
        size = _size(step)
        self._steps[future] = size
        self._steps_bytes += size
        self._gather((step, future))
        return future

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
            raise StoreError("the store is not open")
        return self._loop

    # In the thread ------------------------------------------------------------------------------------------------

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

    def _keep(self, steps: list[Step]) -> None:
        if not steps:
            return
        try:
            answers = self._commit(steps)
        except sqlite3.Error as error:
            if code_of(error) == sqlite3.SQLITE_BUSY:
                # Another server holds the lock: each step alone would wait as long again.
                answers = [(future, None, told(error, self._path)) for _, future in steps]
            else:
                answers = [self._keep_alone(step) for step in steps]
        except Exception:  # noqa: BLE001  each step finds its own cause, and its caller is told
            answers = [self._keep_alone(step) for step in steps]
        self._answer(answers)

    def _keep_alone(self, step: Step) -> Answer:
        """One step may be to blame for its whole group (too large for the room that is left): the others get in."""
        try:
            return self._commit([step])[0]
        except Exception as error:  # noqa: BLE001  the caller is told, the thread lives on
            return (step[1], None, told(error, self._path))

    def _commit(self, steps: list[Step]) -> list[Answer]:
        return self._in_transaction(lambda connection: self._write(connection, steps))

    def _write(self, connection: sqlite3.Connection, steps: list[Step]) -> list[Answer]:
        generation = read_generation(connection)
        if generation != self._heads_generation or len(self._heads) > HEADS_MAX:
            self._heads.clear()
            self._heads_generation = generation
        group = Group(connection, self._heads, generation)
        answers: list[Answer] = []
        for step, future in steps:
            try:
                answers.append((future, group.take(step), None))
            except StoreError as error:
                answers.append((future, None, error))
        group.write()
        return answers

    def _do(self, errand: Errand) -> Answer:
        work, stale, plainly, future = errand
        assert self._connection is not None
        try:
            result = work(self._connection) if plainly else self._in_transaction(work)
        except Exception as error:  # noqa: BLE001  the caller is told, the thread lives on
            return (future, None, told(error, self._path))
        if stale is None:
            self._heads.clear()
        else:
            for session_id in stale:
                self._heads.pop(session_id, None)
        return (future, result, None)

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        assert connection is not None
        try:
            connection.execute("BEGIN IMMEDIATE")
            result = work(connection)
            connection.execute("COMMIT")
            self._commits += 1
            if self._commits % COMMITS_PER_CHECKPOINT == 0:
                self._checkpoints.due()
        except BaseException:
            self._heads.clear()
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


def _size(step: Append) -> int:
    """How many bytes a step takes until it is written, about."""
    size = STEP_BYTES + sum(len(draft.body) for draft in step.events) + len(step.state or b"")
    size += sum(len(turn.public) for turn in step.turns) + sum(len(phrase.text) for phrase in step.phrases)
    if step.listed is not None:
        size += len(step.listed.public)
    if step.checkpoint is not None:
        size += len(step.checkpoint.driver_state) + sum(map(len, step.checkpoint.pending_input))
    return size
