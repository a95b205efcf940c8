"""Waits for what prepares a turn, such as a snapshot of the files, unless nobody needs the turn any more.

Above: the runner. Below: asyncio. The preparation may wait for other sessions, and a store that fails may make it slow.
So an abort, and a server that stops, don't wait for it.
"""

import asyncio
from collections.abc import Awaitable, Callable


async def done_unless(work: Awaitable[None], woken: asyncio.Event, is_over: Callable[[], bool]) -> bool:
    """Wait until the work is done, and return True; or cancel it once `is_over`, which is asked whenever `woken` is
    set. Clears `woken`. Raises what the work raises."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            woken.clear()
            if is_over():
                return False
            waking = asyncio.create_task(woken.wait())
            try:
                await asyncio.wait([task, waking], return_when=asyncio.FIRST_COMPLETED)
            finally:
                waking.cancel()
        task.result()
        return True
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # so that Python doesn't report it
