"""How many turns may run at once, on the server and in each project, and what happens when all slots are taken (S12).

Above: the verbs and the clocks, which take a slot before a turn begins. Below: the host's runners; core/slots.py says
who takes one. An idle process makes room by being suspended. Where all slots are taken, the new turn is refused, or
the sessions that were active longest ago are ended.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from perdure.config import Limits
from perdure.core import commands as cmd
from perdure.core.slots import Taker, can_be_suspended, no_slot, takes_slot
from perdure.runtime.log import Journal

if TYPE_CHECKING:
    from perdure.runtime.host import Host
    from perdure.runtime.runner import Runner


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


class Slots:
    def __init__(self, host: "Host") -> None:
        self._host = host
        self._reserved: list[_Reservation] = []

    @contextlib.asynccontextmanager
    async def taken(
        self, session_id: str, project: str | None, workdir: str, *, turn: bool = True
    ) -> AsyncIterator[bool]:
        """A slot for the turn that is begun inside. Of those that come at once the first is first. Raises Refused.

        A session that is made without a `turn` needs one only where idle sessions count; the value says whether there
        is one, so that its process may be started ahead."""
        mine = _Reservation(session_id, project, workdir, turn=turn)
        self._reserved.append(mine)
        try:
            settings, slots, free = self._host.settings, self._host.config.slots, True
            # The server's own rule for all of it: a project must not end the sessions of others.
            if slots:
                free = await self._make_room(slots, None, mine, self._host.limits(None, {}))
            if settings.project_slots and project is not None:
                limits = self._host.limits(project, {})
                free = await self._make_room(settings.project_slots, project, mine, limits) and free
            yield free
        finally:
            self._reserved.remove(mine)

    async def _make_room(self, limit: int, project: str | None, mine: _Reservation, limits: Limits) -> bool:
        """Whether there is a slot on the server, or in this project. The one place that decides what becomes of a turn
        for which there is none."""
        replaces = limits.on_full == "replace"
        # Who makes a new session is done with the old one, whether that runs, waits or is idle.
        count_idle = bool(limits.count_idle) or replaces
        takers = await self._takers(project, mine, count_idle=count_idle)
        starting = self._starting(project, mine, count_idle=count_idle)
        named = {journal.state.id: Taker(journal.state.id, journal.state.title) for journal in takers}
        for session_id in starting:
            named.setdefault(session_id, Taker(session_id, self._title(session_id)))
        if len(named) >= limit:
            if replaces:
                oldest = sorted(takers, key=lambda journal: journal.state.last_active_at)
                for journal in oldest[: len(named) - limit + 1]:
                    await self._host.end_session(journal, cmd.EndSession("stopped", "replaced"))
                return True
            if mine.turn or count_idle:
                raise no_slot(limit, project, list(named.values()), count_idle=count_idle)
            return False
        await self._suspend_idle(limit, project, mine, starting)
        return True

    async def _suspend_idle(self, limit: int, project: str | None, mine: _Reservation, starting: set[str]) -> None:
        """No more processes than slots, besides those that wait for a person."""
        runners = self._host.runners
        alone = [
            runner.journal
            for key, runner in runners.items()
            if key != mine.session_id
            and project in (None, runner.journal.state.project)
            and not runner.journal.state.prompts
            and not mine.shares(runner)
        ]
        idle = sorted(
            (one for one in alone if can_be_suspended(one.state) and one.state.id not in starting),
            key=lambda journal: journal.state.last_active_at,
        )
        excess = len({journal.state.id for journal in alone} | starting) + 1 - limit
        for journal in idle[: max(0, excess)]:
            await self._host.suspend(journal, "slot_needed")

    def _starting(self, project: str | None, mine: _Reservation, *, count_idle: bool) -> set[str]:
        """Those that came before and have not begun yet."""
        runners = self._host.runners
        return {
            other.session_id
            for other in self._reserved[: self._reserved.index(mine)]
            if other.session_id != mine.session_id
            and (other.turn or count_idle)
            and not (other.session_id in runners and runners[other.session_id].journal.state.working)
            and project in (None, other.project)
        }

    async def _takers(self, project: str | None, mine: _Reservation, *, count_idle: bool) -> list[Journal]:
        """The other sessions that take a slot; where idle ones count, also those without a process."""
        if count_idle:
            found = self._host.found(status="running", state=None)
            readable = [await self._host.readable(entry) async for entry in found]
            journals = [journal for journal in readable if journal is not None]
        else:
            journals = [runner.journal for runner in self._host.runners.values()]
        return [
            journal
            for journal in journals
            if journal.state.id != mine.session_id
            and project in (None, journal.state.project)
            and takes_slot(journal.state, count_idle=count_idle)
        ]

    def _title(self, session_id: str) -> str:
        journal = self._host.log.journals.get(session_id)
        return journal.state.title if journal is not None else ""
