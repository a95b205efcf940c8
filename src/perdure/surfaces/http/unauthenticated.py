"""Connections without a token: how many are allowed, and how much memory they may use together.

Above: connections.py. A connection is added when it opens, and removed when its first authenticated request arrives.
Below: nothing. The limits of a single connection are in connections.py.
"""

from typing import Protocol

MAX_CONNECTIONS = 512
"""Beyond this, the oldest are closed, unless they are younger than `GRACE_S`."""
GRACE_S = 1.0
"""After a restart, thousands of viewers may reconnect. Each is unauthenticated for a moment."""
MAX_NEW_CONNECTIONS = 4096
"""Beyond this, the oldest are closed immediately."""
MAX_HELD_BYTES = 8 * 1024 * 1024
"""Memory of their unanswered requests. Beyond this, the connections that hold the most are closed."""


class Connection(Protocol):
    def give_up(self) -> None:
        """Close immediately and remove itself."""


class Unauthenticated:
    """The unauthenticated connections of a server, oldest first. If the limit of open files is low, they get a share of
    it."""

    def __init__(self, open_files: int) -> None:
        self._most = min(MAX_CONNECTIONS, open_files // 4)
        self._most_new = min(MAX_NEW_CONNECTIONS, open_files // 2)
        self._opened: dict[Connection, float] = {}
        self._held: dict[Connection, int] = {}
        self._held_bytes = 0

    def __contains__(self, one: Connection) -> bool:
        return one in self._opened

    def add(self, one: Connection, now: float) -> None:
        self._opened[one] = now
        while len(self._opened) > self._most:
            oldest, opened = next(iter(self._opened.items()))
            if now - opened < GRACE_S and len(self._opened) <= self._most_new:
                break
            oldest.give_up()

    def remove(self, one: Connection) -> None:
        self._opened.pop(one, None)
        self.release(one)

    def hold(self, one: Connection, count: int) -> None:
        """Count memory of this connection, until `release`."""
        if one in self._opened:
            self._held[one] = self._held.get(one, 0) + count
            self._held_bytes += count
            while self._held_bytes > MAX_HELD_BYTES:
                # Not the oldest: a client that is about to authenticate has sent little.
                max(self._held, key=self._held.__getitem__).give_up()

    def release(self, one: Connection) -> None:
        """Its request was answered."""
        self._held_bytes -= self._held.pop(one, 0)
