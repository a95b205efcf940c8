"""A deterministic schedule: everything between two store calls is a step, and a seeded random number picks the next.

Above: the nodes of a simulation. Below: asyncio and a real store. Each store call stops before it begins and after it
is done, until it is picked. Only one continues at a time, so the result depends neither on threads nor on clocks. A
node may crash at each of these stops: between two steps, or after a commit that it doesn't know of yet.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any


class Schedule:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._stopped: list[tuple[object, asyncio.Future[None]]] = []
        self._calls = 0
        self._called = asyncio.Event()
        self.frozen: set[object] = set()
        self.crashed: set[object] = set()
        self.steps = 0

    async def stop(self, who: object) -> None:
        """Wait until `who` is picked."""
        if who in self.crashed:
            raise asyncio.CancelledError
        picked = asyncio.get_running_loop().create_future()
        self._stopped.append((who, picked))
        await picked

    async def call(self, who: object, work: Callable[[], Awaitable[Any]]) -> Any:
        """Call the store, with one step before the call and one after it."""
        await self.stop(who)
        self._calls += 1
        try:
            result = await work()
        finally:
            self._calls -= 1
            self._called.set()
        await self.stop(who)
        return result

    def crash(self, who: object) -> None:
        """Cancel everything that `who` is about to do."""
        self.crashed.add(who)
        mine = [picked for stopped, picked in self._stopped if stopped is who]
        self._stopped = [entry for entry in self._stopped if entry[0] is not who]
        for picked in mine:
            picked.cancel()

    async def settle(self) -> None:
        """Wait until all tasks have stopped."""
        loop: Any = asyncio.get_running_loop()
        while True:
            while loop._ready:  # noqa: ASYNC110  there is no event for an idle loop
                await asyncio.sleep(0)
            if not self._calls:
                await asyncio.sleep(0)
                if not loop._ready and not self._calls:
                    return
                continue
            self._called.clear()
            await self._called.wait()

    async def next(self) -> bool:
        """Let one stopped task continue; False if there is none."""
        await self.settle()
        ready = [entry for entry in self._stopped if entry[0] not in self.frozen]
        if not ready:
            return False
        entry = self.random.choice(ready)
        self._stopped.remove(entry)
        self.steps += 1
        if not entry[1].done():
            entry[1].set_result(None)
        return True
