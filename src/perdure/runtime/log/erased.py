"""Which sessions were erased of late: an erased session has no log that could say so.

Above: viewers of all sessions. Below: nothing. Whoever watches now is told; whoever comes later does not find it.
"""

from collections import deque

from perdure.core.errors import Refused, StoreDamaged

KEPT = 1_000


class SessionGone(Refused):
    """The session was erased while somebody was at work in it."""


class Erased:
    def __init__(self, *, by_others: bool = False) -> None:
        self._by_others = by_others
        """Whether other nodes erase sessions too: one that is missing was erased."""
        self._latest: deque[str] = deque(maxlen=KEPT)
        self.count = 0
        self.under_way: set[str] = set()
        """Sessions whose rows are being deleted at this moment: half of one is shown to nobody."""

    def add(self, session_id: str) -> None:
        self._latest.append(session_id)
        self.count += 1

    def __contains__(self, session_id: str) -> bool:
        return session_id in self.under_way or session_id in self._latest

    def knows(self, session_id: str) -> bool:
        """Whether those who watch were told already."""
        return session_id in self._latest

    def missing(self, session_id: str) -> Exception:
        """Why a session that was there is not in the store any more."""
        if self._by_others or session_id in self:
            return SessionGone("not_found", "The session was erased.")
        return StoreDamaged("it is not in the store any more")

    def since(self, count: int) -> list[str]:
        """Those after the first `count`, or as many of them as are known."""
        behind = min(self.count - count, len(self._latest))
        return list(self._latest)[len(self._latest) - behind :]
