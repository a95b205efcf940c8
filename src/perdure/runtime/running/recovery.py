"""Recovery at startup: resumes launches, unfinished turns and waiting messages of an earlier server. Also takes over
the sessions of dead nodes; see `take_over`.

Above: the engine starts it. Below: runners, launches and the store's rows. Each launch and session is handled
separately: one that can't be read goes to quarantine (quarantine.py), and the others continue.
"""

import asyncio
import logging

import msgspec

from perdure.core import commands as cmd
from perdure.core import state as st
from perdure.core.errors import Fenced, NotOwner, Refused, StoreDamaged, StoreError
from perdure.core.observations import AgentExited
from perdure.core.observe import observe
from perdure.runtime.keeping import processes
from perdure.runtime.keeping.cgroups import remove_of
from perdure.runtime.keeping.launch import Launch, LaunchDamaged, is_launch_id
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.log.quarantine import restored
from perdure.runtime.running.agent_link import AgentLink
from perdure.runtime.running.commands import Commands
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.launcher import Launcher
from perdure.runtime.running.runners import Runners
from perdure.runtime.running.sharing import Input, Shared
from perdure.stores.base import Found, LaunchProgress

logger = logging.getLogger(__name__)

BETWEEN_TURNS = "Server restarted between turns"
WHILE_RUNNING = "Server restarted while session was running"
NODE_LOST = "node {} stopped responding during this turn, and another node took over the session"
MOVED = "the session has moved from node {} to another node"
ABANDONED_AT_ONCE = 100
TAKE_OVER_AGAIN_S = 1.0
SWEEP_GRACE_S = 0.5


