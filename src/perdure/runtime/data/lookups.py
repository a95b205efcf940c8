"""Looks into file systems that may never answer: each look-up runs in its own thread, with a deadline.

Above: the verbs for directories. Below: daemon threads. A look-up that hangs keeps one of a few places until it
returns. That is why these look-ups don't use asyncio's threads, which other work waits for.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from perdure.runtime.data.threads import DaemonThreads

T = TypeVar("T")


class Lookups:
    def __init__(self, most: int) -> None:
        self._threads = DaemonThreads(most, "perdure-lookup")

    async def run(self, look: Callable[[], T], timeout_s: float) -> T:
        """The result of `look`. Raises TimeoutError if there is none in time, or no free place."""
        async with asyncio.timeout(timeout_s):
            return await (await self._threads.begin(look))
