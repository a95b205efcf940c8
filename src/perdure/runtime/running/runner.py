"""The runner carries bytes between one session's log and its agent process. It decides nothing.

Above: runners.py. Below: the journal (what to do, what was observed) and an AgentLink (the process).

Each step is stored before it takes effect: orders come from committed events, lines are committed before they are
written, output is committed before it is acknowledged. If the server dies between two of these, nothing is lost, and
the next server does nothing twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.decision import Decision
from perdure.core.errors import Conflict, Fenced, NotOwner, Refused, StoreBusy, StoreDamaged, StoreError, StoreFull
from perdure.core.observations import AgentExited, SessionOpened, StartFailed, TurnFinished
from perdure.core.observe import deltas_only, observe
from perdure.core.session import decide
from perdure.core.state import Session
from perdure.drivers.base import CancelTurn, LaunchCommand, SendInput
from perdure.runtime.keeping import processes
from perdure.runtime.keeping.launch import Launch, LaunchDamaged
from perdure.runtime.log.erased import SessionGone
from perdure.runtime.log.journal import Journal
from perdure.runtime.running.agent_link import AgentLink
from perdure.runtime.running.disk import Disk
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.launcher import Launcher
from perdure.runtime.running.leftovers import Leftovers
from perdure.runtime.running.orders import Orders
from perdure.runtime.running.preparation import done_unless
from perdure.runtime.running.process_deadlines import ProcessDeadlines
from perdure.runtime.running.proposals import with_context
from perdure.runtime.running.pump import Batch
from perdure.runtime.running.sharing import Shared
from perdure.runtime.running.starting import launch_spec, plan_start
from perdure.runtime.running.step_recovery import StepRecovery
from perdure.runtime.running.timers import is_sign_of_life

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 20.0
SWEEP_GRACE_S = 0.5
DISK_RETRY_S = 1.0
BUSY_RETRY_S = 0.2
GONE_TIMEOUT_S = 5.0
UNSTORED_MAX_BYTES = 1024 * 1024


class Runner:
    def __init__(
        self,
        journal: Journal,
        facts: Facts,
        launcher: Launcher,
        disk: Disk,
        orders: Orders,
        *,
        dropped: Callable[["Runner"], None],
        fenced: Callable[[], None],
        before_turn: Callable[[Journal], Awaitable[None]],
        prewarm: bool = False,
    ) -> None:
        self.journal, self.log = journal, journal.log
        self.facts, self.launcher = facts, launcher
        self._dropped, self.fenced, self._before_turn = dropped, fenced, before_turn
        self.link: AgentLink | None = None
        self.heard_s = 0.0  # the agent's last activity, by the steady clock
        self._wakeup, self._prewarm = asyncio.Event(), prewarm
        self._closed = self.stopping = self._long_orphan = self._is_waiting = False
        self._received: tuple[Sequence[Any], list[bytes]] | None = None
        """The agent's output that the pump has read and that is not stored yet."""
        self._failure: Exception | None = None
        self.damage: str | None = None
        self._disk, self._orders = disk, orders
        self._deadlines = ProcessDeadlines(launcher.settings, self.log.steady())
        self._step_recovery, self._leftovers = StepRecovery(self), Leftovers()
        self.task: asyncio.Task[None] | None = None
        journal.follow(self)
        journal.has_runner = True

    # As a follower of its session's log --------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The last decisive event that was performed. Without a process there is nothing to perform."""
        return self.link.performed_seq if self.link is not None else self.journal.decided_seq

    def wake(self) -> None:
        """Wake up only for decisive events: deltas are for viewers."""
        is_lost = not self.journal.is_ours
        if self.link is None or self.journal.decided_seq > self.link.performed_seq or is_lost:
            self._wakeup.set()

    def drop(self) -> None:
        self._dropped(self)

    def unfollow(self) -> None:
        self.journal.unfollow(self)
        self.journal.has_runner = any(isinstance(follower, Runner) for follower in self.journal.followers)

    # As a source of the pump -------------------------------------------------------------------------------------

    def collect(self) -> Batch | None:
        link, journal = self.link, self.journal
        is_free = self._is_waiting and not (self._wakeup.is_set() or self.stopping)
        # Perform pending orders first: reading on must not make them look delivered.
        if link is None or not is_free or not journal.takes_deltas or link.performed_seq < journal.decided_seq:
            self._wakeup.set()
            return None
        try:
            more, observations, lines, is_worth_storing = self._read(link)
        except LaunchDamaged as damage:
            self.failed(damage)
            return None
        if not is_worth_storing:
            if more:
                self.read_on()
            return None
        if not observations or lines or not deltas_only(journal.state, link.launch_id, observations):
            self._received = (observations, lines)
            self._wakeup.set()
            return None
        return Batch(self, observations, link.note_progress([]), link.noted, more)

    def read_on(self) -> None:
        """The agent may have written something: have the pump look."""
        self.launcher.pump.ready(self)

    def stored(self, batch: Batch) -> None:
        link = self.link
        assert link is not None and link.launch is not None
        self._step_recovery.faults = 0
        link.stored = batch.freeable
        if any(map(is_sign_of_life, batch.deltas)):
            self.heard_s = self.log.steady()
        link.launch.acknowledge(batch.freeable if link.shared is None else link.acknowledgeable)

    def rejected(self, batch: Batch, error: Exception) -> None:
        if isinstance(error, Conflict | StoreBusy | StoreFull):
            # Nothing was stored, and a retry may succeed.
            self._received = (batch.deltas, [])
            self._wakeup.set()
        else:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Leave the error to the runner's own loop."""
        self._failure = error
        self._wakeup.set()

    # From outside ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.task = asyncio.create_task(self._run(), name=f"runner {self.journal.state.id}")

    async def stop(self) -> None:
        """Stop without touching the agent, which continues under its keeper."""
        self.stopping = True
        self._wakeup.set()
        if self.task is not None:
            await asyncio.gather(self.task, return_exceptions=True)
        if self.link is not None and self.link.launch is not None:
            self.link.launch.close()
        self.unfollow()

    def kill(self, reason: str) -> None:
        """End the process without waiting for the turn, which ends with its output so far."""
        if self.link is not None:
            self._deadlines.kill(self.log.steady(), reason)
            self._end(self.link)
            self._wakeup.set()

    def _end(self, link: AgentLink) -> None:
        if link.shared is not None:
            self.launcher.sharing.end(link.shared)
        if link.launch is not None:
            link.launch.end(0, self.launcher.settings.term_grace_s)

    def look_after(self) -> None:
        """Check whether a file of the launch was removed or truncated: its output would never arrive."""
        link = self.link
        if link is not None and link.launch is not None:
            self.damage = link.launch.damage(link.position) or self.damage
            if self.damage is not None:
                self._wakeup.set()

    async def recover(self, link: AgentLink) -> None:
        """Continue a launch that an earlier server started."""
        self.link = link
        self._received = self._failure = None
        self._deadlines = ProcessDeadlines(self.launcher.settings, self.log.steady())
        state = self.journal.state
        self._long_orphan = bool(state.prompts)
        if state.phase == "aborting":
            self._leftovers.stopping(state, link)
        link.input_mark = None if state.working else (0, -1)
        self._wakeup.set()
        if link.launch is not None and (lease := self.launcher.lease()) is not None:
            # Its lease belongs to an earlier incarnation. This one owns the session now.
            link.launch.set_lease(lease.incarnation, lease.deadline_s)
        await self._connect()

    # The loop ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._loop()
                return
            except Fenced:
                logger.error("another server has taken over the store; stopping session %s", self.journal.state.id)
                self.fenced()
                return
            except NotOwner as error:
                self._step_recovery.disown(error)
                return
            except StoreFull:
                # Happens only during shutdown: the next server reads the unstored output again.
                return
            except LaunchDamaged as damage:
                await self._step_recovery.lose(damage)
            except (StoreDamaged, SessionGone) as damage:
                self._step_recovery.set_aside(damage)
                return
            except StoreError as error:
                if not await self._step_recovery.wait_for_store(error):
                    return
            except Exception:
                logger.exception("session %s: the runner failed", self.journal.state.id)
                if not await self._step_recovery.start_over():
                    await self._step_recovery.abandon()
                    return

    async def _loop(self) -> None:
        while not self.stopping:
            self._wakeup.clear()
            if await self._advance():
                continue
            if self.link is None and not self.journal.state.working and not self.stopping:
                self.drop()
                return
            wait_s = self._deadlines.wait_s(self.journal.state, self.log.steady()) if self.link else None
            self._is_waiting = True
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._wakeup.wait()
            finally:
                self._is_waiting = False
            await self.launcher.pump.settled(self)

    async def _advance(self) -> bool:
        """Do the next step; False if there is none."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        state, link = self.journal.state, self.link
        if link is not None and not self.journal.is_ours and not self.journal.is_stale:
            raise NotOwner(f"session {state.id} now belongs to another node")
        if link is not None and (state.attached is None or state.attached.launch_id != link.launch_id):
            self._retire(link)
            return True
        if link is None:
            if not state.working and not self._prewarm:
                return False
            if state.phase == "aborting":
                await self.give_up("aborted", "The turn was stopped before its agent started.")
            else:
                await self._launch()
            return True
        if self._received is not None:
            # First, because the driver's state already includes it.
            (observations, lines), self._received = self._received, None
            await self._commit(link, await with_context(observations, state.workdir), lines)
            return True
        if self.damage is not None:
            damage, self.damage = self.damage, None
            raise LaunchDamaged(damage)
        if self.journal.decided_seq > link.performed_seq:
            await self._perform_next(link)
            return True
        # Orders that arrived while output was being stored go first: they must not look delivered.
        more = await self._receive(link)
        if not self._closed and await self._escalate(link):
            return True
        if self._closed and not more and not self._wakeup.is_set():
            await self._after_close(link)
            return True
        return more or self._wakeup.is_set()

    # Steps -------------------------------------------------------------------------------------------------------

    async def _perform_next(self, link: AgentLink) -> None:
        seq, event = next(iter(await self.journal.decisive_after(link.performed_seq)), (None, None))
        if seq is None or event is None:
            link.performed_seq = self.journal.decided_seq
            return
        if isinstance(event, ev.TurnStart) and not await self._is_prepared():
            link.performed_seq = link.performed_seq if self.stopping else seq
            return
        orders = await self._orders.of(event)
        self._leftovers.follow(event, self.journal.state, link)
        if isinstance(event, ev.AbortRequested):
            self._deadlines.cancelled_again = False
        link.performed_seq = seq
        if orders:
            observations, lines = link.perform(orders)
            inputs = [order for order in orders if isinstance(order, SendInput)]
            shortened = [one.shortened for one in inputs if one.shortened is not None]
            if inputs and link.launch is not None:
                link.input_mark = (event.turn or 0, link.launch.in_size())
            await self._commit(link, [*shortened, *observations], lines)

    async def _receive(self, link: AgentLink) -> bool:
        more, observations, lines, is_worth_storing = self._read(link)
        if is_worth_storing:
            await self._commit(link, await with_context(observations, self.journal.state.workdir), lines)
        return more

    def _read(self, link: AgentLink) -> tuple[bool, list[Any], list[bytes], bool]:
        """Read output. Returns whether there is more, observations, lines to answer, and whether to store these now."""
        more, observations, lines = link.receive()
        if link.shared is not None:
            link.shared.introduced()
        # Store the position now and then even without observations: otherwise the keeper can't free its spool, and the
        # agent waits forever.
        is_worth_storing = bool(observations or lines) or link.unstored_bytes >= UNSTORED_MAX_BYTES
        return more, observations, lines, is_worth_storing

    async def _commit(self, link: AgentLink, observations: Sequence[Any], lines: list[bytes]) -> None:
        """Store the observations, the position and the lines in one step; then write the lines."""
        if not lines:
            await self._keep(link, observations, lines)
            return
        async with link.input.lock:
            await self._repair_input(link)
            await self._keep(link, observations, lines)

    async def _repair_input(self, link: AgentLink) -> None:
        """Write lines that another session of a shared process has stored but could not write."""
        if link.input.torn:
            rows = await self.log.store.launches(link.launch_id)
            link.input.repair(link.launch, rows)

    async def _keep(self, link: AgentLink, observations: Sequence[Any], lines: list[bytes]) -> None:
        journal, launch = self.journal, link.launch
        progress, freeable = link.note_progress(lines), link.freeable

        def fitting(state: Session) -> bool:
            return not lines and deltas_only(state, link.launch_id, observations)

        def made(state: Session) -> Decision:
            world, pid = self.facts.world(state), launch.pid() if launch is not None else None
            return observe(state, link.launch_id, observations, world, pid=pid)

        while True:
            try:
                shown = observations
                if not await journal.record_deltas(list(observations), progress, fitting):
                    shown = (await journal.record(made, progress=progress, by_owner=True))[0].events
                    self._notice(observations)
                self._step_recovery.faults = 0
                break
            except StoreFull:
                await self._wait_for_room()
            except StoreBusy:
                # The agent's output stays in its spool. If this server stops, the next one reads it again.
                if self.stopping:
                    raise
                await asyncio.sleep(BUSY_RETRY_S)
            except BaseException:
                link.input.total -= len(lines)
                raise
        link.stored = freeable
        if any(map(is_sign_of_life, shown)):
            self.heard_s = self.log.steady()
        if launch is not None:
            await self._write(link, launch, lines, progress.input_total)
            launch.acknowledge(link.acknowledgeable)

    async def _write(self, link: AgentLink, launch: Launch, lines: list[bytes], input_total: int) -> None:
        link.input.torn = bool(lines)
        while lines:
            try:
                launch.write(lines)
                break
            except StoreFull:
                await self._wait_for_room()
                missing = input_total - launch.repair_input()
                lines = lines[-missing:] if missing > 0 else []
        link.input.torn = False

    async def _wait_for_room(self) -> None:
        """Wait before the next attempt. Raises StoreFull if the server stops meanwhile."""
        self._disk.report_full()
        await asyncio.sleep(DISK_RETRY_S)
        if self.stopping:
            raise StoreFull("the disk is still full")

    def _notice(self, observations: Sequence[Any]) -> None:
        """Update what is known about the agent, and extend its orphan limits while it waits for a person."""
        for fact in observations:
            if isinstance(fact, SessionOpened | StartFailed | TurnFinished | ev.Config) and self.link is not None:
                self.facts.learn(self.link.agent, fact)
            if isinstance(fact, ev.Usage) and fact.context_size and self.link is not None:
                self.facts.learn_size(self.journal.state, self.link.agent, fact.context_size)
        long_orphan = bool(self.journal.state.prompts)
        if self.link is not None and self.link.shared is not None:
            long_orphan = self.link.shared.asks(self.journal.state.id, long_orphan)
        if long_orphan != self._long_orphan and self.link is not None and self.link.launch is not None:
            self._long_orphan = long_orphan
            self.link.launch.set_limits(*self.launcher.orphan_limits(waits=long_orphan))

    async def give_up(self, code: str, message: str) -> None:
        """End the turn as failed. If the disk is full, only wait: the loop finds the turn unchanged and retries."""
        command = cmd.GiveUpTurn(code=code, message=message)
        try:
            await self.journal.record(
                lambda state: decide(state, command, self.facts.world(state, command)), by_owner=True
            )
        except SessionGone:
            raise
        except Refused:
            logger.info("session %s: the turn has already ended", self.journal.state.id)
        except StoreFull:
            await self._wait_for_room()

    # Starting and ending a process ---------------------------------------------------------------------------------

    async def _is_prepared(self) -> bool:
        """Prepare the directory for the turn. If that isn't possible, the turn fails."""
        phases = ("working", "idle")
        try:
            work = self._before_turn(self.journal)
            if await done_unless(work, self._wakeup, lambda: self.stopping or self.journal.state.phase not in phases):
                return True
        except Refused as refusal:
            self._prewarm = False
            await self.give_up(refusal.code, refusal.detail)
            return False
        if self.link is not None and self.journal.state.phase == "aborting":
            await self.give_up("aborted", "The turn was stopped before its agent received the message.")
        return False

    async def _launch(self) -> None:
        """Start the agent for the running turn; or, without a turn, ahead of it."""
        await self.launcher.retiring.wait(self.journal.state.id)
        if self.journal.state.phase not in ("working", "idle"):
            self._prewarm = False
            return
        prepared = self.journal.state.running_turn
        # Before the next question: two sessions that take their snapshots at the same time could both be answered no.
        if not await self._is_prepared():
            return
        prewarm, self._prewarm, start = self._prewarm, False, None
        if self.journal.state.phase not in ("working", "idle"):
            return
        try:
            start = await plan_start(self.facts, self.launcher, self.journal, self._orders, prepared)
        except Refused as refusal:
            if prepared is not None and prepared == self.journal.state.running_turn:
                await self.give_up(refusal.code, refusal.detail)
        except StoreFull:
            await self._wait_for_room()
        if start is None:
            return
        if isinstance(start, Shared):
            self._prewarm = self._prewarm or prewarm
            # Changes to this session interrupt the wait.
            await start.settled_or(self._wakeup)
            return
        link = start.link
        async with link.input.lock:
            await self._repair_input(link)
            progress = link.note_progress(start.lines)
            try:
                await self.journal.record(
                    lambda state: start.decide(state, self.facts.world(state)), progress=progress, by_owner=True
                )
            except BaseException as error:
                link.input.total -= len(start.lines)
                self.launcher.leave(link)
                if isinstance(error, StoreFull):
                    await self._wait_for_room()
                elif isinstance(error, Refused) and not isinstance(error, SessionGone):
                    logger.info("session %s: not starting an agent: %s", self.journal.state.id, error.detail)
                else:
                    raise
                return
            self.link = link
            self._deadlines, self._long_orphan = ProcessDeadlines(self.launcher.settings, self.log.steady()), False
            self._notice(start.observations)
            if link.launch is None:
                await self._spawn(link, start.command, start.lines)
            else:
                await self._write(link, link.launch, start.lines, progress.input_total)
                await self._connect()
                link.phase = "live"

    async def _spawn(self, link: AgentLink, command: LaunchCommand, lines: list[bytes]) -> None:
        spec = launch_spec(self.facts, self.launcher, self.journal.state, link, command)
        async with self.launcher.spawning:
            while link.launch is None:
                try:
                    link.launch = Launch.create(self.launcher.folder, spec, command.files)
                except StoreFull:
                    await self._wait_for_room()
                except OSError as error:
                    await self.record_exit(link, AgentExited(how="spawn_failed", error=str(error)))
                    return
            await self._write(link, link.launch, lines, len(lines))
            await self._connect()
        link.phase = "live"

    async def _connect(self) -> None:
        link = self.link
        self._closed = False
        if link is None or link.launch is None:
            self._closed = True
            return

        def closed() -> None:
            self._closed = True
            self._wakeup.set()

        try:
            # A partial, not a method of ours: it is called for each piece of text, and must be fast.
            read_on = partial(self.launcher.pump.ready, self)
            await link.launch.connect(read_on, closed, CONNECT_TIMEOUT_S, self.launcher.pump.hints)
        except TimeoutError:
            logger.warning("the keeper of launch %s does not respond; killing it", link.launch_id)
            link.launch.kill_keeper()
            self._closed = True

    async def _after_close(self, link: AgentLink) -> None:
        """The keeper closed the connection. Either it is gone, with its agent, or the connection broke: reconnect."""
        launch = link.launch
        found = launch.exit() if launch is not None else None
        if launch is not None and found is None and launch.is_alive():
            await self._connect()
            return
        while await self._receive(link):
            pass
        if found is None:
            await processes.end_marked([link.launch_id], SWEEP_GRACE_S)
        await self.record_exit(link, link.ended(self.journal.state, found, self._deadlines.kill_reason))

    async def record_exit(self, link: AgentLink, fact: AgentExited, damage: str = "") -> None:
        row = link.note_progress([])
        link.phase = "gone"
        await self._commit(link, [fact], [])
        # The keeper writes exit.json shortly before it exits. If it takes too long, the next start removes the folder.
        last = self.launcher.sharing.leave(link, over=True)
        launch = link.launch or Launch(self.launcher.folder / link.launch_id)
        gone = last and await launch.wait_gone(GONE_TIMEOUT_S)
        if gone and damage:
            await self.log.quarantine.set_aside(row, launch, damage)
        elif gone:
            await launch.forget()
        launch.close()
        self.forget_link()

    def forget_link(self) -> None:
        """Drop the link, and everything that was read from it but not stored."""
        self.link, self.damage = None, None
        self._received = self._failure = None

    def _retire(self, link: AgentLink) -> None:
        """Retire a process that the session no longer uses. It ends in the background and can't affect the session."""
        self.forget_link()
        self._closed = False
        self.launcher.retiring.begin(link)

    # Time ----------------------------------------------------------------------------------------------------------

    async def _escalate(self, link: AgentLink) -> bool:
        """Cancel again, and then kill, an agent that doesn't stop; kill one that never opens its session. If its keeper
        hangs, kill both."""
        state, now = self.journal.state, self.log.steady()
        if link.launch is None or not self._deadlines.is_over(state, now):
            link.behind = None
            return False
        if not link.has_read_all(now):
            return False  # the unread output may say that it has stopped
        due = self._deadlines.next_step(state, now)
        if due == "kill":
            self._end(link)
            return True
        if due == "kill_keeper":
            logger.warning("the keeper of launch %s does not end its agent; killing both", link.launch_id)
            link.launch.kill_keeper()
        elif due == "cancel" and state.turn is not None:
            await self._commit(link, *link.perform([CancelTurn(state.turn.turn)]))
        return due == "cancel"
