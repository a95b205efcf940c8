"""Waits for something to happen in a session. It only reads, so cancelling a wait affects nothing else.

Above: the verbs, and the surfaces that respond when something is done. Below: a journal, which wakes its followers with
each commit. Waiting doesn't poll.
"""

import asyncio
from collections.abc import Callable

from perdure.runtime.verbs.streams import FollowedSession

START_SLACK_S = 5.0


class _Waiter:
    """A follower that is done when `ready` returns True. It looks at the journal's state only."""

    def __init__(self, journal: FollowedSession, ready: Callable[[], bool]) -> None:
        self._journal = journal
        self._ready = ready
        self.position = journal.last_seq
        self.done = asyncio.Event()

    def wake(self) -> None:
        self.position = self._journal.last_seq
        if self._ready():
            self.done.set()


async def until(journal: FollowedSession, ready: Callable[[], bool]) -> None:
    waiter = _Waiter(journal, ready)
    journal.follow(waiter)
    try:
        waiter.wake()
        await waiter.done.wait()
    finally:
        journal.unfollow(waiter)


async def warmed_up(journal: FollowedSession, start_timeout_s: float, *, elsewhere: bool = False) -> bool:
    """Wait until the agent that is being prewarmed is ready. Returns False if it could not be started. Doesn't wait for
    an agent that only starts with the next message, nor longer than the timeout. `elsewhere`: on another node."""
    launched = False

    def is_decided() -> bool:
        nonlocal launched
        state = journal.state
        launched = launched or state.attached is not None
        is_ready = state.attached is not None and state.attached.opened
        was_lost = launched and state.attached is None
        return is_ready or was_lost or state.phase != "idle" or not (elsewhere or journal.has_runner)

    try:
        async with asyncio.timeout(start_timeout_s + START_SLACK_S):
            await until(journal, is_decided)
    except TimeoutError:
        return True
    return not (launched and journal.state.attached is None and journal.state.phase == "idle")
