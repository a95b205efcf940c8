"""The sockets of all keepers, watched as one: a keeper's byte says that its launch may have more to read.

Above: the pump (running/pump.py), which says when to look; launches, which are called. Below: epoll, or kqueue on
macOS. The event loop watches that one descriptor and not each socket, so a tick in which a hundred agents have spoken
is one wake-up. While nobody looks, bytes wait in their sockets, and keepers send no second one.
"""

import asyncio
import select
import socket
import sys
from collections.abc import Callable

MAX_AT_ONCE = 4096


if sys.platform == "linux":

    class _Poll:
        def __init__(self) -> None:
            self._poll = select.epoll()
            self.fileno, self.close, self.remove = self._poll.fileno, self._poll.close, self._poll.unregister

        def add(self, number: int) -> None:
            self._poll.register(number, select.EPOLLIN)

        def ready(self) -> list[int]:
            return [number for number, _ in self._poll.poll(0, MAX_AT_ONCE)]

else:

    class _Poll:
        def __init__(self) -> None:
            self._queue = select.kqueue()
            self.fileno, self.close = self._queue.fileno, self._queue.close

        def add(self, number: int) -> None:
            self._queue.control([select.kevent(number, select.KQ_FILTER_READ, select.KQ_EV_ADD)], 0)

        def remove(self, number: int) -> None:
            self._queue.control([select.kevent(number, select.KQ_FILTER_READ, select.KQ_EV_DELETE)], 0)

        def ready(self) -> list[int]:
            return [event.ident for event in self._queue.control(None, MAX_AT_ONCE, 0)]


class Hints:
    def __init__(self, on_news: Callable[[], None]) -> None:
        """`on_news` is called by the event loop when there is something to look at."""
        self._on_news = on_news
        self._calls: dict[int, Callable[[], None]] = {}
        self._poll = _Poll()
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, connection: socket.socket, call: Callable[[], None]) -> None:
        """Call this when there is something to read."""
        self._calls[connection.fileno()] = call
        self._poll.add(connection.fileno())

    def remove(self, connection: socket.socket) -> None:
        """After `close` there is nothing to do."""
        if self._calls.pop(connection.fileno(), None) is not None:
            self._poll.remove(connection.fileno())

    def look(self) -> None:
        for number in self._poll.ready():
            # One of those before it may have taken this one away.
            if (call := self._calls.get(number)) is not None:
                call()

    def watch(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._poll.fileno(), self._on_news)

    def rest(self) -> None:
        """Tell nobody anything until `watch`."""
        if self._loop is not None:
            self._loop.remove_reader(self._poll.fileno())
            self._loop = None

    def close(self) -> None:
        self.rest()
        self._calls.clear()
        self._poll.close()
