"""Wake-ups: a log says that a session has something new. Losing one costs time, never data.

Apart from the store on purpose: facts are in the store, and a follower that is woken, or polls, reads them there. In
one server there is one log, which wakes its own followers without this; between servers it is the database's own
notification (postgres_wakeups.py).
"""

from collections.abc import Callable
from typing import Protocol

Listener = Callable[[str], None]
"""Called with what was announced, which mostly names a session; "" means that anything may have changed. Must not block
and must not raise."""


class Wakeups(Protocol):
    async def start(self) -> None:
        """Be ready to carry wake-ups; before, none is carried."""
        ...

    async def stop(self) -> None: ...

    def announce(self, session_id: str, by: object) -> None:
        """Something was committed for this session; whoever says so knows it already."""
        ...

    def listen(self, who: object, listener: Listener) -> Callable[[], None]:
        """Call `listener` for what others announce, until the returned function is called."""
        ...


class LocalWakeups:
    """For logs in one process."""

    def __init__(self) -> None:
        self._listeners: list[tuple[object, Listener]] = []

    async def start(self) -> None:
        """It always is."""

    async def stop(self) -> None:
        """There is nothing to stop."""

    def announce(self, session_id: str, by: object) -> None:
        if len(self._listeners) > 1:
            for who, listener in list(self._listeners):
                if who is not by:
                    listener(session_id)

    def listen(self, who: object, listener: Listener) -> Callable[[], None]:
        entry = (who, listener)
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry)
