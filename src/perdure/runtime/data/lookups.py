"""Looks into file systems that may never answer: each look-up runs in its own thread, with a deadline.

Above: the verbs for directories. Below: threads. A system call on a network file system that hangs can't be cancelled,
so its thread is left behind and keeps one of a few places until the call returns. The threads are daemons, so they
don't delay the server's exit. That is why these look-ups don't use asyncio's threads, which other work waits for.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Lookups:
    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)

    async def run(self, look: Callable[[], T], timeout_s: float) -> T:
        """The result of `look`. Raises TimeoutError if there is none in time, or no free place."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            self._places.release()
            if answer.done():  # nobody waits any more
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        def work() -> None:
            result: T | None = None
            failed: BaseException | None = None
            try:
                result = look()
            except BaseException as error:  # noqa: BLE001  raised again in the waiting task
                failed = error
            with contextlib.suppress(RuntimeError):  # the server has stopped in the meantime
                loop.call_soon_threadsafe(done, result, failed)

        async with asyncio.timeout(timeout_s):
            await self._places.acquire()
            try:
                threading.Thread(target=work, name="perdure-lookup", daemon=True).start()
            except RuntimeError:  # the system allows no more threads
                self._places.release()
                raise
            return await answer
