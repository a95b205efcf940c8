"""The clocks: turn, silence, idle, lifetime, usage limit and memory. Looked at once a second.

Above: the host starts and stops them. Below: the machine decides what a clock that fired leads to; here only time is
compared. Sessions with a process are looked at one by one; of the others only those are remembered that have a moment
at which something must happen.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.config import Limits
from perdure.core import commands as cmd
from perdure.core.clock import seconds
from perdure.core.errors import Refused, StoreError
from perdure.core.observe import FALLBACK_DRIVERS
from perdure.core.state import Session
from perdure.runtime import processes
from perdure.runtime.log import Journal

if TYPE_CHECKING:
    from perdure.runtime.host import Host
    from perdure.runtime.runner import Runner

logger = logging.getLogger(__name__)

TICK_S = 1.0
MEMORY_CHECK_TICKS = 5
EVICT_AFTER_S = 30.0
GO_ON = "Go on: the usage limit has reset."


class Clocks:
    def __init__(self, host: "Host") -> None:
        self._host = host
        self._task: asyncio.Task[None] | None = None
        self._ticks = 0
        self._due: dict[str, float] = {}
        """Sessions without a process: when something must happen to them."""

    async def start(self) -> None:
        async for found in self._host.found(status="running", state="idle"):
            shown = msgspec.json.decode(found.public)
            limits = self._host.limits(shown["project"], shown.get("limits") or {})
            if limits.on_idle == "end" or shown.get("waiting_until"):
                self._note((await self._host.log.open(found.session_id)).state)
        self._host.log.wakeups.listen(self._changed)
        self._task = asyncio.create_task(self._run(), name="clocks")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await self._guarded(self.tick())

    @staticmethod
    async def _guarded(look: Coroutine[Any, Any, None]) -> None:
        """One that fails must not stop the others, neither now nor for ever."""
        try:
            await look
        except (StoreError, Refused) as error:
            logger.warning("a clock could not act: %s", error)
        except Exception:
            logger.exception("a clock failed")

    async def tick(self) -> None:
        """Look at every clock once."""
        host, now = self._host, self._host.log.now()
        self._ticks += 1
        for runner in list(host.runners.values()):
            await self._guarded(self._look_at(runner, now))
        for session_id in [key for key, moment in self._due.items() if moment <= now]:
            await self._guarded(self._at_last(session_id))
        host.log.evict(EVICT_AFTER_S)

    # Running turns and idle processes ------------------------------------------------------------------------------

    async def _look_at(self, runner: "Runner", now: float) -> None:
        state = runner.journal.state
        limits = self._host.limits(state.project, state.limits)
        if state.phase == "working":
            await self._turn_clocks(runner, limits, now)
        elif state.phase == "idle" and state.attached is not None:
            await self._process_clocks(runner.journal, limits, now)
        if limits.memory_limit_mb and self._ticks % MEMORY_CHECK_TICKS == 0:
            self._watch_memory(runner, limits.memory_limit_mb)

    async def _turn_clocks(self, runner: "Runner", limits: Limits, now: float) -> None:
        journal = runner.journal
        state, turn = journal.state, journal.state.turn
        if turn is None or state.prompts:
            return
        ran = now - seconds(turn.started_at) - turn.paused_ms / 1000
        if limits.turn_timeout_s and ran >= limits.turn_timeout_s:
            expired = cmd.ExpireTurnClock("turn", turn.turn, limits.turn_timeout_s, True)
            await self._host.command(journal, expired, quietly=True)
            return
        if self._is_stuck(runner, now):
            runner.kill("stuck")
            return
        quiet_since = max(journal.last_event_at, runner.silence_reported_at)
        if limits.silence_s and not turn.open_tools and now - quiet_since >= limits.silence_s:
            runner.silence_reported_at = now
            expired = cmd.ExpireTurnClock("silence", turn.turn, limits.silence_s, limits.on_silence == "abort")
            await self._host.command(journal, expired, quietly=True)

    def _is_stuck(self, runner: "Runner", now: float) -> bool:
        """A streaming process answers every message at once with a line that begins its turn, however slow its model
        is. One that does not is broken in a way that is known of some versions; another driver serves the turn."""
        state, attachment, limit_s = runner.journal.state, runner.attachment, self._host.settings.stuck_s
        if attachment is None or state.attached is None or not state.attached.opened or not limit_s:
            return False
        return state.attached.driver in FALLBACK_DRIVERS and attachment.unanswered_s(now) >= limit_s

    async def _process_clocks(self, journal: Journal, limits: Limits, now: float) -> None:
        state = journal.state
        assert state.attached is not None
        idle_s = now - seconds(state.last_active_at)
        # What runs beside the conversation keeps the process, but no longer than its lifetime.
        if limits.idle_timeout_s and idle_s >= limits.idle_timeout_s and not state.background_tasks:
            await self._expire(journal, limits.on_idle, "idle_timeout")
        elif limits.lifetime_s and now - seconds(state.attached.since) >= limits.lifetime_s:
            await self._expire(journal, limits.on_lifetime, "lifetime")

    async def _expire(self, journal: Journal, what: str | None, reason: str) -> None:
        if what == "end":
            await self._host.end_session(journal, cmd.EndSession("timed-out", reason))
        else:
            await self._host.suspend(journal, reason)

    def _watch_memory(self, runner: "Runner", limit_mb: int) -> None:
        attachment = runner.attachment
        pid = attachment.launch.pid() if attachment is not None and attachment.launch is not None else None
        if pid is not None and processes.tree_rss_bytes(pid) > limit_mb * 1024 * 1024:
            runner.kill("memory")

    # Sessions that wait --------------------------------------------------------------------------------------------

    def _changed(self, session_id: str) -> None:
        journal = self._host.log.journals.get(session_id)
        if journal is not None:
            self._note(journal.state)

    def _note(self, state: Session) -> None:
        moment = self._moment(state)
        if moment is None:
            self._due.pop(state.id, None)
        else:
            self._due[state.id] = moment

    def _moment(self, state: Session) -> float | None:
        """When something must happen to a session that has no process, or waits for a limit."""
        if state.phase != "idle":
            return None
        limits = self._host.limits(state.project, state.limits)
        if state.waiting_until is not None:
            by_itself = limits.on_limit == "continue" and state.waits <= (limits.limit_retries or 0)
            return seconds(state.waiting_until) if by_itself or state.queue else None
        if state.attached is None and limits.on_idle == "end" and limits.idle_timeout_s:
            return seconds(state.last_active_at) + limits.idle_timeout_s
        return None

    async def _at_last(self, session_id: str) -> None:
        try:
            journal = await self._host.log.open(session_id)
        except Refused:
            self._due.pop(session_id, None)  # it was erased
            return
        moment = self._moment(journal.state)
        if moment is None or moment > self._host.log.now():
            self._note(journal.state)
        elif journal.state.waiting_until is not None:
            await self._host.go_on(journal, GO_ON)
        else:
            await self._expire(journal, "end", "idle_timeout")
