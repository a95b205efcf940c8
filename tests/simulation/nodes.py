"""Nodes of a simulation: real logs, journals, commands and placement on one real store. Only the agents are simulated.

Above: simulation.py makes them work, crash, freeze and lose wake-ups. Below: schedule.py decides who is next. An agent
is a sequence of facts (it opens its session, writes some text, ends its turn), recorded by the session's owner.
"""

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from perdure.config import Limits
from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.clock import stamp
from perdure.core.decision import World
from perdure.core.errors import Conflict, NotOwner, Refused, StoreError
from perdure.core.observe import deltas_only, observe
from perdure.core.resume import AgentFacts
from perdure.core.session import create, decide
from perdure.core.state import Session, WaitsFor
from perdure.runtime.log.compactor import Compactor
from perdure.runtime.log.feed import Feed
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.running.commands import Commands
from perdure.runtime.running.placement import Placement
from perdure.runtime.running.pump import Batch, Pump
from perdure.runtime.verbs.outgoing import Outgoing, PendingReceipt, command_of, replayed
from perdure.stores.base import Append, Kept, LaunchProgress, Owner
from perdure.stores.postgres import PostgresStore
from perdure.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

START_S = 1_800_000_000.0
KNOWN = AgentFacts(driver="acp", can_resume=True, workdir_id="1:2", fingerprint="bin")
WORDS_MAX = 4


class SharedStore(SqliteStore):
    """SQLite for several nodes: when a node joins, the others are not marked as dead."""

    async def join(self, node: str, about: bytes) -> int:
        living = [each.node for each in await self.nodes() if not each.dead]
        incarnation = await super().join(node, about)
        marks = ",".join("?" * len(living))
        await self._writer.submit(
            lambda connection: connection.execute(f"UPDATE nodes SET dead = 0 WHERE node IN ({marks})", living)
        )
        return incarnation

    async def declare_node_dead(self, owner: Owner) -> None:
        await self._writer.submit(
            lambda connection: connection.execute(
                "UPDATE nodes SET dead = 1 WHERE node = ? AND incarnation = ?", (owner.node, owner.incarnation)
            )
        )


class SharedPostgres(PostgresStore):
    """PostgreSQL on which a simulation can declare a node dead immediately."""

    async def declare_node_dead(self, owner: Owner) -> None:
        for node in await self.nodes():
            if (node.node, node.incarnation) == (owner.node, owner.incarnation):
                await self.declare_dead(owner, node.heartbeat)


class SteppedStore:
    """A node's access to the store: each call takes two steps of the schedule."""

    def __init__(self, simulation: "Simulation", node: "Node") -> None:
        self._simulation = simulation
        self._node = node
        self.is_shared = simulation.store.is_shared
        """On SQLite, nodes read one session at a time; on PostgreSQL, all changed sessions together."""

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            work = getattr(self._simulation.store, name)
            return self._simulation.schedule.call(self._node, lambda: work(*given, **named))

        return call

    def append_now(self, _: Sequence[Append]) -> None:
        """Not available: each commit must be a step of the schedule."""

    def append(self, step: Append) -> Any:
        changed = self._simulation.mutation.step(step)
        return self._simulation.schedule.call(self._node, lambda: self._appended([changed], self._append(changed)))

    def append_all(self, steps: Sequence[Append]) -> Any:
        changed = [self._simulation.mutation.step(step) for step in steps]
        work = self._simulation.store.append_all
        return self._simulation.schedule.call(self._node, lambda: self._appended(changed, work(changed)))

    async def _append(self, step: Append) -> Kept:
        return await self._simulation.store.append(step)

    async def _appended(self, steps: Sequence[Append], work: Any) -> Any:
        result = await work
        for step, outcome in zip(steps, result if isinstance(result, list) else [result], strict=True):
            is_speech = any(draft.type == "assistant_text" for draft in step.events)
            if is_speech and not isinstance(outcome, Exception):
                await self._simulation.check_speaker(step.session_id, self._node.owner)
        if self._simulation.loses_answer():
            raise StoreError("the connection was lost during the commit")
        return result


