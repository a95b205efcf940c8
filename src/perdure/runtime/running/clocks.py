"""The clocks: turn timeout, turn limit, silence, idle, lifetime, usage limit and memory. Checked once a second.

Above: the engine starts and stops them; `explain` shows what is due. Below: timers.py has the rules; the state machine
decides what follows when a clock fires. Sessions with a process are checked one by one. Of the others, only those with
a running timer are tracked.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import msgspec

from perdure.config import Limits
from perdure.core import commands as cmd
from perdure.core.clock import seconds, stamp
from perdure.core.errors import UNREADABLE, Refused, StoreError
from perdure.core.state import Session, Turn
from perdure.runtime.keeping import processes
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.running.commands import Commands
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.placement import Placement
from perdure.runtime.running.runner import Runner
from perdure.runtime.running.runners import Runners
from perdure.runtime.running.timers import LOOK_EVERY_S, Ages, Effort, Stopwatch, Timer, timers
from perdure.stores.base import Found

logger = logging.getLogger(__name__)

MEMORY_CHECK_TICKS = 5
FORGET_TICKS = 60
DUE_TICKS = 5
DUE_GRACE_S = 5.0
"""How long a node that has the session in memory may take to act before other nodes do."""
DUE_AT_ONCE = 100
EVICT_AFTER_S = 30.0
GO_ON = "Go on: the usage limit has reset."


class _Watches:
    """Stopwatches for one session's running turn: how long it has run, been inactive, been silent, and left its
    input unanswered."""

    def __init__(self) -> None:
        self.turn, self.lifeless, self.quiet, self.unanswered = Stopwatch(), Stopwatch(), Stopwatch(), Stopwatch()
        self.effort = Effort()
        self.worked_s = 0.0
        """When its tool last used CPU time, by the steady clock."""
        self.reported_s = 0.0
        """When its silence was last reported, by the steady clock."""


class _Passed(NamedTuple):
    """Seconds, not counting time in which the turn waits for a person."""

    served_s: float
    lifeless_s: float
    quiet_s: float
    """Doesn't count time in which a tool runs, either."""


