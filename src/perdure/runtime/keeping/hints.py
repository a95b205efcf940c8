"""Tells which launches may have more output, by watching the sockets of all keepers and the files of active launches.

Above: the pump (running/pump.py), which decides when to look; launches, whose callbacks are called. Below: epoll, or
kqueue on macOS, and inotify. The event loop watches a single descriptor instead of each socket, so output of a hundred
agents in one tick causes one wake-up. Between two looks, hints wait in their sockets, and keepers send no second one.

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
"""Enough for a thousand events. The next look reads the rest."""

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
    """Watches files for growth with inotify. One instance for the whole server, as the number per user is limited."""

    IN_MODIFY, IN_Q_OVERFLOW = 0x2, 0x4000
    HEAD = struct.Struct("iIII")  # watch, mask, cookie, name length (0, since these are files and not folders)

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._calls: dict[int, list[Call]] = {}
        """The callbacks of each watch. A file has one watch, however many callbacks follow it."""

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
            # An earlier callback may have removed this one.
            for call in tuple(self._calls.get(watch, ())):
                call()


class Hints:
    def __init__(self, on_news: Callable[[], None]) -> None:
        """The event loop calls `on_news` when there is something to look at."""
        self._on_news = on_news
        self._calls: dict[int, Call] = {}
        self._poll = _Poll()
        self._files: _Files | None = None
        with contextlib.suppress(OSError):  # the user has too many instances: rely on the keepers' hints
            self._files = _Files() if sys.platform == "linux" else None
        if self._files is not None:
            self._calls[self._files.fd] = self._files.look
            self._poll.add(self._files.fd)
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, connection: socket.socket, call: Call) -> None:
        """Call `call` when the connection has something to read."""
        self._calls[connection.fileno()] = call
        self._poll.add(connection.fileno())

    def remove(self, connection: socket.socket) -> None:
        """Stop watching the connection. Does nothing after `close`."""
        if self._calls.pop(connection.fileno(), None) is not None:
            self._poll.remove(connection.fileno())

    def follow(self, fd: int, call: Call) -> int | None:
        """Call `call` when the file grows. Returns None if the file can't be watched."""
        try:
            return self._files.add(fd, call) if self._files is not None else None
        except OSError:
            return None

    def unfollow(self, watch: int, call: Call) -> None:
        """Stop watching the file. Does nothing after `close`."""
        if self._files is not None:
            self._files.remove(watch, call)

    def look(self) -> None:
        for number, _ in self._poll.ready():
            # An earlier callback may have removed this one.
            if (call := self._calls.get(number)) is not None:
                call()

    def watch(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._poll.fileno(), self._on_news)

    def rest(self) -> None:
        """Call nothing until `watch` is called."""
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
