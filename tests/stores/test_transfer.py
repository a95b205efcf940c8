"""Moving all data between SQLite and PostgreSQL: nothing is lost or changed, whatever happens during the move."""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import StoreDamaged, StoreError, StoreUnavailable
from perdure.stores import transfer, transfer_postgres
from perdure.stores.base import LaunchProgress, Owner, Query, Store, UsageQuery
from perdure.stores.postgres import PostgresStore
from perdure.stores.sqlite import SqliteStore
from perdure.stores.transfer import Difference, Progress, Row, Table, Transfer, TransferError, check_complete
from perdure.stores.transfer_postgres import PostgresSide, shown
from perdure.stores.transfer_sqlite import SqliteSide
from tests.conformance import stores as conformance
from tests.conformance.stores import fact, progress
from tests.stores.moving import ask, attach, dump, files, fill, home

pytestmark = [pytest.mark.long, pytest.mark.needs("postgresql")]

Report = Callable[[Progress], None]


def quiet(_: Progress) -> None:
    """Ignore the progress."""


def to_postgres(data: Path, url: str, report: Report = quiet) -> Transfer:
    here = home(data)
    with PostgresSide(url, here.node).opened() as target, SqliteSide(here).opened() as source:
        made = Transfer(source, target, report)
        made.run()
    return made


def to_sqlite(data: Path, url: str, report: Report = quiet) -> Transfer:
    here = home(data)
    with PostgresSide(url, here.node).opened() as source, SqliteSide(here).opened() as target:
        made = Transfer(source, target, report)
        made.run()
    return made


