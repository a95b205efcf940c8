"""Daemon threads for work on file systems that may never answer.

Above: look-ups in directories, and git in working trees. Below: threads. A system call on a network file system that
hangs can't be cancelled, so its thread is left behind and keeps one of a few places until the call returns. When Python
exits, it waits for the threads of its executors, but not for daemons. So these threads never delay the server's exit.
Whatever runs in them may be ended at any moment, as by a kill.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonThreads:
    def __init__(self, most: int, name: str) -> None:
        """`most`: how many threads run at the same time."""
        self._places = asyncio.Semaphore(most)
        self._name = name

    async def begin(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Wait for a free place, then start a thread. It goes on if the returned future is cancelled."""
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

        def run() -> None:
            result: T | None = None
            failed: BaseException | None = None
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  raised again in the waiting task
                failed = error
            with contextlib.suppress(RuntimeError):  # the server has stopped in the meantime
                loop.call_soon_threadsafe(done, result, failed)

        await self._places.acquire()
        try:
            threading.Thread(target=run, name=self._name, daemon=True).start()
        except RuntimeError:  # the system allows no more threads
            self._places.release()
            raise
        return answer
