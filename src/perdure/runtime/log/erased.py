"""The recently erased sessions. An erased session has no log in which an event could record this.

Above: streams of all sessions, which notify their current viewers. Later viewers don't find the session.
Below: nothing.
"""

from collections import deque

from perdure.core.errors import Refused, StoreDamaged

KEPT = 1_000


class SessionGone(Refused):
    """The session was erased while it was in use."""


class Erased:
    def __init__(self, *, by_others: bool = False) -> None:
        self._by_others = by_others
        """Whether other nodes can erase sessions too. If so, a missing session counts as erased, not as damaged."""
        self._latest: deque[str] = deque(maxlen=KEPT)
        self.count = 0
        self.under_way: set[str] = set()
        """Sessions whose rows are being deleted. Hide them, or a client could see half of a session."""

    def add(self, session_id: str) -> None:
        self._latest.append(session_id)
        self.count += 1

    def __contains__(self, session_id: str) -> bool:
        return session_id in self.under_way or session_id in self._latest

    def knows(self, session_id: str) -> bool:
        """Whether viewers have already been notified."""
        return session_id in self._latest

    def missing(self, session_id: str) -> Exception:
        """The error for a session that has disappeared from the store."""
        if self._by_others or session_id in self:
            return SessionGone("not_found", "The session was erased.")
        return StoreDamaged("it is no longer in the store")

    def since(self, count: int) -> list[str]:
        """The sessions erased after the first `count`, or the newest of them if the list no longer has all."""
        behind = min(self.count - count, len(self._latest))
        return list(self._latest)[len(self._latest) - behind :]