class Facts:
    """The part of the real Facts that commands and placement need."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self.config = SimpleNamespace(slots=simulation.slots)
        self.has_slots = bool(simulation.slots)
        self.settings = SimpleNamespace(project_slots=0, labels=[], workdirs="shared", placement_patience_s=0)
        self.agents = self
        self.slot_of_queue: Any = None

    async def ready(self, agent: str) -> None:
        """Every agent is ready."""

    def has(self, agent: str) -> bool:
        return True

    def limits(self, project: str | None, session: dict[str, object]) -> Limits:
        return Limits()

    def world(self, state: Session, command: cmd.Command | None = None, waits_for: WaitsFor | None = None) -> World:
        if waits_for is None and not isinstance(command, cmd.BeginTurn):
            waits_for = state.waits_for or (self.slot_of_queue(state) if state.queue else None)
        return World(self._simulation.stamp(), {"alpha": KNOWN}, waits_for=waits_for)


class Runner:
    """Runs the turns of one session as its owner."""

    link = None

    def __init__(self, node: "Node", journal: Journal) -> None:
        self._node, self.journal = node, journal
        self._random = node.simulation.schedule.random
        self.position = journal.decided_seq
        journal.follow(self)
        self.woken = asyncio.Event()
        self.task = node.spawn(self._run())

    def wake(self) -> None:
        self.position = self.journal.decided_seq
        self.woken.set()

    async def _run(self) -> None:
        try:
            while self.journal.state.working:
                self.woken.clear()
                before = self.journal.last_seq
                await self._step()
                if before == self.journal.last_seq and self.journal.state.working:
                    # Another step came first, and will wake it.
                    await self.woken.wait()
        except NotOwner:
            self._node.fenced += 1
        except StoreError:
            # Like the real runner, continue from the stored state.
            self._node.spawn(self._again())
        finally:
            self.journal.unfollow(self)
            self._node.runners.alive.pop(self.journal.state.id, None)
            if not self.journal.is_stale:
                # A turn may have begun since the last check.
                self._node.runners.changed(self.journal.state.id)

    async def _again(self) -> None:
        try:
            await self.journal.catch_up()
        except StoreError:
            return
        self._node.runners.changed(self.journal.state.id)

    async def _step(self) -> None:
        state = self.journal.state
        attached, turn = state.attached, state.turn
        assert turn is not None
        if attached is None and state.phase == "aborting":
            await self._decide(cmd.GiveUpTurn(code="aborted", message="Stopped before it began."))
        elif attached is None:
            launch = f"{self._node.launch_prefix}{self._node.simulation.next_number()}"
            await self._decide(
                cmd.PrepareLaunch(
                    turn=state.running_turn,
                    launch_id=launch,
                    agent="alpha",
                    driver="acp",
                    native_session_id=None,
                    workdir_id="1:2",
                    fingerprint="bin",
                ),
                launch,
            )
        elif not attached.launch_id.startswith(self._node.launch_prefix):
            await self._observe(attached.launch_id, ob.AgentExited("lost"), "gone")
        elif not attached.opened:
            native = f"n{self._node.simulation.next_number()}"
            await self._observe(attached.launch_id, ob.SessionOpened(native, False))
        elif state.phase == "aborting" or self._random.random() < 0.3:
            await self._observe(attached.launch_id, ob.TurnFinished(turn.turn, "end_turn"))
        else:
            await self._say(attached.launch_id, turn.turn)

    async def _say(self, launch_id: str, turn: int) -> None:
        words = [ev.AssistantText(turn=turn, block=0, delta="word ") for _ in range(self._random.randint(1, WORDS_MAX))]
        self._batch = Batch(self, words, self._progress(launch_id), 0, False)
        self._pumped = asyncio.get_running_loop().create_future()
        self._node.pump.ready(self)
        if not await self._pumped:
            # Like the real runner, retry without the pump.
            await self.journal.record_deltas(
                words, self._progress(launch_id), lambda state: deltas_only(state, launch_id, words)
            )

    def collect(self) -> Batch | None:
        journal, batch = self.journal, self._batch
        if self._pumped.done():
            return None  # its node crashed
        fits = deltas_only(journal.state, batch.progress.launch_id, batch.deltas)
        if journal.is_writing or journal.is_stale or not journal.is_ours or not fits:
            self._pumped.set_result(False)
            return None
        return batch

    def stored(self, batch: Batch) -> None:
        if not self._pumped.done():
            self._pumped.set_result(True)

    def rejected(self, batch: Batch, error: Exception) -> None:
        if not isinstance(error, Conflict):
            self.failed(error)
        elif not self._pumped.done():
            self._pumped.set_result(False)

    def failed(self, error: Exception) -> None:
        if not self._pumped.done():
            self._pumped.set_exception(error)

    async def _decide(self, command: cmd.Command, launch_id: str | None = None) -> None:
        progress = self._progress(launch_id) if launch_id else None

        def make(state: Session) -> Any:
            return decide(state, command, self._node.facts.world(state, command))

        try:
            await self.journal.record(make, progress=progress, by_owner=True)
        except Refused:
            return  # the session has changed meanwhile

    async def _observe(self, launch_id: str, fact: Any, phase: Any = "live") -> None:
        def make(state: Session) -> Any:
            return observe(state, launch_id, [fact], self._node.facts.world(state))

        await self.journal.record(make, progress=self._progress(launch_id, phase), by_owner=True)

    def _progress(self, launch_id: str, phase: Any = "live") -> LaunchProgress:
        return LaunchProgress(launch_id, self.journal.state.id, "alpha", "acp", phase, 0, 0, 0, [], b"")


class Runners:
    """The part of the real Runners that placement needs."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.alive: dict[str, Runner] = {}
        node.log.watch(self.changed)

    def __iter__(self) -> Iterator[Runner]:
        return iter(list(self.alive.values()))

    def get(self, session_id: str) -> Runner | None:
        return self.alive.get(session_id)

    def states(self) -> list[Session]:
        return [runner.journal.state for runner in self]

    def changed(self, session_id: str) -> None:
        journal = self._node.log.journals.get(session_id)
        if journal is None or session_id in self.alive or not self._node.is_alive:
            return
        if journal.state.working and journal.is_ours:
            self.alive[session_id] = Runner(self._node, journal)


