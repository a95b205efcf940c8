"""When a clock fires and what it then does: rules as functions from values to values. No clock is read here.

Above: clocks.py, which looks once a second, and `explain`, which says it in advance. Below: settings and state.

Durations are measured with the steady clock, which nobody can set and which stops while the machine sleeps. A running
turn counts the time it was served by this server. Idle and lifetime begin at a stored moment of the wall clock, whose
age is taken once, when it is first seen; from then on the steady clock counts. So neither a step of the wall clock nor
a sleep stops a turn, ends a session or keeps it for ever. Only a usage limit resets at a moment of the wall clock.

A turn's timeout counts the time without a sign of life. Something that the agent shows is one. A running tool alone is
not: most turns that hang do so in a tool. But a tool whose processes use the processor is working, although it may show
nothing until it is done, as a long test does.
"""

from collections.abc import Collection, Hashable
from typing import Any, Literal

from msgspec import Struct

from perdure.config import Limits
from perdure.core.clock import seconds
from perdure.core.events import ToolUpdate
from perdure.core.state import Session

LOOK_EVERY_S = 1.0
STEP_MAX_S = 3.0
"""Between two looks: what exceeds it was a stopped process or machine and not time served."""
MEASURES_PER_TIMEOUT = 10
WORKING_SHARE = 0.05
"""Of one processor: processes that use more are working. An agent that only waits for its tool uses about 1 %."""


class Timer(Struct, frozen=True):
    """One clock of an idle session: it fires so long after a stored moment."""

    name: Literal["idle_timeout", "lifetime", "usage_limit"]
    since: str
    after_s: float
    then: Literal["suspend", "end", "continue"]


def timers(state: Session, limits: Limits) -> list[Timer]:
    """What will happen to a session without a running turn if nobody does anything, in no order.

    `end` is about the session and needs no process: its lifetime begins with the session. `suspend` is about the
    process."""
    if state.phase != "idle":
        return []
    found: list[Timer] = []
    goes_on = False
    if state.waiting_until is not None:
        goes_on = bool(state.queue) or (limits.on_limit == "continue" and state.waits <= (limits.limit_retries or 0))
        if goes_on:
            found.append(Timer("usage_limit", state.waiting_until, 0.0, "continue"))
    # What runs beside the conversation keeps the process, but no longer than its lifetime.
    if limits.idle_timeout_s and not state.background_tasks:
        if limits.on_idle == "end" and not goes_on:
            since = max(state.last_active_at, state.imported_at)
            found.append(Timer("idle_timeout", since, limits.idle_timeout_s, "end"))
        elif state.attached is not None:
            # One that was started to be asked something has just begun to be idle.
            since = max(state.last_active_at, state.attached.since)
            found.append(Timer("idle_timeout", since, limits.idle_timeout_s, "suspend"))
    if limits.lifetime_s and limits.on_lifetime == "end":
        since = max(state.started_at or state.created_at, state.imported_at)
        found.append(Timer("lifetime", since, limits.lifetime_s, "end"))
    elif limits.lifetime_s and state.attached is not None:
        found.append(Timer("lifetime", state.attached.since, limits.lifetime_s, "suspend"))
    return found


class Ages:
    """How long ago stored moments were. Each is compared with the wall clock once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}

    def left_s(self, session_id: str, timer: Timer, now: float, steady: float) -> float:
        """How long until it fires; nothing or less if it should have. `now` is the wall clock's."""
        if timer.name == "usage_limit":
            return seconds(timer.since) - now
        key = (session_id, timer.name)
        since, began = self._seen.get(key, ("", 0.0))
        if since != timer.since:
            # A moment that lies ahead was written before the clock was set back.
            began = steady - max(0.0, now - seconds(timer.since))
            self._seen[key] = (timer.since, began)
        return began + timer.after_s - steady

    def keep(self, sessions: Collection[str]) -> None:
        """Forget all but these."""
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] in sessions}


class Stopwatch:
    """How long something has lasted, as far as it was looked at: time in which this server or the machine was stopped
    is not served, and what was before a restart is not known."""

    def __init__(self) -> None:
        self._of: Hashable = None
        self._passed_s = 0.0
        self._looked: float | None = None

    def look(self, of: Hashable, steady: float, *, counts: bool = True) -> float:
        """The time that has passed `of` this thing; of another one it begins at nothing. If it does not count now, the
        time since the last look is left out."""
        if of != self._of:
            self._of, self._passed_s, self._looked = of, 0.0, None
        if self._looked is not None and counts:
            self._passed_s += min(steady - self._looked, STEP_MAX_S)
        self._looked = steady
        return self._passed_s


def is_sign_of_life(shown: Any) -> bool:
    """Whether the agent did something. Some repeat every half minute that a tool runs, also if that tool hangs."""
    if not isinstance(shown, ToolUpdate):
        return True
    news = (shown.content, shown.diff, shown.locations, shown.title, shown.input)
    return any(part is not None for part in news) or shown.is_error


class Effort:
    """Whether the processes of a running tool are working, by the processor time that they use."""

    def __init__(self) -> None:
        self._of: Hashable = None
        self._since = 0.0
        self._cpu_s: float | None = None

    def is_due(self, of: Hashable, steady: float, timeout_s: float) -> bool:
        """Whether to measure now: some times before the timeout is over, and never for a tool that soon ends."""
        if of != self._of:
            self._of, self._since, self._cpu_s = of, steady, None
        return steady - self._since >= timeout_s / MEASURES_PER_TIMEOUT

    def measured(self, steady: float, timeout_s: float, cpu_s: float) -> bool:
        """Whether they have worked since the last measure. `cpu_s` is what they have used in all."""
        before, self._since, self._cpu_s = self._cpu_s, steady, cpu_s
        return before is not None and cpu_s - before >= WORKING_SHARE * timeout_s / MEASURES_PER_TIMEOUT
