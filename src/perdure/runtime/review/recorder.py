"""The recorder: takes a snapshot of the working tree before and after each turn, and stores what the turn changed.

Above: the runner, which waits for the first snapshot before it gives the agent a turn's message; the engine. Below: git
snapshots and the records. The recorder follows the log: a turn that has ended gets its second snapshot, however it
ended. A turn never waits for ever: the record of the turn before, the repository, the snapshot and its comparison with
the last one have a time limit each. If there is no snapshot, the turn's record says why.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from perdure.core import events as ev
from perdure.core.decision import Decision
from perdure.core.errors import NOTHING_KEPT, NotOwner, Refused, StoreError
from perdure.core.state import Session
from perdure.runtime.git.command import GitError
from perdure.runtime.git.repository import Repository, find
from perdure.runtime.git.snapshot import REFS, Limits, Snapshot, Snapshots
from perdure.runtime.git.worktree import Worktree, ensure, is_complete
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.review.comparison import (
    compare,
    continued,
    edits_of,
    joined_turns,
    left_alone_of,
    marks_of,
    outside_of,
    with_places,
)
from perdure.runtime.review.open_turns import OpenTurns
from perdure.runtime.review.overlaps import Overlaps, is_running
from perdure.runtime.review.records import FILES_MAX, GONE, SESSION, Change, Records, turn_name
from perdure.runtime.review.working_trees import WorkingTrees
from perdure.runtime.running.facts import Facts

logger = logging.getLogger(__name__)

RUNNING = "running"
LATE = "A turn ended while the server was not running, so what others changed until it was back may be included."
INTERRUPTED = "The server stopped before it could record the state after the turn."
UNSTORED = "What the turn changed could not be stored; the server's log has the cause."
UNSEEN_S = 5.0
"""How long a server may take to read what an agent wrote while there was none. A turn that ends later ended now."""
RETRY_S = 1.0
FINISHED_TIMEOUT_S = 30.0
"""How long to wait for the record of a turn that has just ended, besides the time budget of its snapshot."""
FAILING_TIMEOUT_S = 5.0
"""The same if storing it fails all that time. The session's next turn then begins without it."""
GIVE_UP_TIMEOUT_S = 5.0
LOOK_S = 0.2
TRIES_MAX = 10
"""How often a record is tried that the store refuses for no passing reason, such as its size."""
BEGUN_MAX = 10_000
"""For how many sessions to remember the newest turn."""
COMPARING_TIMEOUT_S = 5.0
"""How long a turn waits to learn what others have changed since the session's last one. It is unknown then."""
STARTING_TIMEOUT_S = 5.0
"""How long a starting server waits to learn in which repositories turns go on. It learns the others later."""
STOP_TIMEOUT_S = 5.0
"""How long a stopping server waits for snapshots. The next one takes those that are missing."""


class _Place(NamedTuple):
    root: str
    turn: int


class _Result(msgspec.Struct):
    """What a turn has changed, so that the files are not compared again at a later time."""

    change: Change | None = None
    patch: bytes = b""
    refusals: int = 0


