"""How many turns may run at once, on the server and in each project, and what happens when all slots are taken (S12).

Above: the verbs and the clocks, which take a slot before a turn begins. Below: the host's runners; core/slots.py says
who takes one. An idle process makes room by being suspended. Where all slots are taken, the new turn is refused, or
the sessions that were active longest ago are ended.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from perdure.config import Limits
from perdure.core import commands as cmd
from perdure.core.slots import Taker, can_be_suspended, no_slot, takes_slot
from perdure.core.state import Session
from perdure.runtime.log.log import Journal

if TYPE_CHECKING:
    from perdure.runtime.running.host import Host
    from perdure.runtime.running.runner import Runner


class _Reservation:
    """A turn that is about to begin, or a session that is about to be made without one."""

    def __init__(self, session_id: str, project: str | None, workdir: str, *, turn: bool) -> None:
        self.session_id = session_id
        self.project = project
        self.turn = turn
        self._workdir = workdir

    def shares(self, runner: "Runner") -> bool:
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


class Slots:
    def __init__(self, host: "Host") -> None:
        self._host = host
        self._reserved: list[_Reservation] = []
        self._replacing = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def taken(
        self, session_id: str, project: str | None, workdir: str, *, turn: bool = True
    ) -> AsyncIterator[bool]:
        """A slot for the turn that is begun inside. Of those that come at once the first is first. Raises Refused.

        A session that is made without a `turn` needs one only where idle sessions count; the value says whether there
        is one, so that its process may be started ahead."""
        mine = _Reservation(session_id, project, workdir, turn=turn)
        places = self._places(project)
        self._reserved.append(mine)
        try:
            async with contextlib.AsyncExitStack() as stack:
                if any(place.replaces for place in places):
                    # One after the other: a session can be replaced only when it is there.
                    await stack.enter_async_context(self._replacing)
                yield await self._make_room(places, mine)
        finally:
            self._reserved.remove(mine)

    def _places(self, project: str | None) -> list[_Place]:
        """The project comes first: a session that it replaces takes no slot of the server any more. The server has a
        rule of its own, since a project must not end the sessions of others."""
        places = []
        if self._host.settings.project_slots and project is not None:
            places.append(_Place(self._host.settings.project_slots, project, self._host.limits(project, {})))
        if self._host.config.slots:
            places.append(_Place(self._host.config.slots, None, self._host.limits(None, {})))
        return places

    async def _make_room(self, places: Sequence[_Place], mine: _Reservation) -> bool:
        """Whether there is a slot everywhere. The one place that decides what becomes of a turn that finds none.
        Nothing is ended or suspended before it is certain that the turn begins."""
        replaced: dict[str, Journal] = {}
        free = True
        for place in places:
            takers = [one for one in await self._takers(place, mine) if one.state.id not in replaced]
            named = {journal.state.id: Taker(journal.state.id, journal.state.title) for journal in takers}
            for session_id in self._starting(place, mine):
                named.setdefault(session_id, Taker(session_id, self._title(session_id)))
            if len(named) < place.limit:
                continue
            if place.replaces:
                oldest = sorted(takers, key=lambda journal: journal.state.last_active_at)
                replaced |= {one.state.id: one for one in oldest[: len(named) - place.limit + 1]}
            elif mine.turn or place.count_idle:
                raise no_slot(place.limit, place.project, list(named.values()), count_idle=place.count_idle)
            else:
                free = False
        for journal in replaced.values():
            await self._host.end_session(journal, cmd.EndSession("stopped", "replaced"))
        if free:
            for place in places:
                await self._suspend_idle(place, mine, replaced)
        return free

    def keeps(self, state: Session) -> bool:
        """Whether a session whose turn ends keeps its slot for a message that waits: unless a turn whose prompt was
        answered has taken it. Where idle sessions count, it has a slot until it ends."""
        others = [runner.journal.state for key, runner in self._host.runners.items() if key != state.id]
        return all(
            place.count_idle
            or place.limit
            > sum(takes_slot(one, count_idle=False) for one in others if place.project in (None, one.project))
            for place in self._places(state.project)
        )

    async def _suspend_idle(self, place: _Place, mine: _Reservation, replaced: Collection[str]) -> None:
        """No more processes than slots, besides those that wait for a person."""
        runners, starting = self._host.runners, self._starting(place, mine)
        alone = [
            runner.journal
            for key, runner in runners.items()
            if key != mine.session_id
            and key not in replaced
            and place.project in (None, runner.journal.state.project)
            and not runner.journal.state.prompts
            and not mine.shares(runner)
        ]
        idle = sorted(
            (one for one in alone if can_be_suspended(one.state) and one.state.id not in starting),
            key=lambda journal: journal.state.last_active_at,
        )
        excess = len({journal.state.id for journal in alone} | starting) + 1 - place.limit
        for journal in idle[: max(0, excess)]:
            await self._host.suspend(journal, "slot_needed")

    def _starting(self, place: _Place, mine: _Reservation) -> set[str]:
        """Those that came before and have not begun yet."""
        runners = self._host.runners
        return {
            other.session_id
            for other in self._reserved[: self._reserved.index(mine)]
            if other.session_id != mine.session_id
            and (other.turn or place.count_idle)
            and not (other.session_id in runners and runners[other.session_id].journal.state.working)
            and place.project in (None, other.project)
        }

    async def _takers(self, place: _Place, mine: _Reservation) -> list[Journal]:
        """The other sessions that take a slot; where idle ones count, also those without a process."""
        if place.count_idle:
            found = self._host.found(status="running", state=None)
            readable = [await self._host.readable(entry) async for entry in found]
            journals = [journal for journal in readable if journal is not None]
        else:
            journals = [runner.journal for runner in self._host.runners.values()]
        return [
            journal
            for journal in journals
            if journal.state.id != mine.session_id
            and place.project in (None, journal.state.project)
            and takes_slot(journal.state, count_idle=place.count_idle)
        ]

    def _title(self, session_id: str) -> str:
        journal = self._host.log.journals.get(session_id)
        return journal.state.title if journal is not None else ""
