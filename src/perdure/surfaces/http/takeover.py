"""Taking a connection over from uvicorn, so that a viewer costs 2 KB and no task.

The ordinary route authenticates, decides and finds the position; then the connection is handed to a viewer, and the
request's task, parser and buffers are freed. This leans on uvicorn's inside, which is why its version is pinned; where
the connection can't be had (another server, a test client), `serve_by_asgi` does the same over plain ASGI.
"""

import asyncio
from typing import Any, cast

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from perdure.surfaces.http.access import SAFE_HEADERS
from perdure.surfaces.http.viewers import HIGH_WATER_BYTES, Viewer

CONNECTION = "perdure.connection"
MAX_HEAD_BYTES = 64 * 1024
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


def _head(status: bytes, *headers: tuple[bytes, bytes]) -> bytes:
    """The head of an answer that goes past the guard, with the headers that it would have added."""
    given = {**SAFE_HEADERS, **dict(headers), b"connection": b"close"}
    return b"HTTP/1.1 %b\r\n" % status + b"".join(b"%b: %b\r\n" % header for header in given.items()) + b"\r\n"


_HEAD = _head(b"200 OK", *HEADERS)
_HEAD_TOO_LARGE = _head(b"431 Request Header Fields Too Large", (b"content-length", b"0"))


class TakeableProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which puts itself into the scope of each request, and bounds what comes before a body: the
    parser would gather a head of any size, from anybody."""

    _head_bytes = 0
    """Of a head that was begun in an earlier piece; what fits into one piece is bounded by the size of a read."""
    _in_head = False

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.write(_HEAD_TOO_LARGE)
                self.transport.close()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self.scope["extensions"] = {CONNECTION: {"protocol": self}}

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()


class EventStream:
    """The response of a route that serves events: an ASGI app that hands its connection to a viewer."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": b""})
            return
        taken = (scope.get("extensions") or {}).get(CONNECTION)
        if taken is not None:
            take_over(cast(HttpToolsProtocol, taken["protocol"]), self._viewer)
        else:
            await serve_by_asgi(self._viewer, receive, send)


def take_over(connection: HttpToolsProtocol, viewer: Viewer) -> None:
    """From here on the connection is the viewer's, and uvicorn has forgotten it."""
    transport = connection.transport
    cycle = connection.cycle
    cycle.disconnected = True
    cycle.response_started = True
    cycle.response_complete = True
    connection.connections.discard(connection)
    connection._unset_keepalive_if_required()
    transport.set_protocol(viewer)
    transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
    transport.resume_reading()
    if transport.is_closing():
        return
    transport.write(_HEAD)
    connection.scope["extensions"] = {}
    viewer.begin(transport)


class AsgiPipe:
    """A transport made of an ASGI `send`: it gathers, and pauses its viewer while too much has gathered."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._gathered: list[bytes] = []
        self._size = 0
        self._closing = False
        self.ready = asyncio.Event()

    def write(self, data: bytes) -> None:
        self._gathered.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER_BYTES:
            self._viewer.pause_writing()
        self.ready.set()

    def close(self) -> None:
        self._closing = True
        self.ready.set()

    def abort(self) -> None:
        self._gathered, self._size = [], 0
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    async def pump(self, send: Send) -> None:
        while True:
            await self.ready.wait()
            self.ready.clear()
            gathered, was_full = b"".join(self._gathered), self._size > HIGH_WATER_BYTES
            self._gathered, self._size = [], 0
            if gathered:
                await send({"type": "http.response.body", "body": gathered, "more_body": True})
            if was_full:
                self._viewer.resume_writing()
            if self._closing and not self._gathered:
                return


async def serve_by_asgi(viewer: Viewer, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    pipe = AsgiPipe(viewer)
    viewer.begin(pipe)
    pump = asyncio.ensure_future(pipe.pump(send))
    gone = asyncio.ensure_future(_until_disconnect(receive))
    try:
        await asyncio.wait([pump, gone], return_when=asyncio.FIRST_COMPLETED)
        if pump.done():
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        viewer.connection_lost(None)
        for task in (pump, gone):
            task.cancel()
        await asyncio.gather(pump, gone, return_exceptions=True)


async def _until_disconnect(receive: Receive) -> None:
    message: Any = {}
    while message.get("type") != "http.disconnect":
        message = await receive()
