"""A connection with limits: how much a client may send, use and keep open, before and after it authenticates.

Above: server.py, and connection_takeover.py, which turns connections into viewers. Below: uvicorn's protocol, which
accepts headers and trailers of any size and has no deadline for an incomplete request. The guard decides who is
authenticated; `Admitting`, behind it, calls `admit`.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import cast
from weakref import WeakKeyDictionary

import httptools
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from perdure.surfaces import open_files
from perdure.surfaces.http.access import SAFE_HEADERS
from perdure.surfaces.http.unauthenticated import Unauthenticated

CONNECTION = "perdure.connection"
PIECE_BYTES = 16 * 1024
"""Data is parsed in pieces of this size, with a check of the limits after each. One read may return 16 of them."""
MAX_HEAD_BYTES = 64 * 1024
"""Longer request heads are refused. Accurate to one piece."""
MAX_HEADERS = 200
"""Each header becomes three objects. Very short ones would take 24 times their size in memory."""
HEADER_BYTES = 160
"""Memory per header, in addition to its text."""
REQUEST_BYTES = 4096
"""Memory per request, in addition to its head and body."""
MAX_FRAMING_BYTES = 64 * 1024
"""Data after the head that is not body: trailers, chunk sizes, empty lines."""
MAX_PIPELINED = 16
"""Requests that may wait while an earlier one on the same connection is handled."""
MAX_PIPELINED_UNAUTHENTICATED = 4
HEAD_DEADLINE_S = 10.0
"""For the head of a request. On an unauthenticated connection, for the whole request."""
READ_DEADLINE_S = 20.0
"""For an unauthenticated client to read a response. The page's largest file has 130 KB when compressed."""
UNAUTHENTICATED_BUFFER_BYTES = 64 * 1024
"""Without this limit, the kernel buffers megabytes of responses that nobody reads, and copying them delays others."""
NOT_SENT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)
LOGIN_MAX_BYTES = 4096
MAX_UNREAD_BYTES = 1024 * 1024
"""How much of an unauthenticated request's body is read and discarded after the response. Closing earlier would keep
most clients from reading the response."""

_unauthenticated: WeakKeyDictionary[ServerState, Unauthenticated] = WeakKeyDictionary()


def response_head(status: bytes, *headers: tuple[bytes, bytes]) -> bytes:
    """The head of a response that bypasses the guard, with the headers that the guard would have added."""
    given = {**SAFE_HEADERS, **dict(headers), b"connection": b"close"}
    return b"HTTP/1.1 %b\r\n" % status + b"".join(b"%b: %b\r\n" % header for header in given.items()) + b"\r\n"


def _answer(status: bytes, sentence: bytes) -> bytes:
    length = (b"content-length", b"%d" % len(sentence))
    return response_head(status, (b"content-type", b"text/plain; charset=utf-8"), length) + sentence


_BAD_REQUEST = _answer(b"400 Bad Request", b"This is not valid HTTP.")
_TOO_LATE = _answer(b"408 Request Timeout", b"The request did not arrive in time. Send it again.")
_TOO_LARGE = _answer(b"431 Request Header Fields Too Large", b"The request has too many headers or trailers.")


