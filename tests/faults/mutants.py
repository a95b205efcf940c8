"""Deliberately broken servers: `python -m tests.faults.mutants NAME serve ...`.

Above: test_checker.py shows that the checker detects each of them; nodes.py starts them. Below: the product. One of its
rules is patched in this process before the server starts; the product itself has no switch for this.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

HASTE_S = 0.2
SLOWNESS_S = 0.5
NEVER_S = 1e6


def _change_steps(change: Callable[[Any], Any]) -> None:
    from perdure.stores.postgres import PostgresStore

    append, append_all = PostgresStore.append, PostgresStore.append_all

    async def append_changed(self: Any, step: Any) -> Any:
        return await append(self, change(step))

    async def append_all_changed(self: Any, steps: Sequence[Any]) -> Any:
        return await append_all(self, [change(step) for step in steps])

    PostgresStore.append = append_changed  # type: ignore[method-assign]
    PostgresStore.append_all = append_all_changed  # type: ignore[method-assign]


def no_fence() -> None:
    """An owner's steps are stored even if another node owns the session now or has decided something since. A node that
    was declared dead continues."""
    from perdure.stores.postgres import PostgresStore

    beat = PostgresStore.beat

    async def beat_on(self: Any, owner: Any) -> bool:
        await beat(self, owner)
        return True

    PostgresStore.beat = beat_on  # type: ignore[method-assign]
    _change_steps(
        lambda step: (
            step
            if step.token is None
            else msgspec.structs.replace(step, token=None, expect=None, expect_last=None, claim=None)
        )
    )


def no_decided_seq() -> None:
    """The owner's steps don't say which decisive event they have read."""
    _change_steps(lambda step: step if step.token is None else msgspec.structs.replace(step, expect=None))


def no_news() -> None:
    """All notifications are lost, and no node polls."""
    from perdure.runtime.log.log import Log

    Log._woken = lambda self, name: None  # type: ignore[method-assign]
    Log.poll_s = staticmethod(lambda: NEVER_S)  # type: ignore[method-assign]


def hasty_takeover() -> None:
    """A node is declared dead too early, while its lease is still valid."""
    from perdure.runtime.running.node import Node

    Node._limit_s = lambda self, node: HASTE_S  # type: ignore[method-assign]


# Misfortunes: these break no rule, and nothing may go wrong. They happen at moments that a fault from outside can't hit
# reliably.


def dies_in_takeover() -> None:
    """The node is killed right after it has claimed a session whose turn ran on a dead node."""
    from perdure.runtime.running.recovery import Recovery

    async def die(self: Any, journal: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    Recovery.adopt = die  # type: ignore[method-assign]


def loses_database_in_takeover() -> None:
    """The database is briefly unavailable while the node looks for the sessions of a dead node."""
    from perdure.core.errors import StoreUnavailable
    from perdure.stores.postgres import PostgresStore

    abandoned = PostgresStore.abandoned
    failures: list[list[str]] = []

    async def fail_first(self: Any, limit: int, *, node: str | None = None, skip: int = 0) -> list[str]:
        found = await abandoned(self, limit, node=node, skip=skip)
        if found and not failures:
            failures.append(found)
            raise StoreUnavailable("the database was briefly unavailable")
        return found

    PostgresStore.abandoned = fail_first  # type: ignore[method-assign]


def reads_launches_slowly() -> None:
    """The database takes long to return a launch's progress."""
    from perdure.stores.postgres import PostgresStore

    launches = PostgresStore.launches

    async def launches_slowly(self: Any, launch_id: str | None = None, *, node: str | None = None) -> Any:
        if launch_id is not None:
            await asyncio.sleep(SLOWNESS_S)
        return await launches(self, launch_id, node=node)

    PostgresStore.launches = launches_slowly  # type: ignore[method-assign]


def takes_over_two_concurrently() -> None:
    """A batch of a takeover is two sessions instead of a hundred."""
    from perdure.runtime.running import recovery

    recovery.ABANDONED_AT_ONCE = 2


MUTANTS = {made.__name__: made for made in (no_fence, no_decided_seq, no_news, hasty_takeover)}
_MISFORTUNES = (dies_in_takeover, loses_database_in_takeover, reads_launches_slowly, takes_over_two_concurrently)
MISFORTUNES = {made.__name__: made for made in _MISFORTUNES}


if __name__ == "__main__":
    (MUTANTS | MISFORTUNES)[sys.argv[1]]()
    from perdure.surfaces.cli import main

    sys.exit(main(sys.argv[2:]))
