"""A simulation of several nodes on one store: random commands, crashes, frozen owners, lost wake-ups; then a checker.

Above: test_simulation.py plays many seeds, and shows that the checker detects each mutation. Below: nodes.py. A run has
two parts: a number of steps with faults, then peace, in which everything must come to rest within a bounded number of
rounds. After that, the checker compares the store with what each viewer saw.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.errors import Refused
from perdure.core.state import restore
from perdure.runtime.log.log import Log
from perdure.runtime.log.reading import read_records
from perdure.runtime.verbs.outgoing import Outgoing
from perdure.stores.base import Append, Kept, Owner
from perdure.stores.wakeups import LocalWakeups
from tests.core.stage import replayed as folded
from tests.simulation.nodes import IGNORED, Node, SharedPostgres, SharedStore, timestamp
from tests.simulation.schedule import Schedule

TROUBLE_STEPS = 260
PEACE_ROUNDS = 60
STEPS_PER_ROUND = 4_000
UNKNOWN_COMMITS = 0.03
LOSS = 0.4
"""The share of wake-ups between nodes that get lost."""


AnyStore = SharedStore | SharedPostgres


class Mutation:
    """A deliberate defect. This base class changes nothing."""

    polls = True

    def step(self, step: Append) -> Append:
        return step

    def log(self, log: Log) -> None:
        """Change a newly created log."""


class Violation(AssertionError):
    """A guarantee was violated. The seed in the message reproduces it."""


class LossyWakeups(LocalWakeups):
    def __init__(self, is_lost: Callable[[], bool]) -> None:
        super().__init__()
        self._is_lost = is_lost

    def announce(self, session_id: str, by: object) -> None:
        if not self._is_lost():
            super().announce(session_id, by)


class Simulation:
    def __init__(self, store: AnyStore, generation: int, seed: int, mutation: Mutation | None = None) -> None:
        self.store, self.generation, self.seed = store, generation, seed
        self.mutation = mutation or Mutation()
        self.schedule = Schedule(seed)
        self.random = self.schedule.random
        self.slots = self.random.choice((0, 0, 1))
        self.wakeups = LossyWakeups(lambda: self.random.random() < LOSS)
        self.sessions = [f"{seed}-{number}" for number in range(self.random.randint(1, 2))]
        self.nodes: list[Node] = []
        self.acknowledged: dict[str, str] = {}
        """message_id: session."""
        self._late: list[str] = []
        """Violations: text was stored from a node that did not own the session."""
        self._has_begun = False
        self._number = 0
        self._names = [f"{seed}-{name}" for name in "abc"[: self.random.randint(2, 3)]]

    def stamp(self) -> str:
        return timestamp(self.schedule.steps)

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def loses_answer(self) -> bool:
        """Whether the response to this append is lost: the commit is done, but the node doesn't know."""
        return self._has_begun and self.random.random() < UNKNOWN_COMMITS

    async def check_speaker(self, session_id: str, speaker: Owner) -> None:
        """Check that stored text came from the session's owner. Call right after the append, before other writes."""
        head = (await self.store.heads([session_id]))[session_id]
        if head.owner != speaker:
            self._late.append(f"text from {speaker} was stored, but {head.owner} owns {session_id}")

    # A run ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        for name in self._names:
            await self._start(name)
        for session_id in self.sessions:
            await self._finish(self.nodes[0].spawn(self.nodes[0].create(session_id)))
        self._has_begun = True
        while self.schedule.steps < TROUBLE_STEPS:
            await self._act()
            for _ in range(self.random.randint(1, 12)):
                if not await self.schedule.next():
                    break
        await self._make_peace()
        for node in self.nodes:
            await node.crash()
        await self._check()

    async def _start(self, name: str) -> None:
        incarnation = await self.store.join(name, b"{}")
        self.nodes = [node for node in self.nodes if node.name != name]
        self.nodes.append(Node(self, name, incarnation))
        await self._spread()

    async def _spread(self) -> None:
        """Tell every node which nodes are alive, as heartbeats do."""
        mine = set(self._names)
        living = {Owner(each.node, each.incarnation) for each in await self.store.nodes() if not each.dead}
        for node in self.nodes:
            node.learn_who_lives({owner for owner in living if owner.node in mine})

    async def _finish(self, task: "asyncio.Task[Any]") -> None:
        while not task.done():
            await self.schedule.next()
        task.result()

    async def _act(self) -> None:
        """A random action of a user or a node, or a random fault."""
        actions = (
            self._send,
            self._send,
            self._send,
            self._command,
            self._watch,
            self._poll,
            self._begin,
            self._compact,
        )
        trouble = (self._crash, self._freeze, self._thaw)
        node = self.random.choice(self.nodes)
        session_id = self.random.choice(self.sessions)
        if self.random.random() < 0.08:
            await self.schedule.settle()
            await self.random.choice(trouble)(node)
        else:
            self.random.choice(actions)(node, session_id)

    def _quietly(self, node: Node, work: Any) -> None:
        async def done() -> None:
            try:
                await work
            except IGNORED:
                return

        if node.is_alive:
            node.spawn(done())
        else:
            work.close()

    def _send(self, node: Node, session_id: str) -> None:
        how: Any = self.random.choice(("reject", "queue", "queue", "interrupt"))
        message_id = f"m{self.next_number()}"
        message = Outgoing(text=f"text of {message_id}", message_id=message_id, when_busy=how)
        self._quietly(node, self._ask(node, session_id, message))
        if self.random.random() < 0.3:
            # A client that got no response retries on another node with the same id.
            other = self.random.choice(self.nodes)
            self._quietly(other, self._ask(other, session_id, message))

    async def _ask(self, node: Node, session_id: str, message: Outgoing) -> None:
        answer = await node.send(session_id, message)
        self.acknowledged[answer["message_id"]] = session_id

    def _command(self, node: Node, session_id: str) -> None:
        number = self.next_number()
        command: Any = self.random.choice(
            (
                cmd.AbortTurn(),
                cmd.UpdateSession(title=f"title {number}"),
                cmd.EditMessage(turn=1, message_id="", text="x"),
            )
        )
        self._quietly(node, node.do(session_id, command))

    def _watch(self, node: Node, session_id: str) -> None:
        if len(node.viewers) < 4:
            self._quietly(node, node.watch(session_id))

    def _poll(self, node: Node, _: str) -> None:
        if self.mutation.polls:
            self._quietly(node, node.log.poll())

    def _begin(self, node: Node, _: str) -> None:
        self._quietly(node, node.begin_waiting())

    def _compact(self, node: Node, session_id: str) -> None:
        self._quietly(node, node.compact(session_id, self.random.randint(1, 3)))

    async def _crash(self, node: Node) -> None:
        await node.crash()
        self.schedule.frozen.discard(node)
        await self._start(node.name)
        again = self.nodes[-1]
        for session_id in self.sessions:
            self._quietly(again, again.take_up(session_id))

    async def _freeze(self, node: Node) -> None:
        """Freeze a node in the middle of its work, and let the others take over its sessions."""
        if node in self.schedule.frozen or len(self.schedule.frozen) + 1 == len(self.nodes):
            return
        self.schedule.frozen.add(node)
        await self.store.declare_node_dead(node.owner)
        await self._spread()
        for session_id in self.sessions:
            heir = self.random.choice([one for one in self.nodes if one not in self.schedule.frozen])
            self._quietly(heir, heir.take_up(session_id))

    async def _thaw(self, _: Node) -> None:
        if self.schedule.frozen:
            self.schedule.frozen.discard(self.random.choice(sorted(self.schedule.frozen, key=repr)))

    # Peace ---------------------------------------------------------------------------------------------------------

    async def _make_peace(self) -> None:
        """No more faults except lost wake-ups: all accepted turns must end, and viewers must see everything, within a
        bounded number of rounds."""
        self.schedule.frozen.clear()
        await self._spread()
        for _ in range(PEACE_ROUNDS):
            await self._drain()
            if await self._is_over():
                return
            for node in self.nodes:
                for session_id in self.sessions:
                    self._quietly(node, node.take_up(session_id))
                self._quietly(node, node.begin_waiting())
                self._poll(node, "")
        await self._is_over(say=True)

    async def _drain(self) -> None:
        for _ in range(STEPS_PER_ROUND):
            if not await self.schedule.next():
                return
        raise Violation(f"seed {self.seed}: the nodes never come to rest")

    async def _is_over(self, *, say: bool = False) -> bool:
        for session_id in self.sessions:
            record = await self.store.load(session_id)
            assert record is not None
            state = restore(record.state)
            if state.busy or state.queue:
                self._say(say, f"session {session_id} is stuck: {state.phase}, {len(state.queue)} queued")
                return False
            for node in self.nodes:
                for watched, viewer in node.viewers:
                    if watched == session_id and viewer.position != record.last_seq:
                        self._say(say, f"a viewer is at {viewer.position}, but the log is at {record.last_seq}")
                        return False
        return True

    def _say(self, say: bool, what: str) -> None:
        if say:
            raise Violation(f"seed {self.seed}: {what}")

    # The checker ---------------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        self._expect(not self._late, "; ".join(self._late))
        for node in self.nodes:
            for session_id, viewer in node.viewers:
                self._expect(viewer.seen == list(range(1, len(viewer.seen) + 1)), f"a viewer saw {viewer.seen}")
                rows = await self.store.read(session_id, 0, limit=10**6)
                types = [row.type for row in rows for _ in range(row.first_seq, row.seq + 1)]
                self._expect(viewer.types == types, "a viewer saw something different from the log")
        for session_id in self.sessions:
            await self._check_session(session_id)

    async def _check_session(self, session_id: str) -> None:
        rows = await self.store.read(session_id, 0, limit=10**6)
        numbers = [number for row in rows for number in range(row.first_seq, row.seq + 1)]
        self._expect(numbers == list(range(1, len(numbers) + 1)), f"the log has the numbers {numbers}")
        events: list[ev.Event] = [ev.decode(row.body) for row in rows]
        record = await self.store.load(session_id)
        assert record is not None
        self._expect(folded(events) == restore(record.state), "the stored state differs from the fold of the log")
        self._check_turns(events)
        await self._check_records(session_id, events, len(numbers))
        taken = Counter(
            event.message_id for event in events if isinstance(event, ev.UserMessage) and event.origin == "person"
        )
        for message_id, where in self.acknowledged.items():
            if where == session_id:
                self._expect(taken[message_id] == 1, f"message {message_id} ran {taken[message_id]} times")
        self._expect(all(count == 1 for count in taken.values()), "a message ran twice")

    async def _check_records(self, session_id: str, events: list[ev.Event], upto: int) -> None:
        turns = {
            event.turn: "".join(
                said.delta for said in events if isinstance(said, ev.AssistantText) and said.turn == event.turn
            )
            for event in events
            if isinstance(event, ev.TurnEnd)
        }
        found = await self.store.read_records(session_id, 1, None, upto, limit=10**6)
        for turn, said in read_records(session_id, found, upto):
            text = "".join(event.delta for event in said if isinstance(event, ev.AssistantText))
            self._expect(text == turns[turn], f"the record of turn {turn} has different text")

    def _check_turns(self, events: list[ev.Event]) -> None:
        open_turn: int | None = None
        begun = False
        for event in events:
            if isinstance(event, ev.UserMessage):
                self._expect(open_turn is None, f"turn {event.turn} was accepted during turn {open_turn}")
                open_turn, begun = event.turn, False
            elif isinstance(event, ev.TurnStart):
                self._expect(event.turn == open_turn and not begun, f"turn {event.turn} began out of order")
                begun = True
            elif isinstance(event, ev.TurnEnd):
                self._expect(event.turn == open_turn, f"turn {event.turn} ended during turn {open_turn}")
                open_turn = None
            elif isinstance(event, ev.AssistantText):
                self._expect(event.turn == open_turn and begun, "text outside of a running turn")
        self._expect(open_turn is None, f"turn {open_turn} never ended")

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(f"seed {self.seed}: {what}")


async def play(place: Path | str, seeds: range, mutation: Mutation | None = None) -> int:
    """Play these seeds on SQLite in a folder, or on the PostgreSQL at a URL. Returns the number of steps. Raises
    Violation, with the seed."""
    store: AnyStore = SharedPostgres(place) if isinstance(place, str) else SharedStore(place / "perdure.db")
    steps = 0
    await store.open()
    try:
        generation = await store.claim()
        for seed in seeds:
            simulation = Simulation(store, generation, seed, mutation)
            async with asyncio.timeout(60):
                await simulation.run()
            steps += simulation.schedule.steps
    finally:
        await store.close()
    return steps


def guessing(log: Log) -> None:
    """Use event numbers that a journal guesses, as if it saw every write."""
    append = log.store.append

    async def guessed(step: Append) -> Kept:
        kept = await append(step)
        journal = log.journals.get(step.session_id)
        first = kept.first if journal is None or not step.events else journal.last_seq + 1
        return Kept(first, kept.token, kept.owner)

    log.store.append = guessed  # type: ignore[method-assign]


__all__ = ["Mutation", "Refused", "Simulation", "Violation", "guessing", "play"]
