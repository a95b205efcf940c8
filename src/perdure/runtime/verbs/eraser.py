"""Erases all data of a session, in the store and in the data directory, even if the server crashes in between.

Above: the verbs (sessions.py), which erase; server.py, which starts and stops it. Below: the store, workspaces,
attachments, the quarantine, and the rehearsal agent's memory files. An erase is recorded first, so that the next server
can complete it. Rows are deleted in small steps, so that other writers don't have to wait. Traces in the database files
are removed later, for many sessions at the same time: see `scrub` of the store.

Other nodes may have files of the session too. Every living node, and every node that ever owned the session, gets a
tombstone. It deletes its files when it reads the tombstone, now or after its next start.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core import events as ev
from perdure.core.errors import UNREADABLE, Refused, StoreBusy, StoreDamaged, StoreError, StoreFull
from perdure.core.slots import can_be_suspended
from perdure.runtime.keeping import processes
from perdure.runtime.keeping.launch import Launch
from perdure.runtime.log.log import Log
from perdure.runtime.log.reading import batches
from perdure.runtime.running.launcher import Launcher
from perdure.runtime.running.retiring import RETIRE_EXTRA_S
from perdure.runtime.running.runners import Runners
from perdure.runtime.verbs.attachments import Attachments
from perdure.runtime.verbs.workspaces import Workspaces

logger = logging.getLogger(__name__)

END_GRACE_S = 0.5
SETTLE_S = 3.0
"""How long to wait after the last erase before scrubbing, to scrub for several erases together."""
SETTLE_MOST_S = 30.0
"""The same after the first erase, however many follow."""
QUIET_MOST_S = 600.0
"""How long the part of the scrub that blocks commits waits for a moment without running turns."""
QUIET_LOOK_S = 0.5
LOOK_S = 0.02
ELSEWHERE_LOOK_S = 0.2
RETRY_S = 20.0
SCRUB_RETRY_S = 300.0
"""After a failure that may last, such as a full disk or a damaged file."""
HALF_ERASED = "The disk is full, and the session is half erased. Free some space; the erase then completes."
RETRY_AFTER_S = 1
ERASING = "erasing"
ENDING = "ending"
"""Shared launches that must end, because their files contain data of an erased session."""
LAUNCHED = "agent_launched"
# Where the rehearsal agent stores a session, for each of its two protocols.
_REMEMBERED = ("{}.ndjson", "claude/*/{}.ndjson")
_NATIVE = re.compile(r"[0-9A-Za-z-]{1,100}")


class Note(Struct, frozen=True):
    """The facts needed to complete an erase after the session's rows are gone."""

    workdir: str
    natives: list[str] = []
    launches: list[str] = []
    """Launches of this session only. If the session is damaged, they may still be running."""
    shared: list[str] = []
    """Launches that it shared, and that other sessions still use."""
    nodes: list[str] = []
    """Nodes that may have files of it."""
    worktree: dict[str, Any] | None = None
    """Its own git worktree."""


