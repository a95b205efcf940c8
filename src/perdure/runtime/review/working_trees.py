"""The git working trees of sessions: their locks, snapshots within a time budget, and the threads in which git runs.

Above: the recorder, which takes snapshots around turns; file operations; the verbs for changes. Below: git snapshots.
git takes seconds in a large repository, and may never return on a file system that hangs. So it does not run in the
threads that read other files, and a wait for a snapshot always ends. Nor does the server's exit wait for these threads:
what they leave half done is repeated or completed later, as after a kill.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from perdure.core.errors import Refused
from perdure.runtime.data.threads import DaemonThreads
from perdure.runtime.git.command import GitError
from perdure.runtime.git.repository import Repository, find
from perdure.runtime.git.snapshot import Limits, OverBudget, Snapshot, Snapshots

T = TypeVar("T")

AT_ONCE = 4
"""How many snapshots are taken or compared at the same time."""
THREADS = 16
"""More than that, because a thread that hangs must not keep its place from the others."""
READING_THREADS = 8
OPERATION_THREADS = 4
"""File operations and checkouts have threads of their own: a long one must not delay snapshots."""
KEEPING_THREADS = 8
"""Refs are made and deleted in these. That takes moments, unless the file system hangs."""
HANGING_S = 300.0
"""After that, a thread counts as hanging. git has shorter time limits of its own."""
READ_TIMEOUT_S = 60.0
GRACE_S = 5.0
"""How long a snapshot may wait for others, besides its time budget."""
TOO_LARGE_S = 600.0
"""After a snapshot was over its budget, how long there are none of that working tree: every turn would wait for it."""
CANCELLED_TIMEOUT_S = 20.0
"""How long a stopping server waits for the thread of a file operation, whose locks it holds until then."""
KEEPING_TIMEOUT_S = 5.0
"""How long a turn that is aborted waits until git has made a ref."""
SLOW = "The files in {} could not be recorded within {:g} seconds."
OFF = "Snapshots are turned off (`snapshots` in perdure.toml)."


class Hanging(GitError):
    """The file system does not respond."""


class TreeLock(asyncio.Lock):
    """The lock of one working tree. It exists as long as somebody holds it or waits for it."""

    latest: tuple[float, Snapshot] | None = None
    """The newest snapshot and when it began, for those who have waited since then."""
    began_s: float | None = None
    """When the thread began that takes a snapshot for the holder, by the steady clock."""

    def __init__(self) -> None:
        super().__init__()
        self._operations = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @contextlib.contextmanager
    def operation(self) -> Iterator[None]:
        """While an operation changes files, or is about to: no turn begins."""
        self._operations += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self.latest = None
            self._operations -= 1
            if not self._operations:
                self._is_idle.set()

    async def without_operation(self) -> None:
        """Wait until there is none. The caller then has until its next await."""
        while self._operations:
            await self._is_idle.wait()


class WorkingTrees:
    def __init__(self, snapshots: Snapshots, limits: Limits | None, steady: Callable[[], float]) -> None:
        """`limits`: the budget of a snapshot; None turns snapshots off."""
        self.snapshots = snapshots
        self.limits = limits
        self._steady = steady
        self._locks: WeakValueDictionary[str, TreeLock] = WeakValueDictionary()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._threads = DaemonThreads(THREADS, "perdure-git")
        self._reading = DaemonThreads(READING_THREADS, "perdure-changes")
        self._operating = DaemonThreads(OPERATION_THREADS, "perdure-files")
        self._keeping = DaemonThreads(KEEPING_THREADS, "perdure-refs")
        self._too_large: dict[str, tuple[float, str]] = {}
        """By working tree that was over the budget: until when there are no snapshots, and why."""

    def lock(self, root: str) -> TreeLock:
        """One snapshot or operation at a time."""
        lock = self._locks.get(root)
        if lock is None:
            lock = self._locks[root] = TreeLock()
        return lock

    @property
    def patience_s(self) -> float:
        """How long anybody waits for a snapshot."""
        return (self.limits.time_s if self.limits is not None else 0.0) + GRACE_S

    # Threads -----------------------------------------------------------------------------------------------------

    async def in_thread(self, work: Callable[..., T], *given: Any) -> T:
        """Run git for a snapshot. If the caller gives up, the thread may go on, so `work` must change nothing that
        people see. Raises GitError if it takes far too long."""
        async with self._places:
            return await _within(HANGING_S, self._threads, functools.partial(work, *given))

    async def read(self, work: Callable[..., T], *given: Any, **named: Any) -> T:
        """Run git for somebody who reads changes. Raises Refused if it takes far too long."""
        try:
            return await _within(READ_TIMEOUT_S, self._reading, functools.partial(work, *given, **named))
        except Hanging as error:
            raise Refused("unavailable", error.message) from None

    async def operate(self, work: Callable[..., T], *given: Any) -> T:
        """Run what changes files. If it is cancelled, wait for its thread: the caller must not give up its locks while
        the thread writes."""
        return await _to_its_end(CANCELLED_TIMEOUT_S, self._operating, functools.partial(work, *given))

    async def _change_refs(self, work: Callable[..., T], *given: Any) -> T:
        """The same for refs: one that is made after an erase would stay."""
        return await _to_its_end(KEEPING_TIMEOUT_S, self._keeping, functools.partial(work, *given))

    async def find(self, directory: str) -> Repository | str | None:
        """The repository around a directory; or why it can't be used; or None if there is none."""
        try:
            return await self.look(directory, find, directory)
        except GitError as error:
            return error.message

    async def look(self, directory: str, work: Callable[..., T], *given: Any) -> T:
        """Run what only reads facts about the repository of a directory. Raises Hanging if its file system does not
        respond. It doesn't wait for snapshots, which may take long without anything hanging."""
        try:
            return await _within(self.patience_s, self._threads, functools.partial(work, *given))
        except Hanging:
            raise Hanging(f"The file system of {directory} does not respond.") from None

    # Operations --------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def operating(self, roots: Iterable[str]) -> AsyncIterator[None]:
        """Hold the locks of the working trees that an operation changes. Give them in an order that all callers use."""
        async with contextlib.AsyncExitStack() as stack:
            locks = [self.lock(root) for root in roots]
            for lock in locks:
                stack.enter_context(lock.operation())
            for lock in locks:
                await stack.enter_async_context(lock)
            yield

    def reserve(self, roots: Iterable[str]) -> contextlib.ExitStack:
        """Let no turn begin in these working trees until the result is closed: an operation is to be completed."""
        stack = contextlib.ExitStack()
        for root in roots:
            stack.enter_context(self.lock(root).operation())
        return stack

    # Snapshots ---------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def within_budget(self, root: str, *, counts: bool = True) -> AsyncIterator[TreeLock]:
        """Hold the lock of a working tree to take a snapshot. Raises OverBudget if the lock and the snapshot take too
        long together. `counts`: as for `snapshot`."""
        lock, locked_s = self.lock(root), None
        try:
            async with asyncio.timeout(self.patience_s), lock:
                locked_s, lock.began_s = self._steady(), None
                yield lock
        except TimeoutError:
            time_s = self.limits.time_s if self.limits is not None else 0.0
            why, waited_s = SLOW.format(root, time_s), locked_s
            if counts and locked_s is not None:
                # The time in which a thread works on the snapshot: a wait for other trees says nothing about this one.
                waited_s = lock.began_s
            if waited_s is None or self._steady() - waited_s < time_s:
                raise OverBudget(f"{why} Others were being recorded at the same time.") from None
            if counts:
                self._leave_alone(root, why)
            raise OverBudget(why) from None

    async def take(
        self, repo: Repository, ref: str, note: dict[str, Any], *, parent: str | None = None
    ) -> Snapshot | str:
        """A snapshot that git keeps under a ref; or a sentence why there is none."""
        asked_s = self._steady()
        try:
            async with self.within_budget(repo.root) as lock:
                if lock.latest is None or lock.latest[0] < asked_s:
                    began_s = self._steady()
                    lock.latest = began_s, await self.in_thread(self._taken_under, lock, repo)
                taken = lock.latest[1]
                await self._change_refs(self.keep, repo, ref, taken.tree, parent, note)
                return taken
        except GitError as error:
            return error.message
        except OSError as error:
            return f"The snapshot could not be stored: {error.strerror}."

    def snapshot(
        self, repo: Repository, ref: str, note: dict[str, Any], parent: str | None = None, *, counts: bool = True
    ) -> Snapshot:
        """The same for callers that hold the lock of the working tree. Blocks. `counts`: whether there will be no
        snapshots for a while if this one is over its budget."""
        taken = self._taken(repo, counts=counts)
        self.keep(repo, ref, taken.tree, parent, note)
        return taken

    def _taken_under(self, lock: TreeLock, repo: Repository) -> Snapshot:
        lock.began_s = self._steady()
        return self._taken(repo)

    def _taken(self, repo: Repository, *, counts: bool = True) -> Snapshot:
        if self.limits is None:
            raise GitError(OFF)
        wait_until_s, why = self._too_large.get(repo.root, (0.0, ""))
        if self._steady() < wait_until_s:
            raise OverBudget(f"{why} Perdure tries again in {TOO_LARGE_S / 60:g} minutes.")
        try:
            return self.snapshots.take(repo, limits=self.limits)
        except OverBudget as error:
            if counts:
                self._leave_alone(repo.root, error.message)
            raise

    def keep(self, repo: Repository, ref: str, tree: str, parent: str | None, note: dict[str, Any]) -> None:
        """Let a ref keep a tree, and the one before it. Blocks."""
        self.snapshots.keep(repo, ref, tree, parent_tree=parent, note=note)

    async def forget(self, repo: Repository, name: str) -> None:
        """Delete all snapshots of a session, by its name in refs."""
        try:
            async with self.within_budget(repo.root, counts=False):
                await self._change_refs(self.snapshots.forget, repo, name)
        except OverBudget:
            # Others use the working tree for long. They record it again if they needed what is deleted.
            await self._change_refs(self.snapshots.forget, repo, name)

    def _leave_alone(self, root: str, why: str) -> None:
        now_s = self._steady()
        for other in [other for other, (until_s, _) in list(self._too_large.items()) if until_s < now_s]:
            self._too_large.pop(other, None)
        self._too_large[root] = (now_s + TOO_LARGE_S, why)


async def _within(limit_s: float, threads: DaemonThreads, work: Callable[[], T]) -> T:
    try:
        async with asyncio.timeout(limit_s):
            return await (await threads.begin(work))
    except TimeoutError:
        raise Hanging(f"The file system did not respond within {limit_s:g} seconds.") from None


async def _to_its_end(limit_s: float, threads: DaemonThreads, work: Callable[[], T]) -> T:
    """Run work. If it is cancelled, wait for its thread, but not longer than this."""
    running = await threads.begin(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running], timeout=limit_s)
        raise
