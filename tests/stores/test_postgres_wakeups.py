"""Wake-ups through PostgreSQL: they name sessions, are batched, and are never missed permanently."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import psycopg
import pytest

from perdure.stores import postgres_wakeups
from perdure.stores.postgres_wakeups import PostgresWakeups
from tests import postgres

pytestmark = [pytest.mark.long, pytest.mark.needs("postgresql")]
WAIT_S = 30


class Heard:
    """Records the calls of a listener."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._news = asyncio.Event()

    def __call__(self, session_id: str) -> None:
        self.said.append(session_id)
        self._news.set()

    async def until(self, done: Callable[[list[str]], bool]) -> list[str]:
        async with asyncio.timeout(WAIT_S):
            while not done(self.said):
                self._news.clear()
                await self._news.wait()
        return self.said


@asynccontextmanager
async def node(url: str, name: str) -> AsyncIterator[tuple[PostgresWakeups, Heard]]:
    wakeups, heard = PostgresWakeups(url, name), Heard()
    wakeups.listen(heard, heard)
    await wakeups.start()
    try:
        await heard.until(bool)
        assert heard.said == [""], "anything may have changed before"
        heard.said.clear()
        yield wakeups, heard
    finally:
        await wakeups.stop()


async def test_announcements_reach_the_other_nodes_and_not_the_sender(postgres_url: str) -> None:
    async with node(postgres_url, "a") as (a, at_a), node(postgres_url, "b") as (b, at_b):
        a.announce("s", at_a)
        a.announce("odd\0'\"\n id é", at_a)
        assert await at_b.until(lambda said: len(said) == 2) == ["s", "odd\ufffd'\"\n id é"]
        b.announce("t", at_b)
        assert await at_a.until(bool) == ["t"]
        assert at_b.said[2:] == []


async def test_other_listeners_of_the_same_node_are_called_immediately(postgres_url: str) -> None:
    wakeups, one, two = PostgresWakeups(postgres_url, "a"), Heard(), Heard()
    stop = wakeups.listen(one, one)
    wakeups.listen(two, two)
    wakeups.announce("s", one)
    assert (one.said, two.said) == ([], ["s"])
    stop()
    wakeups.announce("s", two)
    assert one.said == []


async def test_announcements_within_a_tick_are_one_statement(
    postgres_url: str, postgres_server: postgres.Shared
) -> None:
    async with (
        postgres.Proxy(postgres_server.port) as proxy,
        node(proxy.url(postgres_url), "a") as (a, at_a),
        node(postgres_url, "b") as (_, at_b),
    ):
        a.announce("first", at_a)
        await at_b.until(bool)
        before = proxy.round_trips
        names = [f"session-{number:04}-{'x' * 40}" for number in range(1_000)]
        for name in (*names, *names):
            a.announce(name, at_a)
        said = await at_b.until(lambda said: len(said) > 1_000)
        assert sorted(said[1:]) == names
        assert proxy.round_trips == before + 1


async def test_too_many_sessions_to_list_are_announced_as_everything(postgres_url: str) -> None:
    async with node(postgres_url, "a") as (a, at_a), node(postgres_url, "b") as (_, at_b):
        for number in range(postgres_wakeups.PENDING_MAX + 5):
            a.announce(f"{number}", at_a)
        said = await at_b.until(lambda said: "" in said)
        assert len(said) < 10
        at_b.said.clear()
        for number in range(3_000):
            a.announce(f"{number}-{'x' * 60}", at_a)
        assert await at_b.until(bool) == [""]
        at_b.said.clear()
        a.announce("x" * 9_000, at_a)
        assert await at_b.until(bool) == [""]


async def test_after_a_lost_connection_anything_may_have_changed_and_nothing_announced_is_lost(
    postgres_url: str, postgres_server: postgres.Shared
) -> None:
    async with (
        postgres.Proxy(postgres_server.port) as proxy,
        node(postgres_url, "a") as (a, at_a),
        node(proxy.url(postgres_url), "b") as (b, at_b),
    ):
        proxy.cut_all()
        b.announce("while cut", at_b)
        assert await at_b.until(lambda said: "" in said) == [""]
        assert "while cut" in await at_a.until(bool)
        at_b.said.clear()
        a.announce("s", at_a)
        assert await at_b.until(bool) == ["s"]


async def test_a_missing_database_is_waited_for(postgres_server: postgres.Shared) -> None:
    name = "perdure_wakeups_later"
    wakeups, heard = PostgresWakeups(postgres_server.url(name), "a"), Heard()
    wakeups.listen(heard, heard)
    await wakeups.start()
    wakeups.announce("s", heard)
    await asyncio.sleep(0)
    postgres.run_sql(postgres_server, f"CREATE DATABASE {name}")
    await heard.until(bool)
    await wakeups.stop()
    postgres.drop_database(postgres_server, name)


async def test_notifications_of_other_programs_on_the_channel_are_ignored(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with node(postgres_url, "a") as (_, at_a), node(postgres_url, "b") as (b, at_b):
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other:
            await other.execute("SELECT pg_notify('perdure', 'hello'), pg_notify('perdure', '{}')")
        b.announce("s", at_b)
        assert await at_a.until(bool) == ["s"]
    assert "unreadable notification" in caplog.text
