"""The runner carries bytes between one session's log and its agent's process. It decides nothing.

Above: runners.py. Below: the journal (what is to be done, what was observed) and an attachment (the process).
Each step is stored before it is acted on: orders come from committed events, lines are committed before they are
written, output is committed before it is acknowledged. So a server that dies between any two of them loses nothing,
and the next one does nothing twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
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
from perdure.drivers.base import CancelTurn, Command, SendPrompt
from perdure.runtime.keeping import processes
from perdure.runtime.keeping.launch import Launch, LaunchDamaged
from perdure.runtime.log.erased import SessionGone
from perdure.runtime.log.journal import Journal
from perdure.runtime.running.attachment import Attachment
from perdure.runtime.running.disk import Disk
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.launcher import Launcher
from perdure.runtime.running.leftovers import Leftovers
from perdure.runtime.running.mending import Mending
from perdure.runtime.running.orders import Orders
from perdure.runtime.running.patience import Patience
from perdure.runtime.running.proposals import with_context
from perdure.runtime.running.pump import Batch
from perdure.runtime.running.starting import launch_spec, not_ready_yet, plan_start
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
        prewarm: bool = False,
    ) -> None:
        self.journal, self.log = journal, journal.log
        self.facts, self.launcher = facts, launcher
        self._dropped, self.fenced = dropped, fenced
        self.attachment: Attachment | None = None
        self.heard_s = 0.0  # when its agent last showed a sign of life, by the steady clock
        self._wakeup, self._prewarm = asyncio.Event(), prewarm
        self._closed = self.stopping = self._long_orphan = self._is_waiting = False
        self._received: tuple[Sequence[Any], list[bytes]] | None = None
        """What the agent has said, read by the pump and not stored yet."""
        self._failure: Exception | None = None
        self.damage: str | None = None
        self._disk, self._orders = disk, orders
        self._patience = Patience(launcher.settings, self.log.steady())
        self._mending, self._leftovers = Mending(self), Leftovers()
        self.task: asyncio.Task[None] | None = None
        journal.followers.add(self)
        journal.has_runner = True

    # As a follower of its session's log --------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The last decisive event that was acted on; without a process there is nothing to act on."""
        return self.attachment.performed_seq if self.attachment is not None else self.journal.decided_seq

    def wake(self) -> None:
        """Only for what is decisive: deltas are for viewers."""
        is_lost = not self.journal.is_ours
        if self.attachment is None or self.journal.decided_seq > self.attachment.performed_seq or is_lost:
            self._wakeup.set()

    def drop(self) -> None:
        self._dropped(self)

    def unfollow(self) -> None:
        self.journal.followers.discard(self)
        self.journal.has_runner = any(isinstance(follower, Runner) for follower in self.journal.followers)

    # As a source of the pump -------------------------------------------------------------------------------------

    def collect(self) -> Batch | None:
        attachment, journal = self.attachment, self.journal
        is_free = self._is_waiting and not (self._wakeup.is_set() or self.stopping)
        # An order that was not performed yet goes first: it must not look delivered.
        if (
            attachment is None
            or not is_free
            or not journal.takes_deltas
            or attachment.performed_seq < journal.decided_seq
        ):
            self._wakeup.set()
            return None
        try:
            more, observations, lines, is_worth_storing = self._read(attachment)
        except LaunchDamaged as damage:
            self.failed(damage)
            return None
        if not is_worth_storing:
            if more:
                self.read_on()
            return None
        if not observations or lines or not deltas_only(journal.state, attachment.launch_id, observations):
            self._received = (observations, lines)
            self._wakeup.set()
            return None
        return Batch(self, observations, attachment.checkpoint([]), attachment.checkpointed, more)

    def read_on(self) -> None:
        """Its agent may have said something."""
        self.launcher.pump.ready(self)

    def stored(self, batch: Batch) -> None:
        attachment = self.attachment
        assert attachment is not None and attachment.launch is not None
        self._mending.faults = 0
        attachment.stored = batch.freeable
        if any(map(is_sign_of_life, batch.deltas)):
            self.heard_s = self.log.steady()
        attachment.launch.acknowledge(batch.freeable if attachment.shared is None else attachment.acknowledgeable)

    def rejected(self, batch: Batch, error: Exception) -> None:
        if isinstance(error, Conflict | StoreBusy | StoreFull):
            # Nothing was kept, and it is worth another try.
            self._received = (batch.deltas, [])
            self._wakeup.set()
        else:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Its own loop handles it."""
        self._failure = error
        self._wakeup.set()

    # From outside ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.task = asyncio.create_task(self._run(), name=f"runner {self.journal.state.id}")

    async def stop(self) -> None:
        """Let go without touching the agent: its keeper goes on."""
        self.stopping = True
        self._wakeup.set()
        if self.task is not None:
            await asyncio.gather(self.task, return_exceptions=True)
        if self.attachment is not None and self.attachment.launch is not None:
            self.attachment.launch.close()
        self.unfollow()

    def kill(self, reason: str) -> None:
        """End the process at once, whatever it does; the turn ends with what it has said."""
        if self.attachment is not None:
            self._patience.kill(self.log.steady(), reason)
            self._end(self.attachment)
            self._wakeup.set()

    def _end(self, attachment: Attachment) -> None:
        if attachment.shared is not None:
            self.launcher.sharing.end(attachment.shared)
        if attachment.launch is not None:
            attachment.launch.end(0, self.launcher.settings.term_grace_s)

    def look_after(self) -> None:
        """Whether somebody has removed or cut a file of the launch: then nothing more would ever come of it."""
        attachment = self.attachment
        if attachment is not None and attachment.launch is not None:
            self.damage = attachment.launch.damage(attachment.position) or self.damage
            if self.damage is not None:
                self._wakeup.set()

    async def recover(self, attachment: Attachment) -> None:
        """Go on with a launch that an earlier server started."""
        self.attachment = attachment
        self._received = self._failure = None
        self._patience = Patience(self.launcher.settings, self.log.steady())
        state = self.journal.state
        self._long_orphan = bool(state.prompts)
        if state.phase == "aborting":
            self._leftovers.stopping(state, attachment)
        attachment.prompt_mark = None if state.working else (0, -1)
        self._wakeup.set()
        if attachment.launch is not None and (lease := self.launcher.lease()) is not None:
            # It was another incarnation's. The session is this one's now, and so is its agent.
            attachment.launch.set_lease(lease.incarnation, lease.deadline_s)
        await self._connect()

    # The loop ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._loop()
                return
            except Fenced:
                logger.error("another server has taken over the store; session %s stops here", self.journal.state.id)
                self.fenced()
                return
            except NotOwner as error:
                self._mending.disown(error)
                return
            except StoreFull:
                # Comes this far only while the server stops: what was not stored is read again by the next one.
                return
            except LaunchDamaged as damage:
                await self._mending.lose(damage)
            except (StoreDamaged, SessionGone) as damage:
                self._mending.set_aside(damage)
                return
            except StoreError as error:
                if not await self._mending.wait_for_store(error):
                    return
            except Exception:
                logger.exception("the runner of session %s failed", self.journal.state.id)
                if not await self._mending.start_over():
                    await self._mending.abandon()
                    return

    async def _loop(self) -> None:
        while not self.stopping:
            self._wakeup.clear()
            if await self._advance():
                continue
            if self.attachment is None and not self.journal.state.working and not self.stopping:
                self.drop()
                return
            wait_s = self._patience.wait_s(self.journal.state, self.log.steady()) if self.attachment else None
            self._is_waiting = True
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._wakeup.wait()
            finally:
                self._is_waiting = False
            await self.launcher.pump.settled(self)

    async def _advance(self) -> bool:
        """Do the next thing there is to do; False if there is none."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        state, attachment = self.journal.state, self.attachment
        if attachment is not None and not self.journal.is_ours and not self.journal.is_stale:
            raise NotOwner(f"session {state.id} was given to another node")
        if attachment is not None and (state.attached is None or state.attached.launch_id != attachment.launch_id):
            self._let_go(attachment)
            return True
        if attachment is None:
            if not state.working and not self._prewarm:
                return False
            if state.phase == "aborting":
                await self.give_up("aborted", "The turn was stopped before its agent had started.")
            else:
                await self._launch()
            return True
        if self._received is not None:
            # First: what the driver remembers has come this far already.
            (observations, lines), self._received = self._received, None
            await self._commit(attachment, await with_context(observations, state.workdir), lines)
            return True
        if self.damage is not None:
            damage, self.damage = self.damage, None
            raise LaunchDamaged(damage)
        if self.journal.decided_seq > attachment.performed_seq:
            await self._perform_next(attachment)
            return True
        # Whatever came while output was stored goes first: an order that was not performed yet must not look delivered.
        more = await self._receive(attachment)
        if not self._closed and await self._escalate(attachment):
            return True
        if self._closed and not more and not self._wakeup.is_set():
            await self._after_close(attachment)
            return True
        return more or self._wakeup.is_set()

    # Doing -------------------------------------------------------------------------------------------------------

    async def _perform_next(self, attachment: Attachment) -> None:
        seq, event = next(iter(await self.journal.decisive_after(attachment.performed_seq)), (None, None))
        if seq is None or event is None:
            attachment.performed_seq = self.journal.decided_seq
            return
        orders = await self._orders.of(event)
        self._leftovers.follow(event, self.journal.state, attachment)
        if isinstance(event, ev.AbortRequested):
            self._patience.cancelled_again = False
        attachment.performed_seq = seq
        if orders:
            observations, lines = attachment.perform(orders)
            told = [order.told for order in orders if isinstance(order, SendPrompt) and order.told is not None]
            if any(isinstance(order, SendPrompt) for order in orders) and attachment.launch is not None:
                attachment.prompt_mark = (event.turn or 0, attachment.launch.in_size())
            await self._commit(attachment, [*told, *observations], lines)

    async def _receive(self, attachment: Attachment) -> bool:
        more, observations, lines, is_worth_storing = self._read(attachment)
        if is_worth_storing:
            await self._commit(attachment, await with_context(observations, self.journal.state.workdir), lines)
        return more

    def _read(self, attachment: Attachment) -> tuple[bool, list[Any], list[bytes], bool]:
        """Read on: whether there is more, what it meant, what it wants answered, and whether to store that now."""
        more, observations, lines = attachment.receive()
        if attachment.shared is not None:
            attachment.shared.introduced()
        # What led to nothing is stored too, now and then: else the keeper can't free it, and the agent waits for ever.
        is_worth_storing = bool(observations or lines) or attachment.unstored_bytes >= UNSTORED_MAX_BYTES
        return more, observations, lines, is_worth_storing

    async def _commit(self, attachment: Attachment, observations: Sequence[Any], lines: list[bytes]) -> None:
        """Store what was observed, with the position and what is to be written; then write it."""
        if not lines:
            await self._keep(attachment, observations, lines)
            return
        async with attachment.input.lock:
            await self._repair_input(attachment)
            await self._keep(attachment, observations, lines)

    async def _repair_input(self, attachment: Attachment) -> None:
        """Another session of a shared process may have stored lines that it could not write."""
        if attachment.input.torn:
            rows = await self.log.store.launches(attachment.launch_id)
            attachment.input.repair(attachment.launch, rows)

    async def _keep(self, attachment: Attachment, observations: Sequence[Any], lines: list[bytes]) -> None:
        journal, launch = self.journal, attachment.launch
        checkpoint, freeable = attachment.checkpoint(lines), attachment.freeable

        def fitting(state: Session) -> bool:
            return not lines and deltas_only(state, attachment.launch_id, observations)

        def made(state: Session) -> Decision:
            world, pid = self.facts.world(state), launch.pid() if launch is not None else None
            return observe(state, attachment.launch_id, observations, world, pid=pid)

        while True:
            try:
                shown = observations
                if not await journal.record_deltas(list(observations), checkpoint, fitting):
                    shown = (await journal.record(made, checkpoint=checkpoint, by_owner=True))[0].events
                    self._notice(observations)
                self._mending.faults = 0
                break
            except StoreFull:
                await self._wait_for_room()
            except StoreBusy:
                # The agent's output waits in its spool meanwhile. If the server stops, the next one reads it again.
                if self.stopping:
                    raise
                await asyncio.sleep(BUSY_RETRY_S)
            except BaseException:
                attachment.input.total -= len(lines)
                raise
        attachment.stored = freeable
        if any(map(is_sign_of_life, shown)):
            self.heard_s = self.log.steady()
        if launch is not None:
            await self._write(attachment, launch, lines, checkpoint.input_total)
            launch.acknowledge(attachment.acknowledgeable)

    async def _write(self, attachment: Attachment, launch: Launch, lines: list[bytes], input_total: int) -> None:
        attachment.input.torn = bool(lines)
        while lines:
            try:
                launch.write(lines)
                break
            except StoreFull:
                await self._wait_for_room()
                missing = input_total - launch.repair_input()
                lines = lines[-missing:] if missing > 0 else []
        attachment.input.torn = False

    async def _wait_for_room(self) -> None:
        """Until it is worth another try; StoreFull if the server stops meanwhile."""
        self._disk.report_full()
        await asyncio.sleep(DISK_RETRY_S)
        if self.stopping:
            raise StoreFull("the disk is still full")

    def _notice(self, observations: Sequence[Any]) -> None:
        """What is remembered of an agent, and how long its keeper waits while a person is asked."""
        for fact in observations:
            if isinstance(fact, SessionOpened | StartFailed | TurnFinished | ev.Config) and self.attachment is not None:
                self.facts.learn(self.attachment.agent, fact)
            if isinstance(fact, ev.Usage) and fact.context_size and self.attachment is not None:
                self.facts.learn_size(self.journal.state, self.attachment.agent, fact.context_size)
        long_orphan = bool(self.journal.state.prompts)
        if self.attachment is not None and self.attachment.shared is not None:
            long_orphan = self.attachment.shared.asks(self.journal.state.id, long_orphan)
        if long_orphan != self._long_orphan and self.attachment is not None and self.attachment.launch is not None:
            self._long_orphan = long_orphan
            self.attachment.launch.set_limits(*self.launcher.orphan_limits(waits=long_orphan))

    async def give_up(self, code: str, message: str) -> None:
        """Without room nothing happens yet: the loop finds the turn as it was, and comes here again."""
        command = cmd.GiveUpTurn(code=code, message=message)
        try:
            await self.journal.record(
                lambda state: decide(state, command, self.facts.world(state, command)), by_owner=True
            )
        except SessionGone:
            raise
        except Refused:
            logger.info("session %s: the turn had ended already", self.journal.state.id)
        except StoreFull:
            await self._wait_for_room()

    # Beginning and ending a process --------------------------------------------------------------------------------

    async def _launch(self) -> None:
        """Start the agent that the running turn needs; or, with no turn, one that waits for it."""
        await self.launcher.retiring.wait(self.journal.state.id)
        if self.journal.state.phase not in ("working", "idle"):
            self._prewarm = False
            return
        if (shared := not_ready_yet(self.facts, self.launcher, self.journal)) is not None:
            # Whatever happens to this session meanwhile is looked at first.
            await shared.settled_or(self._wakeup)
            return
        self._prewarm, start = False, None
        try:
            start = await plan_start(self.facts, self.launcher, self.journal, self._orders)
        except Refused as refusal:
            await self.give_up(refusal.code, refusal.detail)
        except StoreFull:
            await self._wait_for_room()
        if start is None:
            return
        attachment = start.attachment
        async with attachment.input.lock:
            await self._repair_input(attachment)
            checkpoint = attachment.checkpoint(start.lines)
            try:
                await self.journal.record(
                    lambda state: start.decide(state, self.facts.world(state)), checkpoint=checkpoint, by_owner=True
                )
            except BaseException as error:
                attachment.input.total -= len(start.lines)
                self.launcher.leave(attachment)
                if isinstance(error, StoreFull):
                    await self._wait_for_room()
                elif isinstance(error, Refused) and not isinstance(error, SessionGone):
                    logger.info("session %s wants no agent any more: %s", self.journal.state.id, error.detail)
                else:
                    raise
                return
            self.attachment = attachment
            self._patience, self._long_orphan = Patience(self.launcher.settings, self.log.steady()), False
            self._notice(start.told)
            if attachment.launch is None:
                await self._spawn(attachment, start.command, start.lines)
            else:
                await self._write(attachment, attachment.launch, start.lines, checkpoint.input_total)
                await self._connect()
                attachment.phase = "live"

    async def _spawn(self, attachment: Attachment, command: Command, lines: list[bytes]) -> None:
        spec = launch_spec(self.facts, self.launcher, self.journal.state, attachment, command)
        async with self.launcher.spawning:
            while attachment.launch is None:
                try:
                    attachment.launch = Launch.create(self.launcher.folder, spec, command.files)
                except StoreFull:
                    await self._wait_for_room()
                except OSError as error:
                    await self.record_exit(attachment, AgentExited(how="spawn_failed", error=str(error)))
                    return
            await self._write(attachment, attachment.launch, lines, len(lines))
            await self._connect()
        attachment.phase = "live"

    async def _connect(self) -> None:
        attachment = self.attachment
        self._closed = False
        if attachment is None or attachment.launch is None:
            self._closed = True
            return

        def closed() -> None:
            self._closed = True
            self._wakeup.set()

        try:
            hints = self.launcher.pump.hints
            # Without a function of ours between: it is called for each piece of text.
            read_on = partial(self.launcher.pump.ready, self)
            await attachment.launch.connect(read_on, closed, CONNECT_TIMEOUT_S, hints)
        except TimeoutError:
            logger.warning("the keeper of launch %s does not answer; ending it", attachment.launch_id)
            attachment.launch.kill_keeper()
            self._closed = True

    async def _after_close(self, attachment: Attachment) -> None:
        """The keeper let go of us. Either it is gone, and so is the agent, or the connection broke."""
        launch = attachment.launch
        found = launch.exit() if launch is not None else None
        if launch is not None and found is None and launch.is_alive():
            await self._connect()
            return
        while await self._receive(attachment):
            pass
        if found is None:
            await processes.end_marked([attachment.launch_id], SWEEP_GRACE_S)
        await self.record_exit(attachment, attachment.ended(self.journal.state, found, self._patience.kill_reason))

    async def record_exit(self, attachment: Attachment, fact: AgentExited, damage: str = "") -> None:
        row = attachment.checkpoint([])
        attachment.phase = "gone"
        await self._commit(attachment, [fact], [])
        # The keeper says its last word a moment before it is gone. A folder that stays is swept at the next start.
        last = self.launcher.sharing.leave(attachment, over=True)
        launch = attachment.launch or Launch(self.launcher.folder / attachment.launch_id)
        gone = last and await launch.wait_gone(GONE_TIMEOUT_S)
        if gone and damage:
            await self.log.quarantine.set_aside(row, launch, damage)
        elif gone:
            await launch.forget()
        launch.close()
        self.forget_attachment()

    def forget_attachment(self) -> None:
        """With all that was read of it, and not stored."""
        self.attachment, self.damage = None, None
        self._received = self._failure = None

    def _let_go(self, attachment: Attachment) -> None:
        """The session no longer wants this process: it winds down by itself, and can't touch the session."""
        self.forget_attachment()
        self._closed = False
        self.launcher.retiring.begin(attachment)

    # Time ----------------------------------------------------------------------------------------------------------

    async def _escalate(self, attachment: Attachment) -> bool:
        """An agent that does not stop when asked is asked again, then made to; one that never opens likewise. A keeper
        that hangs can't do it, and is ended with its agent."""
        state, now = self.journal.state, self.log.steady()
        if attachment.launch is None or not self._patience.is_over(state, now):
            attachment.behind = None
            return False
        if not attachment.has_read_all(now):
            return False  # it may have stopped
        due = self._patience.next_step(state, now)
        if due == "kill":
            self._end(attachment)
            return True
        if due == "kill_keeper":
            logger.warning("the keeper of launch %s does not end its agent; ending both", attachment.launch_id)
            attachment.launch.kill_keeper()
        elif due == "cancel" and state.turn is not None:
            await self._commit(attachment, *attachment.perform([CancelTurn(state.turn.turn)]))
        return due == "cancel"