class Eraser:
    def __init__(
        self,
        log: Log,
        runners: Runners,
        launcher: Launcher,
        attachments: Attachments,
        workspaces: Workspaces,
        data: Path,
        settle: Callable[[str], Awaitable[None]],
    ) -> None:
        """`settle`: awaited before the files of a session are deleted; it waits until nothing writes them any more."""
        self._log = log
        self._store = log.store
        self._runners = runners
        self._launcher = launcher
        self._attachments = attachments
        self._workspaces = workspaces
        self._settle = settle
        self._rehearsal = data / "rehearsal"
        self._first_at: float | None = None
        self._last_at = 0.0
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def complete(self) -> None:
        """Complete unfinished erases: at startup those of an earlier server, later those that failed on a full disk."""
        await self._recall_ending()
        await self.read_tombstones()
        for session_id, body in (await self._store.documents(ERASING)).items():
            if session_id in self._log.erased.under_way:
                continue
            try:
                note = msgspec.json.decode(body, type=Note)
            except UNREADABLE:
                note = Note(str(self._workspaces.of(session_id)), [])
            logger.info("completing the erase of session %s", session_id)
            try:
                await self._carry_out(session_id, note)
            except StoreDamaged as error:
                # A retry can't succeed before a repair. Continue with the other sessions.
                self._log.quarantine.add("session", session_id, session_id, f"it can't be erased: {error}")
            except OSError as error:
                # A file that can't be deleted, now and probably later: it must not stop the server or other erases.
                logger.warning("could not erase all files of session %s; the next start retries: %s", session_id, error)

    async def read_tombstones(self) -> None:
        """Delete the files of sessions that other nodes have erased."""
        if self._log.shared is None:
            return
        kind = self._tombstones(self._launcher.node_id)
        for session_id, body in (await self._store.documents(kind)).items():
            try:
                note = msgspec.json.decode(body, type=Note)
            except UNREADABLE:
                note = Note("", [])
            await self._end_launches(note)
            await self._end_shared(note)
            self._log.learn_erased(session_id)
            await self._settle(session_id)
            try:
                await self._workspaces.erase(session_id, note.workdir, note.worktree)
                await asyncio.to_thread(self._remove_files, session_id, note)
            except OSError as error:
                logger.warning("could not erase all files of session %s; the next start retries: %s", session_id, error)
                continue
            await self._store.put_document(kind, session_id, None)

    async def _note_tombstones(self) -> None:
        """Other nodes have erased sessions. Remove the files in the background, because requests wait for this call."""
        self._due.set()

    @staticmethod
    def _tombstones(node: str) -> str:
        return f"tombstone.{node}"

    async def _put_tombstones(self, session_id: str, note: Note) -> None:
        for node in set(note.nodes) - {self._launcher.node_id}:
            await self._store.put_document(self._tombstones(node), session_id, msgspec.json.encode(note))
            self._log.announce_documents(self._tombstones(node))

    async def _nodes(self, session_id: str) -> list[str]:
        if self._log.shared is None:
            return []
        former = await self._log.shared.former_nodes(session_id)
        known = {node.node for node in await self._store.nodes()}  # without removed nodes
        # Including this node: another one may have to complete the erase.
        return sorted({*(known & {*former}), *self._log.living, self._launcher.node_id})

    async def _wait_for_owner(self, session_id: str) -> None:
        """Wait until another node that runs the session's agent has ended it."""
        settings = self._launcher.settings
        grace_s = settings.abort_grace_s + settings.eof_grace_s + settings.term_grace_s + RETIRE_EXTRA_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while await self._runs_elsewhere(session_id):  # noqa: ASYNC110  rows of another node
                    await asyncio.sleep(ELSEWHERE_LOOK_S)

    async def _runs_elsewhere(self, session_id: str) -> bool:
        rows = await self._store.launches() if self._log.shared is not None else []
        nodes = {row.launch_id.partition("-")[0] for row in rows if row.session_id == session_id}
        return not nodes.isdisjoint(self._log.living)

    def start(self) -> None:
        self._log.watch_documents(self._tombstones(self._launcher.node_id), self._note_tombstones)
        self._task = asyncio.create_task(self._run(), name="eraser")

    async def check_free(self, session_id: str) -> None:
        """Refuse an id while its old session is being erased: completing the erase would erase the new session too."""
        tombstones = [self._tombstones(node) for node in self._log.living]
        is_left = any([await self._store.document(kind, session_id) is not None for kind in tombstones])
        if is_left or session_id in self._log.erased.under_way or session_id in await self._store.documents(ERASING):
            raise Refused(
                "unavailable",
                f"Session {session_id} is being erased. Try again in a moment.",
                retry_after_s=RETRY_AFTER_S,
            )

    async def erase(self, session_id: str, workdir: str, worktree: dict[str, Any] | None = None) -> None:
        """Erase a session whose process is gone. Once recorded, the erase completes now or after the next start."""
        await self._wait_for_owner(session_id)
        launches = await self._launches(session_id)
        nodes = await self._nodes(session_id)
        note = Note(workdir, await self._store.natives(session_id), *launches, nodes, worktree)
        await self._store.put_document(ERASING, session_id, msgspec.json.encode(note))
        try:
            await self._carry_out(session_id, note)
            await self._wait_for_shared(note.shared)
        except StoreFull as error:
            raise Refused("unavailable", HALF_ERASED) from error
        except StoreBusy as error:
            words = "Too many writes are waiting, so the session is only half erased. The erase completes on its own."
            raise Refused("unavailable", words, retry_after_s=RETRY_AFTER_S) from error
        finally:
            # In any case: this also retries an erase that failed.
            self._due.set()

    async def _carry_out(self, session_id: str, note: Note) -> None:
        self._log.erased.under_way.add(session_id)
        try:
            await self._end_launches(note)
            await self._end_shared(note)
            await self._store.erase(session_id, self._log.generation)
            self._log.forget(session_id)
            await self._put_tombstones(session_id, note)
            await self._settle(session_id)
            await self._workspaces.erase(session_id, note.workdir, note.worktree)
            removed = await asyncio.to_thread(self._remove_files, session_id, note)
            self._log.quarantine.forget(session_id)
            self._log.quarantine.forget_launches(removed)
            await self._store.put_document(ERASING, session_id, None)
        finally:
            self._log.erased.under_way.discard(session_id)
        now = self._log.steady()
        self._first_at = self._first_at or now
        self._last_at = now

    async def _launches(self, session_id: str) -> tuple[list[str], list[str]]:
        """(own, shared): the launches of this session only, and those with other sessions. A shared process keeps the
        data of a session that has left it, so read from the log all launches that the session ever used."""
        rows = await self._store.launches()
        own = {row.launch_id for row in rows if row.session_id == session_id}
        others = {row.launch_id for row in rows if row.session_id != session_id}
        kept = others | {damage.id for damage in self._log.quarantine.all() if damage.kind == "launch"}
        ever = await self._ever_launched(session_id) if kept else set()
        return sorted(own - others), sorted((own | ever) & kept)

    async def _ever_launched(self, session_id: str) -> set[str]:
        found = set()
        try:
            async for batch in batches(self._store, session_id, 0):
                events = [ev.decode(row.body) for row in batch if row.type == LAUNCHED]
                found |= {event.launch_id for event in events if isinstance(event, ev.AgentLaunched)}
        except (StoreDamaged, *UNREADABLE) as error:
            logger.warning("could not read which launches session %s has used; erasing the rest: %s", session_id, error)
        return found

    # Shared processes ------------------------------------------------------------------------------------------------

    async def _end_shared(self, note: Note) -> None:
        """Mark shared launches to be ended soon, because their files contain the conversation. Survives a restart."""
        for launch_id in note.shared:
            await self._store.put_document(ENDING, launch_id, b"true")
            self._launcher.sharing.ending.add(launch_id)

    async def _recall_ending(self) -> None:
        mine = f"{self._launcher.node_id}-" if self._log.shared is not None else ""
        for launch_id in await self._store.documents(ENDING):
            if not launch_id.startswith(mine):
                continue
            if (self._launcher.folder / launch_id).exists():
                self._launcher.sharing.ending.add(launch_id)
            else:
                removed = await asyncio.to_thread(self._log.quarantine.erase, None, [launch_id])
                self._log.quarantine.forget_launches(removed)
                await self._store.put_document(ENDING, launch_id, None)
                self._launcher.sharing.ending.discard(launch_id)

    async def _wait_for_shared(self, launch_ids: Sequence[str]) -> None:
        """Wait until these are gone, unless another session is active in one: then it is ended after that turn."""
        settings = self._launcher.settings
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(settings.eof_grace_s + settings.term_grace_s + RETIRE_EXTRA_S):
                for runner in self._runners:
                    await self._runners.vacate(runner)
                while self._are_left(launch_ids) and not self._are_busy(launch_ids):  # noqa: ASYNC110  a folder
                    await asyncio.sleep(LOOK_S)

    def _are_left(self, launch_ids: Sequence[str]) -> bool:
        return any((self._launcher.folder / launch_id).exists() for launch_id in launch_ids)

    def _are_busy(self, launch_ids: Sequence[str]) -> bool:
        """Whether a session is active in one of these."""
        inside = [one for one in self._runners if one.link and one.link.launch_id in launch_ids]
        states = [runner.journal.state for runner in inside]
        return any(state.attached is not None and not can_be_suspended(state) for state in states)

    async def _end_launches(self, note: Note) -> None:
        if not note.launches:
            return
        await processes.end_marked(note.launches, END_GRACE_S)
        for launch_id in note.launches:
            launch = Launch.find(self._launcher.folder, launch_id)
            if launch is not None:
                launch.kill_keeper()
                if await launch.wait_gone(END_GRACE_S):
                    await launch.forget()

    def _remove_files(self, session_id: str, note: Note) -> set[str]:
        """Delete the session's files. Returns the quarantined launches that were deleted with them."""
        self._attachments.erase(session_id)
        removed = self._log.quarantine.erase(session_id, note.shared)
        for native in note.natives:
            # Only the rehearsal agent's files; other agents manage their own.
            if _NATIVE.fullmatch(native):
                for pattern in _REMEMBERED:
                    for path in self._rehearsal.glob(pattern.format(native)):
                        _remove(path)
        return removed

    # Traces in the database files ------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop, and scrub the database files. If that fails, the next server does it."""
        await self.cancel()
        if self._log.shared is None:
            # With several nodes, scrubbing may take long, and another node does it.
            with contextlib.suppress(StoreError):
                await self._store.scrub(whole=True)

    async def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Run the non-blocking part of the scrub soon, and the rest when no turn runs or after QUIET_MOST_S."""
        self._due.set()  # an earlier server may have left something to scrub
        waiting_since: float | None = None
        while True:
            if waiting_since is None:
                await self._due.wait()
            if self._due.is_set():
                await self._settled()
                self._due.clear()
                self._first_at = None
                while not await self._completed():  # noqa: ASYNC110  nothing reports that a disk has space again
                    await asyncio.sleep(RETRY_S)
                await self._scrub(whole=False)
                waiting_since = waiting_since or self._log.steady()
            elif self._is_quiet() or self._log.steady() - (waiting_since or 0.0) >= QUIET_MOST_S:
                again_s = await self._scrub(whole=True)
                waiting_since = self._log.steady() if again_s else None
                await asyncio.sleep(again_s)
            else:
                await asyncio.sleep(QUIET_LOOK_S)

    async def _completed(self) -> bool:
        try:
            await self.complete()
        except StoreError as error:
            logger.warning("could not complete the erase of a session; retrying: %s", error)
            return False
        except Exception:
            logger.exception("could not complete the erase of a session; retrying")
            return False
        return True

    async def _settled(self) -> None:
        while True:
            now = self._log.steady()
            ready_at = min(self._last_at + SETTLE_S, (self._first_at or now) + SETTLE_MOST_S)
            if now >= ready_at:
                return
            await asyncio.sleep(ready_at - now)

    async def _scrub(self, *, whole: bool) -> float:
        """Scrub. Returns the time until the next attempt; 0 if everything is done."""
        try:
            return 0.0 if await self._store.scrub(whole=whole) else RETRY_S
        except StoreError as error:
            logger.warning("could not remove erased data from the database files; retrying: %s", error)
            return SCRUB_RETRY_S

    def _is_quiet(self) -> bool:
        return not any(state.working for state in self._runners.states())


def _remove(path: Path) -> None:
    """Delete a file, and its folder if that leaves it empty."""
    with contextlib.suppress(OSError):
        path.unlink()
        path.parent.rmdir()
