"""How long one process may take to open its session and to stop, and what is done when it takes longer. Only time is
compared here, always of the steady clock: one that is set back must not make a person wait for hours.

Above: the runner, which does it. Below: nothing but the session's state and the settings.
"""

from typing import Literal

from perdure.config import ServerSettings
from perdure.core.state import Session
from perdure.runtime.running.timers import LOOK_EVERY_S, Stopwatch

CANCEL_AGAIN_S = 1.0
HANGS_S = 10.0
"""A keeper that was told to end its agent, and has not after all graces and so long, hangs itself."""
MARGIN_S = 0.01


class Patience:
    def __init__(self, settings: ServerSettings, now: float) -> None:
        self._settings = settings
        self._opening = Stopwatch()
        self._opening.look("opening", now)
        self.cancelled_again = False
        self.kill_reason: str | None = None
        self._killed_at: float | None = None
        self._given_up = False
        self._abort: tuple[str, float] = ("", 0.0)
        """The request to stop that is waited for, and when it was first seen."""

    def kill(self, now: float, reason: str | None = None) -> None:
        """It is being ended, for this reason if it is not because the turn was asked to stop."""
        self.kill_reason = reason or self.kill_reason
        self._killed_at = now if self._killed_at is None else self._killed_at

    def is_over(self, state: Session, now: float) -> bool:
        wait_s = self.wait_s(state, now)
        return wait_s is not None and wait_s <= MARGIN_S

    def next_step(self, state: Session, now: float) -> Literal["cancel", "kill", "kill_keeper"]:
        """What is due: ask once more, end it, or end what should have ended it. Each is said once."""
        if self._killed_at is not None:
            self._given_up = True
            return "kill_keeper"
        if state.phase == "aborting" and not self.cancelled_again and self._settings.abort_grace_s > CANCEL_AGAIN_S:
            self.cancelled_again = True
            return "cancel"
        self.kill(now, "start_timeout" if state.phase != "aborting" else None)
        return "kill"

    def wait_s(self, state: Session, now: float) -> float | None:
        """How long there is nothing to do; None if time changes nothing."""
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
            # Time in which this server or the machine was stopped is not the agent's: so it looks each second.
            left_s = settings.start_timeout_s - self._opening.look("opening", now)
            return max(0.0, min(left_s, LOOK_EVERY_S)) + MARGIN_S
        return None
