"""A connection with bounds: what somebody may send, hold and keep open before the token was seen, and after.

Above: takeover.py, whose connections can also become viewers, and server.py. Below: uvicorn's protocol, which gathers
heads and trailers of any size from anybody, and has no deadline for a request that was begun. Who may come in is not
decided here (access.py): whatever gets past the guard calls `admit`.
"""

import asyncio
import logging
import resource
from collections.abc import Callable
from typing import cast
from weakref import WeakKeyDictionary

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from perdure.surfaces.http.access import SAFE_HEADERS

logger = logging.getLogger(__name__)

CONNECTION = "perdure.connection"
MAX_HEAD_BYTES = 64 * 1024
MAX_FRAMING_BYTES = 64 * 1024
"""What may come behind a head without a byte of body: trailers, lengths of chunks, empty lines."""
MAX_AHEAD = 16
"""Requests that wait while an earlier one of the same connection is answered."""
HEAD_DEADLINE_S = 10.0
"""For the head of a request; as long as no token was seen, for all of the request."""
LOGIN_MAX_BYTES = 4096
MAX_STRANGERS = 512
"""Connections over which no token came. Beyond it the oldest are closed, once they had their chance to ask."""
MAX_UNREAD_BYTES = 1024 * 1024
"""How much of a stranger's body is read and thrown away after it was answered: enough for most to read the answer."""
STRANGER_GRACE_S = 1.0
"""Viewers that all come back after a restart are strangers for a moment, and there may be thousands of them."""
MAX_NEW_STRANGERS = 4096
"""Beyond it the oldest are closed at once."""
MAX_OPEN_FILES = 65_536

_strangers: WeakKeyDictionary[ServerState, dict["BoundedProtocol", float]] = WeakKeyDictionary()
"""Of each server, oldest first, with the time at which each came."""


def raise_open_files() -> int:
    """Let this process open as many files as the system allows, within reason: a viewer is one. The new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            # Some systems name a limit that they don't allow.
            logger.warning("the limit of open files stays at %d: %s", soft, error)
            return soft
        return wanted
    return soft


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


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits. It puts itself and its cycle into the scope of each request."""

    _in_head = False
    _is_whole = True
    """Whether the last request that was begun has come to its end."""
    _head_bytes = 0
    """Of a head that was begun in an earlier piece; what fits into one piece is bounded by the size of a read."""
    _framing_bytes = 0
    _unread_bytes = 0
    _progress = False
    _deaf = False
    """Whether no more requests are taken: what is being answered is answered, then it is closed."""
    _deadline: asyncio.TimerHandle | None = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._strangers = _strangers.setdefault(server_state, {})

    # Coming and going ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        now = self.loop.time()
        self._strangers[self] = now
        while len(self._strangers) > MAX_STRANGERS:
            oldest, came = next(iter(self._strangers.items()))
            if now - came < STRANGER_GRACE_S and len(self._strangers) <= MAX_NEW_STRANGERS:
                break
            oldest._give_up()
        self._expect()

    def admit(self) -> None:
        """The token was seen."""
        self._strangers.pop(self, None)

    def let_go(self) -> None:
        """Somebody else has the transport from here on."""
        self.admit()
        self._stop_expecting()
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        self.connections.discard(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.admit()
        self._stop_expecting()
        super().connection_lost(exc)
        self.pipeline.clear()
        if self.cycle is not None:
            # Nobody reads it any more, and it would stay until the next collection of garbage.
            self.cycle.body = bytearray()

    def _give_up(self) -> None:
        self.admit()
        self.transport.abort()

    # A deadline ------------------------------------------------------------------------------------------------------

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
        """Say why, unless that would get into the middle of another answer, and close."""
        self._deaf = True
        cycle = self.cycle
        if self.transport.is_closing():
            return
        if cycle is None or cycle.response_complete or not (cycle.response_started or self.pipeline):
            self.transport.write(answer)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(_BAD_REQUEST)

    # What is sent ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._deaf or self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(_TOO_LARGE)
                return
        self._progress = self._in_head
        super().data_received(data)
        self._framing_bytes = 0 if self._progress else self._framing_bytes + len(data)
        if self._framing_bytes > MAX_FRAMING_BYTES:
            self._refuse(_TOO_LARGE)
        elif self._in_head or (not self._is_whole and self in self._strangers):
            self._expect()
        else:
            self._stop_expecting()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_AHEAD:
            self._deaf = True
            self.cycle.keep_alive = False
        if self._deaf:
            return
        super().on_message_begin()
        self._in_head, self._is_whole, self._progress = True, False, True
        self._head_bytes = self._unread_bytes = 0
        self.scope["extensions"] = {CONNECTION: {"protocol": self}}

    def on_url(self, url: bytes) -> None:
        if not self._deaf:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Not of a trailer: those come when the request may have been let in by its head."""
        if self._in_head and not self._deaf:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._deaf:
            return
        self._in_head = False
        super().on_headers_complete()
        self.scope["extensions"][CONNECTION]["cycle"] = self.cycle

    def on_body(self, body: bytes) -> None:
        self._progress = True
        if self._deaf:
            return
        super().on_body(body)
        if self.cycle.response_complete:
            self._unread_bytes += len(body)
            if self._unread_bytes > MAX_UNREAD_BYTES and self in self._strangers:
                self._refuse(b"")

    def on_message_complete(self) -> None:
        if not self._deaf:
            self._is_whole = True
            super().on_message_complete()


class Admitting:
    """Behind the guard: whatever it let through to a path that is not open to everybody came with a token."""

    def __init__(self, app: ASGIApp, is_open: Callable[[str], bool]) -> None:
        self._app = app
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        taken = (scope.get("extensions") or {}).get(CONNECTION)
        if taken is not None and not self._is_open(scope["path"]):
            cast(BoundedProtocol, taken["protocol"]).admit()
        await self._app(scope, receive, send)
