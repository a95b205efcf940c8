"""A connection with bounds: what somebody may send, hold and keep open before the token was seen, and after.

Above: takeover.py, whose connections can also become viewers, and server.py. Below: uvicorn's protocol, which gathers
heads and trailers of any size from anybody, and has no deadline for a request that was begun. Who may come in is not
decided here (access.py): whatever gets past the guard calls `admit`.
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
from perdure.surfaces.http.strangers import Strangers

CONNECTION = "perdure.connection"
PIECE_BYTES = 16 * 1024
"""How much is parsed before the limits are looked at again: one read may bring sixteen times as much."""
MAX_HEAD_BYTES = 64 * 1024
"""A head that has not ended by then, give or take a piece, is refused."""
MAX_HEADERS = 200
"""Each becomes three objects: a head of very short ones would take 24 times its size."""
HEADER_BYTES = 160
"""What a header takes in memory besides its own bytes."""
REQUEST_BYTES = 4096
"""What a request takes in memory besides its head and body."""
MAX_FRAMING_BYTES = 64 * 1024
"""What may come behind a head without a byte of body: trailers, lengths of chunks, empty lines."""
MAX_AHEAD = 16
"""Requests that wait while an earlier one of the same connection is answered."""
MAX_AHEAD_STRANGER = 4
HEAD_DEADLINE_S = 10.0
"""For the head of a request; as long as no token was seen, for all of the request."""
ANSWER_DEADLINE_S = 20.0
"""For somebody without the token to take an answer. The page's largest file has 130 KB as browsers ask for it."""
STRANGER_BUFFER_BYTES = 64 * 1024
"""Else the system takes megabytes of answers that nobody reads, and to copy them keeps others waiting."""
NOT_SENT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)
LOGIN_MAX_BYTES = 4096
MAX_UNREAD_BYTES = 1024 * 1024
"""How much of a stranger's body is read and thrown away after it was answered: enough for most to read the answer."""

_strangers: WeakKeyDictionary[ServerState, Strangers] = WeakKeyDictionary()


def head(status: bytes, *headers: tuple[bytes, bytes]) -> bytes:
    """The head of an answer that goes past the guard, with the headers that it would have added."""
    given = {**SAFE_HEADERS, **dict(headers), b"connection": b"close"}
    return b"HTTP/1.1 %b\r\n" % status + b"".join(b"%b: %b\r\n" % header for header in given.items()) + b"\r\n"


def _answer(status: bytes, sentence: bytes) -> bytes:
    length = (b"content-length", b"%d" % len(sentence))
    return head(status, (b"content-type", b"text/plain; charset=utf-8"), length) + sentence


_BAD_REQUEST = _answer(b"400 Bad Request", b"This is not valid HTTP.")
_TOO_LATE = _answer(b"408 Request Timeout", b"The request did not arrive in time. Send it again.")
_TOO_LARGE = _answer(b"431 Request Header Fields Too Large", b"The request has too many headers or trailers.")


