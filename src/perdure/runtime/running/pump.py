"""The pump carries pieces of text from all agents to the log: it reads, parses, stores them in one commit, and shows
them to viewers.

Above: the engine starts it; runners are its sources. Below: keepers' hints, journals and the store. The pump handles
only output that needs no decision. For anything else it wakes the agent's runner, which otherwise sleeps.

A commit and a wake-up cost far more than a piece of text, so the pump batches: the more sources have output, the longer
it waits between two ticks. A single source barely waits. A commit that would block the event loop runs on the store's
own thread; until it is done, the pump reads nothing and ignores the keepers' hints.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from perdure.core.errors import Conflict
from perdure.runtime.keeping.hints import Hints
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.stores.base import Append, Kept, LaunchProgress

logger = logging.getLogger(__name__)

TICK_MAX_S = 0.012
TICK_PER_SOURCE_S = 8e-6
"""The tick interval per source that has output in a second: 8 ms for 1,000 sources."""
RATE_OVER_S = 0.1
"""The period over which sources are counted."""


class Batch(Struct, gc=False):
    """What one source has for its log, and the position in its launch's output after that."""

    source: "Source"
    deltas: list[Any]
    progress: LaunchProgress
    freeable: int
    more: bool


class Source(Protocol):
    """A runner, as the pump sees it."""

    @property
    def journal(self) -> Journal: ...

    def collect(self) -> Batch | None:
        """Read output; None if there is none, or if it needs a decision."""
        ...

    def stored(self, batch: Batch) -> None:
        """The batch was stored and shown."""
        ...

    def rejected(self, batch: Batch, error: Exception) -> None:
        """The batch was not stored."""
        ...

    def failed(self, error: Exception) -> None:
        """The batch may be lost: the source must continue from the stored state. Must not raise."""
        ...


