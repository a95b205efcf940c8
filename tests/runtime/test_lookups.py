"""Look-ups that never return hold up neither the server nor other look-ups."""

import asyncio
import functools
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from perdure.runtime.data.lookups import Lookups

SOON_S = 0.05
LIMIT_S = 20.0


@asynccontextmanager
async def hanging(lookups: Lookups, count: int) -> AsyncIterator[threading.Event]:
    """This many look-ups that hang until the end of the block, or until the event is set."""
    release = threading.Event()
    try:
        for _ in range(count):
            with pytest.raises(TimeoutError):
                await lookups.run(release.wait, SOON_S)
        yield release
    finally:
        release.set()


async def test_the_result_or_the_error_of_a_lookup_is_returned() -> None:
    lookups = Lookups(2)
    assert await lookups.run(lambda: threading.current_thread().name, LIMIT_S) == "perdure-lookup"
    with pytest.raises(ZeroDivisionError):
        await lookups.run(lambda: 1 // 0, LIMIT_S)
    many = [lookups.run(functools.partial(pow, number, 2), LIMIT_S) for number in range(50)]
    assert await asyncio.gather(*many) == [number**2 for number in range(50)]


async def test_a_lookup_that_hangs_keeps_its_place_until_it_returns() -> None:
    lookups = Lookups(2)
    async with hanging(lookups, 1):
        assert await lookups.run(lambda: "beside it", LIMIT_S) == "beside it"
    async with hanging(lookups, 2) as release:
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            await lookups.run(lambda: "no place", SOON_S)
        assert time.monotonic() - begun < LIMIT_S / 2
        release.set()
        assert await lookups.run(lambda: "again", LIMIT_S) == "again"


async def test_a_lookup_can_outlive_its_event_loop() -> None:
    release, returned = threading.Event(), threading.Event()

    def look() -> None:
        release.wait(LIMIT_S)
        returned.set()

    def live_shortly() -> None:
        async def hang() -> None:
            with pytest.raises(TimeoutError):
                await Lookups(1).run(look, SOON_S)

        asyncio.run(hang())

    await asyncio.to_thread(live_shortly)
    release.set()
    assert await asyncio.to_thread(returned.wait, LIMIT_S)
