"""Which launches may have more to read: the sockets of all keepers and the files of those that talk, watched as one.

Above: the pump (running/pump.py), which says when to look; launches, which are called. Below: epoll, or kqueue on
macOS, and inotify. The event loop watches one descriptor and not each socket, so a tick in which a hundred agents have
spoken is one wake-up. While nobody looks, bytes wait in their sockets, and keepers send no second one.

A byte from the keeper costs three system calls for each piece of text. For a launch that produces output, the server
therefore watches the file with inotify and turns the keeper's hints off. Without inotify, hints stay on.
"""

import asyncio
import contextlib
import ctypes
import os
import select
import socket
import struct
import sys
from collections.abc import Callable
from functools import partial

MAX_AT_ONCE = 4096
READ_BYTES = 16 * 1024
"""A thousand events. If there are more, the next look reads them."""

Call = Callable[[], object]


if sys.platform == "linux":

    class _Poll:
        def __init__(self) -> None:
            poll = select.epoll()
            self.fileno, self.close, self.remove = poll.fileno, poll.close, poll.unregister
            self.add = partial(poll.register, eventmask=select.EPOLLIN)
            self.ready = partial(poll.poll, 0, MAX_AT_ONCE)

else:

    class _Poll:
        def __init__(self) -> None:
            self._queue = select.kqueue()
            self.fileno, self.close = self._queue.fileno, self._queue.close

        def add(self, number: int) -> None:
            self._queue.control([select.kevent(number, select.KQ_FILTER_READ, select.KQ_EV_ADD)], 0)

        def remove(self, number: int) -> None:
            self._queue.control([select.kevent(number, select.KQ_FILTER_READ, select.KQ_EV_DELETE)], 0)

        def ready(self) -> list[tuple[int, int]]:
            return [(event.ident, event.flags) for event in self._queue.control(None, MAX_AT_ONCE, 0)]


class _Files:
    """Files that grow, as inotify sees them. One instance for the whole server: a user may have few of them."""

    IN_MODIFY, IN_Q_OVERFLOW = 0x2, 0x4000
    HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of a name: 0, since files are watched and not folders

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._calls: dict[int, list[Call]] = {}
        """Of each watch. A file has one watch, however many follow it."""

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result

    def add(self, fd: int, call: Call) -> int:
        path = f"/proc/self/fd/{fd}".encode()
        watch = self._checked(self._libc.inotify_add_watch(self.fd, path, self.IN_MODIFY))
        self._calls.setdefault(watch, []).append(call)
        return watch

    def remove(self, watch: int, call: Call) -> None:
        calls = self._calls.get(watch, [])
        if call in calls:
            calls.remove(call)
            if not calls:
                del self._calls[watch]
                self._libc.inotify_rm_watch(self.fd, watch)

    def look(self) -> None:
        grown: dict[int, None] = {}
        for watch, mask, _, _ in self.HEAD.iter_unpack(os.read(self.fd, READ_BYTES)):
            if mask & self.IN_MODIFY:
                grown[watch] = None
            elif mask & self.IN_Q_OVERFLOW:
                grown.update(dict.fromkeys(self._calls))
        for watch in grown:
            # One of those before it may have taken this one away.
            for call in tuple(self._calls.get(watch, ())):
                call()


class Hints:
    def __init__(self, on_news: Callable[[], None]) -> None:
        """`on_news` is called by the event loop when there is something to look at."""
        self._on_news = on_news
        self._calls: dict[int, Call] = {}
        self._poll = _Poll()
        self._files: _Files | None = None
        with contextlib.suppress(OSError):  # the user has too many instances: keepers send hints
            self._files = _Files() if sys.platform == "linux" else None
        if self._files is not None:
            self._calls[self._files.fd] = self._files.look
            self._poll.add(self._files.fd)
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, connection: socket.socket, call: Call) -> None:
        """Call this when there is something to read."""
        self._calls[connection.fileno()] = call
        self._poll.add(connection.fileno())

    def remove(self, connection: socket.socket) -> None:
        """After `close` there is nothing to do."""
        if self._calls.pop(connection.fileno(), None) is not None:
            self._poll.remove(connection.fileno())

    def follow(self, fd: int, call: Call) -> int | None:
        """Call this when the file grows; None if that can't be seen."""
        try:
            return self._files.add(fd, call) if self._files is not None else None
        except OSError:
            return None

    def unfollow(self, watch: int, call: Call) -> None:
        """After `close` there is nothing to do."""
        if self._files is not None:
            self._files.remove(watch, call)

    def look(self) -> None:
        for number, _ in self._poll.ready():
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
        if self._files is not None:
            os.close(self._files.fd)
            self._files = None