class Clocks:
    def __init__(self, log: Log, facts: Facts, commands: Commands, runners: Runners, placement: Placement) -> None:
        self._log = log
        self._facts = facts
        self._commands = commands
        self._runners = runners
        self._placement = placement
        self._task: asyncio.Task[None] | None = None
        self._ticks = 0
        self._ages = Ages()
        self._watches: dict[str, _Watches] = {}
        self._due: dict[str, list[Timer]] = {}
        """Idle sessions and their timers."""
        self._stale_due: set[str] = set()
        """Sessions that were due in the store but had no timer to fire. Cleared once a minute."""
        self.are_stopped: Callable[[], bool] = lambda: False
        """Whether keepers have paused all agents. No time counts for them then."""
        if log.shared is not None:
            log.due_at = self._due_at

    async def start(self) -> None:
        for state in self._runners.states():
            self._note(state)
        # With several nodes, the store knows when sessions are due, except sessions that were migrated from SQLite or
        # were already idle when a limit was set.
        async for found in self._log.found(status="running", state="idle"):
            await self._guarded(self._note_found(found))
        self._log.watch(self._changed)
        self._task = asyncio.create_task(self._run(), name="clocks")

    async def _note_found(self, found: Found) -> None:
        try:
            shown = msgspec.json.decode(found.public)
            limits = self._facts.limits(shown["project"], shown.get("limits") or {})
            has_clock = "end" in (limits.on_idle, limits.on_lifetime) or bool(shown.get("waiting_until"))
        except (*UNREADABLE, LookupError):
            has_clock = True  # its list entry is damaged, but the session itself may be fine
        if has_clock and (journal := await self._log.readable(found.session_id)) is not None:
            self._note(journal.state)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._guarded(self.tick())

    @staticmethod
    async def _guarded(look: Coroutine[Any, Any, None]) -> None:
        """Log errors: one failing session must not stop the clocks of the others."""
        try:
            await look
        except (StoreError, Refused) as error:
            logger.warning("a timer could not act; retrying: %s", error)
        except Exception:
            logger.exception("a timer failed; retrying")

    async def tick(self) -> None:
        """Check every clock once."""
        if self.are_stopped():
            return
        now, steady = self._log.now(), self._log.steady()
        self._ticks += 1
        for runner in self._runners:
            await self._guarded(self._look_at(runner, now, steady))
        due = [
            session_id
            for session_id, waiting in self._due.items()
            if session_id not in self._runners
            and any(self._ages.left_s(session_id, timer, now, steady) <= 0 for timer in waiting)
        ]
        for session_id in due:
            await self._guarded(self._fire_due(session_id))
        if self._log.shared is not None and self._ticks % DUE_TICKS == 0:
            await self._guarded(self._look_in_store(now))
        if self._ticks % FORGET_TICKS == 0:
            self._ages.keep({*(state.id for state in self._runners.states()), *self._due})
            self._watches = {key: watches for key, watches in self._watches.items() if key in self._runners}
            self._stale_due.clear()
        self._log.evict(EVICT_AFTER_S)

    async def _look_in_store(self, now: float) -> None:
        """Act on sessions that are overdue in the store: the node that had them in memory is gone, or has evicted them.
        If several nodes act at the same time, the store lets one of them decide."""
        limit = DUE_AT_ONCE + len(self._stale_due)
        for session_id in await self._log.store.due_sessions(stamp(now - DUE_GRACE_S), limit):
            if session_id in self._runners or session_id in self._stale_due:
                continue
            await self._guarded(self._fire_due(session_id))
            if (journal := self._log.journals.get(session_id)) is not None and journal.state.phase == "idle":
                # Its limits have changed since it was stored. Skip it, so that it doesn't hold up others.
                self._stale_due.add(session_id)

    def _limits(self, state: Session) -> Limits:
        return self._facts.limits(state.project, state.limits)

    def left(self, journal: Journal) -> list[dict[str, Any]]:
        """Each clock that is running for this session: when it fires if nothing happens before, and what it then
        does."""
        state, limits, now, steady = (
            journal.state,
            self._limits(journal.state),
            self._log.now(),
            self._log.steady(),
        )
        found: list[tuple[float, str, str]] = [
            (self._ages.left_s(state.id, timer, now, steady), timer.name, timer.then) for timer in timers(state, limits)
        ]
        turn = state.turn
        runner = self._runners.get(state.id)
        if state.phase == "working" and turn is not None and not state.prompts and runner is not None:
            passed = self._look_at_turn(runner, turn, steady)
            if limits.turn_timeout_s:
                found.append((limits.turn_timeout_s - passed.lifeless_s, "turn_timeout", "abort"))
            if limits.turn_limit_s:
                found.append((limits.turn_limit_s - passed.served_s, "turn_limit", "abort"))
            if limits.silence_s and not turn.open_tools:
                found.append((limits.silence_s - passed.quiet_s, "silence", limits.on_silence or "report"))
        shown = []
        for left_s, name, then in sorted(found):
            left_s = max(0.0, left_s)
            shown.append({"timer": name, "then": then, "at": stamp(now + left_s), "in_s": round(left_s, 1)})
        return shown

    # Running turns and idle processes ------------------------------------------------------------------------------

    async def _look_at(self, runner: Runner, now: float, steady: float) -> None:
        runner.look_after()
        await self._runners.vacate(runner)
        state = runner.journal.state
        limits = self._limits(state)
        if state.phase == "working":
            await self._turn_clocks(runner, limits, steady)
        elif state.phase == "idle":
            await self._idle_clocks(runner.journal, now, steady)
        if limits.memory_limit_mb and self._ticks % MEMORY_CHECK_TICKS == 0:
            self._watch_memory(runner, limits.memory_limit_mb)

    async def _turn_clocks(self, runner: Runner, limits: Limits, steady: float) -> None:
        journal = runner.journal
        if limits.turn_timeout_s:
            await self._measure_tool(runner, steady, limits.turn_timeout_s)
        state, turn = journal.state, journal.state.turn
        if turn is None or state.phase != "working":
            return
        passed = self._look_at_turn(runner, turn, steady)
        if state.prompts:
            return
        if limits.turn_limit_s and passed.served_s >= limits.turn_limit_s:
            expired = cmd.ExpireTurnClock("turn_limit", turn.turn, limits.turn_limit_s, True)
            await self._commands.quietly(journal, expired, by_owner=True)
            return
        if limits.turn_timeout_s and passed.lifeless_s >= limits.turn_timeout_s:
            expired = cmd.ExpireTurnClock("turn_timeout", turn.turn, limits.turn_timeout_s, True)
            await self._commands.quietly(journal, expired, by_owner=True)
            return
        if self._is_stuck(runner, steady):
            runner.kill("stuck")
            return
        if limits.silence_s and not turn.open_tools and passed.quiet_s >= limits.silence_s:
            self._watches[state.id].reported_s = steady
            expired = cmd.ExpireTurnClock("silence", turn.turn, limits.silence_s, limits.on_silence == "abort")
            await self._commands.quietly(journal, expired, by_owner=True)

    def _look_at_turn(self, runner: Runner, turn: Turn, steady: float) -> _Passed:
        state, link = runner.journal.state, runner.link
        watches = self._watches.setdefault(state.id, _Watches())
        has_unread = link is not None and link.has_unread()
        if has_unread:
            # In case a hint was lost.
            runner.read_on()
        alive = (turn.turn, max(runner.heard_s, watches.worked_s))
        shown = (turn.turn, max(runner.heard_s, watches.reported_s))
        is_lifeless = not (state.prompts or has_unread)
        return _Passed(
            served_s=watches.turn.look(turn.turn, steady, counts=not state.prompts),
            lifeless_s=watches.lifeless.look(alive, steady, counts=is_lifeless),
            quiet_s=watches.quiet.look(shown, steady, counts=is_lifeless and not turn.open_tools),
        )

    async def _measure_tool(self, runner: Runner, steady: float, timeout_s: float) -> None:
        """Note whether a running tool uses CPU time. Measures the keeper's process tree, because orphaned children of
        the agent are below the keeper."""
        state, launch = runner.journal.state, runner.link.launch if runner.link is not None else None
        if launch is None or state.turn is None or not state.turn.open_tools or state.prompts:
            return
        watches = self._watches.setdefault(state.id, _Watches())
        if not watches.effort.is_due((state.turn.turn, *state.turn.open_tools), steady, timeout_s):
            return
        pid = launch.keeper_pid() or launch.pid()
        # In a thread: reading the whole process table must not delay other sessions.
        cpu_s = await asyncio.to_thread(processes.tree_cpu_s, pid) if pid is not None else 0.0
        if watches.effort.measured(steady, timeout_s, cpu_s):
            watches.worked_s = steady

    def _is_stuck(self, runner: Runner, steady: float) -> bool:
        """Whether a process ignores its input. With some drivers, a working process immediately answers each message
        with a line that begins the turn, however slow its model is. If it doesn't, another driver serves the turn."""
        state, link, limit_s = runner.journal.state, runner.link, self._facts.settings.stuck_s
        if link is None or state.attached is None or not state.attached.opened or not limit_s:
            return False
        asked = (link.launch_id, link.conversation.unanswered)
        waits = asked[1] is not None and not link.has_unread()
        unanswered_s = self._watches.setdefault(state.id, _Watches()).unanswered.look(asked, steady, counts=waits)
        return waits and link.driver.fallback is not None and unanswered_s >= limit_s

    def _watch_memory(self, runner: Runner, limit_mb: int) -> None:
        link = runner.link
        pid = link.launch.pid() if link is not None and link.launch is not None else None
        if pid is not None and processes.tree_rss_bytes(pid) > limit_mb * 1024 * 1024:
            runner.kill("memory")

    # Idle sessions -------------------------------------------------------------------------------------------------

    async def _idle_clocks(self, journal: Journal, now: float, steady: float) -> None:
        """Act on the timer that was due first."""
        state = journal.state
        waiting = [
            (self._ages.left_s(state.id, timer, now, steady), timer) for timer in timers(state, self._limits(state))
        ]
        due = [(left_s, timer) for left_s, timer in waiting if left_s <= 0]
        if not due:
            return
        timer = min(due, key=lambda entry: entry[0])[1]
        if timer.then == "continue":
            await self._placement.go_on(journal, cmd.EndWait(GO_ON))
        elif timer.then == "end":
            await self._commands.quietly(journal, cmd.EndSession("timed-out", timer.name))
        else:
            await self._commands.suspend(journal, timer.name)

    def _changed(self, session_id: str) -> None:
        journal = self._log.journals.get(session_id)
        if journal is not None:
            self._note(journal.state)
        elif session_id in self._log.erased:
            self._due.pop(session_id, None)

    def _note(self, state: Session) -> None:
        waiting = timers(state, self._limits(state)) if state.phase == "idle" else []
        if not waiting:
            self._due.pop(state.id, None)
            return
        self._due[state.id] = waiting
        for timer in waiting:
            # Compute its age now, before the wall clock may change.
            self._ages.left_s(state.id, timer, self._log.now(), self._log.steady())

    def _due_at(self, state: Session) -> str | None:
        """When the first timer fires that doesn't concern a process. Timers of a process are its own node's task."""
        waiting = [timer for timer in timers(state, self._limits(state)) if timer.then != "suspend"]
        return min((stamp(seconds(timer.since) + timer.after_s) for timer in waiting), default=None)

    async def _fire_due(self, session_id: str) -> None:
        try:
            journal = await self._log.open(session_id)
        except Refused:
            self._due.pop(session_id, None)  # it was erased
            return
        self._note(journal.state)
        await self._idle_clocks(journal, self._log.now(), self._log.steady())
