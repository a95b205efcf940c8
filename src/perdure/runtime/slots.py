"""How many agents may run at once, on the server and in each project, and what happens when all slots are taken (S12).

Above: the verbs and the clocks, which take a slot before a turn begins. Below: the host's runners. An idle process
makes room by being suspended; where turns run in all slots the new one is refused, or the oldest session is ended.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from perdure.config import Limits
from perdure.core import commands as cmd
from perdure.core import state as st
from perdure.core.errors import Refused
from perdure.runtime.log import Journal

if TYPE_CHECKING:
    from perdure.runtime.host import Host
    from perdure.runtime.runner import Runner


class _Reservation:
    """A turn that is about to begin."""

    def __init__(self, session_id: str, project: str | None, workdir: str) -> None:
        self.session_id = session_id
        self.place = project or workdir
        self._where = (project, workdir)

    def shares(self, runner: "Runner") -> bool:
        """Whether its process may serve this turn too, so that it takes no place of its own."""
        state, attachment = runner.journal.state, runner.attachment
        shared = attachment is not None and attachment.shared is not None
        return shared and (state.project, state.workdir) == self._where


class Slots:
    def __init__(self, host: "Host") -> None:
        self._host = host
        self._reserved: list[_Reservation] = []

    @contextlib.asynccontextmanager
    async def taken(self, session_id: str, project: str | None, workdir: str) -> AsyncIterator[None]:
        """A slot for the turn that is begun inside. Raises Refused. Of those that come at once the first is first."""
        mine = _Reservation(session_id, project, workdir)
        self._reserved.append(mine)
        try:
            limits = self._host.limits(project, {})
            settings = self._host.settings
            for limit, place in ((settings.slots, None), (settings.project_slots, mine.place)):
                if limit:
                    await self._make_room(limit, place, mine, limits)
            yield
        finally:
            self._reserved.remove(mine)

    async def _make_room(self, limit: int, place: str | None, mine: _Reservation, limits: Limits) -> None:
        runners = self._host.runners
        others = [
            runner.journal
            for key, runner in runners.items()
            if key != mine.session_id and place in (None, _place(runner.journal.state))
        ]
        before = self._reserved[: self._reserved.index(mine)]
        waiting = {
            other.session_id
            for other in before
            if other.session_id != mine.session_id
            and not (other.session_id in runners and runners[other.session_id].journal.state.working)
            and place in (None, other.place)
        }
        holders = await self._running(place, mine) if limits.count_idle else [j for j in others if j.state.working]
        taken = len({journal.state.id for journal in holders} | waiting)
        if taken >= limit and limits.on_full == "replace":
            oldest = sorted(holders, key=lambda journal: journal.state.last_active_at)[: taken - limit + 1]
            for journal in oldest:
                await self._host.end_session(journal, cmd.EndSession("stopped", "replaced"))
            return
        if taken >= limit:
            where = "The project has" if place else "The server has"
            raise Refused(
                "slots_full",
                f"{where} {limit} running turn{'s' if limit > 1 else ''}, its limit. Wait for one to end, abort one, "
                f"or raise {'project_slots' if place else 'slots'} in perdure.toml.",
                limit_of="project" if place else "server",
            )
        alone = [journal for journal in others if not mine.shares(runners[journal.state.id])]
        idle = sorted(
            (journal for journal in alone if _is_idle(journal.state) and journal.state.id not in waiting),
            key=lambda journal: journal.state.last_active_at,
        )
        excess = len({journal.state.id for journal in alone} | waiting) + 1 - limit
        for journal in idle[: max(0, excess)]:
            await self._host.suspend(journal, "slot_needed")

    async def _running(self, place: str | None, mine: _Reservation) -> list[Journal]:
        """Every session that has not ended, with or without a process."""
        found = []
        async for entry in self._host.found(status="running", state=None):
            journal = await self._host.log.open(entry.session_id)
            if journal.state.id != mine.session_id and place in (None, _place(journal.state)):
                found.append(journal)
        return found


def _place(state: st.Session) -> str:
    return state.project or state.workdir


def _is_idle(state: st.Session) -> bool:
    """Whether its process can be suspended without stopping anything."""
    return not state.working and state.attached is not None and not state.background_tasks