class _EnoughError(Exception):
    """Ends the parser's work in the middle of a piece, after the connection was refused."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits. It puts itself into the scope of each request."""

    running: RequestResponseCycle | None = None
    """The request that is being answered; `cycle` is the last one that was begun."""
    _in_head = False
    _is_whole = True
    """Whether the last request that was begun has come to its end."""
    _head_bytes = 0
    _framing_bytes = 0
    _unread_bytes = 0
    _cost_bytes = 0
    """What the parser has made of a piece, as it is in memory."""
    _progress = False
    _deaf = False
    """Whether no more requests are taken: what is being answered is answered, then it is closed."""
    _untaken_bytes = 0
    """What the client had yet to take of the last answer, when that was last looked at."""
    _deadline: asyncio.TimerHandle | None = None
    _answer_deadline: asyncio.TimerHandle | None = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        if server_state not in _strangers:
            _strangers[server_state] = Strangers(open_files.limit())
        self._strangers = _strangers[server_state]

    # Coming and going ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._strangers.add(self, self.loop.time())
        self._buffer_at_most(STRANGER_BUFFER_BYTES)
        self._expect()

    def admit(self) -> None:
        """The token was seen."""
        if self in self._strangers:
            self._strangers.remove(self)
            self._buffer_at_most(0)

    def _buffer_at_most(self, count: int) -> None:
        """How much the system takes of an answer before it can be sent; 0 is as much as it wants."""
        if NOT_SENT is not None:
            with suppress(OSError):
                # Whoever has left already gets none.
                self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, NOT_SENT, count)

    def let_go(self) -> None:
        """Somebody else has the transport from here on."""
        self._leave()
        self.connections.discard(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def give_up(self) -> None:
        self._leave()
        self.transport.abort()

    def _leave(self) -> None:
        """Forget everything. Requests refer to their connection, so what it keeps of them would stay in memory until
        the next collection of garbage, and on a quiet server that does not come."""
        self._strangers.remove(self)
        self._stop_expecting()
        self._stop_awaiting_taken()
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        for cycle in (self.running, self.cycle):
            if cycle is not None:
                # uvicorn tells only the last one. Nobody would read what they send.
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

    def _expect(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_DEADLINE_S, self._too_late)

    def _stop_expecting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering and self not in self._strangers:
            if self._in_head:
                # A request that was sent ahead. What is in front of it takes as long as it takes.
                self._expect()
        elif self._in_head or self.cycle is None or not self._is_whole:
            self._refuse(_TOO_LATE if self._in_head or self.cycle is not None else b"")

    def _refuse(self, answer: bytes) -> None:
        """Say why, unless that would get into the middle of another answer, and close. Requests that came whole before
        are answered first: they may be carried out already, and a client that reads of a failure would repeat them."""
        self._deaf = True
        if self.transport.is_closing():
            return
        if self.pipeline and self.pipeline[0][0].more_body:
            # The newest did not come whole, and it was not begun.
            self.pipeline.popleft()
            self.cycle = self.pipeline[0][0] if self.pipeline else self.running  # type: ignore[assignment]
        cycle = self.cycle
        if cycle is not None and not (cycle.response_complete or cycle.more_body):
            cycle.keep_alive = self._in_head = False
            self._stop_expecting()
            self._forget_head()
            return
        if cycle is None or cycle.response_complete or not (cycle.response_started or self.pipeline):
            self.transport.write(answer)
        self.transport.close()
        self._forget_head()
        self.parser = None  # type: ignore[assignment]
        self._await_taken()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_taken()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_awaiting_taken()

    def _await_taken(self) -> None:
        """Somebody without the token has to take what was written, also where the connection is closed after it."""
        if self._answer_deadline is None and self in self._strangers and self.transport.get_write_buffer_size():
            self._answer_deadline = self.loop.call_later(ANSWER_DEADLINE_S, self._not_taken)

    def _stop_awaiting_taken(self) -> None:
        if self._answer_deadline is not None:
            self._answer_deadline.cancel()
            self._answer_deadline = None

    def _not_taken(self) -> None:
        self._answer_deadline = None
        if self in self._strangers and self.transport.get_write_buffer_size():
            self.give_up()

    def timeout_keep_alive_handler(self) -> None:
        """To close would wait for a client that has not taken its last answer. One with the token who is still reading
        it gets as much time again."""
        untaken_bytes = self.transport.get_write_buffer_size()
        if not untaken_bytes:
            super().timeout_keep_alive_handler()
        elif self in self._strangers or untaken_bytes >= self._untaken_bytes:
            self.transport.abort()
        else:
            self._untaken_bytes = untaken_bytes
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    # What is sent ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if len(data) <= PIECE_BYTES:
            self._take(data)
            return
        view = memoryview(data)
        for begin in range(0, len(data), PIECE_BYTES):
            self._take(view[begin : begin + PIECE_BYTES])

    def _take(self, piece: bytes | memoryview) -> None:
        if self._deaf or self.transport.is_closing():
            return
        self._progress = self._in_head
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserError:
            if not self._deaf:
                self._refuse(_BAD_REQUEST)
        except httptools.HttpParserUpgrade:
            # There is no other protocol here: the request is answered as any other.
            pass
        if self._in_head or self._cost_bytes:
            self._strangers.hold(self, self._cost_bytes + len(piece))
            self._cost_bytes = 0
        if not self._deaf:
            self._check_taken(len(piece))

    def _check_taken(self, count: int) -> None:
        self._framing_bytes = 0 if self._progress else self._framing_bytes + count
        self._head_bytes += count if self._in_head else 0
        if self._framing_bytes > MAX_FRAMING_BYTES or self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(_TOO_LARGE)
        elif self._in_head or (not self._is_whole and self in self._strangers):
            self._expect()
        elif self.cycle is not None:
            # Else only empty lines have come: it has yet to ask.
            self._stop_expecting()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= (MAX_AHEAD_STRANGER if self in self._strangers else MAX_AHEAD):
            self._deaf = True
            self.cycle.keep_alive = False
            raise _EnoughError
        # Not for any byte, as uvicorn does: empty lines between requests are no reason to keep it open.
        self._unset_keepalive_if_required()
        super().on_message_begin()
        self._in_head, self._is_whole, self._progress = True, False, True
        self._head_bytes = self._unread_bytes = 0
        self._cost_bytes += REQUEST_BYTES
        self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Not of a trailer: those come when the request may have been let in by its head."""
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
        if self._unread_bytes > MAX_UNREAD_BYTES and self in self._strangers:
            self._refuse(b"")
            raise _EnoughError

    def on_message_complete(self) -> None:
        self._is_whole = True
        super().on_message_complete()

    # What is answered ------------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        done = self.running
        if done is not None:
            # A connection may be kept for long, and nobody looks at these again.
            done.scope, done.body = {}, bytearray()  # type: ignore[typeddict-item]
        super().on_response_complete()
        self._untaken_bytes = self.transport.get_write_buffer_size()
        if self._in_head:
            # The next request was begun, and has a deadline of its own.
            self._unset_keepalive_if_required()
        elif done is self.cycle:
            self._forget_head()
            self._strangers.release(self)
        if self.transport.is_closing():
            self._await_taken()


class Admitting:
    """Behind the guard: whatever it let through to a path that is not open to everybody came with a token."""

    def __init__(self, app: ASGIApp, is_open: Callable[[str], bool]) -> None:
        self._app = app
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        taken = (scope.get("extensions") or {}).get(CONNECTION)
        if taken is not None and not self._is_open(scope["path"]):
            cast(BoundedProtocol, taken).admit()
        await self._app(scope, receive, send)
