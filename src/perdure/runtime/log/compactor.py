"""Joins the deltas of finished turns in the background, one turn at a time.

Above: the engine starts it. Below: the feed says which turns have ended, core/compaction.py has the rules. Every
position can still be served afterwards. It is a consumer of the feed: what a killed server left, the next compacts.
With several nodes each has its own position, and compacts what it owns, or what no living node does.
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
"""A turn of fewer events is left as it is: nothing would be gained. Imported turns are mostly such."""


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
        """Until every turn that has ended is compacted."""
        await self._consumer.settle()

    async def _handle(self, changes: Sequence[Change]) -> None:
        ended = [change for change in changes if change.event.type == "turn_end"]
        others = await self._of_others({change.session_id for change in ended})
        for change in ended:
            if change.session_id not in others and change.event.turn is not None:
                try:
                    await self.compact(change.session_id, change.event.turn, change.event.seq)
                except (StoreDamaged, LookupError, *UNREADABLE) as error:
                    # To try again is of no use: the turn only stays larger.
                    logger.warning("session %s: could not compact a turn: %s", change.session_id, error)

    async def _of_others(self, session_ids: set[str]) -> set[str]:
        if self._log.shared is None or not session_ids:
            return set()
        heads = await self._log.shared.heads(list(session_ids))
        return {key for key, head in heads.items() if head.owner is not None and head.owner.node in self._log.living}

    async def compact(self, session_id: str, turn: int, upto: int) -> None:
        """A little at a time: a long turn must not keep the loop, or those who wait to write, from going on."""
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
