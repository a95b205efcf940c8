"""Commands: the machine decides them, and the log commits them. The session's runner follows the log and acts.

Above: the verbs, clocks, placement and shutdown. Below: a journal and the facts. Commands never talk to a runner.
"""

from collections.abc import Callable

from perdure.core import commands as cmd
from perdure.core.decision import Decision
from perdure.core.errors import NotOwner, Refused
from perdure.core.session import decide
from perdure.core.state import Session, WaitsFor
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.running.facts import Facts
from perdure.stores.base import Kept, Receipt


class Commands:
    def __init__(self, log: Log, facts: Facts) -> None:
        self._log = log
        self._facts = facts

    async def record(
        self,
        journal: Journal,
        command: cmd.Command,
        *,
        receipt: Callable[[Decision], Receipt | None] | None = None,
        waits_for: WaitsFor | None = None,
        by_owner: bool = False,
    ) -> tuple[Decision, Kept]:
        """Decide and commit, even if the caller is cancelled meanwhile. Raises Refused."""

        def make(state: Session) -> Decision:
            return decide(state, command, self._facts.world(state, command, waits_for or journal.waits_for_owner))

        return await self._log.shielded(journal.record(make, receipt=receipt, by_owner=by_owner))

    async def quietly(
        self, journal: Journal, command: cmd.Command, *, waits_for: WaitsFor | None = None, by_owner: bool = False
    ) -> None:
        """Like `record`, but do nothing if the session no longer allows the command or has another owner."""
        try:
            await self.record(journal, command, waits_for=waits_for, by_owner=by_owner)
        except (Refused, NotOwner):
            return

    async def suspend(self, journal: Journal, reason: str) -> None:
        """End the session's process but not the session. Does nothing on a node that isn't the owner."""
        await self.quietly(journal, cmd.DetachAgent(reason), by_owner=True)