class Pump:
    def __init__(self, log: Log, tick_max_s: float = TICK_MAX_S) -> None:
        self._log = log
        self._tick_max_s = tick_max_s
        self.hints = Hints(self._hinted)
        self._ready: dict[Source, None] = {}
        self._in_flight: set[Source] = set()
        self._committing: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._is_busy = True
        """Whether a tick is in progress or the pump is not running. Then no tick may be scheduled."""
        self._is_stopped = False
        self._ticked_s = self._counted_s = 0.0
        self._counted = 0
        self.tick_s = 0.0
        """The minimum interval between two ticks."""

    def start(self) -> None:
        self._go_on()

    async def stop(self) -> None:
        """Stop all runners first."""
        self._is_stopped = self._is_busy = True
        self.hints.rest()
        if self._timer is not None:
            self._timer.cancel()
        if self._committing is not None:
            await asyncio.gather(self._committing, return_exceptions=True)
        self.hints.close()

    def ready(self, source: Source) -> None:
        """A source may have output."""
        self._ready[source] = None
        if not self._is_busy and self._timer is None:
            self._plan()

    async def settled(self, source: Source) -> None:
        """Wait until no batch of this source is being committed."""
        while source in self._in_flight and self._committing is not None:
            await asyncio.wait([self._committing])

    def _hinted(self) -> None:
        if not self._is_busy and self._timer is None:
            if self._ticked_s + self.tick_s <= time.monotonic():
                self._tick()
            else:
                self._plan()

    def _plan(self) -> None:
        loop = asyncio.get_running_loop()
        wait_s = self._ticked_s + self.tick_s - time.monotonic()
        if wait_s > 0:
            self.hints.rest()
            self._timer = loop.call_later(wait_s, self._tick)
        else:
            self._timer = loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._timer, self._is_busy = None, True
        self._ticked_s = time.monotonic()
        batches: list[Batch] = []
        steps: list[Append] = []
        try:
            self.hints.look()
            ready, self._ready = self._ready, {}
            self._counted += len(ready)
            if self._ticked_s - self._counted_s >= RATE_OVER_S:
                self._pace()
            batches, steps = self._steps(ready)
            if not steps or self._commit_now(batches, steps):
                batches = []
        finally:
            if not batches:
                self._go_on()
        if batches:
            # On the store's own thread. Read nothing more until it is done.
            self.hints.rest()
            self._in_flight = {batch.source for batch in batches}
            self._committing = asyncio.create_task(self._commit(batches, steps), name="pump")

    def _go_on(self) -> None:
        if self._is_stopped:
            return
        self._is_busy = False
        self.hints.watch()
        if self._ready and self._timer is None:
            # Some sources have more output, or became ready meanwhile: continue, but let other tasks run first.
            self._timer = asyncio.get_running_loop().call_soon(self._tick)

    def _pace(self) -> None:
        per_s = self._counted / (self._ticked_s - self._counted_s)
        self.tick_s = min(self._tick_max_s, per_s * TICK_PER_SOURCE_S)
        self._counted, self._counted_s = 0, self._ticked_s

    # Storing and showing -------------------------------------------------------------------------------------------

    def _commit_now(self, batches: Sequence[Batch], steps: Sequence[Append]) -> bool:
        """Commit on this thread; False if the store can't. Without an await, nobody can write to these sessions in
        between."""
        outcomes: Sequence[Kept | Exception] | None
        try:
            outcomes = self._log.store.append_now(steps)
        except Exception as error:  # noqa: BLE001  passed to each source
            outcomes = [error] * len(steps)
        if outcomes is not None:
            self._settle(batches, steps, outcomes)
        return outcomes is not None

    async def _commit(self, batches: Sequence[Batch], steps: Sequence[Append]) -> None:
        free: list[Batch] = []
        free_steps: list[Append] = []
        try:
            for batch, step in zip(batches, steps, strict=True):
                if batch.source.journal.is_writing:
                    batch.source.rejected(batch, Conflict("another step is being written to the session"))
                else:
                    # Doesn't wait: the lock is free.
                    await batch.source.journal.acquire()
                    free.append(batch)
                    free_steps.append(step)
            outcomes: Sequence[Kept | Exception]
            try:
                outcomes = await self._log.store.append_all(free_steps)
            except Exception as error:  # noqa: BLE001  passed to each source
                outcomes = [error] * len(free)
            self._settle(free, free_steps, outcomes)
        finally:
            for batch in free:
                batch.source.journal.release()
            self._in_flight, self._committing = set(), None
            self._go_on()

    def _steps(self, sources: Iterable[Source]) -> tuple[list[Batch], list[Append]]:
        """Collect the batches of these sources, and the store steps for them."""
        now = self._log.stamp()
        batches, steps = [], []
        for source in sources:
            try:
                if (batch := source.collect()) is not None:
                    steps.append(source.journal.delta_step(batch.deltas, batch.progress, now))
                    batches.append(batch)
            except Exception as error:  # noqa: BLE001  _fail passes it to the source
                self._fail(source, error)
        return batches, steps

    def _settle(self, batches: Sequence[Batch], steps: Sequence[Append], outcomes: Sequence[Kept | Exception]) -> None:
        for batch, step, outcome in zip(batches, steps, outcomes, strict=True):
            journal = batch.source.journal
            try:
                if isinstance(outcome, Exception):
                    journal.not_kept(outcome)
                    batch.source.rejected(batch, outcome)
                else:
                    journal.show_deltas(batch.deltas, step, outcome)
                    batch.source.stored(batch)
            except Exception as error:  # noqa: BLE001  _fail passes it to the source
                self._fail(batch.source, error)
            if batch.more:
                self._ready[batch.source] = None

    @staticmethod
    def _fail(source: Source, error: Exception) -> None:
        """An internal error: this source continues from the stored state. The others are not affected."""
        logger.error("session %s: the pump failed; retrying", source.journal.state.id, exc_info=error)
        source.journal.not_kept(error)
        source.failed(error)
