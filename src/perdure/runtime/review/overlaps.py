"""Which turns of other sessions ran in a working tree at the same time as a turn.

Above: the recorder. Below: the notes in the repository, which snapshots keep, and the log. An open note says only that
a turn has begun there: its server may have died before it closed the note. The log tells whether the turn still runs.
"""

import logging
from urllib.parse import unquote

from perdure.core.clock import seconds
from perdure.core.errors import UNREADABLE, Refused, StoreError
from perdure.runtime.git.command import GitError
from perdure.runtime.git.repository import Repository
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.review.records import Change, Sharing
from perdure.runtime.review.working_trees import WorkingTrees

logger = logging.getLogger(__name__)

NOTE_MAX_MS = 24 * 60 * 60 * 1000
"""How long an open note of a session that this server doesn't know counts."""


class Overlaps:
    def __init__(self, log: Log, trees: WorkingTrees) -> None:
        self._log = log
        self._trees = trees

    async def of(self, repo: Repository, name: str, change: Change) -> list[Sharing]:
        """The turns of other sessions that ran in the same working tree at the same time. `name`: the session's name in
        refs."""
        given = (repo, name, change.began_ms, change.ended_ms)
        try:
            found = await self._trees.in_thread(self._trees.snapshots.overlapping, *given)
        except GitError as error:
            logger.warning("session %s: can't tell which sessions worked beside it: %s", unquote(name), error.message)
            return []
        return [
            Sharing(unquote(other), number)
            for other, number, began_ms, is_open in found
            if not is_open or await self._ran_until(unquote(other), number, began_ms, change.began_ms)
        ]

    async def _ran_until(self, session_id: str, turn: int, began_ms: int, until_ms: int) -> bool:
        """Whether a turn whose note is open ran at this time or later. Its second snapshot may still be due, on any
        node; or its server died before it closed the note."""
        try:
            journal = await self._log.readable(session_id)
            if journal is not None:
                await journal.catch_up()
        except (StoreError, Refused, *UNREADABLE):
            journal = None
        if journal is None:
            return int(self._log.now() * 1000) - began_ms < NOTE_MAX_MS
        ended_at = journal.state.turn.ended_at if journal.state.turn is not None else None
        is_last = journal.state.turn is not None and journal.state.turn.turn == turn
        return is_running(journal, turn) or (is_last and ended_at is not None and seconds(ended_at) * 1000 >= until_ms)


def is_running(journal: Journal, turn: int) -> bool:
    state = journal.state
    return state.working and state.turn is not None and state.turn.turn == turn
