"""Which sessions were erased of late: an erased session has no log that could say so.

Above: viewers of all sessions. Below: nothing. Whoever watches now is told; whoever comes later does not find it.
"""

from collections import deque

KEPT = 1_000


class Erased:
    def __init__(self) -> None:
        self._latest: deque[str] = deque(maxlen=KEPT)
        self.count = 0
        self.under_way: set[str] = set()
        """Sessions whose rows are being deleted: half of one is shown to nobody."""

    def add(self, session_id: str) -> None:
        self._latest.append(session_id)
        self.count += 1

    def since(self, count: int) -> list[str]:
        """Those after the first `count`, or as many of them as are known."""
        behind = min(self.count - count, len(self._latest))
        return list(self._latest)[len(self._latest) - behind :]