class SimulatedViewer:
    """Reads one session from the beginning, as the page does, and records each event number that it sees."""

    def __init__(self, node: "Node", journal: Journal) -> None:
        self._node, self._journal = node, journal
        self.seen: list[int] = []
        self.types: list[str] = []
        """The event types of `seen`."""
        self._reading: asyncio.Task[None] | None = None
        journal.follow(self)
        self.wake()

    @property
    def position(self) -> int:
        return self.seen[-1] if self.seen else 0

    def wake(self) -> None:
        if self._reading is not None and not self._reading.done():
            return
        frames = self._journal.frames_since(self.position)
        if frames is None:
            self._reading = self._node.spawn(self._replay())
            return
        for seq, frame in frames:
            self.seen.append(seq)
            self.types.append(frame.split(b"\n")[1].removeprefix(b"event: ").decode())

    async def _replay(self) -> None:
        for row in await self._node.store.read(self._journal.state.id, self.position, limit=5):
            self.seen += range(row.first_seq, row.seq + 1)
            self.types += [row.type] * (row.seq - row.first_seq + 1)
        self._node.soon(self.wake)


class Node:
    """One incarnation of a server."""

    def __init__(self, simulation: "Simulation", name: str, incarnation: int) -> None:
        self.simulation, self.name = simulation, name
        self.owner = Owner(name, incarnation)
        self.launch_prefix = f"{name}-{incarnation}."
        self.store: Any = SteppedStore(simulation, self)
        self.log = Log(self.store, wakeups=simulation.wakeups)
        self.log.now = lambda: START_S + simulation.schedule.steps / 1000
        self.log.steady = lambda: simulation.schedule.steps / 1000
        self.log.generation, self.log.node = simulation.generation, self.owner
        simulation.mutation.log(self.log)
        self.facts = Facts(simulation)
        facts: Any = self.facts
        self.commands = Commands(self.log, facts)
        self.runners = Runners(self)
        runners: Any = self.runners
        self.placement = Placement(self.log, facts, self.commands, runners)
        self.placement.adopt = self.adopt
        self.pump = Pump(self.log, tick_max_s=0)
        self.pump.start()
        self.compactor = Compactor(self.log, Feed(self.log))
        self.tasks: set[asyncio.Task[Any]] = set()
        self.viewers: list[tuple[str, SimulatedViewer]] = []
        self.fenced = 0
        self.is_alive = True

    def __repr__(self) -> str:
        return self.launch_prefix

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def soon(self, call: Any) -> None:
        asyncio.get_running_loop().call_soon(call)

    def learn_who_lives(self, living: set[Owner]) -> None:
        self.log.living = {owner.node for owner in living} - {self.name}

    async def crash(self) -> None:
        self.is_alive = False
        self.simulation.schedule.crash(self)
        for task in [*self.tasks, *self.log._tasks]:
            task.cancel()
        if self.pump._committing is not None:
            self.pump._committing.cancel()
        await asyncio.gather(*self.tasks, *self.log._tasks, return_exceptions=True)
        await self.pump.stop()
        if self.log._stop_listening is not None:
            self.log._stop_listening()

    # Requests ------------------------------------------------------------------------------------------------------

    async def create(self, session_id: str) -> None:
        command = cmd.CreateSession(session_id=session_id, project=None, agent="alpha", workdir="/srv")
        await self.log.create(create(command, World(self.simulation.stamp())))

    async def send(self, session_id: str, message: Outgoing) -> dict[str, Any]:
        """Send a message as `Sessions.send` does."""
        assert message.message_id is not None
        journal = await self.log.open(session_id)
        if (earlier := await self.store.find_receipt(session_id, message.message_id)) is not None:
            return replayed(earlier)
        pending = PendingReceipt(message, message.message_id)
        try:
            command = command_of(message, message.message_id)
            _, kept = await self.placement.send(journal, command, pending.receipt)
        except (Refused, Conflict):
            earlier = await self.store.find_receipt(session_id, message.message_id)
            if earlier is None:
                raise
            return replayed(earlier)
        return pending.answer(kept)

    async def do(self, session_id: str, command: cmd.Command) -> None:
        await self.commands.record(await self.log.open(session_id), command)

    async def watch(self, session_id: str) -> None:
        self.viewers.append((session_id, SimulatedViewer(self, await self.log.open(session_id))))

    async def begin_waiting(self) -> None:
        """One round of placement."""
        for session_id in await self.store.waiting() if self.simulation.mutation.polls else ():
            self.placement._waiting.setdefault(session_id, None)
        for session_id in list(self.placement._waiting):
            await self.placement._try(session_id)

    async def adopt(self, journal: Journal) -> None:
        """Continue without an agent of another node, as recovery does."""
        launch_id = journal.state.attached.launch_id if journal.state.attached is not None else ""
        lost = LaunchProgress(launch_id, journal.state.id, "alpha", "acp", "gone", 0, 0, 0, [], b"")

        def make(state: Session) -> Any:
            return observe(state, launch_id, [ob.AgentExited("lost")], self.facts.world(state))

        await journal.record(make, progress=lost, by_owner=True)

    async def take_up(self, session_id: str) -> None:
        """Claim a session whose turn has no living owner, as recovery does."""
        journal = await self.log.open(session_id)
        if journal.state.working and not journal.is_ours:
            await self.log.claim(journal)
            self.runners.changed(session_id)

    async def compact(self, session_id: str, turn: int) -> None:
        journal = await self.log.open(session_id)
        if journal.state.turn is not None and turn < journal.state.turn.turn:
            place = await self.store.find_turns(session_id, turn, turn)
            upto = place.upto if place.upto is not None else journal.last_seq
            await self.compactor.compact(session_id, turn, upto)


def timestamp(steps: int) -> str:
    return stamp(START_S + steps / 1000)


IGNORED = (Refused, NotOwner, Conflict, StoreError)
"""Errors that a command may raise if another step came first."""
