"""The clocks: turn timeout, turn limit, silence, idle, lifetime, usage limit and memory. Looked at once a second.

Above: server.py starts and stops them; `explain` asks what is due. Below: timers.py holds the rules; the machine
decides what a clock that fired leads to. Sessions with a process are looked at one by one; of the others only those are
remembered that have a moment at which something must happen.
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
from perdure.core.observe import FALLBACK_DRIVERS
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
"""How long whoever has a session in memory may take to act, before other nodes do."""
DUE_AT_ONCE = 100
EVICT_AFTER_S = 30.0
GO_ON = "Go on: the usage limit has reset."


class _Watches:
    """Of one session's running turn: how long it works, shows no sign of life, is silent, and has not begun."""

    def __init__(self) -> None:
        self.turn, self.lifeless, self.quiet, self.unanswered = Stopwatch(), Stopwatch(), Stopwatch(), Stopwatch()
        self.effort = Effort()
        self.worked_s = 0.0
        """When its tool was last seen to work, by the steady clock."""
        self.reported_s = 0.0
        """When its silence was."""


class _Passed(NamedTuple):
    """Seconds, without those in which the turn waits for a person."""

    served_s: float
    lifeless_s: float
    quiet_s: float
    """Also without those in which a tool runs."""


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
        """Idle sessions, and what will happen to them."""
        self._fruitless: set[str] = set()
        """Sessions that were due and led to nothing; forgotten once a minute."""
        self.are_stopped: Callable[[], bool] = lambda: False
        """Whether keepers have paused all agents: then no time passes for them."""
        if log.shared is not None:
            log.due_at = self._due_at

    async def start(self) -> None:
        for state in self._runners.states():
            self._note(state)
        # With several nodes the store knows when sessions are due, but not of those that were migrated from SQLite, or
        # that rested already when a limit was set.
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
            has_clock = True  # its row in the lists is damaged; the session itself may not be
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
        """One that fails must not stop the others, neither now nor for ever."""
        try:
            await look
        except (StoreError, Refused) as error:
            logger.warning("a clock could not act: %s", error)
        except Exception:
            logger.exception("a clock failed")

    async def tick(self) -> None:
        """Look at every clock once."""
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
            await self._guarded(self._at_last(session_id))
        if self._log.shared is not None and self._ticks % DUE_TICKS == 0:
            await self._guarded(self._look_in_store(now))
        if self._ticks % FORGET_TICKS == 0:
            self._ages.keep({*(state.id for state in self._runners.states()), *self._due})
            self._watches = {key: watches for key, watches in self._watches.items() if key in self._runners}
            self._fruitless.clear()
        self._log.evict(EVICT_AFTER_S)

    async def _look_in_store(self, now: float) -> None:
        """Sessions that are due although no node has acted: the one that knew of them is gone, or has forgotten them.
        Of several nodes that act at once, the store lets one decide."""
        limit = DUE_AT_ONCE + len(self._fruitless)
        for session_id in await self._log.store.due_sessions(stamp(now - DUE_GRACE_S), limit):
            if session_id in self._runners or session_id in self._fruitless:
                continue
            await self._guarded(self._at_last(session_id))
            if (journal := self._log.journals.get(session_id)) is not None and journal.state.phase == "idle":
                # Its limits have changed since it was stored. Others must not wait behind it.
                self._fruitless.add(session_id)

    def _limits(self, state: Session) -> Limits:
        return self._facts.limits(state.project, state.limits)

    def left(self, journal: Journal) -> list[dict[str, Any]]:
        """Each clock that runs for this session, when it fires if nobody does anything, and what it then does."""
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
        state, attachment = runner.journal.state, runner.attachment
        watches = self._watches.setdefault(state.id, _Watches())
        has_unread = attachment is not None and attachment.has_unread()
        if has_unread:
            # A hint may be lost; then this is what finds it.
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
        """Note whether a running tool works. What left its parent is below the keeper, not below the agent."""
        state, launch = runner.journal.state, runner.attachment.launch if runner.attachment is not None else None
        if launch is None or state.turn is None or not state.turn.open_tools or state.prompts:
            return
        watches = self._watches.setdefault(state.id, _Watches())
        if not watches.effort.is_due((state.turn.turn, *state.turn.open_tools), steady, timeout_s):
            return
        pid = launch.keeper_pid() or launch.pid()
        # It reads the table of all processes, for which other sessions must not wait.
        cpu_s = await asyncio.to_thread(processes.tree_cpu_s, pid) if pid is not None else 0.0
        if watches.effort.measured(steady, timeout_s, cpu_s):
            watches.worked_s = steady

    def _is_stuck(self, runner: Runner, steady: float) -> bool:
        """A streaming process answers every message at once with a line that begins its turn, however slow its model
        is. One that does not is broken in a way that is known of some versions; another driver serves the turn."""
        state, attachment, limit_s = runner.journal.state, runner.attachment, self._facts.settings.stuck_s
        if attachment is None or state.attached is None or not state.attached.opened or not limit_s:
            return False
        asked = (attachment.launch_id, attachment.conversation.unanswered)
        waits = asked[1] is not None and not attachment.has_unread()
        unanswered_s = self._watches.setdefault(state.id, _Watches()).unanswered.look(asked, steady, counts=waits)
        return waits and state.attached.driver in FALLBACK_DRIVERS and unanswered_s >= limit_s

    def _watch_memory(self, runner: Runner, limit_mb: int) -> None:
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
            # Seen now, before anybody sets the clock.
            self._ages.left_s(state.id, timer, self._log.now(), self._log.steady())

    def _due_at(self, state: Session) -> str | None:
        """When the first clock fires that needs no process: what a process needs, its node sees to."""
        waiting = [timer for timer in timers(state, self._limits(state)) if timer.then != "suspend"]
        return min((stamp(seconds(timer.since) + timer.after_s) for timer in waiting), default=None)

    async def _at_last(self, session_id: str) -> None:
        try:
            journal = await self._log.open(session_id)
        except Refused:
            self._due.pop(session_id, None)  # it was erased
            return
        self._note(journal.state)
        await self._idle_clocks(journal, self._log.now(), self._log.steady())
