"""Placement: where and when an accepted turn begins. Limits how many turns run at the same time, on the server and in
each project.

Above: the verbs and the clocks, which request a slot before a turn begins. Below: the runners; core/slots.py defines
which sessions occupy a slot. Idle processes are suspended to make room. If all slots are occupied, a message waits as
accepted, first come, first served; or it is refused, if the sender asked for that; or the least recently active
sessions are ended (`on_full = "replace"`).

With several nodes, each node has its own server slots, and project slots are counted across all nodes in the store. A
node begins only turns of sessions that it owns or may claim, which requires their directory, agent and labels. A node
without a free slot releases a session that other nodes could run (`workdirs = "shared"`).
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Literal, NamedTuple

from perdure.config import Limits
from perdure.core import commands as cmd
from perdure.core.decision import Decision
from perdure.core.errors import NotOwner, Refused, StoreError
from perdure.core.slots import Taker, can_be_suspended, no_slot, slot_project, takes_slot, waits_for_slot
from perdure.core.state import Session, WaitsFor
from perdure.runtime.log.journal import DECISIVE, Journal
from perdure.runtime.log.log import Log
from perdure.runtime.running.commands import Commands
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.runner import Runner
from perdure.runtime.running.runners import Runners
from perdure.stores.base import Kept, Receipt

logger = logging.getLogger(__name__)

NODE_LABEL = "node:"
"""The prefix of session labels that require a node label: `node:gpu` runs only on nodes with the label `gpu`."""
STORE_LOOK_S = 0.02
"""The minimum interval between two looks in the store that wake-ups of other nodes trigger."""
DRAINING = WaitsFor("owner", "Waiting: this session's node is draining.")
HAND_OVER_S = 15.0
"""How long to wait for an idle agent to end before handing its session over; after that, try at the next look."""
PROJECT_LOOK_S = 0.25
"""How often to check whether a full project has a free slot again."""
SLOT_HOLD_S = 60.0
"""When the reservation of a project slot expires, in case its node dies before the turn begins."""

WhenFull = Literal["wait", "refuse"]


async def _nothing(_: Journal) -> None:
    pass


def _can_have_worktree(state: Session) -> bool:
    """Whether the session's worktree can be created here: it was removed when the session was archived."""
    return state.worktree is not None and os.path.isdir(state.worktree["repository"])


class _Reservation:
    """A turn that is about to begin, or a session that is about to be created without a turn."""

    def __init__(self, session_id: str, project: str | None, workdir: str, *, turn: bool) -> None:
        self.session_id = session_id
        self.project = project
        self.turn = turn
        self._workdir = workdir
        self.holds_slot = False
        """Whether a project slot is reserved for it in the store."""

    def shares(self, runner: Runner) -> bool:
        """Whether the runner's process could serve this turn too, so that the turn needs no process of its own."""
        state, link = runner.journal.state, runner.link
        shared = link is not None and link.shared is not None
        return shared and (state.project, state.workdir) == (self.project, self._workdir)


class _Place(NamedTuple):
    """The server, or a project (`project`), with its number of slots and its rules."""

    limit: int
    project: str | None
    limits: Limits

    @property
    def replaces(self) -> bool:
        return self.limits.on_full == "replace"

    @property
    def count_idle(self) -> bool:
        """With `replace`, idle sessions count too: a new session replaces an old one in whatever state that is."""
        return bool(self.limits.count_idle) or self.replaces


