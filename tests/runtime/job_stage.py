"""A server with jobs, whose clock the test sets, and which can be stopped, cut off from its store and restarted."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from perdure.config import Config
from perdure.core import events as ev
from perdure.core.errors import StoreError
from perdure.runtime.agents.registry import Agents
from perdure.runtime.data.projects import Projects
from perdure.runtime.engine import Engine
from perdure.runtime.log.log import Log
from perdure.stores.base import Append, Kept, Query
from perdure.stores.sqlite import SqliteStore
from tests.harness import WAIT_S
from tests.runtime.logs import node_id

Json = dict[str, Any]
T = TypeVar("T")
HOUR = 3_600.0
NOON = datetime(2026, 11, 18, 12, tzinfo=ZoneInfo("UTC")).timestamp()
HOURLY: Json = {"name": "nightly", "message": "say done {run}", "cron": "0 * * * *", "time_zone": "UTC"}


class Cut(StoreError):
    """The store refuses all writes from now on, as if its server had been killed."""


class CutStore(SqliteStore):
    """Accepts a number of writes, then none. The last one is lost, or stored without a response."""

    left: int | None = None
    is_kept = False

    async def append(self, step: Append) -> Kept:
        kept: Kept = await self._counted(lambda: SqliteStore.append(self, step))
        return kept

    async def append_all(self, steps: Any) -> Any:
        return await self._counted(lambda: SqliteStore.append_all(self, steps))

    def append_now(self, steps: Any) -> Any:
        return None if self.left is not None else super().append_now(steps)

    async def put_job(self, *given: Any, **named: Any) -> None:
        await self._counted(lambda: SqliteStore.put_job(self, *given, **named))

    async def _counted(self, write: Callable[[], Awaitable[Any]]) -> Any:
        if self.left is None:
            return await write()
        self.left -= 1
        if self.left > 0:
            return await write()
        if self.left == 0 and self.is_kept:
            await write()
        raise Cut("killed")


class Stage:
    """A data directory, a clock, and a server that can be stopped and started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.time = NOON
        self._node = node_id()
        self._engine: Engine | None = None
        self.store = CutStore(folder / "perdure.db")

    @property
    def engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    async def start(self) -> None:
        self.store = CutStore(self.folder / "perdure.db")
        await self.store.open()
        log, config = Log(self.store, clock=lambda: self.time), Config()
        log.generation = await self.store.claim()
        agents, projects = Agents({}, self.folder, None), Projects(self.store, {}, self.folder)
        self._engine = Engine(log, agents, projects, config, self.folder, node_id=self._node)
        await self._engine.start()

    async def stop(self, *, killed: bool = False) -> None:
        if self._engine is not None:
            async with asyncio.timeout(WAIT_S):
                await (self._engine.abandon() if killed else self._engine.stop(stop_agents=True))
                await self.store.close()
        self._engine = None

    async def add(self, **given: Any) -> str:
        made = await self.engine.jobs.create({**HOURLY, **given})
        return str(made["id"])

    def at(self, moment: float) -> None:
        """Set the clock and wake the scheduler."""
        self.time = moment
        self.engine.scheduler.wake()

    async def runs(self, job: str = "nightly") -> list[Json]:
        """The job's runs, oldest first."""
        found, _ = await self.engine.jobs.runs(job, 1_000, None)
        return found[::-1]

    async def until(self, ready: Callable[[list[Json]], object], job: str = "nightly") -> list[Json]:
        return await eventually(lambda: self.runs(job), ready)

    async def until_over(self, number: int, job: str = "nightly") -> list[Json]:
        """Wait until there are this many runs and all have ended."""
        return await self.until(lambda runs: len(runs) >= number and all(run["state"] == "ended" for run in runs), job)

    async def until_begun(self, number: int = 1) -> list[Json]:
        return await self.until(lambda runs: sum(run["state"] == "running" for run in runs) >= number)

    async def said(self, session_id: str) -> list[str]:
        """The messages that were sent to a session."""
        rows = await self.store.read(session_id, 0, limit=10_000)
        events = [ev.decode(row.body) for row in rows if row.type == "user_message"]
        return [event.text for event in events if isinstance(event, ev.UserMessage)]

    async def sessions(self) -> list[Json]:
        return (await self.engine.sessions.search(Query(limit=1_000)))[0]


async def eventually(look: Callable[[], Awaitable[T]], ready: Callable[[T], object]) -> T:
    found: T | None = None
    try:
        async with asyncio.timeout(WAIT_S):
            while not ready(found := await look()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"did not happen: {found}") from None
    assert found is not None
    return found


def dues(runs: list[Json]) -> list[tuple[str, str]]:
    return [(run["due_at"][11:16], run["outcome"] or run["state"]) for run in runs]
