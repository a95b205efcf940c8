"""A request that is answered when something is over: it stops waiting when its client leaves or the server stops."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from perdure.core.errors import Refused
from perdure.surfaces.http.viewers import Hub

T = TypeVar("T")

RETRY_AFTER_S = 5


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What `work`, which only reads, comes to. The request's body must have been read."""
    hub: Hub = request.app.state.hub
    waiting = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    # The hub ends what waits when the server stops: a turn outlives it, a call does not.
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
    words = "The server is stopping. What was begun goes on: look at the session when it is back."
    raise Refused("unavailable", words, retry_after_s=RETRY_AFTER_S)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
