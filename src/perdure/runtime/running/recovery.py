"""What an earlier server left is taken up at the start: launches, half-done turns, waiting messages.

Above: the host, which starts it once. Below: runners, launches and the store's rows. Each launch and each session is
looked at for itself: one that can't be read is set aside (quarantine.py), and the others go on.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from perdure.core import commands as cmd
from perdure.core import state as st
from perdure.core.errors import Fenced, Refused, StoreDamaged, StoreError
from perdure.core.observations import AgentExited
from perdure.core.observe import observe
from perdure.runtime.keeping import processes
from perdure.runtime.keeping.cgroups import remove_of
from perdure.runtime.keeping.launch import Launch, LaunchDamaged, is_launch_id
from perdure.runtime.log.log import Journal
from perdure.runtime.log.quarantine import restored
from perdure.runtime.running.attachment import Attachment
from perdure.runtime.running.sharing import Input, Shared
from perdure.stores.base import Checkpoint, Found

if TYPE_CHECKING:
    from perdure.runtime.running.host import Host

logger = logging.getLogger(__name__)

BETWEEN_TURNS = "Server restarted between turns"
WHILE_RUNNING = "Server restarted while session was running"
SWEEP_GRACE_S = 0.5


class Recovery:
    def __init__(self, host: "Host", install_id: str) -> None:
        self._host = host
        self._install_id = install_id

    async def take_up(self) -> None:
        rows = await self._host.log.store.launches()
        await asyncio.to_thread(self._host.groups.start)
        await self._sweep({row.launch_id for row in rows})
        for launch_id in {row.launch_id: None for row in rows}:
            await self._take_up_launch(launch_id, [row for row in rows if row.launch_id == launch_id])
        await self._take_up_sessions()

    # Launches ------------------------------------------------------------------------------------------------------

    async def _take_up_launch(self, launch_id: str, rows: list[Checkpoint]) -> None:
        """A process with the session that it serves, or the sessions."""
        sent = Input()
        try:
            if self._is_ours(launch_id):
                self._check_folder(launch_id)
                sent.repair(Launch.find(self._host.launches_root, launch_id), rows)
        except (OSError, LaunchDamaged) as error:
            for row in rows:
                await self._lose(row, str(error))
            return
        shared: Shared | None = None
        taken: list[tuple[Journal, Attachment, Checkpoint]] = []
        for row in rows:
            if not self._is_ours(launch_id):
                await self._lose(row)
                continue
            try:
                journal = await self._host.log.open(row.session_id)
                if row.damage or row.performed_seq > journal.last_seq:
                    raise StoreDamaged(row.damage or f"it tells of event {row.performed_seq}, which is not there")
                if shared is None and (len(rows) > 1 or self._host.agents.shares(row.agent)):
                    shared = self._shared_again(journal.state, row)
                    shared.input = sent
                attachment = Attachment.restore(row, Launch.find(self._host.launches_root, launch_id), shared, sent)
                if shared is not None:
                    shared.join(attachment)
                taken.append((journal, attachment, row))
            except Exception as error:  # noqa: BLE001  one that can't be read must not keep the others from going on
                await self._give_up(row, error, alone=not taken and row is rows[-1])
        if shared is not None:
            shared.elect()
            shared.introduced()
            if not taken:
                self._host.sharing.end(shared)
        for journal, attachment, row in taken:
            try:
                await self._go_on(journal, attachment)
            except Exception as error:  # noqa: BLE001  as above
                # As a member it would speak for the others and keep their output, and the process would never end.
                last = self._host.sharing.leave(attachment)
                await self._give_up(row, error, alone=last)

    async def _go_on(self, journal: Journal, attachment: Attachment) -> None:
        attached = journal.state.attached
        if attached is not None and attached.launch_id == attachment.launch_id:
            runner = self._host.make_runner(journal)
            await runner.recover(attachment)
            runner.start()
        else:
            self._host.retiring.begin(attachment)

    async def _give_up(self, row: Checkpoint, error: Exception, *, alone: bool) -> None:
        """A store that is away, or somebody else's, concerns everybody; all else only this launch."""
        if isinstance(error, Fenced) or (isinstance(error, StoreError) and not isinstance(error, StoreDamaged)):
            raise error
        words = error.detail if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        await self._lose(row, f"launch {row.launch_id} can't be taken up ({words})", alone=alone)

    def _shared_again(self, state: st.Session, row: Checkpoint) -> Shared:
        program = state.attached.fingerprint if state.attached is not None else ""
        return self._host.sharing.open((row.agent, state.workdir, state.project, program), row.launch_id)

    def _check_folder(self, launch_id: str) -> None:
        folder = self._host.launches_root / launch_id
        if folder.exists() and not folder.is_dir():
            raise LaunchDamaged(f"somebody put a file in the place of its folder {folder}")

    def _is_ours(self, launch_id: str) -> bool:
        """A copied data directory lists launches that another server may still hold."""
        return launch_id.startswith(f"{self._install_id}-") and is_launch_id(launch_id)

    async def _lose(self, row: Checkpoint, damage: str = "", *, alone: bool = True) -> None:
        """Go on without a launch: its turn fails with what it has said. One that is damaged is set aside."""
        host = self._host
        runner = host.runners.pop(row.session_id, None)
        if runner is not None:
            await runner.stop()
        ours = alone and self._is_ours(row.launch_id)
        if ours:
            await processes.end_marked([row.launch_id], SWEEP_GRACE_S)
            remove_of(host.launches_root / row.launch_id)
        gone = msgspec.structs.replace(row, phase="gone", pending_input=[])
        fact = AgentExited(how="lost", error=damage or None)
        try:
            journal = await host.log.open(row.session_id)
            await journal.record(
                lambda state: observe(state, row.launch_id, [fact], host.world(state)), checkpoint=gone
            )
        except Refused as refusal:
            # Of a session that is set aside everything stays, its launch's row and folder too.
            logger.warning("launch %s is left as it is: %s", row.launch_id, refusal.detail)
            return
        except StoreDamaged as error:
            host.log.quarantine.add("session", row.session_id, row.session_id, str(error))
            return
        except StoreError:
            raise
        except Exception as error:
            # A bug of ours, or a state that can be read and makes no sense: it concerns this session alone.
            logger.exception("session %s can't go on without its launch", row.session_id)
            host.log.quarantine.add("session", row.session_id, row.session_id, f"{type(error).__name__}: {error}")
            return
        if damage and ours:
            launch = Launch(host.launches_root / row.launch_id)
            launch.kill_keeper()
            await launch.wait_gone(SWEEP_GRACE_S)
            await host.log.quarantine.set_aside(row, launch, damage)

    async def _sweep(self, living: set[str]) -> None:
        """End what still carries the mark of a launch of ours that is over, and remove its folder."""
        stray = {mark for mark in processes.marked_all() if self._is_ours(mark) and mark not in living}
        if stray:
            await processes.end_marked(stray, SWEEP_GRACE_S)
        for name in [entry.name for entry in self._host.launches_root.iterdir() if entry.name not in living]:
            try:
                await self._remove(name)
            except OSError as error:
                logger.warning("launch %s is over and its folder can't be removed; it is left: %s", name, error)
        self._host.groups.sweep(self._install_id, living)

    async def _remove(self, name: str) -> None:
        launch = Launch.find(self._host.launches_root, name)
        if launch is None:
            logger.warning("%s is no folder of a launch; it is left as it is", self._host.launches_root / name)
            return
        if launch.is_alive():
            launch.kill_keeper()
            await launch.wait_gone(SWEEP_GRACE_S)
        if launch.is_alive():
            logger.warning("launch %s is over and its keeper can't be ended; it is looked at again later", name)
        else:
            await launch.forget()

    # Sessions ------------------------------------------------------------------------------------------------------

    async def _take_up_sessions(self) -> None:
        """Turns that had no process yet when the last server ended; and the seeds' rule, if it is asked for."""
        ending = self._host.settings.on_restart == "end"
        async for found in self._host.found(status="running", state=None if ending else "processing"):
            journal = await self._host.readable(found)
            if journal is None:
                continue
            if ending:
                ended = cmd.EndSession("stopped", BETWEEN_TURNS)
                if journal.state.working:
                    ended = cmd.EndSession("failed", WHILE_RUNNING)
                await self._host.end_session(journal, ended)
            elif journal.state.working:
                self._host.ensure_runner(journal)

    async def survey(self) -> None:
        """Read each session that has not ended once, so that a damaged one is named before somebody needs it."""
        async for found in self._host.found(status="running", state=None):
            await self._survey(found)

    async def _survey(self, found: Found) -> None:
        if found.session_id in self._host.log.journals:
            return
        log = self._host.log
        try:
            await log.quarantine.guard(found.session_id, self._read(found.session_id))
        except Refused as refusal:
            logger.info("%s", refusal.detail)

    async def _read(self, session_id: str) -> None:
        record = await self._host.log.store.load(session_id)
        if record is not None:
            restored(session_id, record)
