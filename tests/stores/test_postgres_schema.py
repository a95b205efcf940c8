"""What is specific to the PostgreSQL store: a pooler, migrations, partitions, the change feed, the epoch, odd text."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from perdure.core.errors import NOTHING_KEPT, StoreError
from perdure.stores import postgres_migrate
from perdure.stores.base import Phrase, Query, Receipt
from perdure.stores.postgres import PostgresStore
from perdure.stores.postgres_migrate import Migration, shipped
from perdure.stores.postgres_search import asked_words, match_expression, snippet_of
from tests import postgres
from tests.conformance.stores import Owner, delta, fact, listed, progress

pytestmark = [pytest.mark.long, pytest.mark.needs("postgresql")]
WAIT_S = 30


@pytest.fixture
async def owner(postgres_url: str) -> AsyncIterator[Owner]:
    store = PostgresStore(postgres_url)
    await store.open()
    yield Owner(store, await store.claim())
    await store.close()


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        yield connection


async def one(database: psycopg.AsyncConnection[Any], sql: str) -> Any:
    row = await (await database.execute(sql.encode())).fetchone()
    return None if row is None else row[0]


# A pooler ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not postgres.has_pooler(), reason="needs pgbouncer")
async def test_everything_works_through_a_pooler_in_transaction_mode(
    postgres_server: postgres.Shared, postgres_url: str, tmp_path: Path
) -> None:
    with postgres.pooler(postgres_server, tmp_path) as port:
        name = postgres_url.rsplit("/", 1)[1]
        stores = [PostgresStore(f"postgresql://any@127.0.0.1:{port}/{name}") for _ in range(3)]
        await asyncio.gather(*(store.open() for store in stores))
        owners = [Owner(store, await store.claim()) for store in stores]
        await asyncio.gather(*(owners[0].create(f"s{number}") for number in range(20)))
        await asyncio.gather(
            *(
                owner.append(f"s{number}", delta("x"), progress=progress("l", f"s{number}"))
                for owner in owners
                for number in range(20)
            ),
            *(store.read(f"s{number}", 0, limit=9) for store in stores for number in range(20)),
        )
        heads = await stores[1].heads([f"s{number}" for number in range(20)])
        assert {head.last_seq for head in heads.values()} == {4}
        assert await stores[2].join("a", b"{}") == 1
        assert await stores[0].scrub(whole=True)
        for store in stores:
            await store.close()


@pytest.mark.skipif(not postgres.has_pooler(), reason="needs pgbouncer")
async def test_a_step_may_have_been_stored_if_the_pooler_lost_the_server(tmp_path: Path) -> None:
    with postgres.private_server() as server, postgres.pooler(postgres.Shared(server.url()), tmp_path) as port:
        store = PostgresStore(f"postgresql://any@127.0.0.1:{port}/postgres")
        await store.open()
        owner = Owner(store, await store.claim())
        await owner.create("s")
        async with await psycopg.AsyncConnection.connect(server.url()) as holder:
            await holder.execute("SELECT 1 FROM heads FOR UPDATE")
            sending = asyncio.ensure_future(owner.append("s", delta("x")))
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            async with asyncio.timeout(WAIT_S):
                while await (await holder.execute(waiting)).fetchone() is None:
                    continue
            server.stop()
            with contextlib.suppress(psycopg.OperationalError):
                await holder.close()
        with pytest.raises(StoreError) as failed:
            await sending
        assert not isinstance(failed.value, NOTHING_KEPT)
        await store.close()


# Migrations -------------------------------------------------------------------------------------------------------


async def test_several_servers_may_start_on_a_new_database_at_the_same_time(postgres_server: postgres.Shared) -> None:
    name = postgres.make_database(postgres_server)
    stores = [PostgresStore(postgres_server.url(name)) for _ in range(4)]
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*(store.open() for store in stores))
    owner = Owner(stores[0], 1)
    assert await owner.create("s") == 1
    for store in stores:
        await store.close()
    rows = postgres.run_sql(postgres_server, "SELECT version FROM migrations ORDER BY version", name)
    assert rows == [(migration.version,) for migration in shipped() if not migration.after_rollout]
    postgres.drop_database(postgres_server, name)


async def test_a_newer_database_is_refused_with_what_to_do(
    postgres_url: str, database: psycopg.AsyncConnection[Any]
) -> None:
    await database.execute("INSERT INTO migrations (version, after_rollout, name) VALUES (9999, false, 'x')")
    with pytest.raises(StoreError, match=r"schema version 9999.*Install the newer Perdure"):
        await PostgresStore(postgres_url).open()


async def test_migrations_after_a_rollout_run_once_when_every_node_writes_that_format(
    database: psycopg.AsyncConnection[Any],
) -> None:
    files = [
        *shipped(),
        Migration(8, False, "0008_soon.sql", "CREATE TABLE soon (x int)"),
        Migration(8, True, "0008_soon.after.sql", "ALTER TABLE soon ADD COLUMN y int; INSERT INTO soon VALUES (1, 2)"),
    ]
    await postgres_migrate.migrate(database, files)
    assert await one(database, "SELECT count(*) FROM soon") == 0
    await postgres_migrate.finish(database, files, 7)
    assert await one(database, "SELECT count(*) FROM soon") == 0
    for _ in range(2):
        await postgres_migrate.finish(database, files, 8)
        assert await one(database, "SELECT sum(y) FROM soon") == 2
    assert await one(database, "SELECT format_version FROM meta") == 8


async def test_a_migration_that_fails_leaves_nothing(database: psycopg.AsyncConnection[Any]) -> None:
    broken = Migration(9, False, "0009_broken.sql", "CREATE TABLE half (x int); SELECT 1 / 0")
    with pytest.raises(psycopg.errors.DivisionByZero):
        await postgres_migrate.migrate(database, [*shipped(), broken])
    assert await one(database, "SELECT to_regclass('half')") is None


async def test_too_old_servers_are_refused_and_newer_ones_cause_a_warning(
    database: psycopg.AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres_migrate, "OLDEST_SERVER", 99)
    with pytest.raises(StoreError, match="needs version 99 or newer"):
        await postgres_migrate.check_server(database)
    monkeypatch.setattr(postgres_migrate, "OLDEST_SERVER", 9)
    monkeypatch.setattr(postgres_migrate, "NEWEST_SERVER", 9)
    with caplog.at_level(logging.WARNING):
        await postgres_migrate.check_server(database)
    assert "newer than the newest version tested" in caplog.text


async def test_another_encoding_is_refused(postgres_server: postgres.Shared) -> None:
    name = "perdure_latin"
    postgres.run_sql(
        postgres_server, f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    with pytest.raises(StoreError, match="ENCODING 'UTF8'"):
        await PostgresStore(postgres_server.url(name)).open()
    postgres.drop_database(postgres_server, name)


# The change feed --------------------------------------------------------------------------------------------------


async def test_an_open_transaction_delays_the_change_feed_and_nothing_is_missed(
    owner: Owner, postgres_url: str, database: psycopg.AsyncConnection[Any]
) -> None:
    await owner.create("s")
    [(begin, _, _)] = await owner.changes(0, 1)
    async with await psycopg.AsyncConnection.connect(postgres_url) as slow:
        # Like an append that starts first and commits last.
        key = await one(database, "SELECT session_key FROM heads WHERE session_id = 's'")
        await slow.execute("INSERT INTO events VALUES (%s, 100, 1, true, 'plan', '{}')", (key,))
        await slow.execute("INSERT INTO changes (session_key, seq, type) VALUES (%s, 100, 'plan')", (key,))
        await owner.create("t")
        assert await owner.store.list_changes(begin, ("plan",), 9) == []
        [(newest, _, _)] = await owner.store.list_changes(-1, (), 1)
        await slow.commit()
    for after in (begin, newest):
        names = [(name, event.seq) for _, name, event in await owner.changes(after, 2)]
        assert names == [("s", 100), ("t", 1)], "a reader that started meanwhile must not miss it"


async def test_a_position_may_be_any_number(owner: Owner) -> None:
    await owner.create("s")
    assert len(await owner.changes(0, 1)) == 1
    assert await owner.store.list_changes(10**40, ("plan",), 9) == []
    assert await owner.store.list_changes(0, (), 9) == []


async def test_the_epoch_rises_with_another_timeline_and_with_another_cluster(
    owner: Owner, postgres_url: str, database: psycopg.AsyncConnection[Any]
) -> None:
    store = owner.store
    assert isinstance(store, PostgresStore)
    await owner.create("s")
    before = await store.epoch()
    again = PostgresStore(postgres_url)
    await again.open()
    assert await again.epoch() == before
    await again.close()
    await database.execute("UPDATE meta SET timeline = timeline + 1")
    again = PostgresStore(postgres_url)
    await again.open()
    assert await again.epoch() == before + 1
    await again.close()
    # Like after restoring a dump of a cluster with far higher transaction ids.
    await database.execute("UPDATE meta SET system_identifier = 7")
    await database.execute("UPDATE changes SET xid = '900000000000'")
    assert await store.list_changes(0, ("plan",), 9) == []
    again = PostgresStore(postgres_url)
    await again.open()
    assert await again.epoch() == before + 2
    assert [name for _, name, _ in await owner.changes(0, 1)] == ["s"]
    await owner.create("t")
    assert [name for _, name, _ in await owner.changes(0, 2)] == ["s", "t"]
    await again.close()


async def test_an_ordinary_user_may_do_everything(postgres_server: postgres.Shared) -> None:
    name = postgres.make_database(postgres_server)
    user = f"{name}_user"
    postgres.run_sql(postgres_server, f"CREATE USER {user}")
    postgres.run_sql(postgres_server, f"ALTER DATABASE {name} OWNER TO {user}")
    url = postgres_server.url(name)
    scheme, _, rest = url.partition("://")
    store = PostgresStore(f"{scheme}://{user}@{rest.split('@', 1)[1]}")
    await store.open()
    owner = Owner(store, 1)
    await owner.create("s")
    assert await store.epoch() >= 0
    assert isinstance(await store.inspect(), list)
    await store.erase("s", 1)
    assert await store.scrub(whole=True)
    await store.close()
    postgres.drop_database(postgres_server, name)
    postgres.run_sql(postgres_server, f"DROP USER {user}")


# Partitions -------------------------------------------------------------------------------------------------------

_PARTITIONS = (
    "SELECT array_agg(inhrelid::regclass::text ORDER BY 1) FROM pg_inherits WHERE inhparent = 'events'::regclass"
)


async def make_month(database: psycopg.AsyncConnection[Any], month: int) -> None:
    """Create a partition for a month of 2020."""
    number = 2020 * 12 + month - 1
    bounds = f"FROM ({number << 40}) TO ({(number + 1) << 40})"
    await database.execute(f"CREATE TABLE events_2020_{month:02} PARTITION OF events FOR VALUES {bounds}".encode())


async def test_a_session_is_in_the_partition_of_its_month_and_the_next_partitions_exist(
    owner: Owner, database: psycopg.AsyncConnection[Any]
) -> None:
    await owner.create("s", fact(), delta("x"))
    month = await one(database, "SELECT to_char(now() AT TIME ZONE 'UTC', '\"events_\"YYYY_MM')")
    assert await one(database, "SELECT DISTINCT tableoid::regclass::text FROM events") == month
    assert len([name for name in await one(database, _PARTITIONS) if name >= month and name != "events_default"]) >= 3
    assert await one(database, "SELECT count(*) FROM events_default") == 0


async def test_a_month_without_sessions_is_dropped_by_a_scrub(
    owner: Owner, database: psycopg.AsyncConnection[Any]
) -> None:
    await make_month(database, 1)
    await make_month(database, 2)
    await owner.create("s", fact(), delta("x"))
    old = (24241 << 40) + 5
    for table in ("heads", "sessions", "events", "changes"):
        await database.execute(f"UPDATE {table} SET session_key = {old}")
    assert len(await owner.all("s")) == 2
    assert await owner.store.scrub(whole=False)
    names = await one(database, _PARTITIONS)
    assert "events_2020_01" not in names and "events_2020_02" in names
    assert await owner.append("s", delta("y")) == 3
    await owner.store.erase("s", owner.generation)
    assert await owner.store.scrub(whole=True)
    assert "events_2020_02" not in await one(database, _PARTITIONS)
    await owner.create("s")
    assert len(await owner.all("s")) == 1


async def test_a_partition_in_use_is_dropped_later(
    owner: Owner, postgres_url: str, database: psycopg.AsyncConnection[Any]
) -> None:
    await make_month(database, 1)
    async with await psycopg.AsyncConnection.connect(postgres_url) as reader:
        await reader.execute("SELECT count(*) FROM events")
        assert await owner.store.scrub(whole=False)
    assert "events_2020_01" in await one(database, _PARTITIONS)
    assert await owner.store.scrub(whole=False)
    assert "events_2020_01" not in await one(database, _PARTITIONS)


# What a delta costs -----------------------------------------------------------------------------------------------


async def test_a_delta_writes_its_row_and_the_head_and_nothing_else(
    owner: Owner, database: psycopg.AsyncConnection[Any]
) -> None:
    await owner.create("s", progress=progress("l", "s"))
    await owner.append("s", delta("x"), progress=progress("l", "s", offset=1))

    async def places() -> dict[str, str]:
        """Return the physical positions of the rows of each table. An update changes them."""
        tables = ("sessions", "launches", "changes", "turns", "receipts", "former_owners")
        return {table: await one(database, f"SELECT array_agg(ctid)::text FROM {table}") for table in tables}

    before = await places()
    for offset in range(2, 10):
        await owner.append("s", delta("x"), expect=1, token=0, progress=progress("l", "s", offset=offset))
    assert await places() == before
    assert [row.offset for row in await owner.store.launches()] == [9]
    indexes = await one(database, "SELECT count(*) FROM pg_index WHERE indrelid = 'events'::regclass")
    assert indexes == 2


# Text -------------------------------------------------------------------------------------------------------------


async def test_text_that_postgresql_can_not_store_is_stored_with_replacements(owner: Owner) -> None:
    odd = "a\0b \ud800 café"
    await owner.create(
        "s",
        fact(),
        listed=listed(title=odd, labels=[odd], project=odd),
        phrases=[Phrase(0, "title", odd), Phrase(1, "user", odd)],
        receipt=Receipt(odd, odd, b"\0"),
        progress=progress("l" + odd, "s"),
    )
    assert await owner.found(q="cafe") == ["s"]
    assert await owner.found(label=odd) == await owner.found(project=odd) == ["s"]
    found = await owner.store.find_receipt("s", odd)
    assert found is not None and found.answer == b"\0"
    assert len(await owner.store.launches("l" + odd)) == 1
    await owner.store.put_document(odd, odd, b"x")
    assert await owner.store.document(odd, odd) == b"x"
    assert await owner.store.load(odd) is None


async def test_a_very_long_text_is_stored_and_found_by_its_beginning(owner: Owner) -> None:
    text = " ".join(f"word{number}" for number in range(120_000))
    await owner.create("s", phrases=[Phrase(1, "assistant", text), Phrase(2, "user", "x" * 3_000_000)])
    assert await owner.found(q="word17") == ["s"]
    [found] = (await owner.store.list_sessions(Query(q="word20000"))).found
    assert found.snippet is not None and "[word20000]" in found.snippet


@pytest.mark.parametrize(
    ("text", "asked", "snippet"),
    [
        ("Please fix the café menu", "cafe", "Please fix the [café] menu"),
        ("one two", "tw", "one [two]"),
        ("(a) well-known thing.", "well-kno", "(a) [well]-[known] thing."),
        (" ".join("abcdefghijklmnopqrstuvwxyz"), "h", "...d e f g [h] i j k l m n o p q r s..."),
        ("nothing", "else", "nothing"),
        ("", "x", ""),
    ],
)
def test_a_snippet_shows_the_match(text: str, asked: str, snippet: str) -> None:
    assert snippet_of(text, asked_words(asked)) == snippet


def test_a_search_becomes_words_without_syntax() -> None:
    assert match_expression(asked_words("Foo-bar BÄZ'; & !x")) == "('foo' <-> 'bar':*) & ('baz':*) & ('x':*)"
    assert asked_words("&|!() '") == []


# The doctor -------------------------------------------------------------------------------------------------------


async def test_the_doctor_reports_a_transaction_that_delays_the_change_feed(
    owner: Owner, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = owner.store
    assert isinstance(store, PostgresStore)
    monkeypatch.setattr("perdure.stores.postgres_upkeep.OLD_TRANSACTION_S", 0)
    async with await psycopg.AsyncConnection.connect(postgres_url, application_name="tool") as slow:
        await slow.execute("CREATE TABLE x ()")
        assert any("(tool, process" in said and "delays the change feed" in said for said in await store.inspect())
    assert not any("(tool, process" in said for said in await store.inspect())
