"""Deadlines of one agent process: how long it may take to open its session and to stop, and what to do after that.

All times come from the steady clock. Setting the wall clock back must not extend a deadline by hours.

Above: the runner, which carries out the steps. Below: the session's state and the settings.
"""

from typing import Literal

from perdure.config import ServerSettings
from perdure.core.state import Session
from perdure.runtime.running.timers import LOOK_EVERY_S, Stopwatch

CANCEL_AGAIN_S = 1.0
HANGS_S = 10.0
"""A keeper that has not ended its agent this long after all grace periods is considered hung."""
MARGIN_S = 0.01


class ProcessDeadlines:
    def __init__(self, settings: ServerSettings, now: float) -> None:
        self._settings = settings
        self._opening = Stopwatch()
        self._opening.look("opening", now)
        self.cancelled_again = False
        self.kill_reason: str | None = None
        self._killed_at: float | None = None
        self._given_up = False
        self._abort: tuple[str, float] = ("", 0.0)
        """The current abort request (its timestamp), and when it was first seen here."""

    def kill(self, now: float, reason: str | None = None) -> None:
        """Note that the process is being killed. `reason` is None if that is because the turn was aborted."""
        self.kill_reason = reason or self.kill_reason
        self._killed_at = now if self._killed_at is None else self._killed_at

    def is_over(self, state: Session, now: float) -> bool:
        wait_s = self.wait_s(state, now)
        return wait_s is not None and wait_s <= MARGIN_S

    def next_step(self, state: Session, now: float) -> Literal["cancel", "kill", "kill_keeper"]:
        """The step that is due: cancel again, kill the agent, or kill its keeper. Each is returned once."""
        if self._killed_at is not None:
            self._given_up = True
            return "kill_keeper"
        if state.phase == "aborting" and not self.cancelled_again and self._settings.abort_grace_s > CANCEL_AGAIN_S:
            self.cancelled_again = True
            return "cancel"
        self.kill(now, "start_timeout" if state.phase != "aborting" else None)
        return "kill"

    def wait_s(self, state: Session, now: float) -> float | None:
        """Seconds until the next step is due; None if no deadline is running."""
        settings = self._settings
        if self._given_up:
            return None
        if self._killed_at is not None:
            graces_s = settings.eof_grace_s + settings.term_grace_s + HANGS_S
            return max(0.0, self._killed_at + graces_s - now) + MARGIN_S
        if state.phase == "aborting" and state.abort_requested_at is not None and state.turn is not None:
            target = settings.abort_grace_s if self.cancelled_again else min(CANCEL_AGAIN_S, settings.abort_grace_s)
            if self._abort[0] != state.abort_requested_at:
                self._abort = (state.abort_requested_at, now)
            return max(0.0, self._abort[1] + target - now) + MARGIN_S
        if state.attached is not None and not state.attached.opened and settings.start_timeout_s:
            # Look every second: time in which the server or the machine was suspended doesn't count.
            left_s = settings.start_timeout_s - self._opening.look("opening", now)
            return max(0.0, min(left_s, LOOK_EVERY_S)) + MARGIN_S
        return None
