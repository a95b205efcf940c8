"""The feed of all sessions: read once for any number of followers, limited in memory, and delivered at least once to
consumers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.core import commands as cmd
from perdure.core.errors import StoreError
from perdure.core.session import create, decide
from perdure.runtime.log import feed as feed_module
from perdure.runtime.log import log as log_module
from perdure.runtime.log.feed import CURSORS, Change, Consumer, Feed, Handle
from perdure.runtime.log.log import Log
from perdure.stores.sqlite import SqliteStore
from tests.core.stage import world
from tests.harness import WAIT_S
from tests.runtime.logs import opened


class CountedStore(SqliteStore):
    queries = 0

    async def list_changes(self, *given: Any, **named: Any) -> Any:
        self.queries += 1
        return await super().list_changes(*given, **named)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CountedStore]:
    made = CountedStore(tmp_path / "perdure.db")
    await made.open()
    yield made
    await made.close()


class Follower:
    """Reads new changes whenever it is woken."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.position = feed.position
        self.seen: list[Change] = []
        feed.follow(self)

    def wake(self) -> None:
        changes = self._feed.kept_after(self.position)
        if changes:
            self.seen += changes
            self.position = changes[-1].position


async def created(log: Log, session_id: str, title: str = "") -> None:
    command = cmd.CreateSession(session_id=session_id, project=None, agent="alpha", workdir="/srv", title=title)
    await log.create(create(command, world()))


async def retitled(log: Log, session_id: str, title: str) -> None:
    journal = await log.open(session_id)
    await journal.record(lambda state: decide(state, cmd.UpdateSession(title=title), world()))


async def test_it_is_read_once_for_any_number_of_followers(store: CountedStore) -> None:
    log = await opened(store)
    feed = Feed(log)
    await feed.start()
    followers = [Follower(feed) for _ in range(200)]
    await created(log, "s")
    store.queries = 0
    await feed.refresh()
    assert store.queries <= 2, "one read that returns the changes, and one that finds no more"
    for follower in followers:
        assert [change.session_id for change in follower.seen] == ["s"]
    await feed.stop()


async def test_it_is_woken_by_each_change_and_a_lost_wake_up_costs_only_time(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "POLL_S", 0.05)
    log = await opened(store)
    feed = Feed(log)
    await feed.start()
    follower = Follower(feed)
    await created(log, "here")
    elsewhere = Log(store)
    elsewhere.generation = log.generation
    await created(elsewhere, "elsewhere")
    async with asyncio.timeout(WAIT_S):
        while len(follower.seen) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert [change.session_id for change in follower.seen] == ["here", "elsewhere"]
    await feed.stop()


async def test_its_memory_is_bounded_and_slow_readers_read_the_store(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "KEPT_BYTES", 20_000)
    monkeypatch.setattr(feed_module, "READ_BYTES", 5_000)
    log = await opened(store)
    feed = Feed(log)
    await feed.start()
    start = feed.position
    Follower(feed)
    await created(log, "s")
    for number in range(100):
        await retitled(log, "s", f"{number} " + "x" * 400)
    await feed.refresh()
    assert sum(len(change.event.body) for change in feed._kept) <= 20_000
    assert feed.kept_after(start) is None
    position, found = start, 0
    while changes := await feed.after(position):
        assert sum(len(change.event.body) for change in changes) <= 25_000
        found += len(changes)
        position = changes[-1].position
    assert found == 101 and position == feed.position
    await feed.stop()


class Handled:
    """Records what a consumer receives."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.failures = 0

    async def __call__(self, changes: Sequence[Change]) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("not now")
        self.titles += [change.session_id for change in changes]


@contextlib.asynccontextmanager
async def consuming(log: Log, handle: Handle) -> AsyncIterator[tuple[Feed, Consumer]]:
    feed = Feed(log)
    await feed.start()
    consumer = Consumer(feed, log, "test", handle)
    await consumer.start()
    yield feed, consumer
    await consumer.stop()
    await feed.stop()


async def test_a_consumer_continues_where_the_last_server_stopped(store: CountedStore) -> None:
    log = await opened(store)
    await created(log, "before it was there")
    handled = Handled()
    for names in (["a", "b"], ["c"], []):
        async with consuming(log, handled) as (_, consumer):
            for name in names:
                await created(log, name)
            await consumer.settle()
        await created(log, f"while nobody reads {len(names)}")
    assert handled.titles == ["a", "b", "while nobody reads 2", "c", "while nobody reads 1"]


async def test_a_killed_consumer_gets_unsaved_changes_again(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "SAVE_S", 1e9)
    log = await opened(store)
    handled = Handled()
    feed = Feed(log)
    await feed.start()
    consumer = Consumer(feed, log, "test", handled)
    await consumer.start()
    await consumer._save()
    for name in "abc":
        await created(log, name)
    await consumer.settle()
    assert consumer._task is not None
    consumer._task.cancel()
    await asyncio.gather(consumer._task, return_exceptions=True)
    feed.consumers.clear()
    again = Consumer(feed, log, "test", handled)
    await again.start()
    await again.settle()
    await again.stop()
    await feed.stop()
    assert handled.titles == ["a", "b", "c", "a", "b", "c"]


async def test_a_consumer_that_fails_gets_the_same_change_again(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "RETRY_S", 0.01)
    log = await opened(store)
    handled = Handled()
    handled.failures = 3
    async with consuming(log, handled) as (feed, _):
        await created(log, "a")
        await feed.refresh()
        async with asyncio.timeout(WAIT_S):
            while not handled.titles:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert handled.titles == ["a"]


async def test_a_position_from_before_a_restore_is_not_waited_for(store: CountedStore) -> None:
    log = await opened(store)
    await created(log, "a")
    await store.put_document(CURSORS, "test", b"999999")
    handled = Handled()
    async with consuming(log, handled) as (_, consumer):
        await created(log, "b")
        await consumer.settle()
    assert handled.titles == ["b"]


async def test_a_consumer_that_is_killed_before_its_first_change_misses_nothing(store: CountedStore) -> None:
    log = await opened(store)
    handled = Handled()
    feed = Feed(log)
    await feed.start()
    first = Consumer(feed, log, "test", handled)
    await first.start()
    assert first._task is not None
    first._task.cancel()
    await asyncio.gather(first._task, return_exceptions=True)
    feed.consumers.clear()
    await created(log, "a")
    again = Consumer(feed, log, "test", handled)
    await again.start()
    await again.settle()
    await again.stop()
    await feed.stop()
    assert handled.titles == ["a"]


async def test_a_failing_consumer_is_logged_and_gets_the_same_change_again(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feed_module, "FAULT_RETRY_S", 0.01)
    log = await opened(store)
    seen: list[str] = []

    async def handle(changes: Sequence[Change]) -> None:
        seen.extend(change.session_id for change in changes)
        if len(seen) == 1:
            raise KeyError("delta")

    async with consuming(log, handle) as (_, consumer):
        await created(log, "a")
        await consumer.settle()
    assert seen == ["a", "a"]
    assert "consumer test failed" in caplog.text
