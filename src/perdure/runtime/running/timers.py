"""When a timer fires and what it then does, as pure functions. No clock is read here.

Above: clocks.py, which looks once a second, and `explain`, which shows timers in advance. Below: settings and state.

Durations are measured with the steady clock, which nobody can set and which stops while the machine sleeps. For a
running turn, only time served by this server counts. Idle time and lifetime start at a stored wall-clock time. Its age
is computed once, when it is first seen; from then on the steady clock counts. So neither a change of the wall clock nor
a sleeping machine aborts a turn, ends a session or keeps it forever. Only usage limits reset at a wall-clock time.

A turn's timeout counts the time without activity. Any output of the agent is activity. A running tool alone is not:
most turns that hang do so in a tool. But a tool whose processes use CPU time is working, even if it shows nothing until
it is done, as a long test does.
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
"""The most that counts between two looks. If more has passed, the process or the machine was suspended."""
MEASURES_PER_TIMEOUT = 10
WORKING_SHARE = 0.05
"""The share of one CPU above which processes count as working. An agent that only waits for its tool uses about 1 %."""


class Timer(Struct, frozen=True):
    """One timer of an idle session. It fires `after_s` seconds after the stored time `since`."""

    name: Literal["idle_timeout", "lifetime", "usage_limit"]
    since: str
    after_s: float
    then: Literal["suspend", "end", "continue"]


def timers(state: Session, limits: Limits) -> list[Timer]:
    """The timers of a session without a running turn, in no particular order.

    `end` ends the session and needs no process; its lifetime starts with the session. `suspend` ends the process."""
    if state.phase != "idle":
        return []
    found: list[Timer] = []
    goes_on = False
    if state.waiting_until is not None:
        goes_on = bool(state.queue) or (limits.on_limit == "continue" and state.waits <= (limits.limit_retries or 0))
        if goes_on:
            found.append(Timer("usage_limit", state.waiting_until, 0.0, "continue"))
    # Background tasks keep the process alive, but not beyond its lifetime.
    if limits.idle_timeout_s and not state.background_tasks:
        if limits.on_idle == "end" and not goes_on:
            since = max(state.last_active_at, state.imported_at)
            found.append(Timer("idle_timeout", since, limits.idle_timeout_s, "end"))
        elif state.attached is not None:
            # A process that was started without a turn is idle only since its start.
            since = max(state.last_active_at, state.attached.since)
            found.append(Timer("idle_timeout", since, limits.idle_timeout_s, "suspend"))
    if limits.lifetime_s and limits.on_lifetime == "end":
        since = max(state.started_at or state.created_at, state.imported_at)
        found.append(Timer("lifetime", since, limits.lifetime_s, "end"))
    elif limits.lifetime_s and state.attached is not None:
        found.append(Timer("lifetime", state.attached.since, limits.lifetime_s, "suspend"))
    return found


class Ages:
    """The ages of stored times. Each time is compared with the wall clock once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}

    def left_s(self, session_id: str, timer: Timer, now: float, steady: float) -> float:
        """Seconds until the timer fires; zero or less if it is due. `now` is wall-clock time."""
        if timer.name == "usage_limit":
            return seconds(timer.since) - now
        key = (session_id, timer.name)
        since, began = self._seen.get(key, ("", 0.0))
        if since != timer.since:
            # A time in the future was written before the clock was set back.
            began = steady - max(0.0, now - seconds(timer.since))
            self._seen[key] = (timer.since, began)
        return began + timer.after_s - steady

    def keep(self, sessions: Collection[str]) -> None:
        """Drop all sessions but these."""
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] in sessions}


class Stopwatch:
    """Measures how long something has lasted. Time in which the server or the machine was suspended doesn't count, nor
    does time before a restart."""

    def __init__(self) -> None:
        self._of: Hashable = None
        self._passed_s = 0.0
        self._looked: float | None = None

    def look(self, of: Hashable, steady: float, *, counts: bool = True) -> float:
        """Seconds that have passed for `of`. A different `of` starts at zero. With `counts=False`, the time since the
        last look doesn't count."""
        if of != self._of:
            self._of, self._passed_s, self._looked = of, 0.0, None
        if self._looked is not None and counts:
            self._passed_s += min(steady - self._looked, STEP_MAX_S)
        self._looked = steady
        return self._passed_s


def is_sign_of_life(shown: Any) -> bool:
    """Whether an event shows that the agent is active. Some agents report every half minute that a tool is running,
    even if the tool hangs: that doesn't count."""
    if not isinstance(shown, ToolUpdate):
        return True
    news = (shown.content, shown.diff, shown.locations, shown.title, shown.input)
    return any(part is not None for part in news) or shown.is_error


class Effort:
    """Tells by their CPU time whether the processes of a running tool are working."""

    def __init__(self) -> None:
        self._of: Hashable = None
        self._since = 0.0
        self._cpu_s: float | None = None

    def is_due(self, of: Hashable, steady: float, timeout_s: float) -> bool:
        """Whether to measure now: several times per timeout, and never for a tool that ends quickly."""
        if of != self._of:
            self._of, self._since, self._cpu_s = of, steady, None
        return steady - self._since >= timeout_s / MEASURES_PER_TIMEOUT

    def measured(self, steady: float, timeout_s: float, cpu_s: float) -> bool:
        """Whether they have worked since the last measurement. `cpu_s` is their total CPU time."""
        before, self._since, self._cpu_s = self._cpu_s, steady, cpu_s
        return before is not None and cpu_s - before >= WORKING_SHARE * timeout_s / MEASURES_PER_TIMEOUT
