"""Where and when an accepted turn begins: how many turns may run at once, on the server and in each project.

Above: the verbs and the clocks, which ask for a slot before a turn begins. Below: the runners; core/slots.py says who
takes a slot. An idle process makes room by being suspended. Where all slots are taken, a message waits as accepted and
begins when its turn comes, first come, first served; or it is refused, if its sender wants that; or the sessions that
were active longest ago are ended (`on_full = "replace"`).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Literal, NamedTuple

from perdure.config import Limits
from perdure.core import commands as cmd
from perdure.core.decision import Decision
from perdure.core.errors import NotOwner, Refused, StoreError
from perdure.core.slots import Taker, can_be_suspended, no_slot, takes_slot, waits_for_slot
from perdure.core.state import Session, WaitsFor
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.running.commands import Commands
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.runner import Runner
from perdure.runtime.running.runners import Runners
from perdure.stores.base import Kept, Receipt

logger = logging.getLogger(__name__)

WhenFull = Literal["wait", "refuse"]


class _Reservation:
    """A turn that is about to begin, or a session that is about to be made without one."""

    def __init__(self, session_id: str, project: str | None, workdir: str, *, turn: bool) -> None:
        self.session_id = session_id
        self.project = project
        self.turn = turn
        self._workdir = workdir

    def shares(self, runner: Runner) -> bool:
        """Whether its process may serve this turn too, so that it takes no place of its own."""
        state, attachment = runner.journal.state, runner.attachment
        shared = attachment is not None and attachment.shared is not None
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
        """Who makes a new session is done with the old one, whether that runs, waits or is idle."""
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
        """Accepted sessions that this node has to begin, first come first, and where a slot was missing last."""
        self._has_ended = True
        """Whether a session may have ended since those were looked at that wait where idle sessions count."""
        self._look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        facts.slot_of_queue = self._slot_of_queue
        log.watch(self._changed)

    async def start(self) -> None:
        for session_id in await self._log.store.waiting():
            self._waiting.setdefault(session_id, None)
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
        """Record a command that starts a turn: at once if there is a slot, else as accepted."""
        state = journal.state
        if state.phase != "idle" or not self._facts.has_slots:
            return await self._commands.record(journal, command, receipt=receipt)
        async with self.slot(state.id, state.project, state.workdir, when_full=when_full) as waits_for:
            return await self._commands.record(journal, command, receipt=receipt, waits_for=waits_for)

    async def go_on(self, journal: Journal, command: cmd.EndWait) -> None:
        """A usage limit has reset: send what waits."""
        with contextlib.suppress(Refused):
            await self.send(journal, command)

    # Turns that wait ---------------------------------------------------------------------------------------------

    def _changed(self, session_id: str) -> None:
        """Something may have begun to wait, or a slot may be free."""
        journal = self._log.journals.get(session_id)
        is_foreign = journal is None and session_id not in self._log.erased
        if is_foreign or (journal is not None and journal.state.phase == "accepted"):
            self._waiting.setdefault(session_id, None)
        else:
            self._waiting.pop(session_id, None)
        self._has_ended = self._has_ended or journal is None or journal.state.phase == "ended"
        if self._waiting:
            self._look.set()

    async def _run(self) -> None:
        poll_at = self._log.steady() + self._log.poll_s()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, poll_at - self._log.steady())):
                    await self._look.wait()
            self._look.clear()
            if self._log.steady() >= poll_at:
                await self._poll()
                poll_at = self._log.steady() + self._log.poll_s()
            await self._begin_waiting()

    async def _begin_waiting(self) -> None:
        """Begin what can begin. Those whose place is surely still full are not looked at one by one."""
        has_ended, self._has_ended = self._has_ended, False
        full: dict[str | None, bool] = {}
        for session_id, missing in list(self._waiting.items()):
            if missing is not None:
                if missing.project not in full:
                    full[missing.project] = not has_ended if missing.count_idle else self._is_full(missing)
                if full[missing.project]:
                    continue
            try:
                await self._try(session_id)
            except StoreError as error:
                logger.warning("session %s: could not begin its turn; trying again: %s", session_id, error)
            except Exception:
                logger.exception("session %s: could not begin its turn", session_id)
            full.clear()

    async def _poll(self) -> None:
        """A wake-up may have been lost."""
        try:
            for session_id in await self._log.store.waiting():
                self._waiting.setdefault(session_id, None)
            self._has_ended = True
        except StoreError as error:
            logger.warning("could not look for accepted messages; trying again: %s", error)

    async def _try(self, session_id: str) -> None:
        journal = await self._log.readable(session_id)
        if journal is None or not await self._is_to_begin(journal):
            self._waiting.pop(session_id, None)
            return
        state = journal.state
        assert state.accepted is not None
        try:
            await self._facts.agents.ready(state.accepted.agent or state.agent)
            async with self.slot(session_id, state.project, state.workdir) as waits_for:
                await self._commands.record(journal, cmd.BeginTurn(), waits_for=waits_for, by_owner=True)
        except Refused as refusal:
            if journal.state.phase == "accepted":
                given_up = cmd.GiveUpTurn(code=refusal.code, message=refusal.detail)
                await self._commands.quietly(journal, given_up, by_owner=True)
        if journal.state.phase != "accepted":
            self._waiting.pop(session_id, None)

    async def _is_to_begin(self, journal: Journal) -> bool:
        """Whether the session has an accepted turn that is this node's to begin."""
        if journal.state.phase != "accepted":
            # Another node may have accepted the message: a journal in memory has to look.
            await journal.catch_up()
        if journal.state.phase != "accepted":
            return False
        try:
            await self._log.claim(journal)
        except NotOwner:
            return False
        return journal.state.phase == "accepted"

    # Slots -------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def slot(
        self, session_id: str, project: str | None, workdir: str, *, turn: bool = True, when_full: WhenFull = "wait"
    ) -> AsyncIterator[WaitsFor | None]:
        """A slot for the turn that is begun inside; or what it has to wait for. Of those that come at once the first is
        first. Raises Refused with `when_full` "refuse".

        A session that is made without a `turn` needs a slot only where idle sessions count; without one, its process
        is not started ahead."""
        mine = _Reservation(session_id, project, workdir, turn=turn)
        places = self._places(project)
        self._reserved.append(mine)
        try:
            async with contextlib.AsyncExitStack() as stack:
                if any(place.replaces for place in places):
                    # One after the other: a session can be replaced only when it is there.
                    await stack.enter_async_context(self._replacing)
                yield await self._make_room(places, mine, when_full)
        finally:
            self._reserved.remove(mine)

    def _places(self, project: str | None) -> list[_Place]:
        """The project comes first: a session that it replaces takes no slot of the server any more. The server has a
        rule of its own, since a project must not end the sessions of others."""
        places, config = [], self._facts.config
        if self._facts.settings.project_slots and project is not None:
            places.append(_Place(self._facts.settings.project_slots, project, self._facts.limits(project, {})))
        if config.slots:
            places.append(_Place(config.slots, None, self._facts.limits(None, {})))
        return places

    async def _make_room(self, places: Sequence[_Place], mine: _Reservation, when_full: WhenFull) -> WaitsFor | None:
        """What the turn waits for; None if there is a slot everywhere. The one place that decides what becomes of a
        turn that finds none. Nothing is ended or suspended before it is certain that the turn begins."""
        replaced: dict[str, Journal] = {}
        full: _Place | None = None
        for place in places:
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

    def takers(self, project: str | None) -> Refused | None:
        """Who takes the slots that a session of this project waits for, in words; None if one is free."""
        for place in self._places(project):
            states = [state for state in self._runners.states() if place.project in (None, state.project)]
            named = [Taker(state.id, state.title) for state in states if takes_slot(state, count_idle=False)]
            if len(named) >= place.limit:
                return no_slot(place.limit, place.project, named, count_idle=False)
        return None

    def _slot_of_queue(self, state: Session) -> WaitsFor | None:
        """A session whose turn ends keeps its slot for a queued message, unless a turn whose prompt was answered has
        taken it. Where idle sessions count, it has a slot until it ends."""
        others = [one for one in self._runners.states() if one.id != state.id]
        for place in self._places(state.project):
            taken = sum(takes_slot(one, count_idle=False) for one in others if place.project in (None, one.project))
            if not place.count_idle and taken >= place.limit:
                return waits_for_slot(place.limit, place.project, count_idle=False)
        return None

    def _is_full(self, place: _Place) -> bool:
        """Whether a slot of this place is surely still missing."""
        states = [state for state in self._runners.states() if place.project in (None, state.project)]
        return sum(takes_slot(state, count_idle=False) for state in states) >= place.limit

    async def _suspend_idle(self, place: _Place, mine: _Reservation, replaced: Collection[str]) -> None:
        """No more processes than slots, besides those that wait for a person."""
        ahead = self._ahead(place, mine)
        alone = [
            runner.journal
            for runner in self._runners
            if runner.journal.state.id != mine.session_id
            and runner.journal.state.id not in replaced
            and place.project in (None, runner.journal.state.project)
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
        """Those that came before and have not begun yet: they are being recorded, or wait for a slot here."""
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
                # Where one that was not tried yet will have to wait is not known: it came first all the same.
                if missing is None or missing.project == place.project:
                    ahead.add(session_id)
        return ahead

    def _has_a_slot(self, session_id: str) -> bool:
        """Where idle sessions count: a session that is there, and not only waits for its first turn."""
        journal = self._log.journals.get(session_id)
        return journal is not None and journal.state.phase != "accepted"

    async def _takers(self, place: _Place, mine: _Reservation) -> list[Journal]:
        """The other sessions that take a slot; where idle ones count, also those without a process."""
        if place.count_idle:
            found = self._log.found(status="running", state=None)
            readable = [await self._log.readable(entry.session_id) async for entry in found]
            # One that only waits has no slot yet.
            journals = [one for one in readable if one is not None and one.state.phase != "accepted"]
        else:
            journals = [runner.journal for runner in self._runners]
        return [
            journal
            for journal in journals
            if journal.state.id != mine.session_id
            and place.project in (None, journal.state.project)
            and takes_slot(journal.state, count_idle=place.count_idle)
        ]

    def _title(self, session_id: str) -> str:
        journal = self._log.journals.get(session_id)
        return journal.state.title if journal is not None else ""