def differences(data: Path, url: str) -> list[str]:
    here = home(data)
    with PostgresSide(url, here.node).opened() as target, SqliteSide(here).opened() as source:
        return Transfer(source, target).verify()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data directory with a small database."""
    made = home(tmp_path / "data").path
    (made / "token").write_text("a-token-that-is-long-enough\n")
    asyncio.run(fill(made, 1, sessions=3, steps=25))
    return made


@pytest.fixture(autouse=True)
def short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_postgres, "HEARTBEAT_LOOK_S", 0.3)


# The same on both sides -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_sqlite_to_postgresql_and_back_is_equal_row_by_row(tmp_path: Path, postgres_url: str, seed: int) -> None:
    one, other = home(tmp_path / "one").path, home(tmp_path / "other").path
    asyncio.run(fill(one, seed))
    # The node keeps its id, so that the documents about its agents come back too.
    (other / "install").write_text(f"{home(one).node}\n")
    before, had = dump(one / "perdure.db"), files(one)
    moved = to_postgres(one, postgres_url)
    assert dump(one / "perdure.db") == before
    assert moved.progress.events == moved.progress.events_total == len(before["events"])
    to_sqlite(other, postgres_url)
    after = dump(other / "perdure.db")
    for table, rows in before.items():
        assert after[table] == rows, table
    assert files(other) == had and had
    assert differences(other, postgres_url) == differences(one, postgres_url) == []


def test_a_store_answers_the_same_after_the_move(data: Path, postgres_url: str) -> None:
    to_postgres(data, postgres_url)

    async def compare() -> None:
        sqlite, postgres = SqliteStore(data / "perdure.db"), PostgresStore(postgres_url)
        await sqlite.open()
        await postgres.open()
        try:
            assert await answers(sqlite) == await answers(postgres)
            assert not await postgres.documents("cursor")
            assert await postgres.document("cluster", "token") == b"a-token-that-is-long-enough"
            assert await postgres.document("cluster", "id") == home(data).node.encode()
            assert await postgres.documents(f"agent.{home(data).node}") == await sqlite.documents("agent")
            assert (await postgres.document_marks())["project"] > 0
            assert await postgres.former_nodes("s_000") == [home(data).node]
            for session_id, content in files(data).items():
                assert await postgres.file(*session_id.split("/")) == content
        finally:
            await sqlite.close()
            await postgres.close()

    asyncio.run(compare())


async def answers(store: Store) -> dict[str, Any]:
    """Return what a server reads from a store."""
    names = [f"s_{number:03}" for number in range(3)]
    page = await store.list_sessions(Query(limit=100))
    made: dict[str, Any] = {
        "list": [(found.session_id, found.public, found.last_seq) for found in page.found],
        "found": [found.session_id for found in (await store.list_sessions(Query(q="needle1"))).found],
        "unicode": [found.session_id for found in (await store.list_sessions(Query(q="unicode"))).found],
        "usage": await store.usage(UsageQuery(group_by=("session", "day"))),
        "twice": {(program, native.replace("\0", "\ufffd")) for program, native in await store.issued_twice()},
        "jobs": await store.jobs(),
        "runs": [await store.list_runs(f"job{number}", limit=100) for number in range(3)],
        "project": await store.documents("project"),
        "due": await store.due_sessions("2027-01-01T00:00:00Z", 100),
    }
    for name in names:
        record = await store.load(name)
        assert record is not None
        made[name] = [
            (record.state, record.last_seq, record.decided_seq, record.token),
            await store.read(name, 0, limit=100_000),
            await store.read(name, 5, limit=3),
            await store.read_turns(name, hidden=True),
            await store.read_turns(name),
            await store.read_records(name, 1, None, record.last_seq, limit=100),
            [await store.find_receipt(name, f"m{turn}") for turn in range(20)],
        ]
        taken = await store.find_receipt(name, "m3\0")
        made[name].append(None if taken is None else (taken.answer, taken.seq))
    return made


async def changes(store: Store, after: int, types: tuple[str, ...], least: int) -> list[Any]:
    """Wait for at least this many changes: PostgreSQL delays them while other tests have older transactions open."""
    async with asyncio.timeout(20):
        while len(found := await store.list_changes(after, types, 10_000)) < least:  # noqa: ASYNC110  no event to await
            await asyncio.sleep(0.02)
    return found


def test_the_order_across_all_sessions_is_preserved(data: Path, tmp_path: Path, postgres_url: str) -> None:
    async def order(store: Store, least: int) -> list[tuple[str, int]]:
        await store.open()
        try:
            found = await changes(store, 0, ("plan", "turn_start", "turn_end"), least)
            return [(session_id, event.seq) for _, session_id, event in found]
        finally:
            await store.close()

    to_postgres(data, postgres_url)
    to_sqlite(tmp_path / "other", postgres_url)
    stores: list[Store] = [SqliteStore(data / "perdure.db"), PostgresStore(postgres_url)]
    stores.append(SqliteStore(tmp_path / "other" / "perdure.db"))
    first = asyncio.run(order(stores[0], 1))
    second, third = [asyncio.run(order(store, len(first))) for store in stores[1:]]
    assert first == second == third
    # The events are interleaved, so sorting them by session would give another order.
    assert sorted(first) != first


def test_events_appended_after_a_move_come_after_the_moved_ones(tmp_path: Path, data: Path, postgres_url: str) -> None:
    async def append(store: Store) -> None:
        await store.open()
        try:
            owner = conformance.Owner(store, await store.claim())
            before = await store.load("s_001")
            assert before is not None
            kept = await owner.keep("s_001", fact("new"), state=b"new", claim=Owner("n", await store.join("n", b"{}")))
            assert kept.first == before.last_seq + 1 and kept.token == before.token + 1
            last: tuple[str, int] | None = None
            async with asyncio.timeout(20):
                # PostgreSQL delays changes while other tests have older transactions open.
                while last != ("s_001", kept.first):
                    *_, (_, session_id, event) = await changes(store, 0, ("plan",), 1)
                    last = (session_id, event.seq)
                    await asyncio.sleep(0.02)
            await store.compact("s_001", owner.generation, [])
        finally:
            await store.close()

    to_postgres(data, postgres_url)
    to_sqlite(tmp_path / "other", postgres_url)
    asyncio.run(append(PostgresStore(postgres_url)))
    asyncio.run(append(SqliteStore(tmp_path / "other" / "perdure.db")))


def test_no_owner_is_moved_and_no_fencing_token_goes_down(data: Path, postgres_url: str) -> None:
    to_postgres(data, postgres_url)
    with closing(sqlite3.connect(data / "perdure.db")) as database:
        tokens = dict(database.execute("SELECT session_id, fencing_token FROM heads JOIN sessions USING (session_key)"))
    moved = ask(postgres_url, "SELECT session_id, fencing_token, owner FROM heads")
    assert any(tokens.values())
    assert {session_id: token for session_id, token, _ in moved if token} == tokens
    assert {owner for *_, owner in moved} == {None}


def test_viewers_of_the_old_store_get_a_snapshot_from_the_new_one(
    data: Path, tmp_path: Path, postgres_url: str
) -> None:
    home(data).set_epoch(41, 1)
    to_postgres(data, postgres_url)
    assert ask(postgres_url, "SELECT perdure_epoch_v1()") == [(42,)]
    back = home(tmp_path / "other")
    back.set_epoch(3, 7)
    to_sqlite(back.path, postgres_url)
    assert back.epoch(0) == 43


def test_the_token_is_moved_both_ways(data: Path, tmp_path: Path, postgres_url: str) -> None:
    to_postgres(data, postgres_url)
    (home(tmp_path / "other").path / "token").write_text("another-token-of-another-life\n")
    to_sqlite(tmp_path / "other", postgres_url)
    assert (tmp_path / "other" / "token").read_text() == "a-token-that-is-long-enough\n"
    assert (tmp_path / "other" / "perdure.db").stat().st_mode & 0o777 == 0o600


def test_files_that_the_source_does_not_have_are_removed(data: Path, tmp_path: Path, postgres_url: str) -> None:
    attach(data, "s_000", "kept", b"kept")
    to_postgres(data, postgres_url)
    for name, content in (("kept", b"changed"), ("stale", b"stale")):
        attach(tmp_path / "other", "s_000", name, content)
    to_sqlite(tmp_path / "other", postgres_url)
    assert files(tmp_path / "other") == files(data)


# Continuing -------------------------------------------------------------------------------------------------------


class Crash(Exception):
    """Simulates a kill: the move does not clean up."""


def crash_after(events: int) -> Report:
    def report(progress: Progress) -> None:
        if progress.events >= events:
            raise Crash

    return report


@pytest.mark.parametrize("way", ["to postgres", "to sqlite"])
def test_an_interrupted_move_continues_and_repeats_nothing(
    data: Path, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(transfer, "REPORT_EVENTS", 1)
    move, place = to_postgres, data
    if way == "to sqlite":
        to_postgres(data, postgres_url)
        move, place = to_sqlite, tmp_path / "other"
    total = len(dump(data / "perdure.db")["events"])
    chance = random.Random(7)
    for events in sorted(chance.sample(range(1, total), 6)):
        with pytest.raises(Crash):
            move(place, postgres_url, crash_after(events))
    done = move(place, postgres_url)
    assert done.progress.skipped > 0 and done.progress.sessions == 3
    assert differences(place, postgres_url) == []
    again = move(place, postgres_url)
    assert again.was_finished and again.progress.sessions == 0


def test_changes_since_an_earlier_attempt_are_moved_again(
    data: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "REPORT_EVENTS", 1)
    total = len(dump(data / "perdure.db")["events"])
    with pytest.raises(Crash):
        to_postgres(data, postgres_url, crash_after(total))
    assert len(ask(postgres_url, "SELECT 1 FROM heads")) == 2

    async def use() -> None:
        store = SqliteStore(data / "perdure.db")
        await store.open()
        owner = conformance.Owner(store, await store.claim())
        await owner.append("s_000", fact("later"), state=b"later")
        await store.erase("s_001", owner.generation)
        await store.put_document("upkeep", "scrub", None)
        await store.close()

    asyncio.run(use())
    attach(data, "s_001", "x", b"")
    for path in (data / "attachments" / "s_001").iterdir():
        path.unlink()
    done = to_postgres(data, postgres_url)
    assert done.progress.skipped == 0
    assert differences(data, postgres_url) == []
    assert ask(postgres_url, "SELECT session_id FROM heads ORDER BY 1") == [("s_000",), ("s_002",)]


def test_a_server_refuses_a_store_with_an_unfinished_move(
    data: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "REPORT_EVENTS", 1)

    async def check() -> None:
        store = PostgresStore(postgres_url)
        await store.open()
        try:
            await check_complete(store)
        finally:
            await store.close()

    asyncio.run(check())
    with pytest.raises(Crash):
        to_postgres(data, postgres_url, crash_after(40))
    with pytest.raises(StoreError, match=r"is not finished\. Run `perdure migrate` again"):
        asyncio.run(check())
    to_postgres(data, postgres_url)
    asyncio.run(check())


def test_an_outdated_target_does_not_count_as_complete(data: Path, postgres_url: str) -> None:
    to_postgres(data, postgres_url)
    # Move back, continue with SQLite, and move to the same database again.
    (data / "perdure.db").rename(data / "old.db")
    to_sqlite(data, postgres_url)

    async def serve() -> None:
        store = SqliteStore(data / "perdure.db")
        await store.open()
        await store.claim()
        await store.close()

    asyncio.run(serve())
    with pytest.raises(TransferError, match=r"a server has run on the source since.*Choose an empty database"):
        to_postgres(data, postgres_url)
    ask(postgres_url, "SELECT perdure_join_v1('n1', '{}')")
    with pytest.raises(TransferError, match=r"a server has run on the source since"):
        to_sqlite(data, postgres_url)


# Differences ------------------------------------------------------------------------------------------------------

FLIP = "UPDATE {table} SET {column} = set_byte({column}, 0, get_byte({column}, 0) # 1) WHERE {where}"
FLIPS = {
    "sessions": ("machine_state", "true"),
    "events": ("body", "seq = 3"),
    "turns": ("public", "turn = 1"),
    "turn_records": ("record", "turn = 1"),
    "receipts": ("answer", "message_id = 'm1'"),
    "files": ("data", "length(data) > 0"),
    "jobs": ("body", "job_id = 'job1'"),
    "job_runs": ("result", "run_id = '2'"),
    "documents": ("value", "kind = 'project'"),
}
CHANGES = {
    "UPDATE sessions SET title = title || '!'": "table sessions: row 1 differs in title",
    "UPDATE heads SET fencing_token = fencing_token + 1": "differs in fencing_token",
    "UPDATE events SET first_seq = seq WHERE seq = 1": "the row with seq 1 differs in first_seq",
    "UPDATE events SET decisive = NOT decisive WHERE seq = 1": "differs in decisive",
    "DELETE FROM events WHERE seq = 2": "table events: the row with seq 2",
    "UPDATE turns SET visible = NOT visible": "differs in visible",
    "UPDATE spent SET cost_usd = 0.3": "table spent: the row with turn 1 differs in cost_usd",
    "UPDATE phrases SET text = text || '.' WHERE role = 'user'": "table phrases: row ",
    "UPDATE natives SET twice = NOT twice": "differs in twice",
    "DELETE FROM files": "is only in the source",
    "INSERT INTO documents VALUES ('project', 'other', '{}')": "kind project, key other is only in the target",
    "UPDATE documents SET value = 'x' WHERE kind = 'cluster' AND key = 'token'": "Table credentials",
    "UPDATE changes SET seq = seq + 1000000 WHERE position = (SELECT max(position) FROM changes)": "Table order",
}


def test_a_flipped_byte_in_any_table_is_found(data: Path, postgres_url: str) -> None:
    to_postgres(data, postgres_url)
    for table, (column, where) in FLIPS.items():
        flip = FLIP.format(table=table, column=column, where=where)
        ask(postgres_url, flip)
        found = differences(data, postgres_url)
        assert found and all(f"able {table}: " in each and f"differs in {column}." in each for each in found), found
        ask(postgres_url, flip)
    assert differences(data, postgres_url) == []


@pytest.mark.parametrize("change", CHANGES)
def test_any_other_change_is_found(data: Path, postgres_url: str, change: str) -> None:
    to_postgres(data, postgres_url)
    ask(postgres_url, change)
    assert any(CHANGES[change] in each for each in differences(data, postgres_url))


def test_a_missing_or_extra_session_is_reported(data: Path, postgres_url: str) -> None:
    to_postgres(data, postgres_url)
    ask(postgres_url, "UPDATE heads SET session_id = 's_other' WHERE session_id = 's_002'")
    found = differences(data, postgres_url)
    assert "Session s_002 is missing from the target." in found
    assert "Session s_other is only in the target." in found


def test_a_target_that_alters_data_ends_the_move(
    data: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = PostgresSide.rows

    def rows(side: PostgresSide, table: Table, session_id: str | None = None) -> Iterator[Row]:
        for row in read(side, table, session_id):
            yield (*row[:-1], b"other") if table is transfer.TURNS and session_id == "s_001" else row

    monkeypatch.setattr(PostgresSide, "rows", rows)
    with pytest.raises(Difference, match=r"Session s_001, table turns: the row with turn 1 differs in public"):
        to_postgres(data, postgres_url)
    assert ask(postgres_url, "SELECT session_id FROM heads") == [("s_000",)]


def test_a_damaged_row_is_reported(data: Path, postgres_url: str) -> None:
    with closing(sqlite3.connect(data / "perdure.db")) as database:
        database.execute("UPDATE events SET body = 'text' WHERE seq = 2 AND session_key = 2")
        database.commit()
    with pytest.raises(StoreDamaged, match=r"session s_001, table events: the row with seq 2 can't be read"):
        to_postgres(data, postgres_url)


# Refusing ---------------------------------------------------------------------------------------------------------


def test_running_turns_are_not_moved(data: Path, postgres_url: str) -> None:
    async def launch(phase: Any) -> None:
        store = SqliteStore(data / "perdure.db")
        await store.open()
        owner = conformance.Owner(store, await store.claim())
        running: LaunchProgress = progress("l", "s_000", phase=phase)
        await owner.append("s_000", fact("launched"), state=b"", progress=running)
        await store.close()

    asyncio.run(launch("live"))
    with pytest.raises(TransferError, match=r"^1 turn is still running, or its keeper still holds the agent"):
        to_postgres(data, postgres_url)
    asyncio.run(launch("gone"))
    to_postgres(data, postgres_url)
    ask(postgres_url, "UPDATE sessions SET state = 'processing'")
    with pytest.raises(TransferError, match=r"^3 turns are still running, or their keepers still hold the agents"):
        to_sqlite(data.parent / "other", postgres_url)


def test_a_half_done_erasure_is_not_moved(data: Path, postgres_url: str) -> None:
    to_postgres(data, postgres_url)
    ask(postgres_url, f"INSERT INTO documents VALUES ('tombstone.{home(data).node}', 's', '')")
    (data / "perdure.db").rename(data / "old.db")
    with pytest.raises(TransferError, match=r"1 erasure is not complete\. Start the server once"):
        to_sqlite(data, postgres_url)


def test_a_target_with_other_sessions_is_refused(data: Path, tmp_path: Path, postgres_url: str) -> None:
    other = home(tmp_path / "other").path
    asyncio.run(fill(other, 2, sessions=1, steps=2))
    to_postgres(other, postgres_url)
    with pytest.raises(TransferError, match=r"moved from elsewhere\. Choose an empty database"):
        to_postgres(data, postgres_url)
    ask(postgres_url, "DELETE FROM documents WHERE kind = 'migration'")
    with pytest.raises(TransferError, match="already has sessions"):
        to_postgres(data, postgres_url)
    with pytest.raises(TransferError, match=r"already has sessions.*Move .*perdure\.db away"):
        to_sqlite(data, postgres_url)
    for table, what in (("heads", "jobs"), ("jobs", "projects")):
        ask(postgres_url, f"DELETE FROM {table}")
        with pytest.raises(TransferError, match=f"already has {what}"):
            to_postgres(data, postgres_url)


def test_a_living_node_is_reported_and_a_silent_one_is_ignored(data: Path, postgres_url: str) -> None:
    ask(postgres_url, 'SELECT perdure_join_v1(\'n1\', \'{"name": "north", "url": "http://10.0.0.1:1"}\')')
    looks: list[float] = []

    def beat(left_s: float) -> None:
        looks.append(left_s)
        ask(postgres_url, "UPDATE nodes SET heartbeat = heartbeat + 1")

    named = r"A server is using this database: node north, http://10\.0\.0\.1:1\. Stop"
    with pytest.raises(TransferError, match=named), PostgresSide(postgres_url, "n", beat).opened():
        pass
    assert looks
    to_postgres(data, postgres_url)
    ask(postgres_url, "UPDATE nodes SET dead = true")
    looks.clear()
    with PostgresSide(postgres_url, "n", beat).opened():
        assert not looks


def test_a_node_that_starts_meanwhile_ends_the_move(data: Path, postgres_url: str) -> None:
    def start(_: Progress) -> None:
        ask(postgres_url, "SELECT perdure_join_v1('n1', '{}')")

    with pytest.raises(TransferError, match="A server is using this database: node n1"):
        to_postgres(data, postgres_url, start)
    to_postgres(data, postgres_url)


def test_two_moves_never_use_one_database(data: Path, postgres_url: str) -> None:
    refused = pytest.raises(TransferError, match="Another `perdure migrate` is using this database")
    with PostgresSide(postgres_url, "n").opened(), refused:
        to_postgres(data, postgres_url)


def test_a_lost_connection_is_reported_and_the_move_continues_later(data: Path, postgres_url: str) -> None:
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

    def lose(progress: Progress) -> None:
        if progress.sessions == 2:
            ask(postgres_url, f"SELECT pg_terminate_backend(pid) {others}")

    with pytest.raises(StoreUnavailable, match="can't be reached"):
        to_postgres(data, postgres_url, lose)
    assert to_postgres(data, postgres_url).progress.skipped == 2


# Messages ---------------------------------------------------------------------------------------------------------


def test_no_password_is_shown() -> None:
    assert (
        shown("postgresql://me:secret@db:5432/perdure?sslmode=require")
        == "postgresql://me@db:5432/perdure?sslmode=require"
    )
    assert shown("postgresql:///perdure?host=/tmp&password=secret") == "postgresql:///perdure?host=/tmp"
    assert "secret" not in shown("host=db password=secret")


def test_a_server_on_a_moved_database_is_warned(tmp_path: Path) -> None:
    assert transfer.moved_away(tmp_path) is None
    (tmp_path / transfer.MARKER).write_text('{"to": "postgresql://db/perdure", "at": "2026-01-02T03:04:05Z"}')
    warning = transfer.moved_away(tmp_path)
    assert warning is not None and "moved to postgresql://db/perdure on 2026-01-02" in warning
    (tmp_path / transfer.MARKER).write_text("{")
    assert "another database" in str(transfer.moved_away(tmp_path))


def test_documents_of_nodes_about_their_agents_do_not_prevent_a_transfer(
    data: Path, tmp_path: Path, postgres_url: str
) -> None:
    to_postgres(data, postgres_url)
    other = home(tmp_path / "other")

    async def work() -> None:
        """As nodes do: each stores its agents' abilities, and a copy for other nodes."""
        store = PostgresStore(postgres_url)
        await store.open()
        for kind in ("agent", f"agent.{other.node}", "agent.elsewhere", f"warm.{other.node}", f"probe.{other.node}"):
            await store.put_document(kind, "hermes", kind.encode())
        await store.close()

    asyncio.run(work())
    to_sqlite(other.path, postgres_url)
    found = dump(other.path / "perdure.db")["documents"]
    assert [row for row in found if "hermes" in row and "agent" in row] == [
        ("agent", "hermes", f"agent.{other.node}".encode())
    ]
    assert not [row for row in found if str(row[0]).startswith("warm")]
    assert differences(other.path, postgres_url) == []
