"""The clocks: turn, silence, idle, lifetime, usage limit and memory. Looked at once a second.

Above: the host starts and stops them; `explain` asks what is due. Below: timers.py holds the rules; the machine decides
what a clock that fired leads to. Sessions with a process are looked at one by one; of the others only those are
remembered that have a moment at which something must happen.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.config import Limits
from perdure.core import commands as cmd
from perdure.core.clock import stamp
from perdure.core.errors import UNREADABLE, Refused, StoreError
from perdure.core.observe import FALLBACK_DRIVERS
from perdure.core.state import Session, Turn
from perdure.runtime import processes
from perdure.runtime.log import Journal
from perdure.runtime.timers import Ages, Stopwatch, Timer, timers
from perdure.stores.base import Found

if TYPE_CHECKING:
    from perdure.runtime.host import Host
    from perdure.runtime.runner import Runner

logger = logging.getLogger(__name__)

TICK_S = 1.0
MEMORY_CHECK_TICKS = 5
FORGET_TICKS = 60
EVICT_AFTER_S = 30.0
GO_ON = "Go on: the usage limit has reset."


class _Watches:
    """Of one session's running turn: how long it works, is silent, and shows no sign that it has begun."""

    def __init__(self) -> None:
        self.turn, self.quiet, self.unanswered = Stopwatch(), Stopwatch(), Stopwatch()


