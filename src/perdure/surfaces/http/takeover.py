"""Taking a connection over from uvicorn, so that a viewer costs 2 KB and no task.

The ordinary route authenticates, decides and finds the position; then the connection is handed to a viewer, and the
request's task, parser and buffers are freed. This leans on uvicorn's inside, which is why its version is pinned; where
the connection can't be had (another server, a test client), `serve_by_asgi` does the same over plain ASGI.
"""

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from perdure.surfaces.http.access import LOGIN
from perdure.surfaces.http.connections import CONNECTION, BoundedProtocol, head
from perdure.surfaces.http.cors import ADDED, Headers
from perdure.surfaces.http.viewers import HIGH_WATER_BYTES, Viewer

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


_HEAD = head(b"200 OK", *HEADERS)


class EventStream:
    """The response of a route that serves events: an ASGI app that hands its connection to a viewer. Every stream is
    opened here, so here the viewer learns by which sign-in it came, and is closed with it."""

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
    """From here on the connection is the viewer's, and uvicorn has forgotten it. Requests that were sent ahead are not
    answered any more."""
    transport, cycle = connection.transport, connection.running
    if cycle is None:
        # Whoever asked has left already.
        return
    cycle.disconnected = True
    cycle.response_started = True
    cycle.response_complete = True
    connection.let_go()
    if transport.is_closing():
        # Whoever asked is about to leave, or was closed.
        return
    transport.set_protocol(viewer)
    transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
    transport.resume_reading()
    transport.write(head(b"200 OK", *HEADERS, *added) if added else _HEAD)
    cycle.scope["extensions"] = {}
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
