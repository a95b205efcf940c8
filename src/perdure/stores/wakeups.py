"""Wake-ups: that a session has something new, said to whoever follows it. Losing one costs time, never data.

Apart from the store on purpose: facts are in the store, and a follower that is woken, or that looks by itself after a
while, reads them there. Within one server this is a call; between servers it will be the database's own notification.
"""

from collections.abc import Callable
from typing import Protocol

Listener = Callable[[str], None]
"""Called with a session's id. Must not block and must not raise."""


class Wakeups(Protocol):
    def announce(self, session_id: str) -> None:
        """Something decisive was committed for this session."""
        ...

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Be told from now on; the answer ends it."""
        ...


class LocalWakeups:
    """For one server: everybody who follows is in this process."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def announce(self, session_id: str) -> None:
        for listener in list(self._listeners):
            listener(session_id)

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)
