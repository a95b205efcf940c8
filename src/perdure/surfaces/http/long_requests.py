"""Requests that wait for a turn or an agent. They stop waiting if the client disconnects or the server stops.

Above: handlers of blocking calls. Below: the hub, which cancels waiting requests when the server stops.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from perdure.core.errors import Refused
from perdure.surfaces.http.viewers import Hub

T = TypeVar("T")

RETRY_AFTER_S = 5


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, which must only read. Call it after reading the request's body."""
    hub: Hub = request.app.state.hub
    waiting = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(request))
    # When the server stops, the hub cancels the waiting call. The turn itself survives.
    hub.tasks.add(waiting)
    try:
        await asyncio.wait([waiting, leaving], return_when=asyncio.FIRST_COMPLETED)
        if waiting.done() and not waiting.cancelled():
            return waiting.result()
    finally:
        hub.tasks.discard(waiting)
        for task in (waiting, leaving):
            task.cancel()
        await asyncio.gather(waiting, leaving, return_exceptions=True)
    detail = "The server is stopping. The session continues: read it when the server is back."
    raise Refused("unavailable", detail, retry_after_s=RETRY_AFTER_S)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
