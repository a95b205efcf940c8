"""Wake-ups: a signal that a session has new events. Losing one costs time, never data.

Separate from the store on purpose: the data is in the store, and a follower reads it there when it is woken or polls.
Inside one server, the log wakes its own followers without this module. Between servers, wake-ups use the database's
notifications (postgres_wakeups.py).
"""

from collections.abc import Callable
from typing import Protocol

Listener = Callable[[str], None]
"""Called with the announced text, usually a session id; "" means that anything may have changed. Must not block or
raise."""


class Wakeups(Protocol):
    async def start(self) -> None:
        """Start delivering wake-ups."""
        ...

    async def stop(self) -> None: ...

    def announce(self, session_id: str, by: object) -> None:
        """Announce a commit to this session to all listeners except `by`."""
        ...

    def listen(self, who: object, listener: Listener) -> Callable[[], None]:
        """Call `listener` with what others announce, until the returned function is called."""
        ...


class LocalWakeups:
    """For logs in one process."""

    def __init__(self) -> None:
        self._listeners: list[tuple[object, Listener]] = []

    async def start(self) -> None:
        """No-op."""

    async def stop(self) -> None:
        """No-op."""

    def announce(self, session_id: str, by: object) -> None:
        if len(self._listeners) > 1:
            for who, listener in list(self._listeners):
                if who is not by:
                    listener(session_id)

    def listen(self, who: object, listener: Listener) -> Callable[[], None]:
        entry = (who, listener)
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry)
