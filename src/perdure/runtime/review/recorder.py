"""The recorder: takes a snapshot of the working tree before and after each turn, and stores what the turn changed.

Above: the runner, which waits for the first snapshot before it gives the agent a turn's message; the engine. Below: git
snapshots and the records. The recorder follows the log: a turn that has ended gets its second snapshot, however it
ended. A snapshot that isn't possible never holds up a turn for longer than its time budget; the turn's record then says
why there is none.
"""

import asyncio
import contextlib
import functools
import logging
import math
import os
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import msgspec
from msgspec.structs import replace

from perdure.core import events as ev
from perdure.core.decision import Decision
from perdure.core.errors import UNREADABLE, NotOwner, Refused, StoreError
from perdure.core.state import Session
from perdure.runtime.data.filesystem import make_private
from perdure.runtime.git.command import GitError
from perdure.runtime.git.repository import Repository, find
from perdure.runtime.git.snapshot import REFS, Limits, OverBudget, Snapshot, Snapshots
from perdure.runtime.git.worktree import Worktree, ensure, is_complete
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.review.comparison import (
    compare,
    edits_of,
    joined,
    joined_elsewhere,
    joined_turns,
    left_alone_of,
    marks_of,
    outside_of,
    with_places,
)
from perdure.runtime.review.records import FILES_MAX, SESSION, Change, Records, Sharing, turn_name
from perdure.runtime.running.facts import Facts

logger = logging.getLogger(__name__)

T = TypeVar("T")

RUNNING = "running"
LATE = "The server was restarted during the turn, so changes made shortly after it may be included."
INTERRUPTED = "The server stopped before it could record the state after the turn."
UNSEEN_S = 5.0
"""How long a server may take to read what an agent wrote while there was none. A turn that ends later ended now."""
RETRY_S = 1.0
FINISHED_TIMEOUT_S = 30.0
"""How long to wait for the record of a turn that has just ended, besides the time budget of its snapshot."""
GIT_THREADS = 4
"""A slow snapshot must not hold up those who read files in other threads."""
NOTE_MAX_MS = 24 * 60 * 60 * 1000
"""How long an open note of a session that this server doesn't know counts."""
STOP_TIMEOUT_S = 5.0
"""How long a stopping server waits for snapshots. The next one takes those that are missing."""
TOO_LARGE_S = 600.0
"""After a snapshot was over its budget, how long there are none of that working tree: every turn would wait for it."""


class Open(msgspec.Struct, frozen=True):
    """A turn that has its first snapshot, as noted on this node's disk."""

    session_id: str
    turn: int


