"""Failures of the PostgreSQL store: connections that are cut, servers that stop, are read-only or full.

A proxy simulates the network. Tests that would disturb others have their own server.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from perdure.core.errors import NOTHING_KEPT, Refused, StoreBusy, StoreError, StoreFull, StoreUnavailable
from perdure.stores import base, postgres_writer
from perdure.stores.base import Append, Draft, Kept, Query
from perdure.stores.postgres import PostgresStore
from tests import postgres
from tests.conformance.stores import Owner, delta, fact, listed, progress

pytestmark = [pytest.mark.long, pytest.mark.needs("postgresql")]
WAIT_S = 30


@asynccontextmanager
async def opened(url: str, **options: int) -> AsyncIterator[Owner]:
    store = PostgresStore(url, **options)
    await store.open()
    try:
        yield Owner(store, await store.claim())
    finally:
        await store.close()


@pytest.fixture
async def proxy(postgres_server: postgres.Shared) -> AsyncIterator[postgres.Proxy]:
    async with postgres.Proxy(postgres_server.port) as made:
        yield made


def step(session: str, **fields: object) -> Append:
    given = {"generation": 1, "expect": 1, "events": [delta("word ")], **fields}
    return Append(session_id=session, **given)  # type: ignore[arg-type]  # the fields of a step


def noise() -> Draft:
    """Return a large event that can't be compressed."""
    return Draft("plan", 1, os.urandom(100_000), False)


