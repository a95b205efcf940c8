"""What a runner does when a step fails: it continues from the stored state, as a restarted server would.

Above: the runner. Below: the store's rows and the launch. If the store is unavailable, the runner waits for as long as
it takes. After an internal error it retries a few times, then gives up the turn, and finally the process.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from perdure.core.errors import Fenced, NotOwner, StoreDamaged, StoreError
from perdure.core.observations import AgentExited
from perdure.runtime.keeping import processes
from perdure.runtime.keeping.launch import LaunchDamaged
from perdure.runtime.log.erased import SessionGone
from perdure.runtime.running.agent_link import AgentLink

if TYPE_CHECKING:
    from perdure.runtime.running.runner import Runner

logger = logging.getLogger(__name__)

STORE_RETRY_S = 0.5
MAX_FAULTS = 3
SWEEP_GRACE_S = 0.5


class StepRecovery:
    def __init__(self, runner: "Runner") -> None:
        self._runner = runner
        self.faults = 0
        """Internal errors since the last stored step."""

    async def wait_for_store(self, error: StoreError) -> bool:
        """Wait until the store is available again. The agent's output stays in its spool meanwhile. False if the runner
        must stop."""
        runner = self._runner
        while not runner.stopping:
            logger.warning("session %s: store unavailable; retrying: %s", runner.journal.state.id, error)
            await asyncio.sleep(STORE_RETRY_S)
            try:
                await self._reload()
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
        """Recover from an internal error. False if the runner can't continue."""
        runner = self._runner
        self.faults += 1
        try:
            if runner.link is None or self.faults > MAX_FAULTS:
                words = "Internal error while talking to the agent. The server's log has the details."
                await runner.give_up("internal", words)
            else:
                await self._reload()
            return self.faults <= MAX_FAULTS + 1
        except Exception:
            logger.exception("session %s: could not recover from an error; ending its agent", runner.journal.state.id)
            return False

    async def lose(self, damage: LaunchDamaged) -> None:
        """A file of the launch is missing or damaged: fail the turn with its output so far, and move the folder of the
        launch to quarantine."""
        runner, link = self._runner, self._runner.link
        if link is None:
            return
        if link.launch is not None:
            link.launch.kill_keeper()
        await processes.end_marked([link.launch_id], SWEEP_GRACE_S)
        try:
            await runner.record_exit(link, AgentExited(how="lost", error=str(damage)), str(damage))
        except StoreError as error:
            # Handle the damage again when the store is back.
            runner.damage = str(damage)
            await self.wait_for_store(error)

    def set_aside(self, damage: StoreDamaged | SessionGone) -> None:
        """The session's stored data is damaged, or the session was erased: stop running it. The agent is left to its
        keeper, which ends it."""
        runner, session_id = self._runner, self._runner.journal.state.id
        if isinstance(damage, SessionGone):
            logger.warning("session %s: stopping its runner: %s", session_id, damage.detail)
        else:
            runner.log.quarantine.add("session", session_id, session_id, str(damage))
        if runner.link is not None and runner.link.launch is not None:
            # Other sessions in a shared process must not wait for this one.
            runner.launcher.sharing.leave(runner.link)
            runner.link.launch.close()
        runner.drop()

    def disown(self, error: NotOwner) -> None:
        """Another node owns the session now, so this agent's output can't be stored: end the agent."""
        runner = self._runner
        logger.warning("session %s: %s; ending its agent on this node", runner.journal.state.id, error)
        if runner.link is not None:
            runner.launcher.leave(runner.link)
        runner.drop()

    async def abandon(self) -> None:
        """Last resort: end the process. The session's next message starts another one."""
        runner = self._runner
        if runner.link is not None:
            try:
                await processes.end_marked([runner.link.launch_id], SWEEP_GRACE_S)
                await runner.record_exit(runner.link, AgentExited(how="lost"))
            except Exception:
                logger.exception("session %s: could not end its agent", runner.journal.state.id)
        runner.drop()

    async def _reload(self) -> None:
        """Go back to the last stored step; the output after it is read again."""
        runner, link = self._runner, self._runner.link
        if link is None:
            return
        if runner.log.shared is not None:
            # A step whose response was lost may still be waiting to commit: queue behind it.
            await runner.log.confirm(runner.journal)
        rows = await runner.log.store.launches(link.launch_id)
        row = next((row for row in rows if row.session_id == link.session_id), None)
        if link.launch is not None:
            link.launch.disconnect()
        if row is None:
            runner.launcher.leave(link)
            runner.forget_link()
            return
        async with link.input.lock:
            link.input.repair(link.launch, rows)
            restored = AgentLink.restore(row, link.launch, link.shared, link.input)
        if link.shared is not None:
            link.shared.join(restored)
        await runner.recover(restored)