class Clocks:
    def __init__(self, host: "Host") -> None:
        self._host = host
        self._task: asyncio.Task[None] | None = None
        self._ticks = 0
        self._ages = Ages()
        self._watches: dict[str, _Watches] = {}
        self._due: dict[str, list[Timer]] = {}
        """Idle sessions, and what will happen to them."""

    async def start(self) -> None:
        for runner in self._host.runners.values():
            state = runner.journal.state
            self._note(state)
        async for found in self._host.found(status="running", state="idle"):
            await self._guarded(self._note_found(found))
        self._host.log.wakeups.listen(self._changed)
        self._task = asyncio.create_task(self._run(), name="clocks")

    async def _note_found(self, found: Found) -> None:
        try:
            shown = msgspec.json.decode(found.public)
            limits = self._host.limits(shown["project"], shown.get("limits") or {})
            has_clock = "end" in (limits.on_idle, limits.on_lifetime) or bool(shown.get("waiting_until"))
        except (*UNREADABLE, LookupError):
            has_clock = True  # its row in the lists is damaged; the session itself may not be
        if has_clock and (journal := await self._host.readable(found)) is not None:
            self._note(journal.state)

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
        host, now, steady = self._host, self._host.log.now(), self._host.log.steady()
        self._ticks += 1
        for runner in list(host.runners.values()):
            await self._guarded(self._look_at(runner, now, steady))
        due = [
            session_id
            for session_id, waiting in self._due.items()
            if session_id not in host.runners
            and any(self._ages.left_s(session_id, timer, now, steady) <= 0 for timer in waiting)
        ]
        for session_id in due:
            await self._guarded(self._at_last(session_id))
        if self._ticks % FORGET_TICKS == 0:
            self._ages.keep({*host.runners, *self._due})
            self._watches = {key: watches for key, watches in self._watches.items() if key in host.runners}
        host.log.evict(EVICT_AFTER_S)

    def _limits(self, state: Session) -> Limits:
        return self._host.limits(state.project, state.limits)

    def left(self, journal: Journal) -> list[dict[str, Any]]:
        """Each clock that runs for this session, when it fires if nobody does anything, and what it then does."""
        state, limits, now, steady = (
            journal.state,
            self._limits(journal.state),
            self._host.log.now(),
            self._host.log.steady(),
        )
        found: list[tuple[float, str, str]] = [
            (self._ages.left_s(state.id, timer, now, steady), timer.name, timer.then) for timer in timers(state, limits)
        ]
        turn = state.turn
        runner = self._host.runners.get(state.id)
        if state.phase == "working" and turn is not None and not state.prompts and runner is not None:
            served_s, quiet_s = self._look_at_turn(runner, turn, steady)
            if limits.turn_timeout_s:
                found.append((limits.turn_timeout_s - served_s, "turn_timeout", "abort"))
            if limits.silence_s and not turn.open_tools:
                found.append((limits.silence_s - quiet_s, "silence", limits.on_silence or "report"))
        shown = []
        for left_s, name, then in sorted(found):
            left_s = max(0.0, left_s)
            shown.append({"timer": name, "then": then, "at": stamp(now + left_s), "in_s": round(left_s, 1)})
        return shown

    # Running turns and idle processes ------------------------------------------------------------------------------

    async def _look_at(self, runner: "Runner", now: float, steady: float) -> None:
        runner.look_after()
        await self._host.vacate(runner)
        state = runner.journal.state
        limits = self._limits(state)
        if state.phase == "working":
            await self._turn_clocks(runner, limits, steady)
        elif state.phase == "idle":
            await self._idle_clocks(runner.journal, now, steady)
        if limits.memory_limit_mb and self._ticks % MEMORY_CHECK_TICKS == 0:
            self._watch_memory(runner, limits.memory_limit_mb)

    async def _turn_clocks(self, runner: "Runner", limits: Limits, steady: float) -> None:
        journal = runner.journal
        state, turn = journal.state, journal.state.turn
        if turn is None:
            return
        served_s, quiet_s = self._look_at_turn(runner, turn, steady)
        if state.prompts:
            return
        if limits.turn_timeout_s and served_s >= limits.turn_timeout_s:
            expired = cmd.ExpireTurnClock("turn", turn.turn, limits.turn_timeout_s, True)
            await self._host.command(journal, expired, quietly=True)
            return
        if self._is_stuck(runner, steady):
            runner.kill("stuck")
            return
        if limits.silence_s and not turn.open_tools and quiet_s >= limits.silence_s:
            runner.silence_reported_s = steady
            expired = cmd.ExpireTurnClock("silence", turn.turn, limits.silence_s, limits.on_silence == "abort")
            await self._host.command(journal, expired, quietly=True)

    def _look_at_turn(self, runner: "Runner", turn: Turn, steady: float) -> tuple[float, float]:
        """How long the turn has been worked on and how long it is silent, without the time in which it waits for a
        person; while a tool runs it is not silent either."""
        state, attachment = runner.journal.state, runner.attachment
        watches = self._watches.setdefault(state.id, _Watches())
        served_s = watches.turn.look(turn.turn, steady, counts=not state.prompts)
        since = max(runner.journal.last_event_s, runner.silence_reported_s)
        has_unread = attachment is not None and attachment.has_unread()
        is_silent = not (state.prompts or turn.open_tools or has_unread)
        return served_s, watches.quiet.look((turn.turn, since), steady, counts=is_silent)

    def _is_stuck(self, runner: "Runner", steady: float) -> bool:
        """A streaming process answers every message at once with a line that begins its turn, however slow its model
        is. One that does not is broken in a way that is known of some versions; another driver serves the turn."""
        state, attachment, limit_s = runner.journal.state, runner.attachment, self._host.settings.stuck_s
        if attachment is None or state.attached is None or not state.attached.opened or not limit_s:
            return False
        asked = (attachment.launch_id, attachment.conversation.unanswered)
        waits = asked[1] is not None and not attachment.has_unread()
        unanswered_s = self._watches.setdefault(state.id, _Watches()).unanswered.look(asked, steady, counts=waits)
        return waits and state.attached.driver in FALLBACK_DRIVERS and unanswered_s >= limit_s

    def _watch_memory(self, runner: "Runner", limit_mb: int) -> None:
        attachment = runner.attachment
        pid = attachment.launch.pid() if attachment is not None and attachment.launch is not None else None
        if pid is not None and processes.tree_rss_bytes(pid) > limit_mb * 1024 * 1024:
            runner.kill("memory")

    # Idle sessions -------------------------------------------------------------------------------------------------

    async def _idle_clocks(self, journal: Journal, now: float, steady: float) -> None:
        """Do what is due first."""
        state = journal.state
        waiting = [
            (self._ages.left_s(state.id, timer, now, steady), timer) for timer in timers(state, self._limits(state))
        ]
        due = [(left_s, timer) for left_s, timer in waiting if left_s <= 0]
        if not due:
            return
        timer = min(due, key=lambda entry: entry[0])[1]
        if timer.then == "continue":
            await self._host.go_on(journal, GO_ON)
        elif timer.then == "end":
            await self._host.end_session(journal, cmd.EndSession("timed-out", timer.name))
        else:
            await self._host.suspend(journal, timer.name)

    def _changed(self, session_id: str) -> None:
        journal = self._host.log.journals.get(session_id)
        if journal is not None:
            self._note(journal.state)

    def _note(self, state: Session) -> None:
        waiting = timers(state, self._limits(state)) if state.phase == "idle" else []
        if not waiting:
            self._due.pop(state.id, None)
            return
        self._due[state.id] = waiting
        for timer in waiting:
            # Seen now, before anybody sets the clock.
            self._ages.left_s(state.id, timer, self._host.log.now(), self._host.log.steady())

    async def _at_last(self, session_id: str) -> None:
        try:
            journal = await self._host.log.open(session_id)
        except Refused:
            self._due.pop(session_id, None)  # it was erased
            return
        self._note(journal.state)
        await self._idle_clocks(journal, self._host.log.now(), self._host.log.steady())
