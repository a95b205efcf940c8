"""Waiting for something to happen in a session: it only reads, and whoever stops waiting stops nothing.

Above: the verbs, and the surfaces that answer when something is over. Below: a journal, which wakes its viewers with
each commit. While nothing happens, waiting costs nothing.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure.runtime.log.log import Journal

if TYPE_CHECKING:
    from perdure.runtime.running.host import Host

START_SLACK_S = 5.0


class _Waiter:
    """A viewer that has seen enough when `ready` says so."""

    def __init__(self, ready: Callable[[], bool]) -> None:
        self._ready = ready
        self.done = asyncio.Event()

    def wake(self) -> None:
        if self._ready():
            self.done.set()


async def until(journal: Journal, ready: Callable[[], bool]) -> None:
    waiter = _Waiter(ready)
    journal.viewers.add(waiter)
    try:
        waiter.wake()
        await waiter.done.wait()
    finally:
        journal.viewers.discard(waiter)


async def warmed_up(host: "Host", journal: Journal) -> bool:
    """Until the agent that a session was given before its next message is ready; False if it could not be started. One
    that starts with the message, or takes longer than it may, is not waited for."""
    launched = False

    def is_decided() -> bool:
        nonlocal launched
        state = journal.state
        launched = launched or state.attached is not None
        is_ready = state.attached is not None and state.attached.opened
        was_lost = launched and state.attached is None
        return is_ready or was_lost or state.phase != "idle" or journal.follower is None

    try:
        async with asyncio.timeout(host.settings.start_timeout_s + START_SLACK_S):
            await until(journal, is_decided)
    except TimeoutError:
        return True
    return not (launched and journal.state.attached is None and journal.state.phase == "idle")