class _EnoughError(Exception):
    """Stops the parser within a piece, after the request was refused."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits. The scope of each request refers to it."""

    running: RequestResponseCycle | None = None
    """The request being handled. `cycle` is the last one that arrived."""
    _in_head = False
    _is_whole = True
    """Whether the last request has arrived completely."""
    _head_bytes = 0
    _framing_bytes = 0
    _unread_bytes = 0
    _cost_bytes = 0
    """Memory that the parser has used for a piece."""
    _progress = False
    _ignores_input = False
    """Whether further requests are ignored. The connection closes after the response in progress."""
    _unsent_bytes = 0
    """How much of the last response the client had not read at the last check."""
    _deadline: asyncio.TimerHandle | None = None
    _read_deadline: asyncio.TimerHandle | None = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        if server_state not in _unauthenticated:
            _unauthenticated[server_state] = Unauthenticated(open_files.limit())
        self._unauthenticated = _unauthenticated[server_state]

    # Opening and closing ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._unauthenticated.add(self, self.loop.time())
        self._buffer_at_most(UNAUTHENTICATED_BUFFER_BYTES)
        self._start_deadline()

    def admit(self) -> None:
        """An authenticated request has arrived."""
        if self in self._unauthenticated:
            self._unauthenticated.remove(self)
            self._buffer_at_most(0)

    def _buffer_at_most(self, count: int) -> None:
        """Limit how much unsent data the kernel buffers; 0 means no limit."""
        if NOT_SENT is not None:
            with suppress(OSError):
                # Fails if the client has already disconnected.
                self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, NOT_SENT, count)

    def hand_over(self) -> None:
        """Release the transport to another protocol."""
        self._leave()
        self.connections.discard(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def give_up(self) -> None:
        self._leave()
        self.transport.abort()

    def _leave(self) -> None:
        """Drop all references. Connections and requests refer to each other, so they would stay in memory until the
        next garbage collection, which may never happen on an idle server."""
        self._unauthenticated.remove(self)
        self._stop_deadline()
        self._stop_read_deadline()
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        for cycle in (self.running, self.cycle):
            if cycle is not None:
                # uvicorn only marks the last request as disconnected.
                cycle.disconnected = True
                cycle.message_event.set()
                cycle.body = bytearray()
        self.cycle = self.running = None  # type: ignore[assignment]
        self._forget_head()
        self.parser = None  # type: ignore[assignment]

    def _forget_head(self) -> None:
        self.scope = None  # type: ignore[assignment]
        self.headers, self.url = [], b""

    # Deadlines -------------------------------------------------------------------------------------------------------

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_DEADLINE_S, self._deadline_passed)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _deadline_passed(self) -> None:
        self._deadline = None
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering and self not in self._unauthenticated:
            if self._in_head:
                # A pipelined request: there is no deadline for the one before it.
                self._start_deadline()
        elif self._in_head or self.cycle is None or not self._is_whole:
            self._refuse(_TOO_LATE if self._in_head or self.cycle is not None else b"")

    def _refuse(self, answer: bytes) -> None:
        """Send this response, unless another one is in progress, and close. Requests that have arrived completely are
        answered first: they may already have been carried out, and on an error the client would repeat them."""
        self._ignores_input = True
        if self.transport.is_closing():
            return
        if self.pipeline and self.pipeline[0][0].more_body:
            # The newest request is incomplete and was not started.
            self.pipeline.popleft()
            self.cycle = self.pipeline[0][0] if self.pipeline else self.running  # type: ignore[assignment]
        cycle = self.cycle
        if cycle is not None and not (cycle.response_complete or cycle.more_body):
            cycle.keep_alive = self._in_head = False
            self._stop_deadline()
            self._forget_head()
            return
        if cycle is None or cycle.response_complete or not (cycle.response_started or self.pipeline):
            self.transport.write(answer)
        self.transport.close()
        self._forget_head()
        self.parser = None  # type: ignore[assignment]
        self._start_read_deadline()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_read_deadline()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_read_deadline()

    def _start_read_deadline(self) -> None:
        """Start the deadline for an unauthenticated client to read the response. Also applies if the connection
        closes after the response."""
        if self._read_deadline is None and self in self._unauthenticated and self.transport.get_write_buffer_size():
            self._read_deadline = self.loop.call_later(READ_DEADLINE_S, self._read_deadline_passed)

    def _stop_read_deadline(self) -> None:
        if self._read_deadline is not None:
            self._read_deadline.cancel()
            self._read_deadline = None

    def _read_deadline_passed(self) -> None:
        self._read_deadline = None
        if self in self._unauthenticated and self.transport.get_write_buffer_size():
            self.give_up()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection. If the client has not read its last response, a normal close would wait for it, so
        abort. An authenticated client that is still reading gets the same time again."""
        unsent_bytes = self.transport.get_write_buffer_size()
        if not unsent_bytes:
            super().timeout_keep_alive_handler()
        elif self in self._unauthenticated or unsent_bytes >= self._unsent_bytes:
            self.transport.abort()
        else:
            self._unsent_bytes = unsent_bytes
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    # Requests --------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if len(data) <= PIECE_BYTES:
            self._receive(data)
            return
        view = memoryview(data)
        for begin in range(0, len(data), PIECE_BYTES):
            self._receive(view[begin : begin + PIECE_BYTES])

    def _receive(self, piece: bytes | memoryview) -> None:
        if self._ignores_input or self.transport.is_closing():
            return
        self._progress = self._in_head
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserError:
            if not self._ignores_input:
                self._refuse(_BAD_REQUEST)
        except httptools.HttpParserUpgrade:
            # No other protocol is supported: handle it as an ordinary request.
            pass
        if self._in_head or self._cost_bytes:
            self._unauthenticated.hold(self, self._cost_bytes + len(piece))
            self._cost_bytes = 0
        if not self._ignores_input:
            self._check_limits(len(piece))

    def _check_limits(self, count: int) -> None:
        self._framing_bytes = 0 if self._progress else self._framing_bytes + count
        self._head_bytes += count if self._in_head else 0
        if self._framing_bytes > MAX_FRAMING_BYTES or self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(_TOO_LARGE)
        elif self._in_head or (not self._is_whole and self in self._unauthenticated):
            self._start_deadline()
        elif self.cycle is not None:
            # Without a request, only empty lines have arrived: the deadline still applies.
            self._stop_deadline()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= (MAX_PIPELINED_UNAUTHENTICATED if self in self._unauthenticated else MAX_PIPELINED):
            self._ignores_input = True
            self.cycle.keep_alive = False
            raise _EnoughError
        # uvicorn does this for every byte. Empty lines between requests must not keep the connection open.
        self._unset_keepalive_if_required()
        super().on_message_begin()
        self._in_head, self._is_whole, self._progress = True, False, True
        self._head_bytes = self._unread_bytes = 0
        self._cost_bytes += REQUEST_BYTES
        self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Ignore trailers: they arrive after the head, by which the request may already have been authenticated."""
        if self._in_head:
            if len(self.headers) >= MAX_HEADERS:
                self._refuse(_TOO_LARGE)
                raise _EnoughError
            self._cost_bytes += HEADER_BYTES
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progress = True
        super().on_body(body)
        if not self.cycle.response_complete:
            self._cost_bytes += len(body)
            return
        self._unread_bytes += len(body)
        if self._unread_bytes > MAX_UNREAD_BYTES and self in self._unauthenticated:
            self._refuse(b"")
            raise _EnoughError

    def on_message_complete(self) -> None:
        self._is_whole = True
        super().on_message_complete()

    # Responses -------------------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        done = self.running
        if done is not None:
            # Free the memory: the connection may stay open for long.
            done.scope, done.body = {}, bytearray()  # type: ignore[typeddict-item]
        super().on_response_complete()
        self._unsent_bytes = self.transport.get_write_buffer_size()
        if self._in_head:
            # The next request has started to arrive and has its own deadline.
            self._unset_keepalive_if_required()
        elif done is self.cycle:
            self._forget_head()
            self._unauthenticated.release(self)
        if self.transport.is_closing():
            self._start_read_deadline()


class Admitting:
    """Middleware behind the guard: a request that has passed it is authenticated, unless its path is public."""

    def __init__(self, app: ASGIApp, is_open: Callable[[str], bool]) -> None:
        self._app = app
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = (scope.get("extensions") or {}).get(CONNECTION)
        if connection is not None and not self._is_open(scope["path"]):
            cast(BoundedProtocol, connection).admit()
        await self._app(scope, receive, send)
