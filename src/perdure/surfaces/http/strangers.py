"""The connections over which no token came: how many there may be, and how much they may hold together.

Above: connections.py, whose connections come in here and leave as soon as the token was seen. Below: nothing. Limits of
one connection are not here.
"""

from typing import Protocol

MAX_STRANGERS = 512
"""Beyond it the oldest are closed, once they had their chance to ask."""
GRACE_S = 1.0
"""Viewers that all come back after a restart are strangers for a moment, and there may be thousands of them."""
MAX_NEW_STRANGERS = 4096
"""Beyond it the oldest are closed at once."""
MAX_HELD_BYTES = 8 * 1024 * 1024
"""What they have sent that was not answered yet, as it is in memory. Beyond it those who hold the most are closed."""


class Stranger(Protocol):
    def give_up(self) -> None:
        """Close at once, and leave."""


class Strangers:
    """Those of one server, oldest first. Where few files may be open, they get a part of these."""

    def __init__(self, open_files: int) -> None:
        self._most = min(MAX_STRANGERS, open_files // 4)
        self._most_new = min(MAX_NEW_STRANGERS, open_files // 2)
        self._came: dict[Stranger, float] = {}
        self._held: dict[Stranger, int] = {}
        self._held_bytes = 0

    def __contains__(self, one: Stranger) -> bool:
        return one in self._came

    def add(self, one: Stranger, now: float) -> None:
        self._came[one] = now
        while len(self._came) > self._most:
            oldest, came = next(iter(self._came.items()))
            if now - came < GRACE_S and len(self._came) <= self._most_new:
                break
            oldest.give_up()

    def remove(self, one: Stranger) -> None:
        self._came.pop(one, None)
        self.release(one)

    def hold(self, one: Stranger, count: int) -> None:
        """It holds so many bytes more, until it is answered."""
        if one in self._came:
            self._held[one] = self._held.get(one, 0) + count
            self._held_bytes += count
            while self._held_bytes > MAX_HELD_BYTES:
                # Not the oldest: somebody who is let in in a moment has sent little.
                max(self._held, key=self._held.__getitem__).give_up()

    def release(self, one: Stranger) -> None:
        self._held_bytes -= self._held.pop(one, 0)