class Recorder:
    def __init__(
        self, log: Log, facts: Facts, records: Records, snapshots: Snapshots, folder: Path, limits: Limits | None
    ) -> None:
        """`limits`: the budget of a snapshot; None turns snapshots off. `folder`: for notes about open turns."""
        self._log = log
        self._facts = facts
        self.records = records
        self.trees = WorkingTrees(snapshots, limits, log.steady)
        self._overlaps = Overlaps(log, self.trees)
        self._notes = OpenTurns(folder)
        self._open: dict[str, int] = {}
        """By session: the turn that has a first snapshot and no second one."""
        self._places: dict[str, _Place] = {}
        """By session whose turn runs or has no second snapshot yet: its working tree."""
        self._is_late: set[str] = set()
        """Sessions whose open turn was taken up from an earlier server."""
        self._survived: dict[str, float] = {}
        """Those of them whose turn had not ended as far as the log said, and since when, by the steady clock."""
        self._begun: dict[str, int] = {}
        """By session: the newest turn for which the first snapshot was taken, or found impossible."""
        self._finishing: dict[str, asyncio.Task[None]] = {}
        self._failing: dict[str, float] = {}
        """By session: since when its record can't be stored, by the steady clock."""
        self._ensuring: dict[str, asyncio.Task[None]] = {}
        """By session whose worktree is being created again. That goes on if its turn is aborted."""
        self._is_stopping = False
        self.recorded: Callable[[Journal, Change], Any] = lambda journal, change: None
        """Called, and awaited, when a turn's changes are stored."""
        log.watch(self._changed)

    async def reserve(self) -> None:
        """Before any turn begins: read which turns were open when an earlier server stopped."""
        for session_id, turn in (await asyncio.to_thread(self._notes.all)).items():
            self._open[session_id] = turn
            self._has_begun(session_id, turn)
            self._is_late.add(session_id)
            if (change := await self.records.get(session_id, turn_name(turn), Change)) is not None:
                self._places[session_id] = _Place(change.root, turn)

    async def start(self, resumed: Iterable[Journal]) -> None:
        """Take up these turns, and those that go on in `resumed`: some have no snapshot."""
        for session_id in list(self._is_late):
            self._log.keep(self._take_up(session_id))
        if finding := [self._log.keep(self._take_place(journal)) for journal in resumed]:
            await asyncio.wait(finding, timeout=STARTING_TIMEOUT_S)

    async def _take_place(self, journal: Journal) -> None:
        """No operation of another session may begin where a turn goes on."""
        session_id, turn = journal.state.id, journal.state.turn
        if turn is None or session_id in self._places:
            return
        found = await self.trees.find(journal.state.workdir)
        if isinstance(found, Repository) and is_running(journal, turn.turn):
            self._places.setdefault(session_id, _Place(found.root, turn.turn))

    async def _take_up(self, session_id: str) -> None:
        journal = await self._log.readable(session_id)
        if journal is None:
            await self._forget(session_id)
            return
        if is_running(journal, self._open.get(session_id, 0)):
            self._survived[session_id] = self._log.steady()
        self._changed(session_id)

    def stop_soon(self) -> None:
        """Begin nothing new, and don't try again what fails. The next server continues with it."""
        self._is_stopping = True

    async def stop(self) -> None:
        """Complete the snapshots of turns that have ended. The next server continues with the other turns."""
        self.stop_soon()
        if self._finishing:
            await asyncio.wait(list(self._finishing.values()), timeout=STOP_TIMEOUT_S)

    # Before a turn -----------------------------------------------------------------------------------------------

    async def before(self, journal: Journal) -> None:
        """Take the snapshot before the running turn, once. The turn must not change files until this returns. It may
        wait for a file operation, so cancel it if the turn is aborted. Raises Refused if the session has no directory
        to work in."""
        if journal.state.worktree is not None:
            await self._ensure_worktree(journal.state)
        state = journal.state  # read after the wait: the turn may have begun meanwhile
        if state.turn is None or not state.working:
            return
        session_id, turn = state.id, state.turn.turn
        if self._begun.get(session_id) == turn:
            return
        try:
            await self._begin(journal, session_id, turn)
        except Exception:
            # The turn must not fail because nobody can review it.
            logger.exception("session %s: no snapshot before turn %d", session_id, turn)
        self._has_begun(session_id, turn)

    async def _begin(self, journal: Journal, session_id: str, turn: int) -> None:
        state = journal.state
        if self.trees.limits is not None:
            try:
                await self._finish_earlier(journal)
            except Exception:
                # The turn must wait for operations all the same.
                logger.exception("session %s: the record of the turn before turn %d stays as it is", session_id, turn)
        root = await self.trees.find(state.workdir)
        if isinstance(root, Repository):
            await self.trees.lock(root.root).without_operation()
            # From now on, no operation of another session begins there.
            self._places[session_id] = _Place(root.root, turn)
        if root is None or self.trees.limits is None:
            return
        change = await self._first(session_id, turn, state.workdir, root)
        try:
            if change.state == RUNNING:
                # First, so that a turn that is aborted meanwhile is finished.
                self._open[session_id] = turn
                await asyncio.to_thread(self._notes.put, session_id, turn)
            await self.records.put(session_id, turn_name(turn), change)
            if change.state != RUNNING:
                await self._announce(journal, change)
        except (StoreError, OSError) as error:
            logger.warning("session %s: could not store the snapshot before turn %d: %s", session_id, turn, error)
            self._open.pop(session_id, None)
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._notes.drop, session_id)
            if isinstance(root, Repository):
                await self._close(root, session_id, replace(change, ended_ms=change.began_ms))

    def _has_begun(self, session_id: str, turn: int) -> None:
        self._begun.pop(session_id, None)
        self._begun[session_id] = turn
        if len(self._begun) > BEGUN_MAX:
            oldest = (one for one in self._begun if one not in self._open and one not in self._places)
            self._begun.pop(next(oldest, session_id))

    async def _ensure_worktree(self, state: Session) -> None:
        """Create what is missing of the session's worktree: it may have been removed when the session was archived, or
        a killed server has not completed it. In a part of it, all other files would count as deleted, so the turn must
        not begin."""
        own = msgspec.convert(state.worktree, Worktree)
        task = self._ensuring.get(state.id)
        if task is None:
            task = self._ensuring[state.id] = asyncio.create_task(self.trees.operate(_ensure, own))

            def over(ended: asyncio.Task[None]) -> None:
                self._ensuring.pop(state.id, None)
                if not ended.cancelled():
                    ended.exception()  # so that Python doesn't report it if nobody waits any more

            task.add_done_callback(over)
        try:
            await asyncio.shield(task)
        except (GitError, OSError) as error:
            why = error.message if isinstance(error, GitError) else f"{error.strerror}."
            raise Refused("unavailable", f"The session's worktree could not be created again: {why}") from error

    async def _finish_earlier(self, journal: Journal) -> None:
        """The turn before this one may have ended just now, or before a restart. Continue if it can't be recorded."""
        session_id, turn = journal.state.id, self._open.get(journal.state.id)
        if turn is None and session_id not in self._begun:
            # The session's first turn on this node: another one may have left the previous record open.
            names = await self.records.names(session_id, "turn-")
            last = await self.records.get(session_id, names[-1], Change) if names else None
            turn = last.turn if last is not None and last.state == RUNNING else None
        if turn is None or is_running(journal, turn):
            # If it runs, a server was killed between its snapshot and its launch.
            return
        if session_id not in self._open:
            self._is_late.add(session_id)
        task = self._finish_soon(journal, turn)
        if not await self._has_finished(session_id, task):
            task.cancel()
            await asyncio.wait([task])
            await self._give_up(journal, turn)

    async def _give_up(self, journal: Journal, turn: int) -> None:
        session_id = journal.state.id
        logger.warning("session %s: the changes of turn %d are not stored; its next turn begins", session_id, turn)
        try:
            async with asyncio.timeout(GIVE_UP_TIMEOUT_S):
                change = await self.records.get(session_id, turn_name(turn), Change)
                if change is not None and change.state == RUNNING:
                    await self._close_root(session_id, turn)
                    change = _without_details(replace(change, ended_ms=int(self._log.now() * 1000)))
                    await self.records.put(session_id, turn_name(turn), change)
                    await self._announce(journal, change)
        except (StoreError, Refused, TimeoutError) as error:
            logger.warning("session %s: turn %d keeps an unfinished record: %s", session_id, turn, error)
        await self._forget(session_id)

    async def _first(self, session_id: str, turn: int, workdir: str, found: Repository | str) -> Change:
        now_ms = int(self._log.now() * 1000)
        change = Change(turn=turn, state=RUNNING, directory=workdir, began_ms=now_ms)
        if isinstance(found, str):
            return replace(change, state="unavailable", reason=found)
        taken = await self._take(found, session_id, turn, {"since_ms": now_ms})
        if isinstance(taken, str):
            return replace(change, state="unavailable", reason=taken, root=found.root)
        latest = await self.records.get(session_id, SESSION, Change)
        previous = latest.after if latest is not None and latest.root == found.root else None
        names = await self.records.names(session_id, "turn-")
        last = await self.records.get(session_id, names[-1], Change) if names else None
        # What changed in a turn without snapshots isn't somebody else's, or not known to be.
        is_gap = last is not None and last.state != "ready"
        outside: list[tuple[str, str]] | None = None
        marks: dict[str, str] = {}
        try:
            async with asyncio.timeout(COMPARING_TIMEOUT_S):
                marks = await self.trees.in_thread(marks_of, found, taken.left_alone)
                if not is_gap:
                    outside = await self.trees.in_thread(outside_of, found, previous, taken.tree)
        except (GitError, TimeoutError):
            logger.warning("session %s: can't tell in time what others changed before turn %d", session_id, turn)
        return replace(
            change,
            root=found.root,
            before=taken.tree,
            head_before=taken.head,
            left_alone=taken.left_alone,
            marks=marks,
            outside=(outside or [])[:FILES_MAX],
            outside_is_complete=outside is not None and len(outside) <= FILES_MAX,
            previous=previous,
        )

    async def _take(
        self, repo: Repository, session_id: str, turn: int, note: dict[str, Any], parent: str | None = None
    ) -> Snapshot | str:
        taken = await self.trees.take(repo, ref_of(session_id, turn), note, parent=parent)
        if await self.records.is_erased(session_id):
            # The erase did not wait any longer, and its snapshots must not stay.
            await self.trees.forget(repo, ref_name(session_id))
            raise Refused("not_found", GONE)
        return taken

    def works_in(self, root: str) -> list[str]:
        """The sessions of this node whose turns work in this working tree, or have none after it. In any thread."""
        return [session_id for session_id, place in list(self._places.items()) if place.root == root]

    # After a turn ------------------------------------------------------------------------------------------------

    def _changed(self, session_id: str) -> None:
        turn, place = self._open.get(session_id), self._places.get(session_id)
        if (turn is None and place is None) or session_id in self._finishing or self._is_stopping:
            return
        journal = self._log.journals.get(session_id)
        if journal is None:
            if session_id in self._log.erased:
                self._log.keep(self._forget(session_id))
        elif turn is not None and not is_running(journal, turn):
            self._finish_soon(journal, turn)
        elif turn is None and place is not None and not is_running(journal, place.turn):
            # A turn without snapshots.
            self._places.pop(session_id, None)

    async def finished(self, session_id: str) -> bool:
        """Wait until the record of a turn that has just ended is stored. Returns whether it is: if it can't be stored
        now, that is tried again and again."""
        self._changed(session_id)  # it may have ended a moment ago
        task = self._finishing.get(session_id)
        return task is None or await self._has_finished(session_id, task)

    async def _has_finished(self, session_id: str, task: "asyncio.Task[None]") -> bool:
        limit_s = FINISHED_TIMEOUT_S + self.trees.patience_s
        until_s = self._log.steady() + limit_s
        while not task.done() and self._log.steady() < until_s:
            if self._log.steady() - self._failing.get(session_id, math.inf) >= FAILING_TIMEOUT_S:
                break
            await asyncio.wait([task], timeout=LOOK_S)
        return task.done()

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
        result = _Result()
        try:
            while not self._is_stopping and not await self._tried_to_finish(journal, turn, result):
                self._failing.setdefault(journal.state.id, self._log.steady())
                await asyncio.sleep(RETRY_S)
        finally:
            self._failing.pop(journal.state.id, None)

    async def _tried_to_finish(self, journal: Journal, turn: int, result: _Result) -> bool:
        session_id = journal.state.id
        # Read before anything awaits: the next turn replaces the view.
        parts = list(journal.view.parts) if journal.view.turn == turn else None
        try:
            await self._log.claim(journal)
            change = await self.records.get(session_id, turn_name(turn), Change)
            if change is not None and change.state == "ready" and session_id in self._is_late:
                # An earlier server stored it, and may have stopped before it announced it.
                await self._announce(journal, change)
            if change is None or change.state != RUNNING:
                await self._forget(session_id)
                return True
            if result.change is None:
                if parts is None:
                    parts = list((await self._log.view_of(session_id, turn, journal.last_seq)).parts)
                result.change, result.patch = await self._second(journal, change, parts)
            await self._store(journal, turn, result.change, result.patch)
            await self._forget(session_id)
        except NotOwner:
            # Its new owner records its changes.
            await self._forget(session_id)
        except (StoreError, Refused) as error:
            if isinstance(error, Refused) and error.code == "not_found":
                # It was erased.
                await self._forget(session_id)
                return True
            logger.warning("session %s: could not store the changes of turn %d; retrying: %s", session_id, turn, error)
            if result.change is None:
                self._is_late.add(session_id)
            elif not isinstance(error, NOTHING_KEPT):
                result.refusals += 1
                if result.refusals >= TRIES_MAX:
                    result.change, result.patch = _without_details(result.change), b""
            return False
        except Exception:
            logger.exception("session %s: could not record the changes of turn %d", session_id, turn)
            await self._close_root(session_id, turn)
            await self._forget(session_id)
        return True

    async def _store(self, journal: Journal, turn: int, change: Change, patch: bytes) -> None:
        session_id = journal.state.id
        if self._log.shared is not None:
            # Comparing may have taken long, and records have no fencing token.
            await self._log.confirm(journal)
        await self.records.put_patch(session_id, turn_name(turn), patch)
        await self.follow(session_id, change)
        await self.recorded(journal, change)
        # Last: until then, the next server does all of it again.
        await self.records.put(session_id, turn_name(turn), change)
        await self._announce(journal, change)

    async def _close_root(self, session_id: str, turn: int) -> None:
        """Close the note of a turn that can't be recorded."""
        with contextlib.suppress(StoreError, Refused):
            change = await self.records.get(session_id, turn_name(turn), Change)
            found = await self.trees.find(change.root) if change is not None and change.root else None
            if change is not None and isinstance(found, Repository):
                await self._close(found, session_id, replace(change, ended_ms=int(self._log.now() * 1000)))

    async def _second(self, journal: Journal, change: Change, parts: list[Any]) -> tuple[Change, bytes]:
        session_id, turn, now_ms = journal.state.id, change.turn or 0, int(self._log.now() * 1000)
        change = replace(change, ended_ms=now_ms)
        found = await self.trees.find(change.directory)
        if not isinstance(found, Repository) or found.root != change.root:
            reason = found if isinstance(found, str) else "The repository was removed or replaced during the turn."
            if isinstance(original := await self.trees.find(change.root), Repository):
                await self._close(original, session_id, change)
            return replace(change, state="unavailable", reason=reason), b""
        note = {"since_ms": change.began_ms, "until_ms": now_ms}
        taken = await self._take(found, session_id, turn, note, change.before)
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
            **left_alone_of(change, taken.left_alone, await self.trees.in_thread(marks_of, found, taken.left_alone)),
            elsewhere=elsewhere,
            tools=edits,
        )
        try:
            change, patch = await self.trees.in_thread(compare, found, change)
        except GitError as error:
            return replace(change, state="unavailable", reason=error.message), b""
        change = await self.trees.in_thread(with_places, found, change)
        return replace(change, shared_with=await self._overlaps.of(found, ref_name(session_id), change)), patch

    def _ended_unseen(self, journal: Journal, turn: int) -> bool:
        """Whether the turn may have ended some time before its second snapshot: while no server ran, or while the store
        failed."""
        session_id, state = journal.state.id, journal.state
        if session_id not in self._is_late:
            return False
        has_failed = state.turn is None or state.turn.turn != turn or state.turn.stop_reason == "failed"
        seen_s = self._log.steady() - self._survived.get(session_id, math.inf)
        return has_failed or seen_s < UNSEEN_S

    async def _close(self, repo: Repository, session_id: str, change: Change) -> None:
        """Note in the repository that a turn has ended, of which there is no second snapshot."""
        if change.before is None or await self.records.is_erased(session_id):
            return
        note = {"since_ms": change.began_ms, "until_ms": change.ended_ms}
        ref = ref_of(session_id, change.turn or 0)
        with contextlib.suppress(GitError, OSError):
            await self.trees.in_thread(self.trees.keep, repo, ref, change.before, None, note)

    async def adopt(self, session_id: str, turns: list[Change]) -> None:
        """Keep the snapshots of turns that were copied from another session, and count them as this session's."""
        known = [one for one in turns if one.before is not None and one.after is not None]
        known = [one for one in known if one.root == known[-1].root]
        if not known:
            return
        first, last = known[0], known[-1]
        try:
            await self.follow(session_id, replace(joined_turns(known), before=first.before, after=last.after))
            await self.trees.in_thread(self._keep_all, session_id, known)
        except (GitError, StoreError) as error:
            logger.warning("session %s: could not keep the snapshots of the copied turns: %s", session_id, error)

    def _keep_all(self, session_id: str, turns: list[Change]) -> None:
        repo = find(turns[-1].root)
        for one in turns:
            if repo is not None and one.after is not None:
                note, ref = {"since_ms": one.began_ms, "until_ms": one.ended_ms}, ref_of(session_id, one.turn or 0)
                self.trees.keep(repo, ref, one.after, one.before, note)

    async def follow(self, session_id: str, change: Change) -> None:
        """Update the changes of the whole session after a turn, or after an operation on its files."""
        if change.before is None or change.after is None:
            return
        so_far = await self.records.get(session_id, SESSION, Change)
        whole = continued(so_far, change)
        found = await self.trees.find(change.root)
        if isinstance(found, Repository):
            try:
                whole, patch = await self.trees.in_thread(compare, found, whole)
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

    async def _forget(self, session_id: str) -> None:
        self._open.pop(session_id, None)
        self._places.pop(session_id, None)
        self._is_late.discard(session_id)
        self._survived.pop(session_id, None)
        try:
            await asyncio.to_thread(self._notes.drop, session_id)
        except OSError as error:
            logger.warning("session %s: could not delete the note about its turn: %s", session_id, error)


def _ensure(own: Worktree) -> None:
    if not is_complete(own):
        ensure(own)


def _without_details(change: Change) -> Change:
    """A small record of a turn whose changes can't be stored. Without the tree after it, the session's changes leave
    it out."""
    return Change(
        turn=change.turn,
        state="unavailable",
        reason=UNSTORED,
        root=change.root,
        directory=change.directory,
        before=change.before,
        head_before=change.head_before,
        began_ms=change.began_ms,
        ended_ms=change.ended_ms,
    )


def ref_name(session_id: str) -> str:
    """The session's id as a part of a ref's name, in which git allows fewer characters."""
    return quote(session_id, safe="").replace("~", "%7E").replace(".", "%2E")


def ref_of(session_id: str, of: int | str) -> str:
    """The ref that keeps the snapshots of a turn or an operation."""
    return f"{REFS}{ref_name(session_id)}/{of}"