class Recovery:
    def __init__(self, log: Log, facts: Facts, commands: Commands, launcher: Launcher, runners: Runners) -> None:
        self._log = log
        self._facts = facts
        self._commands = commands
        self._launcher = launcher
        self._runners = runners
        self._taking_over: asyncio.Task[None] | None = None
        self._adopting = asyncio.Lock()
        self._foreign: dict[str, Journal] = {}
        """Sessions of this node whose turn runs in another node's agent: these turns must end."""
        runners.on_foreign_agent = self._found_foreign

    async def take_up(self) -> None:
        """Recover launches and sessions. With a shared store, only those of this node: others are alive elsewhere, or
        are taken over."""
        node = self._launcher.node_id if self._log.shared is not None else None
        rows = await self._log.store.launches(node=node)
        await asyncio.to_thread(self._launcher.groups.start)
        await self._sweep({row.launch_id for row in rows})
        self._runners.is_recovering = True
        for launch_id in {row.launch_id: None for row in rows}:
            await self._take_up_launch(launch_id, [row for row in rows if row.launch_id == launch_id])
        self._runners.is_recovering = False
        await self._take_up_sessions()

    # Launches ------------------------------------------------------------------------------------------------------

    async def _take_up_launch(self, launch_id: str, rows: list[LaunchProgress]) -> None:
        """Recover a process and the sessions that it serves."""
        sent = Input()
        try:
            if self._is_ours(launch_id):
                self._check_folder(launch_id)
                sent.repair(Launch.find(self._launcher.folder, launch_id), rows)
        except (OSError, LaunchDamaged) as error:
            for row in rows:
                await self._lose(row, str(error))
            return
        shared: Shared | None = None
        taken: list[tuple[Journal, AgentLink, LaunchProgress]] = []
        is_of_others = False
        for row in rows:
            if not self._is_ours(launch_id):
                await self._lose(row)
                continue
            try:
                journal = await self._log.open(row.session_id)
                await self._log.claim(journal)
                if row.damage or row.performed_seq > journal.last_seq:
                    raise StoreDamaged(row.damage or f"it refers to event {row.performed_seq}, which does not exist")
                if shared is None and (len(rows) > 1 or self._facts.agents.shares(row.agent)):
                    shared = self._shared_again(journal.state, row)
                    shared.input = sent
                link = AgentLink.restore(row, Launch.find(self._launcher.folder, launch_id), shared, sent)
                if shared is not None:
                    shared.join(link)
                taken.append((journal, link, row))
            except NotOwner:
                is_of_others = True
                logger.warning("launch %s serves a session that another node owns; skipping the session", launch_id)
            except Exception as error:  # noqa: BLE001  one unreadable launch must not block the others
                await self._give_up(row, error, alone=not taken and row is rows[-1])
        if shared is not None:
            shared.elect()
            shared.introduced()
            if not taken:
                self._launcher.sharing.end(shared)
        if is_of_others and not taken:
            # No session of this node uses it.
            await processes.end_marked([launch_id], SWEEP_GRACE_S)
        for journal, link, row in taken:
            try:
                await self._go_on(journal, link)
            except Exception as error:  # noqa: BLE001  as above
                # A member that doesn't run would block the others' output, and the process would never end.
                last = self._launcher.sharing.leave(link)
                await self._give_up(row, error, alone=last)

    async def _go_on(self, journal: Journal, link: AgentLink) -> None:
        attached = journal.state.attached
        if attached is not None and attached.launch_id == link.launch_id:
            runner = self._runners.make(journal)
            await runner.recover(link)
            runner.start()
        else:
            self._launcher.retiring.begin(link)

    async def _give_up(self, row: LaunchProgress, error: Exception, *, alone: bool) -> None:
        """Re-raise if the store is unavailable or fenced, which affects all launches; otherwise drop only this one."""
        if isinstance(error, Fenced) or (isinstance(error, StoreError) and not isinstance(error, StoreDamaged)):
            raise error
        words = error.detail if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        await self._lose(row, f"could not resume launch {row.launch_id} ({words})", alone=alone)

    def _shared_again(self, state: st.Session, row: LaunchProgress) -> Shared:
        program = state.attached.fingerprint if state.attached is not None else ""
        return self._launcher.sharing.open((row.agent, state.workdir, state.project, program), row.launch_id)

    def _check_folder(self, launch_id: str) -> None:
        folder = self._launcher.folder / launch_id
        if folder.exists() and not folder.is_dir():
            raise LaunchDamaged(f"its folder {folder} was replaced by a file")

    def _is_ours(self, launch_id: str) -> bool:
        """Whether this node started the launch. A copied data directory may list launches that another server still
        runs."""
        return launch_id.startswith(f"{self._launcher.node_id}-") and is_launch_id(launch_id)

    async def _lose(self, row: LaunchProgress, damage: str = "", *, alone: bool = True) -> None:
        """Continue without a launch: its turn fails with the output so far. A damaged launch goes to quarantine."""
        runner = self._runners.get(row.session_id)
        if runner is not None:
            await runner.stop()
            self._runners.drop(runner)
        ours = alone and self._is_ours(row.launch_id)
        if ours:
            await processes.end_marked([row.launch_id], SWEEP_GRACE_S)
            # In a thread: removing a control group may take several attempts.
            await asyncio.to_thread(remove_of, self._launcher.folder / row.launch_id)
        gone = msgspec.structs.replace(row, phase="gone", pending_input=[])
        fact = AgentExited(how="lost", error=damage or None)
        try:
            journal = await self._log.open(row.session_id)
            await self._log.claim(journal)
            await journal.record(
                lambda state: observe(state, row.launch_id, [fact], self._facts.world(state)),
                progress=gone,
                by_owner=True,
            )
        except NotOwner:
            logger.info("launch %s belongs to another node; leaving it alone", row.launch_id)
            return
        except Refused as refusal:
            # Everything of a session in quarantine stays, including its launch's row and folder.
            logger.warning("leaving launch %s as it is: %s", row.launch_id, refusal.detail)
            return
        except StoreDamaged as error:
            self._log.quarantine.add("session", row.session_id, row.session_id, str(error))
            return
        except StoreError:
            raise
        except Exception as error:
            # A bug, or a state that is readable but inconsistent: only this session is affected.
            logger.exception("session %s: could not record the loss of its launch", row.session_id)
            self._log.quarantine.add("session", row.session_id, row.session_id, f"{type(error).__name__}: {error}")
            return
        if damage and ours:
            launch = Launch(self._launcher.folder / row.launch_id)
            launch.kill_keeper()
            await launch.wait_gone(SWEEP_GRACE_S)
            await self._log.quarantine.set_aside(row, launch, damage)

    async def _sweep(self, living: set[str]) -> None:
        """End processes that still carry the mark of a finished launch of this node, and remove the launch's folder."""
        stray = {mark for mark in processes.marked_all() if self._is_ours(mark) and mark not in living}
        if stray:
            await processes.end_marked(stray, SWEEP_GRACE_S)
        for name in [entry.name for entry in self._launcher.folder.iterdir() if entry.name not in living]:
            try:
                await self._remove(name)
            except OSError as error:
                logger.warning("could not remove the folder of finished launch %s; leaving it: %s", name, error)
        await asyncio.to_thread(self._launcher.groups.sweep, self._launcher.node_id, living)

    async def _remove(self, name: str) -> None:
        launch = Launch.find(self._launcher.folder, name)
        if launch is None:
            logger.warning("%s is not a launch folder; leaving it as it is", self._launcher.folder / name)
            return
        if launch.is_alive():
            launch.kill_keeper()
            await launch.wait_gone(SWEEP_GRACE_S)
        if launch.is_alive():
            logger.warning("could not end the keeper of finished launch %s; trying again at the next start", name)
        else:
            await launch.forget()

    # Dead nodes ----------------------------------------------------------------------------------------------------

    def take_over_soon(self) -> None:
        """Call when a node has died, or may have."""
        if self._log.shared is not None and (self._taking_over is None or self._taking_over.done()):
            self._taking_over = self._log.keep(self._take_over_quietly())

    def _found_foreign(self, journal: Journal) -> None:
        self._foreign[journal.state.id] = journal
        self.take_over_soon()

    async def _take_over_quietly(self) -> None:
        try:
            await self.take_over()
        except StoreError as error:
            logger.warning("could not take over the sessions of a dead node; trying again: %s", error)
            if not self._runners.is_stopping:
                asyncio.get_running_loop().call_later(TAKE_OVER_AGAIN_S, self.take_over_soon)

    async def take_over(self) -> None:
        """Claim the sessions in which a dead node was running a turn. That turn fails with its output so far; queued
        messages run here."""
        assert self._log.shared is not None
        skip: int | None = 0
        while skip is not None:
            found = await self._log.shared.abandoned(ABANDONED_AT_ONCE, node=self._launcher.node_id, skip=skip)
            left = await self._claim_abandoned(found)
            skip = skip + left if len(found) == ABANDONED_AT_ONCE else None
        # `Runners.ensure` has found these, now or earlier: a step may have failed after the claim.
        while self._foreign:
            session_id, journal = next(iter(self._foreign.items()))
            await self.adopt(journal)
            self._foreign.pop(session_id, None)
            if not journal.has_foreign_agent:
                self._runners.ensure(journal)

    async def _claim_abandoned(self, found: list[str]) -> int:
        """Claim what `abandoned` has returned. Returns how many of these it will return again: all but those that
        another node has claimed."""
        left = len(found)
        for session_id in found:
            if self._runners.is_stopping:
                return 0
            journal = await self._log.readable(session_id) if session_id not in self._runners else None
            if journal is None or not self._log.may_claim(journal.owner, journal.state):
                continue
            try:
                await self._log.claim(journal)
            except NotOwner:
                left -= 1
                continue
            self._runners.ensure(journal)
        return left

    async def adopt(self, journal: Journal) -> None:
        """Continue without an agent that is on another node. A turn that runs in it fails with its output so far."""
        async with self._adopting:
            # Requests and the takeover may call this at the same time: the second must not undo what the first began.
            if journal.is_ours and journal.has_foreign_agent:
                await self._adopt(journal)

    async def _adopt(self, journal: Journal) -> None:
        attached = journal.state.attached
        assert attached is not None
        name = self._log.name_of_node(attached.launch_id.partition("-")[0])
        why = NODE_LOST.format(name) if journal.state.working else MOVED.format(name)
        rows = await self._log.store.launches(attached.launch_id)
        mine = [row for row in rows if row.session_id == journal.state.id]
        for row in mine or [_unknown(journal.state, attached.launch_id)]:
            await self._lose(row, why)

    # Sessions ------------------------------------------------------------------------------------------------------

    async def _take_up_sessions(self) -> None:
        """Start turns that had no process yet when the last server ended. With `on_restart = "end"`, end every session
        instead."""
        if self._facts.settings.on_restart == "end":
            async for found in self._log.found(status="running", state=None):
                journal = await self._log.readable(found.session_id) if self._is_for_us(found) else None
                if journal is not None and self._log.may_claim(journal.owner, journal.state):
                    ended = cmd.EndSession("stopped", BETWEEN_TURNS)
                    if journal.state.busy:
                        ended = cmd.EndSession("failed", WHILE_RUNNING)
                    await self._commands.quietly(journal, ended)
            return
        async for found in self._log.found(status="running", state="processing"):
            if not self._is_for_us(found):
                continue
            journal = await self._log.readable(found.session_id)
            if journal is None or found.session_id in self._runners:
                continue
            try:
                await self._log.claim(journal)
            except NotOwner:
                continue  # another node runs it
            self._runners.ensure(journal)

    async def survey(self) -> None:
        """Read each open session once, to report damage before somebody needs the session."""
        async for found in self._log.found(status="running", state=None):
            if self._is_for_us(found):
                await self._survey(found)

    def _is_for_us(self, found: Found) -> bool:
        """With a shared store, a starting server handles only the sessions that its node owns."""
        return self._log.shared is None or found.node == self._launcher.node_id

    async def _survey(self, found: Found) -> None:
        if found.session_id in self._log.journals:
            return
        try:
            await self._log.quarantine.guard(found.session_id, self._read(found.session_id))
        except Refused as refusal:
            logger.info("%s", refusal.detail)

    async def _read(self, session_id: str) -> None:
        record = await self._log.store.load(session_id)
        if record is not None:
            restored(session_id, record)


def _unknown(state: st.Session, launch_id: str) -> LaunchProgress:
    """A substitute for the missing row of a launch."""
    return LaunchProgress(launch_id, state.id, state.agent, "", "gone", 0, 0, 0, [], b"")
