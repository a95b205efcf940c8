"""Joins the deltas of finished turns in the background, one turn at a time.

Above: the engine starts it. Below: the feed, which reports ended turns, and core/compaction.py, which has the rules.
Clients can still read from every position afterwards. The compactor is a consumer of the feed, so after a crash the
next server compacts the remaining turns. With several nodes, each node has its own position. It compacts the sessions
that it owns and those without a living owner.
"""

import logging
from collections.abc import Sequence

from perdure.core.compaction import Joined, Joiner
from perdure.core.errors import UNREADABLE, StoreDamaged
from perdure.runtime.log.feed import Change, Consumer, Feed
from perdure.runtime.log.log import Log
from perdure.runtime.log.reading import batches

logger = logging.getLogger(__name__)

WORTH_EVENTS = 8
"""Skip shorter turns: compaction would save nothing. Most imported turns are this short."""


class Compactor:
    def __init__(self, log: Log, feed: Feed) -> None:
        self._log = log
        self._consumer = Consumer(feed, log, "compactor", self._handle)

    async def start(self) -> None:
        if self._log.shared is not None and self._log.node is not None:
            self._consumer.name = f"compactor.{self._log.node.node}"
        await self._consumer.start()

    async def stop(self) -> None:
        await self._consumer.stop()

    async def settle(self) -> None:
        """Wait until every ended turn is compacted."""
        await self._consumer.settle()

    async def _handle(self, changes: Sequence[Change]) -> None:
        ended = [change for change in changes if change.event.type == "turn_end"]
        others = await self._of_others({change.session_id for change in ended})
        for change in ended:
            if change.session_id not in others and change.event.turn is not None:
                try:
                    await self.compact(change.session_id, change.event.turn, change.event.seq)
                except (StoreDamaged, LookupError, *UNREADABLE) as error:
                    # A retry would fail too. The turn remains readable and takes more space.
                    logger.warning("session %s: could not compact a turn; skipping it: %s", change.session_id, error)

    async def _of_others(self, session_ids: set[str]) -> set[str]:
        if self._log.shared is None or not session_ids:
            return set()
        heads = await self._log.shared.heads(list(session_ids))
        return {key for key, head in heads.items() if head.owner is not None and head.owner.node in self._log.living}

    async def compact(self, session_id: str, turn: int, upto: int) -> None:
        """Work in batches: a long turn must not block the event loop or other writers."""
        place = await self._log.store.find_turns(session_id, turn, turn)
        if upto - place.after < WORTH_EVENTS:
            return
        joiner = Joiner()
        async for batch in batches(self._log.store, session_id, place.after, upto):
            await self._join(session_id, joiner.take(batch))
        await self._join(session_id, joiner.end())

    async def _join(self, session_id: str, runs: list[Joined]) -> None:
        if runs:
            await self._log.store.compact(session_id, self._log.generation, runs)