class Recorder:
    def __init__(
        self, log: Log, facts: Facts, records: Records, snapshots: Snapshots, folder: Path, limits: Limits | None
    ) -> None:
        """`limits`: the budget of a snapshot; None turns snapshots off. `folder`: for notes about open turns."""
        self._log = log
        self._facts = facts
        self.records = records
        self.snapshots = snapshots
        self._folder = folder
        self._limits = limits
        self._open: dict[str, int] = {}
        """By session: the turn that has a first snapshot and no second one."""
        self._roots: dict[str, str] = {}
        """By session whose turn runs or has no second snapshot yet: its working tree."""
        self._is_late: set[str] = set()
        """Sessions whose open turn was taken up from an earlier server."""
        self._survived: dict[str, float] = {}
        """Those of them whose turn had not ended as far as the log said, and since when, by the steady clock."""
        self._begun: dict[str, int] = {}
        """By session: the newest turn for which the first snapshot was taken, or found impossible."""
        self._finishing: dict[str, asyncio.Task[None]] = {}
        self._threads = ThreadPoolExecutor(GIT_THREADS, thread_name_prefix="git")
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By working tree: one snapshot at a time."""
        self._too_large: dict[str, tuple[float, str]] = {}
        """By working tree that was over the budget: until when there are no snapshots, and why."""
        self._is_stopping = False
        self.recorded: Callable[[Journal, Change], Any] = lambda journal, change: None
        """Called, and awaited, when a turn's changes are stored."""
        log.watch(self._changed)

    def lock(self, root: str) -> asyncio.Lock:
        return self._locks[root]

    @property
    def limits(self) -> Limits | None:
        return self._limits

    async def start(self) -> None:
        """Take up the turns that were open when an earlier server stopped."""
        for session_id, turn in (await asyncio.to_thread(self._noted)).items():
            self._open[session_id] = self._begun[session_id] = turn
            self._is_late.add(session_id)
            if (change := await self.records.get(session_id, turn_name(turn), Change)) is not None:
                self._roots[session_id] = change.root
            self._log.keep(self._take_up(session_id))

    async def _take_up(self, session_id: str) -> None:
        journal = await self._log.readable(session_id)
        if journal is None:
            await self._forget(session_id)
            return
        if _is_running(journal, self._open.get(session_id, 0)):
            self._survived[session_id] = self._log.steady()
        self._changed(session_id)

    async def stop(self) -> None:
        """Complete the snapshots of turns that have ended. The next server continues with the other turns."""
        self._is_stopping = True
        if self._finishing:
            await asyncio.wait(list(self._finishing.values()), timeout=STOP_TIMEOUT_S)

    # Before a turn -----------------------------------------------------------------------------------------------

    async def before(self, journal: Journal) -> None:
        """Take the snapshot before the running turn, once. The turn must not change files until this returns. Raises
        Refused if the session has no directory to work in."""
        state = journal.state
        if state.worktree is not None:
            await self._ensure_worktree(state)
        if state.turn is None or not state.working:
            return
        session_id, turn = state.id, state.turn.turn
        if self._begun.get(session_id) == turn:
            return
        try:
            if self._limits is None:
                await self._wait_for_operation(session_id, turn, await self._root(state.workdir))
            else:
                await self._begin(journal, session_id, turn)
        except Exception:
            # The turn must not fail because nobody can review it.
            logger.exception("session %s: no snapshot before turn %d", session_id, turn)
        self._begun[session_id] = turn

    async def _begin(self, journal: Journal, session_id: str, turn: int) -> None:
        state = journal.state
        await self._finish_earlier(journal)
        root = await self._root(state.workdir)
        await self._wait_for_operation(session_id, turn, root)
        if root is not None:
            change = await self._first(session_id, turn, state.workdir, root)
            try:
                await self.records.put(session_id, turn_name(turn), change)
                if change.state == RUNNING:
                    await asyncio.to_thread(self._note, session_id, turn)
                    self._open[session_id] = turn
                else:
                    await self._announce(journal, change)
            except StoreError as error:
                logger.warning("session %s: could not store the snapshot before turn %d: %s", session_id, turn, error)
                if isinstance(root, Repository):
                    await self._close(root, session_id, replace(change, ended_ms=change.began_ms))

    async def _wait_for_operation(self, session_id: str, turn: int, root: Repository | str | None) -> None:
        """Before the turn: from now on no operation of another session begins in its working tree, and one that is
        running there ends first."""
        if isinstance(root, Repository):
            self._roots[session_id] = root.root
            self._begun[session_id] = turn
            async with self.lock(root.root):
                pass

    @staticmethod
    async def _ensure_worktree(state: Session) -> None:
        """Create what is missing of the session's worktree: it may have been removed when the session was archived, or
        a killed server has not completed it. In a part of it, all other files would count as deleted, so the turn must
        not begin."""

        def work() -> None:
            own = msgspec.convert(state.worktree, Worktree)
            if not is_complete(own):
                ensure(own)

        try:
            await asyncio.to_thread(work)
        except (GitError, OSError) as error:
            why = error.message if isinstance(error, GitError) else f"{error.strerror}."
            raise Refused("unavailable", f"The session's worktree could not be created again: {why}") from error

    async def _finish_earlier(self, journal: Journal) -> None:
        """The turn before this one may have ended just now, or under an earlier server."""
        session_id = journal.state.id
        if session_id in self._open:
            await asyncio.wait([self._finish_soon(journal, self._open[session_id])])
        elif session_id not in self._begun and (names := await self.records.names(session_id, "turn-")):
            # The session's first turn on this node: another one may have left the previous record open.
            last = await self.records.get(session_id, names[-1], Change)
            if last is not None and last.state == RUNNING and last.turn is not None:
                self._is_late.add(session_id)
                await asyncio.wait([self._finish_soon(journal, last.turn)])

    @staticmethod
    async def _root(workdir: str) -> Repository | str | None:
        """The repository; or why it can't be used; or None if there is none."""
        try:
            return await asyncio.to_thread(find, workdir)
        except GitError as error:
            return error.message

    async def _first(self, session_id: str, turn: int, workdir: str, found: Repository | str) -> Change:
        now_ms = int(self._log.now() * 1000)
        change = Change(turn=turn, state=RUNNING, directory=workdir, began_ms=now_ms)
        if isinstance(found, str):
            return replace(change, state="unavailable", reason=found)
        taken = await self.take(found, ref_of(session_id, turn), {"since_ms": now_ms})
        if isinstance(taken, str):
            return replace(change, state="unavailable", reason=taken, root=found.root)
        latest = await self.records.get(session_id, SESSION, Change)
        previous = latest.after if latest is not None and latest.root == found.root else None
        names = await self.records.names(session_id, "turn-")
        last = await self.records.get(session_id, names[-1], Change) if names else None
        # What changed in a turn without snapshots isn't somebody else's, or not known to be.
        is_gap = last is not None and last.state != "ready"
        outside = None if is_gap else await asyncio.to_thread(outside_of, found, previous, taken.tree)
        return replace(
            change,
            root=found.root,
            before=taken.tree,
            head_before=taken.head,
            left_alone=taken.left_alone,
            marks=await asyncio.to_thread(marks_of, found, taken.left_alone),
            outside=(outside or [])[:FILES_MAX],
            outside_is_complete=outside is not None and len(outside) <= FILES_MAX,
            previous=previous,
        )

    async def take(
        self, repo: Repository, ref: str, note: dict[str, Any], *, parent: str | None = None
    ) -> Snapshot | str:
        """A snapshot that git keeps under a ref; or a sentence why there is none."""

        async with self.lock(repo.root):
            try:
                return await self.in_thread(self.snapshot, repo, ref, note, parent)
            except GitError as error:
                return error.message
            except OSError as error:
                return f"The snapshot could not be stored: {error.strerror}."

    def snapshot(
        self, repo: Repository, ref: str, note: dict[str, Any], parent: str | None = None, *, counts: bool = True
    ) -> Snapshot:
        """The same for callers that hold the lock of the working tree. Blocks. `counts`: whether there will be no
        snapshots for a while if this one is over its budget."""
        if self._limits is None:
            raise GitError("Snapshots are turned off (`snapshots` in perdure.toml).")
        wait_until_s, why = self._too_large.get(repo.root, (0.0, ""))
        if self._log.steady() < wait_until_s:
            raise OverBudget(f"{why} Perdure tries again in {TOO_LARGE_S / 60:g} minutes.")
        try:
            taken = self.snapshots.take(repo, limits=self._limits)
        except OverBudget as error:
            if counts:
                self._too_large[repo.root] = (self._log.steady() + TOO_LARGE_S, error.message)
            raise
        self.snapshots.keep(repo, ref, taken.tree, parent_tree=parent, note=note)
        return taken

    async def in_thread(self, work: Callable[..., T], *given: Any) -> T:
        """Run git in one of the threads for it."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(work, *given))

    def works_in(self, root: str) -> list[str]:
        """The sessions of this node whose turns work in this working tree, or have no second snapshot yet."""
        return [session_id for session_id, place in self._roots.items() if place == root]

    # After a turn ------------------------------------------------------------------------------------------------

    def _changed(self, session_id: str) -> None:
        turn = self._open.get(session_id)
        if (turn is None and session_id not in self._roots) or session_id in self._finishing or self._is_stopping:
            return
        journal = self._log.journals.get(session_id)
        if journal is None:
            if session_id in self._log.erased:
                self._open.pop(session_id, None)
                self._begun.pop(session_id, None)
                self._roots.pop(session_id, None)
        elif turn is not None and not _is_running(journal, turn):
            self._finish_soon(journal, turn)
        elif turn is None and not _is_running(journal, self._begun.get(session_id, 0)):
            # A turn without snapshots.
            self._roots.pop(session_id, None)

    async def finished(self, session_id: str) -> bool:
        """Wait until the record of a turn that has just ended is stored. Returns whether it is: if it can't be stored
        now, that is tried again and again."""
        task = self._finishing.get(session_id)
        if task is None:
            return True
        limit_s = FINISHED_TIMEOUT_S + (self._limits.time_s if self._limits is not None else 0.0)
        _, waiting = await asyncio.wait([task], timeout=limit_s)
        return not waiting

    def _finish_soon(self, journal: Journal, turn: int) -> "asyncio.Task[None]":
        """Begin to finish the record of a turn that has ended, if that has not begun."""
        session_id = journal.state.id
        task = self._finishing.get(session_id)
        if task is None:
            task = asyncio.create_task(self._finish(journal, turn), name=f"snapshot {session_id}")
            self._finishing[session_id] = task
            task.add_done_callback(lambda _: self._finishing.pop(session_id, None))
        return task

    async def _finish(self, journal: Journal, turn: int) -> None:
        """Take the snapshot after a turn, and store what the turn has changed. If the store can't take it now, try
        again until it can."""
        found: list[tuple[Change, bytes]] = []
        while not self._is_stopping:
            if await self._tried_to_finish(journal, turn, found):
                return
            await asyncio.sleep(RETRY_S)

    async def _tried_to_finish(self, journal: Journal, turn: int, found: list[tuple[Change, bytes]]) -> bool:
        """`found`: what an earlier try found, so that the files are not compared again at a later time."""
        session_id = journal.state.id
        # Read before anything awaits: the next turn replaces the view.
        parts = list(journal.view.parts) if journal.view.turn == turn else None
        try:
            change = await self.records.get(session_id, turn_name(turn), Change)
            if change is not None and change.state == "ready" and session_id in self._is_late:
                # An earlier server stored it, and may have stopped before it announced it.
                await self._announce(journal, change)
            if change is None or change.state != RUNNING:
                await self._forget(session_id)
                return True
            if not found:
                if parts is None:
                    parts = list((await self._log.view_of(session_id, turn, journal.last_seq)).parts)
                found.append(await self._second(journal, change, parts))
            change, patch = found[0]
            await self.records.put_patch(session_id, turn_name(turn), patch)
            await self.follow(session_id, change)
            await self.recorded(journal, change)
            # Last: until then, the next server does all of it again.
            await self.records.put(session_id, turn_name(turn), change)
            await self._announce(journal, change)
            await self._forget(session_id)
        except NotOwner:
            # Its new owner records its changes.
            await self._forget(session_id)
        except (StoreError, Refused) as error:
            if isinstance(error, Refused) and error.code == "not_found":
                # It was erased.
                await self._forget(session_id)
                return True
            if not found:
                self._is_late.add(session_id)
            logger.warning("session %s: could not store the changes of turn %d; retrying: %s", session_id, turn, error)
            return False
        except Exception:
            logger.exception("session %s: could not record the changes of turn %d", session_id, turn)
            await self._close_root(session_id, turn)
            await self._forget(session_id)
        return True

    async def _close_root(self, session_id: str, turn: int) -> None:
        """Close the note of a turn that can't be recorded."""
        with contextlib.suppress(StoreError, Refused):
            change = await self.records.get(session_id, turn_name(turn), Change)
            found = await self._root(change.root) if change is not None and change.root else None
            if change is not None and isinstance(found, Repository):
                await self._close(found, session_id, replace(change, ended_ms=int(self._log.now() * 1000)))

    async def _second(self, journal: Journal, change: Change, parts: list[Any]) -> tuple[Change, bytes]:
        session_id, turn, now_ms = journal.state.id, change.turn or 0, int(self._log.now() * 1000)
        change = replace(change, ended_ms=now_ms)
        found = await self._root(change.directory)
        if not isinstance(found, Repository) or found.root != change.root:
            reason = found if isinstance(found, str) else "The repository was removed or replaced during the turn."
            if isinstance(original := await self._root(change.root), Repository):
                await self._close(original, session_id, change)
            return replace(change, state="unavailable", reason=reason), b""
        note = {"since_ms": change.began_ms, "until_ms": now_ms}
        taken = await self.take(found, ref_of(session_id, turn), note, parent=change.before)
        if isinstance(taken, str):
            await self._close(found, session_id, change)
            return replace(change, state="unavailable", reason=taken), b""
        edits, elsewhere = edits_of(parts, found.root)
        change = replace(
            change,
            state="ready",
            reason=LATE if self._ended_unseen(journal, turn) else None,
            after=taken.tree,
            head_after=taken.head,
            **left_alone_of(change, taken.left_alone, await asyncio.to_thread(marks_of, found, taken.left_alone)),
            elsewhere=elsewhere,
            tools=edits,
        )
        try:
            change, patch = await self.in_thread(compare, found, change)
        except GitError as error:
            return replace(change, state="unavailable", reason=error.message), b""
        change = await asyncio.to_thread(with_places, found, change)
        return replace(change, shared_with=await self._sharing(found, session_id, change)), patch

    def _ended_unseen(self, journal: Journal, turn: int) -> bool:
        """Whether the turn may have ended some time before its second snapshot: while no server ran, or while the store
        failed."""
        session_id, state = journal.state.id, journal.state
        if session_id not in self._is_late:
            return False
        has_failed = state.turn is None or state.turn.turn != turn or state.turn.stop_reason == "failed"
        seen_s = self._log.steady() - self._survived.get(session_id, math.inf)
        return has_failed or seen_s < UNSEEN_S

    async def _sharing(self, repo: Repository, session_id: str, change: Change) -> list[Sharing]:
        """The turns of other sessions that ran in the same working tree at the same time."""
        given = (repo, ref_name(session_id), change.began_ms, change.ended_ms)
        try:
            found = await self.in_thread(self.snapshots.overlapping, *given)
        except GitError as error:
            logger.warning("session %s: can't tell which sessions worked beside it: %s", session_id, error.message)
            return []
        return [
            Sharing(session_of(name), number)
            for name, number, began_ms, is_open in found
            if not is_open or await self._still_runs(session_of(name), number, began_ms)
        ]

    async def _still_runs(self, session_id: str, turn: int, began_ms: int) -> bool:
        """Whether a turn whose note is open is running. Its server may have died before it closed the note."""
        try:
            journal = await self._log.readable(session_id)
            if journal is not None:
                await journal.catch_up()
        except StoreError:
            journal = None
        if journal is None:
            return int(self._log.now() * 1000) - began_ms < NOTE_MAX_MS
        return _is_running(journal, turn) or session_id in self._finishing

    async def _close(self, repo: Repository, session_id: str, change: Change) -> None:
        """Note in the repository that a turn has ended, of which there is no second snapshot."""
        if change.before is None:
            return
        note = {"since_ms": change.began_ms, "until_ms": change.ended_ms}
        ref = ref_of(session_id, change.turn or 0)
        with contextlib.suppress(GitError, OSError):
            await asyncio.to_thread(self.snapshots.keep, repo, ref, change.before, parent_tree=None, note=note)

    async def adopt(self, session_id: str, turns: list[Change]) -> None:
        """Keep the snapshots of turns that were copied from another session, and count them as this session's."""
        known = [one for one in turns if one.before is not None and one.after is not None]
        known = [one for one in known if one.root == known[-1].root]
        if not known:
            return
        first, last = known[0], known[-1]
        try:
            await self.follow(session_id, replace(joined_turns(known), before=first.before, after=last.after))
            await self.in_thread(self._keep_all, session_id, known)
        except (GitError, StoreError) as error:
            logger.warning("session %s: could not keep the snapshots of the copied turns: %s", session_id, error)

    def _keep_all(self, session_id: str, turns: list[Change]) -> None:
        repo = find(turns[-1].root)
        for one in turns:
            if repo is not None and one.after is not None:
                note, ref = {"since_ms": one.began_ms, "until_ms": one.ended_ms}, ref_of(session_id, one.turn or 0)
                self.snapshots.keep(repo, ref, one.after, parent_tree=one.before, note=note)

    async def follow(self, session_id: str, change: Change) -> None:
        """Update the changes of the whole session after a turn, or after an operation on its files."""
        if change.before is None or change.after is None:
            return
        so_far = await self.records.get(session_id, SESSION, Change)
        if so_far is not None and so_far.root == change.root and so_far.before is not None:
            outside = dict([*so_far.outside, *change.outside])
            whole = replace(
                so_far,
                after=change.after,
                head_after=change.head_after or so_far.head_after,
                ended_ms=change.ended_ms,
                left_alone=joined(so_far.left_alone, change.left_alone),
                changed_alone=sorted({*so_far.changed_alone, *change.changed_alone}),
                outside=sorted(outside.items())[:FILES_MAX],
                shared_with=list(dict.fromkeys([*so_far.shared_with, *change.shared_with])),
                elsewhere=joined_elsewhere(so_far.elsewhere, change.elsewhere),
            )
        else:
            whole = replace(change, turn=None, tools={}, reason=None)
        found = await self._root(change.root)
        if isinstance(found, Repository):
            try:
                whole, patch = await self.in_thread(compare, found, whole)
            except GitError as error:
                logger.warning("session %s: could not compare its snapshots: %s", session_id, error.message)
                return
            await self.records.put_patch(session_id, SESSION, patch)
            await self.records.put(session_id, SESSION, whole)

    async def _announce(self, journal: Journal, change: Change) -> None:
        known = change.state == "ready"
        event = ev.TurnChanges(
            turn=change.turn,
            state="partial" if known and (change.truncated or change.changed_alone) else change.state,  # type: ignore[arg-type]
            reason=change.reason,
            files=change.file_count if known else None,
            added=change.added if known else None,
            removed=change.removed if known else None,
            directory=change.root,
        )

        def made(state: Any) -> Decision:
            decision = Decision(state, self._facts.world(state))
            decision.emit(event)
            return decision

        await self._log.shielded(journal.record(made, by_owner=True))

    # Notes about open turns --------------------------------------------------------------------------------------

    def _note(self, session_id: str, turn: int) -> None:
        make_private(self._folder)
        part = self._folder / f".{session_id}"
        part.write_bytes(msgspec.json.encode(Open(session_id, turn)))
        part.replace(self._folder / session_id)

    def _noted(self) -> dict[str, int]:
        found = {}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                with contextlib.suppress(OSError, *UNREADABLE):
                    note = msgspec.json.decode((self._folder / name).read_bytes(), type=Open)
                    found[note.session_id] = note.turn
        return found

    async def _forget(self, session_id: str) -> None:
        self._open.pop(session_id, None)
        self._roots.pop(session_id, None)
        self._is_late.discard(session_id)
        self._survived.pop(session_id, None)
        await asyncio.to_thread((self._folder / session_id).unlink, missing_ok=True)


def ref_name(session_id: str) -> str:
    """The session's id as a part of a ref's name, in which git allows fewer characters."""
    return quote(session_id, safe="").replace("~", "%7E").replace(".", "%2E")


def session_of(name: str) -> str:
    return unquote(name)


def ref_of(session_id: str, of: int | str) -> str:
    """The ref that keeps the snapshots of a turn or an operation."""
    return f"{REFS}{ref_name(session_id)}/{of}"


def _is_running(journal: Journal, turn: int) -> bool:
    state = journal.state
    return state.working and state.turn is not None and state.turn.turn == turn