class Placement:
    def __init__(self, log: Log, facts: Facts, commands: Commands, runners: Runners) -> None:
        self._log = log
        self._facts = facts
        self._commands = commands
        self._runners = runners
        self._reserved: list[_Reservation] = []
        self._replacing = asyncio.Lock()
        self._waiting: dict[str, _Place | None] = {}
        """Sessions with an accepted turn that this node must begin, oldest first, and where a slot was last missing."""
        self._has_ended = True
        """Whether a session may have ended since the last look. Where idle sessions count, only that frees a slot."""
        self._look = asyncio.Event()
        self._looks_in_store = False
        """Whether another node has changed a session that is not in memory here: it may be waiting for this node."""
        self._looked_s = 0.0
        self._since: dict[str, float] = {}
        """When each session without an owner was first seen waiting, by the steady clock."""
        self._released: set[str] = set()
        """Sessions that this node has released. It may claim them back without waiting."""
        self._later: asyncio.TimerHandle | None = None
        self._full_until: dict[str, float] = {}
        """Projects without a free slot on any node, and when to check again."""
        self.on_poll: Callable[[], None] = lambda: None
        """Called at every poll: there may be sessions to take over."""
        self.adopt: Callable[[Journal], Awaitable[None]] = _nothing
        """Prepares a session to run here after this node has taken it over."""
        self._task: asyncio.Task[None] | None = None
        facts.slot_of_queue = self._slot_of_queue
        log.may_run = self.may_run
        log.watch(self._changed)

    async def start(self) -> None:
        await self._poll()
        self._look.set()
        self._task = asyncio.create_task(self._run(), name="placement")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Sending -----------------------------------------------------------------------------------------------------

    async def send(
        self,
        journal: Journal,
        command: cmd.Command,
        receipt: Callable[[Decision], Receipt] | None = None,
        when_full: WhenFull = "wait",
    ) -> tuple[Decision, Kept]:
        """Record a command that starts a turn. Without a free slot, the turn is accepted and begins later."""
        if journal.is_ours and journal.has_foreign_agent:
            await self.adopt(journal)
        state = journal.state
        if state.phase == "idle" and self._log.is_draining() and (journal.is_ours or not self._log.living):
            # The turn begins when the node is resumed, or on another node that can run it.
            return await self._commands.record(journal, command, receipt=receipt, waits_for=DRAINING)
        if state.phase != "idle" or not self._facts.has_slots:
            return await self._commands.record(journal, command, receipt=receipt)
        if not journal.is_ours and not self._log.may_claim(journal.owner, state):
            # Another node begins the turn when it has a slot.
            await self._check_project(slot_project(state), state.id, when_full)
            return await self._commands.record(journal, command, receipt=receipt)
        async with self.slot(state.id, slot_project(state), state.workdir, when_full=when_full) as waits_for:
            return await self._commands.record(journal, command, receipt=receipt, waits_for=waits_for)

    async def go_on(self, journal: Journal, command: cmd.EndWait) -> None:
        """A usage limit has reset: send the waiting message."""
        with contextlib.suppress(Refused):
            await self.send(journal, command)

    # Waiting turns -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Check soon whether a turn can begin."""
        self._looks_in_store = self._log.shared is not None
        self._look.set()

    def _changed(self, session_id: str) -> None:
        """A session has changed: its turn may be waiting now, or a slot may be free."""
        journal = self._log.journals.get(session_id)
        if journal is None and session_id not in self._log.erased:
            # A session of another node. One query finds all sessions that wait for this node.
            self._looks_in_store = True
        elif journal is not None and journal.state.phase == "accepted":
            self._waiting.setdefault(session_id, None)
        else:
            self._waiting.pop(session_id, None)
            self._since.pop(session_id, None)
            self._released.discard(session_id)
        self._has_ended = self._has_ended or journal is None or journal.state.phase == "ended"
        if self._waiting or self._looks_in_store:
            self._look.set()

    async def _run(self) -> None:
        poll_at = self._log.steady() + self._log.poll_s()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, poll_at - self._log.steady())):
                    await self._look.wait()
            self._look.clear()
            if self._looks_in_store:
                await asyncio.sleep(max(0.0, self._looked_s + STORE_LOOK_S - self._log.steady()))
            is_due = self._log.steady() >= poll_at
            if self._looks_in_store or is_due:
                await self._poll()
            if is_due:
                await self._look_after_others()
                poll_at = self._log.steady() + self._log.poll_s()
            await self._begin_waiting()

    async def _begin_waiting(self) -> None:
        """Begin the waiting turns that can begin. Skips sessions whose server or project certainly has no free slot."""
        has_ended, self._has_ended = self._has_ended, False
        full: dict[str | None, bool] = {}
        for session_id, missing in list(self._waiting.items()):
            if missing is not None and self._is_shared(missing):
                if self._full_until.get(str(missing.project), 0.0) > self._log.steady():
                    continue
            elif missing is not None:
                if missing.project not in full:
                    full[missing.project] = not has_ended if missing.count_idle else self._is_full(missing)
                if full[missing.project]:
                    continue
            try:
                await self._try(session_id)
            except StoreError as error:
                logger.warning("session %s: could not begin the waiting turn; retrying: %s", session_id, error)
            except Exception:
                logger.exception("session %s: could not begin the waiting turn; retrying", session_id)
            full.clear()

    async def _poll(self) -> None:
        """Find sessions that wait for this node, in case a wake-up was lost."""
        self._looks_in_store = False
        self._looked_s = self._log.steady()
        try:
            node = self._log.node.node if self._log.node is not None else None
            for session_id in await self._log.store.waiting(node):
                self._waiting.setdefault(session_id, None)
            self._has_ended = True
        except StoreError as error:
            logger.warning("could not look for waiting turns; retrying: %s", error)

    async def _look_after_others(self) -> None:
        """Handle what no wake-up announces: turns that no node runs, and messages whose node doesn't respond."""
        if self._log.shared is None:
            return
        self.on_poll()
        try:
            await self._report_silent_owners()
        except StoreError as error:
            logger.warning("could not look for messages of an unresponsive node; retrying: %s", error)
        except Exception:
            logger.exception("could not look for messages of an unresponsive node; retrying")

    async def _report_silent_owners(self) -> None:
        """Record what messages wait for if they should have begun on another node by now, and that node doesn't
        respond."""
        if all(map(self._log.is_responsive, self._log.living)):
            return
        for session_id in await self._log.store.waiting():
            journal = await self._log.readable(session_id)
            if journal is None or journal.state.phase != "accepted" or journal.state.waits_for is not None:
                continue
            reason = journal.waits_for_owner
            if reason is not None and reason.message:
                await self._commands.quietly(journal, cmd.BeginTurn(), waits_for=reason)

    async def _try(self, session_id: str) -> None:
        journal = await self._log.readable(session_id)
        if journal is None or not await self._is_to_begin(journal):
            full = self._full_for(journal) if journal is not None else None
            if full is None:
                self._waiting.pop(session_id, None)
            else:
                # The session keeps its place in the order, and is not checked again until a slot is free.
                self._waiting[session_id] = full
            return
        state = journal.state
        assert state.accepted is not None
        try:
            await self._facts.agents.ready(state.accepted.agent or state.agent)
            async with self.slot(session_id, slot_project(state), state.workdir) as waits_for:
                await self._commands.record(journal, cmd.BeginTurn(), waits_for=waits_for, by_owner=True)
            missing = self._waiting.get(session_id)
            if missing is not None and missing.project is None and await self._release(journal):
                self._waiting.pop(session_id, None)
                return
        except Refused as refusal:
            if journal.state.phase == "accepted":
                given_up = cmd.GiveUpTurn(code=refusal.code, message=refusal.detail)
                await self._commands.quietly(journal, given_up, by_owner=True)
        if journal.state.phase != "accepted":
            self._waiting.pop(session_id, None)

    async def _is_to_begin(self, journal: Journal) -> bool:
        """Whether the session has an accepted turn that is this node's to begin."""
        if journal.state.phase != "accepted":
            # Another node may have accepted the message: bring the journal up to date.
            await journal.catch_up()
        if journal.state.phase != "accepted" or not (journal.is_ours or self._may_claim(journal)):
            return False
        try:
            await self._log.claim(journal)
        except NotOwner:
            return False
        self._since.pop(journal.state.id, None)
        self._released.discard(journal.state.id)
        if journal.has_foreign_agent:
            await self.adopt(journal)
        if self._log.is_draining():
            await self._hand_over(journal)
            return False
        return journal.state.phase == "accepted"

    # Nodes -------------------------------------------------------------------------------------------------------

    def may_run(self, state: Session) -> bool:
        """Whether this node may run a session without an owner: it must have its directory, agent and labels."""
        if self._log.is_draining():
            return False
        if self._log.shared is None:
            return True
        wanted = {label.removeprefix(NODE_LABEL) for label in state.labels if label.startswith(NODE_LABEL)}
        agent = state.accepted.agent if state.accepted is not None else None
        return (
            wanted <= set(self._facts.settings.labels)
            and self._facts.agents.has(agent or state.agent)
            and (state.created_at == "" or os.path.isdir(state.workdir) or _can_have_worktree(state))
        )

    def _full_for(self, journal: Journal) -> _Place | None:
        """The place without a free slot, if that is the only reason why this node can't claim the session."""
        is_open = journal.state.phase == "accepted" and self._log.may_claim(journal.owner, journal.state)
        if self._log.shared is None or journal.is_ours or not is_open:
            return None
        return next((place for place in self._places(None) if self._is_full(place)), None)

    def _may_claim(self, journal: Journal) -> bool:
        """Whether this node may claim the session now. The node that released it last gets the first chance."""
        if not self._log.may_claim(journal.owner, journal.state):
            return False
        if self._log.shared is None:
            return True
        if any(self._is_full(place) for place in self._places(None)):
            return False
        if journal.owner is not None or journal.state.id in self._released:
            return True
        patience_s = self._facts.settings.placement_patience_s
        since = self._since.setdefault(journal.state.id, self._log.steady())
        if self._log.steady() - since < patience_s:
            self._look_later(patience_s)
            return False
        return True

    def _look_later(self, after_s: float) -> None:
        """Check all waiting sessions again later, with one timer for all."""
        loop = asyncio.get_running_loop()
        if self._later is None or self._later.when() <= loop.time() or self._later.cancelled():
            self._later = loop.call_later(after_s, self.look)

    async def _hand_over(self, journal: Journal) -> None:
        """This node is draining: end the session's idle agent, and release the session to other nodes."""
        if self._facts.settings.workdirs == "shared" and can_be_suspended(journal.state):
            await self._commands.suspend(journal, "draining")
            try:
                async with asyncio.timeout(HAND_OVER_S):
                    await self._runners.wait_gone(journal.state.id)
            except TimeoutError:
                return
        await self._release(journal)

    async def _release(self, journal: Journal) -> bool:
        """Release ownership of the session, if other nodes could run it and it has no process here."""
        shared = self._log.shared
        if shared is None or self._facts.settings.workdirs == "local" or not self._log.living:
            return False
        expected = (journal.state.id, journal.token, journal.decided_seq, self._log.generation)
        if journal.state.attached is not None or not await shared.release(*expected):
            return False
        self._released.add(journal.state.id)
        await journal.catch_up()
        self._log.wakeups.announce(f"{DECISIVE}{journal.state.id}", self._log)
        return True

    # Slots -------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def slot(
        self, session_id: str, project: str | None, workdir: str, *, turn: bool = True, when_full: WhenFull = "wait"
    ) -> AsyncIterator[WaitsFor | None]:
        """Reserve a slot for the turn that the body begins. Yields None, or what the turn must wait for. Concurrent
        callers are served in order. Raises Refused if there is no slot and `when_full` is "refuse".

        A session that is created without a `turn` needs a slot only where idle sessions count; if it gets none, its
        process is not started ahead."""
        mine = _Reservation(session_id, project, workdir, turn=turn)
        places = self._places(project)
        self._reserved.append(mine)
        try:
            async with contextlib.AsyncExitStack() as stack:
                if any(place.replaces for place in places):
                    # One at a time: a session can be replaced only after it was created.
                    await stack.enter_async_context(self._replacing)
                yield await self._make_room(places, mine, when_full)
        finally:
            self._reserved.remove(mine)
            if mine.holds_slot and self._log.shared is not None:
                # By now the turn itself occupies the slot, or it did not begin.
                self._log.keep(self._free_slot(str(project), session_id))

    def _places(self, project: str | None) -> list[_Place]:
        """Where a turn needs a slot. The project comes first: a session that it replaces frees a server slot too. The
        server has its own rule, since a project must not end the sessions of other projects."""
        places, config = [], self._facts.config
        if self._facts.settings.project_slots and project is not None:
            places.append(_Place(self._facts.settings.project_slots, project, self._facts.limits(project, {})))
        if config.slots:
            places.append(_Place(config.slots, None, self._facts.limits(None, {})))
        return places

    async def _make_room(self, places: Sequence[_Place], mine: _Reservation, when_full: WhenFull) -> WaitsFor | None:
        """What the turn must wait for; None if it has a slot everywhere. Only this function decides what happens to a
        turn without a slot. It ends and suspends nothing before it is certain that the turn can begin."""
        replaced: dict[str, Journal] = {}
        full: _Place | None = None
        for place in places:
            takers: list[Journal] = []
            named: dict[str, Taker] = {}
            if self._is_shared(place):
                named = await self._reserve(place, mine)
            else:
                takers = [one for one in await self._takers(place, mine) if one.state.id not in replaced]
                named = {journal.state.id: Taker(journal.state.id, journal.state.title) for journal in takers}
                for session_id in self._ahead(place, mine):
                    named.setdefault(session_id, Taker(session_id, self._title(session_id)))
            if len(named) < place.limit:
                continue
            if place.replaces:
                oldest = sorted(takers, key=lambda journal: journal.state.last_active_at)
                replaced |= {one.state.id: one for one in oldest[: len(named) - place.limit + 1]}
            elif when_full == "refuse" and (mine.turn or place.count_idle):
                raise no_slot(place.limit, place.project, list(named.values()), count_idle=place.count_idle)
            else:
                full = full or place
        if mine.session_id in self._waiting:
            self._waiting[mine.session_id] = full
        if full is not None:
            return waits_for_slot(full.limit, full.project, count_idle=full.count_idle)
        for journal in replaced.values():
            await self._commands.quietly(journal, cmd.EndSession("stopped", "replaced"))
        for place in places:
            await self._suspend_idle(place, mine, replaced)
        return None

    # Project slots that several nodes share ---------------------------------------------------------------------

    def _is_shared(self, place: _Place) -> bool:
        """Whether the slots of this place are counted in the store."""
        return self._log.shared is not None and place.project is not None and not place.count_idle

    async def _reserve(self, place: _Place, mine: _Reservation) -> dict[str, Taker]:
        """Reserve a project slot in the store. Returns the sessions that occupy the slots; empty on success."""
        assert self._log.shared is not None and place.project is not None
        if not mine.turn:
            return {}
        takers = await self._log.shared.reserve_slot(place.project, mine.session_id, place.limit, SLOT_HOLD_S)
        mine.holds_slot = not takers
        if takers:
            self._full_until[place.project] = self._log.steady() + PROJECT_LOOK_S
            asyncio.get_running_loop().call_later(PROJECT_LOOK_S, self._look.set)
        return {taker.session_id: Taker(*taker) for taker in takers}

    async def _free_slot(self, project: str, session_id: str) -> None:
        assert self._log.shared is not None
        try:
            await self._log.shared.free_slot(project, session_id)
        except StoreError as error:
            logger.warning("could not free a slot of project %s; it expires in %g s: %s", project, SLOT_HOLD_S, error)

    async def _check_project(self, project: str | None, session_id: str, when_full: WhenFull) -> None:
        """With `when_full` "refuse": raise Refused if another node could not begin the turn now."""
        for place in self._places(project):
            if when_full == "refuse" and self._is_shared(place) and self._log.shared is not None:
                found = await self._log.shared.slot_takers(str(place.project))
                takers = [Taker(*taker) for taker in found if taker.session_id != session_id]
                if len(takers) >= place.limit:
                    raise no_slot(place.limit, place.project, takers, count_idle=False)

    async def takers(self, project: str | None) -> Refused | None:
        """The sessions that occupy the slots which a session of this project needs, as a message; None if one is
        free."""
        for place in self._places(project):
            if self._is_shared(place) and self._log.shared is not None:
                found = [Taker(*taker) for taker in await self._log.shared.slot_takers(str(place.project))]
                if len(found) >= place.limit:
                    return no_slot(place.limit, place.project, found, count_idle=False)
                continue
            states = [state for state in self._runners.states() if place.project in (None, slot_project(state))]
            named = [Taker(state.id, state.title) for state in states if takes_slot(state, count_idle=False)]
            if len(named) >= place.limit:
                return no_slot(place.limit, place.project, named, count_idle=False)
        return None

    def _slot_of_queue(self, state: Session) -> WaitsFor | None:
        """What the next queued message must wait for. After a turn, a session keeps its slot for its queue, unless a
        turn whose prompt was answered now occupies it. Where idle sessions count, a session has a slot until it
        ends."""
        others = [one for one in self._runners.states() if one.id != state.id]
        for place in self._places(slot_project(state)):
            beside = [one for one in others if place.project in (None, slot_project(one))]
            taken = sum(takes_slot(one, count_idle=False) for one in beside)
            if not place.count_idle and taken >= place.limit:
                return waits_for_slot(place.limit, place.project, count_idle=False)
        return None

    def _is_full(self, place: _Place) -> bool:
        """Whether this place certainly has no free slot."""
        states = [state for state in self._runners.states() if place.project in (None, slot_project(state))]
        return sum(takes_slot(state, count_idle=False) for state in states) >= place.limit

    async def _suspend_idle(self, place: _Place, mine: _Reservation, replaced: Collection[str]) -> None:
        """Suspend idle processes, so that there are no more processes than slots. Those waiting for a person don't
        count."""
        ahead = self._ahead(place, mine)
        alone = [
            runner.journal
            for runner in self._runners
            if runner.journal.state.id != mine.session_id
            and runner.journal.state.id not in replaced
            and place.project in (None, slot_project(runner.journal.state))
            and not runner.journal.state.prompts
            and not mine.shares(runner)
        ]
        idle = sorted(
            (one for one in alone if can_be_suspended(one.state) and one.state.id not in ahead),
            key=lambda journal: journal.state.last_active_at,
        )
        excess = len({journal.state.id for journal in alone} | ahead) + 1 - place.limit
        for journal in idle[: max(0, excess)]:
            await self._commands.suspend(journal, "slot_needed")

    def _ahead(self, place: _Place, mine: _Reservation) -> set[str]:
        """Sessions that came first and whose turn has not begun: it is being recorded, or waits for a slot here."""
        if place.count_idle and self._has_a_slot(mine.session_id):
            return set()  # it keeps its slot until it ends
        runners = self._runners
        ahead = {
            other.session_id
            for other in self._reserved[: self._reserved.index(mine)]
            if other.session_id != mine.session_id
            and (other.turn or place.count_idle)
            and not ((runner := runners.get(other.session_id)) is not None and runner.journal.state.working)
            and place.project in (None, other.project)
        }
        if mine.turn:
            for session_id, missing in self._waiting.items():
                if session_id == mine.session_id:
                    break
                # It is unknown where a turn that was not tried yet will wait, but it came first.
                if missing is None or missing.project == place.project:
                    ahead.add(session_id)
        return ahead

    def _has_a_slot(self, session_id: str) -> bool:
        """Where idle sessions count: whether the session exists and isn't waiting for a turn to begin."""
        journal = self._log.journals.get(session_id)
        return journal is not None and journal.state.phase != "accepted"

    async def _takers(self, place: _Place, mine: _Reservation) -> list[Journal]:
        """The other sessions that occupy a slot; where idle ones count, including those without a process."""
        if place.count_idle:
            found = [entry async for entry in self._log.found(status="running", state=None)]
            if self._log.shared is not None and self._log.node is not None and place.project is None:
                # The server-wide slots are per node.
                found = [entry for entry in found if entry.node == self._log.node.node]
            readable = [await self._log.readable(entry.session_id) for entry in found]
            # A waiting session has no slot yet.
            journals = [one for one in readable if one is not None and one.state.phase != "accepted"]
        else:
            journals = [runner.journal for runner in self._runners]
        return [
            journal
            for journal in journals
            if journal.state.id != mine.session_id
            and place.project in (None, slot_project(journal.state))
            and takes_slot(journal.state, count_idle=place.count_idle)
        ]

    def _title(self, session_id: str) -> str:
        journal = self._log.journals.get(session_id)
        return journal.state.title if journal is not None else ""
