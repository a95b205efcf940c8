"""Owners and nodes in SQLite: the cost of a step, databases of older versions, and damaged rows."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.core.errors import NotOwner, StoreDamaged
from perdure.runtime.data import inspection
from perdure.stores import base, sqlite_group, sqlite_owners, sqlite_reads, sqlite_search
from perdure.stores.base import Head, Kept, Receipt
from perdure.stores.migrate import migrate, shipped
from perdure.stores.sqlite import SqliteStore
from tests.conformance.stores import Owner, delta, fact, listed, progress

HOSTILE = ("X'FF00'", "'text'", "CAST(X'FF00' AS TEXT)", "NULL", "-1", "9223372036854775807", "''")
COLUMNS = [
    *(("heads", column) for column in ("session_key", "owner", "incarnation", "fencing_token")),
    *(("nodes", column) for column in ("node", "incarnation", "heartbeat", "dead", "about")),
    ("receipts", "seq"),
    ("sessions", "decided_seq"),
    ("events", "seq"),
]


async def opened(path: Path) -> Owner:
    store = SqliteStore(path)
    await store.open()
    return Owner(store, await store.claim())


# Cost -------------------------------------------------------------------------------------------------------------


async def test_a_delta_of_an_owner_needs_no_more_statements_than_any_other(tmp_path: Path) -> None:
    owner = await opened(tmp_path / "perdure.db")
    store = owner.store
    assert isinstance(store, SqliteStore)
    a = base.Owner("a", await store.join("a", b"{}"))
    await owner.create("s", claim=a)
    # The first step of a launch writes its row.
    await owner.keep("s", delta("x"), token=1, expect=1, claim=a, progress=progress("l", "s"))
    said: list[str] = []
    await store._writer.submit(lambda connection: connection.set_trace_callback(said.append), plainly=True)
    row = progress("l", "s", offset=9)
    await owner.keep("s", delta("x"), token=1, expect=1, expect_last=2, claim=a, progress=row)
    assert [statement.split()[0] for statement in said] == ["BEGIN", "SELECT", "INSERT", "COMMIT"]
    await store.close()


async def test_the_heads_of_many_sessions_are_one_statement(tmp_path: Path) -> None:
    owner = await opened(tmp_path / "perdure.db")
    for number in range(20):
        await owner.create(f"s{number}", fact(), *(delta("x") for _ in range(500)))
    await owner.store.close()
    with closing(sqlite3.connect(tmp_path / "perdure.db")) as connection:
        said: list[str] = []
        connection.set_trace_callback(said.append)
        assert len(sqlite_owners.heads(connection, [f"s{number}" for number in range(20)])) == 20
        assert len(said) == 1


async def test_heads_and_lists_use_an_index_regardless_of_the_log_length(tmp_path: Path) -> None:
    owner = await opened(tmp_path / "perdure.db")
    await owner.create("short", listed=listed(parent="p"))
    await owner.create("long", fact(), *(delta("x") for _ in range(5_000)), listed=listed(parent="p"))
    await owner.store.close()
    with closing(sqlite3.connect(tmp_path / "perdure.db")) as connection:

        def plan(statement: str, *parameters: object) -> str:
            rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            return "; ".join(row[3] for row in rows)

        for statement in (sqlite_owners._HEADS, sqlite_reads._LOAD, sqlite_group._HEAD, sqlite_search._LAST):
            assert "events_by_session (session_key=?" in plan(statement, "[]")
            assert "SCAN sessions" not in plan(statement, "[]")
        assert plan(sqlite_owners._WAITING, None).startswith("SCAN sessions USING INDEX sessions_waiting;")
        assert plan(sqlite_owners._DUE, "", 1) == "SEARCH sessions USING INDEX sessions_due (due_at<?)"
        of_launch = plan(sqlite_reads._LAUNCHES.format(" WHERE launch_id = ?"), "l")
        assert "SEARCH launches USING INDEX sqlite_autoindex_launches_1 (launch_id=?)" in of_launch

        def work_of(session_id: str) -> int:
            """Return the number of instructions that SQLite runs."""
            ticks: list[int] = []
            connection.set_progress_handler(lambda: ticks.append(1), 1)
            sqlite_owners.heads(connection, [session_id])
            connection.set_progress_handler(None, 1)
            return len(ticks)

        assert abs(work_of("long") - work_of("short")) < 10


# Older versions ---------------------------------------------------------------------------------------------------


async def test_sessions_of_version_6_have_no_owner_and_continue(tmp_path: Path) -> None:
    path = tmp_path / "perdure.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, shipped()[:6])
        assert list(inspection.look_deep(tmp_path)) == []
        connection.execute(
            "INSERT INTO sessions (session_key, session_id, machine_state, decided_seq, agent, workdir, state, status,"
            " title, labels, archived, last_active_at, public)"
            " VALUES (1, 's', X'7B7D', 1, 'a', '/', 'idle', 'running', '', '[]', 0, '2026-01-01T00:00:00Z', X'7B7D')"
        )
        for seq, draft in enumerate((fact(), delta("x")), 1):
            connection.execute(
                "INSERT INTO events (session_key, seq, type, turn, decisive, body) VALUES (1, ?, ?, 1, ?, ?)",
                (seq, draft.type, draft.decisive, draft.body),
            )
        connection.execute("INSERT INTO receipts VALUES (1, 'm', 'd', X'7B7D')")
    owner = await opened(path)
    assert await owner.store.heads(["s"]) == {"s": Head(2, 1, None, 0)}
    assert await owner.store.find_receipt("s", "m") == Receipt("m", "d", b"{}")
    with pytest.raises(NotOwner):
        await owner.keep("s", delta("y"), token=1)
    a = base.Owner("a", await owner.store.join("a", b"{}"))
    assert await owner.keep("s", delta("y"), token=0) == Kept(3, 0, None)
    assert await owner.keep("s", delta("y"), claim=a) == Kept(4, 1, a)
    await owner.store.close()


# Damage -----------------------------------------------------------------------------------------------------------


async def damaged(path: Path, table: str, column: str, value: str) -> bool:
    """Create a database with two sessions of node a, and damage one of the first rows. False if SQLite rejects that."""
    owner = await opened(path)
    a = base.Owner("a", await owner.store.join("a", b"{}"))
    for name in ("s", "t"):
        await owner.create(name, claim=a, receipt=Receipt("m", "d", b"{}", event=0), listed=listed(state="accepted"))
    await owner.store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        where = "node = 'a'" if table == "nodes" else "session_key = 1"
        try:
            return database.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}").rowcount == 1
        except sqlite3.Error:
            return False


@pytest.mark.parametrize(("table", "column"), COLUMNS)
@pytest.mark.parametrize("value", HOSTILE)
async def test_a_damaged_row_stops_at_most_its_own_session(tmp_path: Path, table: str, column: str, value: str) -> None:
    if not await damaged(tmp_path / "perdure.db", table, column, value):
        return
    faults = [fault.what for fault in inspection.look_deep(tmp_path) if f"table {table}" in " ".join(fault)]
    owner = await opened(tmp_path / "perdure.db")
    store = owner.store
    is_damaged = False
    for reading in (store.load("s"), store.find_receipt("s", "m"), owner.keep("s", delta("x"))):
        try:
            await reading
        except StoreDamaged:
            is_damaged = True
    # The doctor also finds a wrong event number, but does not report it as a fault of the row.
    assert faults or not is_damaged or table == "events"
    again = base.Owner("a", await store.join("a", b"{}"))
    assert await store.beat(again)
    assert again.incarnation > 1
    assert [node.incarnation for node in await store.nodes() if node.node == "a"] == [again.incarnation]
    heads = await store.heads(["s", "t"])
    assert heads["t"] == Head(1, 1, base.Owner("a", 1), 1)
    assert await store.waiting() == ["s", "t"]
    assert await owner.keep("t", delta("x"), claim=again, token=1) == Kept(2, 2, again)
    assert await store.release("t", 2, 1, owner.generation)
    await store.close()
    owner = await opened(tmp_path / "perdure.db")
    assert not (await owner.store.heads(["s"])).keys() - heads.keys(), "unreadable values must not be guessed"
    await owner.store.close()
