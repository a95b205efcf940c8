"""What a runner does when a step fails: it goes on from what was stored, as the next server would.

Above: the runner. Below: the store's rows and the launch. A store that is away is waited for, however long; a bug of
ours is tried around a few times, then the turn is given up and, if that fails too, the process.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from perdure.core.errors import Fenced, NotOwner, StoreDamaged, StoreError
from perdure.core.observations import AgentExited
from perdure.runtime.keeping import processes
from perdure.runtime.keeping.launch import LaunchDamaged
from perdure.runtime.log.erased import SessionGone
from perdure.runtime.running.attachment import Attachment

if TYPE_CHECKING:
    from perdure.runtime.running.runner import Runner

logger = logging.getLogger(__name__)

STORE_RETRY_S = 0.5
MAX_FAULTS = 3
SWEEP_GRACE_S = 0.5


class Mending:
    def __init__(self, runner: "Runner") -> None:
        self._runner = runner
        self.faults = 0
        """Bugs of ours since a step was last stored."""

    async def wait_for_store(self, error: StoreError) -> bool:
        """The store is busy or away. The agent's output waits in its spool; True when the store is back."""
        runner = self._runner
        while not runner.stopping:
            logger.warning("session %s waits for the store: %s", runner.journal.state.id, error)
            await asyncio.sleep(STORE_RETRY_S)
            try:
                await self._from_what_is_stored()
                return True
            except Fenced:
                runner.fenced()
                return False
            except NotOwner as lost:
                self.disown(lost)
                return False
            except StoreDamaged as damage:
                self.set_aside(damage)
                return False
            except LaunchDamaged as damage:
                runner.damage = str(damage)
                return True
            except StoreError as again:
                error = again
        return False

    async def start_over(self) -> bool:
        """After a bug of ours: whether it is worth to go on."""
        runner = self._runner
        self.faults += 1
        try:
            if runner.attachment is None or self.faults > MAX_FAULTS:
                words = "Perdure failed while it spoke with the agent; see the server's log."
                await runner.give_up("internal", words)
            else:
                await self._from_what_is_stored()
            return self.faults <= MAX_FAULTS + 1
        except Exception:
            logger.exception("the runner of session %s can't go on", runner.journal.state.id)
            return False

    async def lose(self, damage: LaunchDamaged) -> None:
        """A file of the launch is gone. Its turn fails with what it has said, and the rest of its folder is kept."""
        runner, attachment = self._runner, self._runner.attachment
        if attachment is None:
            return
        if attachment.launch is not None:
            attachment.launch.kill_keeper()
        await processes.end_marked([attachment.launch_id], SWEEP_GRACE_S)
        try:
            await runner.record_exit(attachment, AgentExited(how="lost", error=str(damage)), str(damage))
        except StoreError as error:
            # It is found again when the store is back.
            runner.damage = str(damage)
            await self.wait_for_store(error)

    def set_aside(self, damage: StoreDamaged | SessionGone) -> None:
        """What is stored of the session can't be read or added to, or it was erased meanwhile. Its agent is left to its
        keeper, which ends it."""
        runner, session_id = self._runner, self._runner.journal.state.id
        if isinstance(damage, SessionGone):
            logger.warning("the runner of session %s ends: %s", session_id, damage.detail)
        else:
            runner.log.quarantine.add("session", session_id, session_id, str(damage))
        if runner.attachment is not None and runner.attachment.launch is not None:
            # Others in the process must not wait for this one.
            runner.launcher.sharing.leave(runner.attachment)
            runner.attachment.launch.close()
        runner.drop()

    def disown(self, error: NotOwner) -> None:
        """Another node owns the session now, and nothing that this agent says is kept: end it."""
        runner = self._runner
        logger.warning("session %s: %s; its agent here is ended", runner.journal.state.id, error)
        if runner.attachment is not None:
            runner.launcher.leave(runner.attachment)
        runner.drop()

    async def abandon(self) -> None:
        """Nothing helps: the process is ended, so that the session's next message gets another one."""
        runner = self._runner
        if runner.attachment is not None:
            try:
                await processes.end_marked([runner.attachment.launch_id], SWEEP_GRACE_S)
                await runner.record_exit(runner.attachment, AgentExited(how="lost"))
            except Exception:
                logger.exception("the agent of session %s could not be let go", runner.journal.state.id)
        runner.drop()

    async def _from_what_is_stored(self) -> None:
        """Whatever came after the last step that was kept is read again."""
        runner, attachment = self._runner, self._runner.attachment
        if attachment is None:
            return
        if runner.log.shared is not None:
            # A step whose answer was lost may still wait to be committed: this one queues behind it.
            await runner.log.confirm(runner.journal)
        rows = await runner.log.store.launches(attachment.launch_id)
        row = next((row for row in rows if row.session_id == attachment.session_id), None)
        if attachment.launch is not None:
            attachment.launch.disconnect()
        if row is None:
            runner.launcher.leave(attachment)
            runner.forget_attachment()
            return
        async with attachment.input.lock:
            attachment.input.repair(attachment.launch, rows)
            restored = Attachment.restore(row, attachment.launch, attachment.shared, attachment.input)
        if attachment.shared is not None:
            attachment.shared.join(restored)
        await runner.recover(restored)
