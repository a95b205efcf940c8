"""Waiting for something to happen in a session: it only reads, and whoever stops waiting stops nothing.

Above: the verbs, and the surfaces that answer when something is over. Below: a journal, whose followers are woken with
each commit. While nothing happens, waiting costs nothing.
"""

import asyncio
from collections.abc import Callable

from perdure.runtime.log.journal import Journal

START_SLACK_S = 5.0


class _Waiter:
    """A follower that has seen enough when `ready` says so. It reads the journal's state."""

    def __init__(self, journal: Journal, ready: Callable[[], bool]) -> None:
        self._journal = journal
        self._ready = ready
        self.position = journal.last_seq
        self.done = asyncio.Event()

    def wake(self) -> None:
        self.position = self._journal.last_seq
        if self._ready():
            self.done.set()


async def until(journal: Journal, ready: Callable[[], bool]) -> None:
    waiter = _Waiter(journal, ready)
    journal.followers.add(waiter)
    try:
        waiter.wake()
        await waiter.done.wait()
    finally:
        journal.followers.discard(waiter)


async def warmed_up(journal: Journal, start_timeout_s: float, *, elsewhere: bool = False) -> bool:
    """Until the agent that a session was given before its next message is ready; False if it could not be started. One
    that starts with the message, or takes longer than it may, is not waited for. `elsewhere`: by another node."""
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
