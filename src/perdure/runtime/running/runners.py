"""The runners of this server: one for each session whose agent runs here, or should.

Above: placement, clocks, recovery and shutdown. Below: runner.py. No caller requests a runner for a turn: this registry
is woken when a session changes, and starts a runner if this node owns the session and a turn is running.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

from perdure.core import events as ev
from perdure.core.errors import UNREADABLE, NotOwner, Refused, StoreError
from perdure.core.slots import can_be_suspended
from perdure.core.state import Session
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.running.commands import Commands
from perdure.runtime.running.disk import Disk
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.launcher import Launcher
from perdure.runtime.running.orders import Orders
from perdure.runtime.running.runner import Runner

logger = logging.getLogger(__name__)


async def _nothing(_: Journal) -> None:
    pass


class Runners:
    def __init__(
        self,
        log: Log,
        facts: Facts,
        commands: Commands,
        launcher: Launcher,
        disk: Disk,
        orders: Callable[[Journal], Orders],
        fenced: Callable[[], None],
    ) -> None:
        self._log = log
        self._facts = facts
        self._commands = commands
        self._launcher = launcher
        self._disk = disk
        self._orders = orders
        self._alive: dict[str, Runner] = {}
        self.before_turn: Callable[[Journal], Awaitable[None]] = _nothing
        """Awaited before an agent receives a turn's message."""
        self.is_stopping = False
        self.is_recovering = False
        """Whether launches of an earlier server are being recovered. No turn gets a new process until that is done."""
        self._fenced = fenced
        self.on_foreign_agent: Callable[[Journal], None] = lambda _: None
        """Called for a running turn that this node owns, but whose agent is on another node."""
        log.watch(self._changed)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._alive

    def __iter__(self) -> Iterator[Runner]:
        return iter(list(self._alive.values()))

    def __len__(self) -> int:
        return len(self._alive)

    def get(self, session_id: str) -> Runner | None:
        return self._alive.get(session_id)

    def states(self) -> list[Session]:
        return [runner.journal.state for runner in self._alive.values()]

    async def resumed(self) -> list[Journal]:
        """The sessions whose agents have the running turn's message. After the recovery, these are the turns that go on
        from an earlier server."""
        found = []
        for runner in self:
            link, journal = runner.link, runner.journal
            if link is None or not journal.state.working:
                continue
            try:
                waits = await _has_turn_to_begin(journal, link.performed_seq)
            except (Refused, StoreError, *UNREADABLE) as error:
                logger.warning("session %s: can't tell whether its turn goes on: %s", journal.state.id, error)
                continue
            if not waits:
                found.append(journal)
        return found

    def make(self, journal: Journal, *, prewarm: bool = False) -> Runner:
        runner = self._alive[journal.state.id] = Runner(
            journal,
            self._facts,
            self._launcher,
            self._disk,
            self._orders(journal),
            dropped=self.drop,
            fenced=self._fenced,
            before_turn=self.before_turn,
            prewarm=prewarm,
        )
        return runner

    def drop(self, runner: Runner) -> None:
        """Remove a runner that has nothing left to do. It must call this without an await after its last check."""
        runner.unfollow()
        if self._alive.get(runner.journal.state.id) is runner:
            del self._alive[runner.journal.state.id]

    def _changed(self, session_id: str) -> None:
        journal = self._log.journals.get(session_id)
        if journal is not None and not self.is_recovering:
            self.ensure(journal)

    def ensure(self, journal: Journal) -> None:
        # If the server is stopping, the next one runs the turn.
        if not journal.state.working or not journal.is_ours or self.is_stopping or journal.state.id in self._alive:
            return
        if journal.has_foreign_agent:
            self.on_foreign_agent(journal)
        else:
            self.make(journal).start()

    def prewarm(self, journal: Journal, *, asked: bool = False) -> None:
        """Start a session's agent ahead of its first message, if it is configured for that or if `asked` is set."""
        state = journal.state
        driver = self._facts.driver_name(state, state.agent)
        wanted = self._facts.agents.prewarms(state.agent, driver, asked=asked)
        if wanted and state.id not in self._alive and not self.is_stopping:
            self.make(journal, prewarm=True).start()

    async def prewarm_anywhere(self, journal: Journal) -> bool:
        """Start the agent here, or ask the node that owns the session. Returns whether it runs here."""
        if self._log.shared is not None and self._log.may_claim(journal.owner, journal.state):
            with contextlib.suppress(NotOwner):
                await self._log.claim(journal)
        if self._log.shared is not None and not journal.is_ours and journal.owner is not None:
            kind = self._prewarm_kind(journal.owner.node)
            await self._log.store.put_document(kind, journal.state.id, b"true")
            self._log.announce_documents(kind)
            return False
        self.prewarm(journal, asked=True)
        return True

    @staticmethod
    def _prewarm_kind(node: str) -> str:
        return f"warm.{node}"

    def start(self) -> None:
        if self._log.node is not None:
            self._log.watch_documents(self._prewarm_kind(self._log.node.node), self._prewarm_requested)

    async def _prewarm_requested(self) -> None:
        """Prewarm in the background: requests wait for this callback."""
        self._log.keep(self._prewarm_for_others())

    async def _prewarm_for_others(self) -> None:
        """Start agents that other nodes have asked for."""
        assert self._log.node is not None
        kind = self._prewarm_kind(self._log.node.node)
        try:
            for session_id in await self._log.store.documents(kind):
                await self._log.store.take_document(kind, session_id)
                journal = await self._log.readable(session_id)
                if journal is not None and journal.is_ours and journal.state.phase == "idle":
                    self.prewarm(journal, asked=True)
        except (StoreError, Refused) as error:
            logger.warning("could not start an agent for another node: %s", error)

    async def vacate(self, runner: Runner) -> None:
        """Leave a shared process that must end, once this session has nothing running in it."""
        link, state = runner.link, runner.journal.state
        if link is None or link.launch_id not in self._launcher.sharing.ending:
            return
        if can_be_suspended(state):
            await self._commands.suspend(runner.journal, "process_ended")

    async def wait_gone(self, session_id: str) -> None:
        """Wait until the session has no process left."""
        runner = self._alive.get(session_id)
        if runner is not None and runner.task is not None:
            runner.wake()
            await asyncio.wait([runner.task])
        await self._launcher.retiring.wait(session_id)

    async def stop(self) -> None:
        """Stop all runners without touching their agents, which continue under their keepers for the next server."""
        self.is_stopping = True
        runners = list(self._alive.values())
        for runner in runners:
            # Mark all of them first: one may wait for what another holds.
            runner.stopping = True
            runner.wake()
        for runner in runners:
            await runner.stop()


async def _has_turn_to_begin(journal: Journal, position: int) -> bool:
    """Whether a turn starts after a position in the log."""
    while pending := await journal.decisive_after(position):
        if any(isinstance(event, ev.TurnStart) for _, event in pending):
            return True
        position = pending[-1][0]
    return False
