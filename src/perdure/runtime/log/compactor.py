"""Joins the deltas of finished turns in the background, one turn at a time.

Above: the host. Below: the log's store and the pure rules of core/compaction.py. Every position can still be served
afterwards; a turn that is not compacted (the server died first) is only larger.
"""

import asyncio
import logging

from perdure.core.compaction import Joined, Joiner
from perdure.core.errors import StoreError
from perdure.runtime.log.log import Log
from perdure.runtime.log.reading import batches

logger = logging.getLogger(__name__)


class Compactor:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._waiting: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._work(), name="compactor")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def add(self, session_id: str, after: int) -> None:
        """A turn has ended whose events come after this position."""
        self._waiting.put_nowait((session_id, after))

    async def settle(self) -> None:
        """Until nothing waits."""
        await self._waiting.join()

    async def _work(self) -> None:
        while True:
            session_id, after = await self._waiting.get()
            try:
                await self._compact(session_id, after)
            except StoreError as error:
                logger.warning("session %s was not compacted: %s", session_id, error)
            finally:
                self._waiting.task_done()

    async def _compact(self, session_id: str, after: int) -> None:
        """A little at a time: a long turn must not keep the loop, or those who wait to write, from going on."""
        joiner = Joiner()
        async for batch in batches(self._log.store, session_id, after):
            end = next((index for index, row in enumerate(batch, 1) if row.type == "turn_end"), None)
            await self._join(session_id, joiner.take(batch[:end]))
            if end is not None:
                break
        await self._join(session_id, joiner.end())

    async def _join(self, session_id: str, runs: list[Joined]) -> None:
        if runs:
            await self._log.store.compact(session_id, self._log.generation, runs)
