"""Takes a connection over from uvicorn, so that a viewer costs 2 KB of memory and no task.

Above: streams.py and the streams of other programs' APIs. Below: the connection in connections.py, or plain ASGI.

The route authenticates the request and finds the position, as for any request. Then the viewer becomes the protocol of
the connection, and the request's task, parser and buffers are freed. This uses uvicorn's internals, so its version is
pinned. If there is no connection to take over (another server, or a test client), `serve_by_asgi` does the same over
plain ASGI.
"""

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from perdure.surfaces.http.access import LOGIN
from perdure.surfaces.http.connections import CONNECTION, BoundedProtocol, response_head
from perdure.surfaces.http.cors import ADDED, Headers
from perdure.surfaces.http.viewers import HIGH_WATER_BYTES, Viewer

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]

_HEAD = response_head(b"200 OK", *HEADERS)


class EventStream:
    """The response of a route that streams events: an ASGI app that hands its connection to a viewer. It also sets the
    viewer's sign-in, so that the stream is closed when the user signs out."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": b""})
            return
        self._viewer.login = scope[LOGIN]
        taken = (scope.get("extensions") or {}).get(CONNECTION)
        if taken is not None:
            take_over(taken, self._viewer, scope[ADDED])
        else:
            await serve_by_asgi(self._viewer, receive, send)


def take_over(connection: BoundedProtocol, viewer: Viewer, added: Headers) -> None:
    """Give the connection to the viewer and detach it from uvicorn. Pipelined requests are not answered."""
    transport, cycle = connection.transport, connection.running
    if cycle is None:
        # The client has already disconnected.
        return
    cycle.disconnected = True
    cycle.response_started = True
    cycle.response_complete = True
    connection.hand_over()
    if transport.is_closing():
        # The connection is being closed, by the client or by this server.
        return
    transport.set_protocol(viewer)
    transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
    transport.resume_reading()
    transport.write(response_head(b"200 OK", *HEADERS, *added) if added else _HEAD)
    cycle.scope["extensions"] = {}
    viewer.begin(transport)


class AsgiPipe:
    """A transport on top of an ASGI `send`. It buffers data, and pauses its viewer while the buffer is full."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._buffer: list[bytes] = []
        self._size = 0
        self._closing = False
        self.ready = asyncio.Event()

    def write(self, data: bytes) -> None:
        self._buffer.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER_BYTES:
            self._viewer.pause_writing()
        self.ready.set()

    def close(self) -> None:
        self._closing = True
        self.ready.set()

    def abort(self) -> None:
        self._buffer, self._size = [], 0
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    async def pump(self, send: Send) -> None:
        while True:
            await self.ready.wait()
            self.ready.clear()
            data, was_full = b"".join(self._buffer), self._size > HIGH_WATER_BYTES
            self._buffer, self._size = [], 0
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            if was_full:
                self._viewer.resume_writing()
            if self._closing and not self._buffer:
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