async def backends(url: str) -> list[int]:
    """Return the PostgreSQL processes that serve this store."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        rows = await connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND application_name = 'perdure'"
        )
        return [pid for (pid,) in await rows.fetchall()]


async def run(url: str, sql: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(sql.encode())


# Round trips ------------------------------------------------------------------------------------------------------


async def test_a_group_of_steps_is_one_round_trip(postgres_url: str, proxy: postgres.Proxy) -> None:
    async with opened(proxy.url(postgres_url)) as owner:
        names = [f"s{number}" for number in range(100)]
        await asyncio.gather(*(owner.create(name) for name in names))
        before = proxy.round_trips
        plain = [step(name, progress=progress("l", name, offset=1)) for name in names]
        assert all(isinstance(one, Kept) for one in await owner.store.append_all(plain))
        assert proxy.round_trips == before + 1
        mixed = [step(name, events=[fact()], state=b"two", listed=listed()) for name in names]
        assert all(isinstance(one, Kept) for one in await owner.store.append_all(mixed))
        assert proxy.round_trips == before + 2
        assert await owner.store.append_all([]) == []


async def test_steps_are_grouped_while_a_commit_is_in_progress(postgres_url: str, proxy: postgres.Proxy) -> None:
    async with opened(proxy.url(postgres_url)) as owner:
        names = [f"s{number}" for number in range(50)]
        await asyncio.gather(*(owner.create(name) for name in names))
        before = proxy.round_trips
        first = asyncio.ensure_future(owner.append("s0", delta("x")))
        await asyncio.sleep(0)
        await asyncio.gather(first, *(owner.append(name, delta("x")) for name in names[1:]))
        assert proxy.round_trips - before <= 3


async def test_reads_are_one_round_trip(postgres_url: str, proxy: postgres.Proxy) -> None:
    async with opened(proxy.url(postgres_url)) as owner:
        await owner.create("s")
        store = owner.store
        assert isinstance(store, PostgresStore)
        for question in (store.load("s"), store.read("s", 0, limit=9), store.heads(["s"]), store.nodes()):
            before = proxy.round_trips
            await question
            assert proxy.round_trips == before + 1
        before = proxy.round_trips
        await store.news({"s": 0, "t": 0}, limit=9, max_bytes=999)
        assert proxy.round_trips == before + 1


# Concurrent groups ------------------------------------------------------------------------------------------------


async def test_a_step_that_can_not_be_written_fails_alone(postgres_url: str) -> None:
    async with opened(postgres_url) as owner:
        for name in "abc":
            await owner.create(name)
        outcomes = await owner.store.append_all(
            [
                step("a"),
                step("b", turns=["not a turn"]),
                step("c", turns=[]),
            ]
        )
        assert [type(one) for one in outcomes] == [Kept, AttributeError, Kept]
        too_large = [fact("x", turn=2**40)]
        outcomes = await owner.store.append_all([step("a", events=too_large), step("b")])
        assert isinstance(outcomes[0], StoreError) and isinstance(outcomes[1], Kept)


async def test_groups_in_opposite_order_never_deadlock(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        names = [f"s{number}" for number in range(30)]
        await asyncio.gather(*(one.create(name) for name in names))

        async def play(owner: Owner, order: list[str]) -> None:
            for _ in range(20):
                made = await owner.store.append_all([step(name, expect=None) for name in order])
                assert all(isinstance(each, Kept) for each in made)

        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(play(one, names), play(two, names[::-1]))
        heads = await one.store.heads(names)
        assert {head.last_seq for head in heads.values()} == {41}
        [(deadlocks,)] = await _rows(
            postgres_url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        assert deadlocks == 0


async def _rows(url: str, sql: str) -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        return await (await connection.execute(sql.encode())).fetchall()


async def test_a_locked_session_delays_only_its_own_steps(postgres_url: str) -> None:
    async with opened(postgres_url) as owner:
        for name in "ab":
            await owner.create(name)
        async with await psycopg.AsyncConnection.connect(postgres_url) as other:
            await other.execute("SELECT 1 FROM heads WHERE session_id = 'a' FOR UPDATE")
            async with asyncio.timeout(WAIT_S):
                outcomes = await owner.store.append_all([step("a"), step("b")])
            assert isinstance(outcomes[0], StoreUnavailable)
            assert isinstance(outcomes[1], Kept)
        assert await owner.append("a", delta("now")) == 2


async def test_the_writers_queue_is_bounded(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_writer, "QUEUE_MAX_STEPS", 10)
    async with opened(postgres_url) as owner:
        await owner.create("s")
        waiting = [asyncio.ensure_future(owner.append("s", delta("x"))) for _ in range(12)]
        made = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in made] == [int] * 10 + [StoreBusy] * 2


# Lost connections -------------------------------------------------------------------------------------------------


async def test_a_connection_lost_during_the_commit_has_an_unknown_outcome(
    postgres_url: str, proxy: postgres.Proxy
) -> None:
    async with opened(proxy.url(postgres_url)) as owner:
        await owner.create("s")
        proxy.cuts = "reply"
        with pytest.raises(StoreError, match="it is unknown whether") as kept:
            await owner.append("s", delta("kept"))
        assert await owner.append("s", delta("next")) == 3
        proxy.cuts = "request"
        with pytest.raises(StoreError, match="it is unknown whether") as lost:
            await owner.append("s", delta("lost"))
        assert not isinstance(kept.value, NOTHING_KEPT) and not isinstance(lost.value, NOTHING_KEPT)
        assert await owner.append("s", delta("next")) == 4
        assert len(await owner.all("s")) == 4


async def test_a_connection_that_was_cut_while_idle_is_reopened(postgres_url: str, proxy: postgres.Proxy) -> None:
    async with opened(proxy.url(postgres_url)) as owner:
        await owner.create("s")
        assert len(await owner.all("s")) == 1
        proxy.cut_all()
        assert len(await owner.all("s")) == 1
        proxy.cut_all()
        assert await owner.append("s", delta("x")) == 2


async def test_a_step_is_retried_when_its_backend_is_terminated_while_waiting(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as owner:
        await owner.create("s")
        async with await psycopg.AsyncConnection.connect(postgres_url) as other:
            await other.execute("SELECT 1 FROM heads WHERE session_id = 's' FOR UPDATE")
            waiting = asyncio.ensure_future(owner.append("s", delta("x")))
            async with asyncio.timeout(WAIT_S):
                blocked: list[tuple[object, ...]] = []
                while not blocked:
                    blocked = await _rows(postgres_url, _BLOCKED)
            await run(postgres_url, f"SELECT pg_terminate_backend({blocked[0][0]})")
            await other.rollback()
            assert await waiting == 2
        assert len(await owner.all("s")) == 2


_BLOCKED = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


async def test_terminated_connections_are_replaced(postgres_url: str) -> None:
    async with opened(postgres_url) as owner:
        await owner.create("s")
        for number in range(3):
            for pid in await backends(postgres_url):
                await run(postgres_url, f"SELECT pg_terminate_backend({pid}, 5000)")
            assert await owner.append("s", delta("x")) == number + 2
            assert len(await owner.all("s")) == number + 2


async def test_a_missing_database_is_reported(postgres_server: postgres.Shared) -> None:
    with pytest.raises(StoreUnavailable, match="does not exist"):
        await PostgresStore(postgres_server.url("nothing_here")).open()
    store = PostgresStore(f"postgresql://nobody@127.0.0.1:{postgres.free_port()}/x")
    with pytest.raises(StoreUnavailable, match="can't be reached"):
        await store.open()
    with pytest.raises(StoreError, match="not open"):
        await store.append(step("s"))
    with pytest.raises(StoreError, match="not open"):
        await store.load("s")
    await store.close()
    with pytest.raises(StoreError, match="address"):
        PostgresStore("postgresql://host:port:x/?what=1")


# Servers that stop, are read-only or full -------------------------------------------------------------------------


@pytest.fixture
def own_server() -> Iterator[postgres.Server]:
    if os.environ.get(postgres.GIVEN):
        pytest.skip("needs PostgreSQL of its own, not one that is given")
    with postgres.private_server() as server:
        yield server


async def test_a_restart_while_appending_loses_no_confirmed_step(own_server: postgres.Server) -> None:
    async with opened(own_server.url()) as owner:
        await owner.create("s")
        await owner.create("t")
        said: list[int] = []
        unknown = 0
        stopped = asyncio.Event()

        async def append() -> None:
            nonlocal unknown
            while len(said) < 400 or not stopped.is_set():
                try:
                    said.append(await owner.append("s", delta("x")))
                except StoreUnavailable:
                    await asyncio.sleep(0)
                except StoreError:
                    unknown += 1

        async def restart() -> None:
            for how in (signal.SIGINT, signal.SIGQUIT):
                for _ in range(50):
                    await owner.append("t", delta("y"))
                await asyncio.to_thread(own_server.stop, how)
                await asyncio.to_thread(own_server.start)
            stopped.set()

        async with asyncio.timeout(2 * WAIT_S):
            await asyncio.gather(append(), restart())
        numbers = [event.seq for event in await owner.all("s")]
        assert numbers == list(range(1, len(numbers) + 1))
        assert set(said) <= set(numbers)
        assert len(numbers) - 1 - len(said) <= unknown


async def test_a_read_only_server_stores_nothing_and_reports_it(own_server: postgres.Server) -> None:
    url = own_server.url()
    async with opened(f"{url}?target_session_attrs=any") as owner:
        await owner.create("s")
        await run(url, "ALTER SYSTEM SET default_transaction_read_only = on")
        await run(url, "SELECT pg_reload_conf()")
        async with asyncio.timeout(WAIT_S):
            while True:
                outcome = (await owner.store.append_all([step("s")]))[0]
                if not isinstance(outcome, Kept):
                    break
        assert isinstance(outcome, StoreUnavailable) and "read-only" in str(outcome)
        before = len(await owner.all("s"))
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("SET default_transaction_read_only = off")
            await connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            await connection.execute("SELECT pg_reload_conf()")
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    assert await owner.append("s", delta("again")) == before + 1
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0)


@pytest.fixture
def small_disk() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    disk = Path(tempfile.mkdtemp(prefix="perdure-small-"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting is not permitted here")
    disk.chmod(0o777)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)
    shutil.rmtree(disk, ignore_errors=True)


@pytest.mark.full
async def test_a_full_disk_rejects_a_step_and_accepts_the_next_when_there_is_space(
    own_server: postgres.Server, small_disk: Path
) -> None:
    # Its own tablespace: a full write-ahead log would stop the whole server, whatever the store does.
    url = own_server.url()
    space = small_disk / "space"
    space.mkdir()
    shutil.chown(space, own_server.user)
    await run(url, f"CREATE TABLESPACE small LOCATION '{space}'")
    await run(url, "CREATE DATABASE small TABLESPACE small TEMPLATE template0")
    async with opened(own_server.url("small")) as owner:
        await owner.create("s")
        async with asyncio.timeout(2 * WAIT_S):
            kept = 0
            while isinstance(outcome := (await owner.store.append_all([step("s", events=[noise()])]))[0], Kept):
                kept += 1
        assert kept > 0 and isinstance(outcome, StoreFull)
        grown = await asyncio.create_subprocess_exec("mount", "-o", "remount,size=64m", str(small_disk))
        assert await grown.wait() == 0
        assert await owner.append("s", delta("room again")) == kept + 2
        assert [event.seq for event in await owner.all("s")] == list(range(1, kept + 3))


# Heartbeats -------------------------------------------------------------------------------------------------------


async def test_a_node_whose_connections_are_all_in_use_still_sends_heartbeats(postgres_url: str) -> None:
    async with opened(postgres_url) as owner, contextlib.AsyncExitStack() as stack:
        store = owner.store
        assert isinstance(store, PostgresStore)
        node = base.Owner("n", await store.join("n", b"{}"))
        store._partitions_due_s = 0.0
        for _ in range(store._pool._free._value):
            await stack.enter_async_context(store._pool.use())
        async with asyncio.timeout(WAIT_S):
            assert await store.beat(node)
            assert await store.time() > 0
            assert await store.epoch() == 0
            assert [each.node for each in await store.nodes()] == ["n"]


async def test_a_refused_change_does_not_close_the_connection(postgres_url: str) -> None:
    async with opened(postgres_url) as owner:
        await owner.create("s")
        store = owner.store
        assert isinstance(store, PostgresStore)
        await store.list_sessions(Query(limit=1))
        before = list(store._pool._idle)
        with pytest.raises(Refused):
            await store.list_sessions(Query(limit=1, cursor="nonsense"))
        assert store._pool._idle == before
