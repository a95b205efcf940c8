"""The SQLite store: the suite for all stores, and what is specific to a file on a disk."""

import asyncio
import itertools
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from perdure.core.errors import StoreError, StoreFull
from perdure.core.events import (
    AgentAttached,
    AgentDetached,
    AgentLaunched,
    Event,
    PendingPrompt,
    PromptResolved,
    SessionCreated,
    UserMessage,
    encode,
    type_of,
)
from perdure.stores.base import Append, Kept, Phrase, Store
from perdure.stores.migrate import Migration, migrate, shipped
from perdure.stores.sqlite import Durability, SqliteStore
from perdure.stores.sqlite_group import ROWS_MAX, Table
from perdure.stores.sqlite_search import match_expression
from perdure.stores.sqlite_writer import AVOID_S, LOCK_TIMEOUT_S, NOW_MAX_BYTES, SLOW_COMMIT_S
from tests.conformance.erasing import ErasingSuite
from tests.conformance.jobs import JobsSuite
from tests.conformance.natives import NativesSuite
from tests.conformance.ownership import OwnershipSuite
from tests.conformance.searching import SearchSuite
from tests.conformance.spending import SpendingSuite
from tests.conformance.stores import Owner, StoreSuite, delta, fact, listed
from tests.conformance.turns import TurnsSuite

WAIT_S = 20


class TestSqliteStore(
    StoreSuite, SearchSuite, SpendingSuite, NativesSuite, TurnsSuite, ErasingSuite, OwnershipSuite, JobsSuite
):
    durability: Durability = "normal"

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> Callable[[], Store]:
        return lambda: SqliteStore(tmp_path / "perdure.db", durability=self.durability)


@pytest.mark.long
class TestSqliteStoreThatSurvivesAPowerCut(TestSqliteStore):
    durability = "full"


async def opened(path: Path) -> tuple[SqliteStore, Owner]:
    store = SqliteStore(path)
    await store.open()
    return store, Owner(store, await store.claim())


# Erased data ------------------------------------------------------------------------------------------------------


async def test_no_file_contains_text_of_an_erased_session_after_a_scrub(tmp_path: Path) -> None:
    store, owner = await opened(tmp_path / "perdure.db")

    def marks() -> int:
        return sum(path.read_bytes().count(b"quixmark") for path in tmp_path.iterdir())

    for number in range(30):
        name, word = f"s{number}", f"quixmark{number}" if number % 2 else f"plain{number}"
        await owner.create(name, phrases=[Phrase(0, "title", f"{word} title")])
        for turn in range(1, 6):
            text = f"{word} " * 40
            await owner.append(name, delta(text), fact(), phrases=[Phrase(turn, "assistant", text)])
    assert marks() > 1_000
    for number in range(1, 30, 2):
        await store.erase(f"s{number}", owner.generation)
    assert await store.scrub(whole=False)
    assert (tmp_path / "perdure.db-wal").stat().st_size == 0
    assert await store.scrub(whole=True)
    assert marks() == 0
    size = (tmp_path / "perdure.db").stat().st_size
    assert await owner.found(q="plain8") == ["s8"]
    await store.close()
    with closing(sqlite3.connect(tmp_path / "perdure.db")) as database:
        assert database.execute("PRAGMA freelist_count").fetchone()[0] == 0
        assert size == database.execute("PRAGMA page_count").fetchone()[0] * 4096


async def test_a_scrub_does_not_wait_for_readers_and_succeeds_when_they_are_gone(tmp_path: Path) -> None:
    store, owner = await opened(tmp_path / "perdure.db")
    await owner.create("s", delta("quixmark"))
    with closing(sqlite3.connect(tmp_path / "perdure.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM events").fetchone()
        await store.erase("s", owner.generation)
        assert not await store.scrub(whole=True)
    assert await store.scrub(whole=True)
    assert b"quixmark" not in (tmp_path / "perdure.db").read_bytes()
    await store.close()


# A full disk ------------------------------------------------------------------------------------------------------


async def fill(owner: Owner) -> int:
    """Append until the disk is full. Returns how many steps were stored."""
    for kept in range(10_000):
        try:
            await owner.append("s", delta("x" * 20_000))
        except StoreFull:
            return kept
    raise AssertionError("the disk never became full")


async def test_a_full_database_rejects_a_step_and_accepts_the_next_when_there_is_space(tmp_path: Path) -> None:
    store, owner = await opened(tmp_path / "perdure.db")
    await owner.create("s")
    await owner.create("t")
    pages = await store._writer.submit(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    await store._writer.submit(
        lambda connection: connection.execute(f"PRAGMA max_page_count = {pages + 40}").fetchall()
    )
    kept = await fill(owner)
    assert kept > 0
    # These share one commit. The large one must not make the small ones fail.
    outcomes = await asyncio.gather(
        owner.append("t", delta("small")),
        owner.append("s", delta("y" * 400_000)),
        owner.append("t", delta("small")),
        return_exceptions=True,
    )
    assert outcomes[0] == 2
    assert isinstance(outcomes[1], StoreFull)
    assert outcomes[2] == 3
    await store._writer.submit(lambda connection: connection.execute("PRAGMA max_page_count = 100000").fetchall())
    assert await owner.append("s", delta("room again")) == kept + 2
    assert [event.seq for event in await owner.all("s")] == list(range(1, kept + 3))
    await store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting is not permitted here")
    yield disk
    # A lazy unmount, so that a test that fails with the store open leaves no mount behind.
    subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_a_full_disk_loses_no_stored_step_and_the_store_continues(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 1_500_000)
    store, owner = await opened(small_disk / "perdure.db")
    await owner.create("s")
    kept = await fill(owner)
    with pytest.raises(StoreFull, match="disk is full"):
        await owner.append("s", delta("z" * 200_000))
    ballast.unlink()
    assert await owner.append("s", delta("room again")) == kept + 2
    await store.close()
    store, owner = await opened(small_disk / "perdure.db")
    assert [event.seq for event in await owner.all("s")] == list(range(1, kept + 3))
    await store.close()


# The writer --------------------------------------------------------------------------------------------------------


async def test_a_step_that_can_not_be_written_fails_alone(tmp_path: Path) -> None:
    store, owner = await opened(tmp_path / "perdure.db")
    await owner.create("s")
    outcomes = await asyncio.gather(
        owner.append("s", delta("a")),
        owner.append("s", delta("b"), turns=["not a turn"]),
        owner.append("s", delta("c")),
        return_exceptions=True,
    )
    assert outcomes[0] == 2
    assert isinstance(outcomes[1], AttributeError)
    assert outcomes[2] == 3
    assert len(await owner.all("s")) == 3
    await store.close()


async def test_a_row_written_by_another_process_blocks_no_step(tmp_path: Path) -> None:
    store, owner = await opened(tmp_path / "perdure.db")
    for name in ("one", "two"):
        await owner.create(name)
        await owner.append(name, delta("a"))

    async def together(way: str) -> list[int]:
        steps = [word(owner, "one")[0], word(owner, "two")[0]]
        kept = store.append_now(steps) if way == "append_now" else None
        outcomes = kept if kept is not None else await store.append_all(steps)
        return [outcome.first for outcome in outcomes if isinstance(outcome, Kept)]

    for seq, way in ((3, "append_now"), (5, "append_all")):
        with closing(sqlite3.connect(tmp_path / "perdure.db")) as other, other:
            other.execute(
                "INSERT INTO events (position, session_key, seq, type, decisive, body)"
                f" SELECT -{seq}, MAX(session_key), {seq}, 'assistant_text', 0, X'7b7d' FROM events"
            )
        # The insert fails, and so does the transaction. The cache is read again, and each step is stored once.
        assert await together(way) == [3 + (seq == 5), seq + 1]
    assert [event.seq for event in await owner.all("one")] == [1, 2, 3, 4]
    assert [event.seq for event in await owner.all("two")] == [1, 2, 3, 4, 5, 6]
    await store.close()


async def test_more_steps_than_fit_in_one_group_are_all_stored(tmp_path: Path) -> None:
    store, owner = await opened(tmp_path / "perdure.db")
    await owner.create("s")
    async with asyncio.timeout(WAIT_S):
        firsts = await asyncio.gather(*(owner.append("s", delta("a"), delta("b")) for _ in range(1_200)))
    assert firsts == list(range(2, 2_402, 2))
    assert (await owner.all("s"))[-1].seq == 2_401
    await store.close()


async def test_reads_do_not_wait_for_a_running_write(tmp_path: Path) -> None:
    store, owner = await opened(tmp_path / "perdure.db")
    await owner.create("s")
    other = sqlite3.connect(tmp_path / "perdure.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    pending = asyncio.create_task(owner.append("s", delta("waits")))
    async with asyncio.timeout(WAIT_S):
        assert len(await owner.all("s")) == 1
        assert (await store.load("s")) is not None
    assert not pending.done()
    other.execute("ROLLBACK")
    other.close()
    assert await pending == 2
    await store.close()


async def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "perdure.db")
    with pytest.raises(StoreError, match="not open"):
        await store.append(Append(session_id="s", generation=1, expect=0, state=b"", listed=listed()))
    with pytest.raises(StoreError, match="not open"):
        await store.load("s")
    await store.close()
    with pytest.raises(StoreError, match="not open"):
        store.append_now([])


async def test_a_killed_server_loses_no_confirmed_step(tmp_path: Path) -> None:
    script = f"""
import asyncio, os
from perdure.stores.sqlite import Durability, SqliteStore
from tests.conformance.stores import Owner, delta
async def main():
    store = SqliteStore({str(tmp_path / "perdure.db")!r})
    await store.open()
    owner = Owner(store, await store.claim())
    await owner.create("s")
    for number in range(200):
        seq = await owner.append("s", delta(str(number)))
    os.write(1, b"%d" % seq)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script), stdout=subprocess.PIPE, env=environment
    )
    async with asyncio.timeout(WAIT_S):
        told, _ = await process.communicate()
    assert process.returncode == -9
    store, owner = await opened(tmp_path / "perdure.db")
    assert (await owner.all("s"))[-1].seq == int(told) == 201
    await store.close()


# Commits of the event loop ------------------------------------------------------------------------------------------


def word(owner: Owner, session: str = "s", text: str = "word ") -> list[Append]:
    return [Append(session_id=session, generation=owner.generation, expect=None, events=[delta(text)])]


async def test_steps_are_committed_synchronously_while_the_queue_is_empty(tmp_path: Path) -> None:
    store, owner = await opened(tmp_path / "perdure.db")
    await owner.create("s")
    assert [kept.first for kept in store.append_now(word(owner)) or [] if isinstance(kept, Kept)] == [2]
    with closing(sqlite3.connect(tmp_path / "perdure.db")) as other:
        assert other.execute("SELECT MAX(seq) FROM events").fetchone() == (2,)
    waiting = asyncio.ensure_future(store.append(word(owner)[0]))
    await asyncio.sleep(0)
    assert store.append_now(word(owner)) is None
    assert (await waiting).first == 3
    assert store.append_now(word(owner, text="x" * NOW_MAX_BYTES)) is None
    assert len(await owner.all("s")) == 3
    await store.close()


@pytest.mark.needs("linux")
async def test_a_group_of_steps_writes_nothing_but_the_write_ahead_log(tmp_path: Path) -> None:
    def written() -> int:
        return int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])

    store, owner = await opened(tmp_path / "perdure.db")
    names = [f"session-{number}" for number in range(20)]
    for name in names:
        await owner.create(name)
        # Enough that each session has its own pages.
        await owner.append(name, *[delta("word ")] * 500)
    wal = tmp_path / "perdure.db-wal"
    size, before = wal.stat().st_size, written()
    assert all(isinstance(kept, Kept) for kept in await store.append_all([word(owner, name)[0] for name in names]))
    assert 20 * 4096 < wal.stat().st_size - size <= written() - before < 1.2 * (wal.stat().st_size - size)
    await store.close()


async def test_a_commit_that_waits_for_the_disk_is_never_made_by_the_event_loop(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "perdure.db", durability="full")
    await store.open()
    owner = Owner(store, await store.claim())
    await owner.create("s")
    assert store.append_now(word(owner)) is None
    await store.close()


async def test_the_event_loop_does_not_wait_for_another_writer(tmp_path: Path) -> None:
    store, owner = await opened(tmp_path / "perdure.db")
    await owner.create("s")
    with closing(sqlite3.connect(tmp_path / "perdure.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        assert store.append_now(word(owner)) is None
        assert time.monotonic() - began < LOCK_TIMEOUT_S / 5
        # The thread waits for the lock.
        pending = asyncio.create_task(store.append_all(word(owner)))
        assert len(await owner.all("s")) == 1
        other.execute("ROLLBACK")
    assert [kept.first for kept in await pending if isinstance(kept, Kept)] == [2]
    await store.close()


async def test_after_a_slow_commit_the_event_loop_pauses_its_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, owner = await opened(tmp_path / "perdure.db")
    await owner.create("s")

    def stall(connection: sqlite3.Connection) -> None:
        connection.create_function("stall", 0, lambda: threading.Event().wait(2 * SLOW_COMMIT_S))
        connection.execute("CREATE TEMPORARY TRIGGER slow AFTER INSERT ON events BEGIN SELECT stall(); END")

    await store._writer.submit(stall)
    assert store.append_now(word(owner)) is not None
    assert store.append_now(word(owner)) is None
    await store._writer.submit(lambda connection: connection.execute("DROP TRIGGER slow"))
    later = time.monotonic() + 2 * AVOID_S
    monkeypatch.setattr("perdure.stores.sqlite_writer.time.monotonic", lambda: later)
    assert store.append_now(word(owner)) is not None
    await store.close()


async def test_a_position_is_never_reused(tmp_path: Path) -> None:
    positions: list[int] = []
    for number in range(3):
        store, owner = await opened(tmp_path / "perdure.db")
        for name in ("kept", "gone"):
            await owner.create(f"{name}{number}")
        newest = (await store.list_changes(-1, (), 1))[0][0]
        changes = await store.list_changes(positions[-1] if positions else 0, ("plan",), 100)
        positions += [position for position, *_ in changes]
        await store.erase(f"gone{number}", owner.generation)
        # A follower at the end is still at the end.
        assert (await store.list_changes(-1, (), 1))[0][0] == newest == positions[-1]
        await store.close()
    assert positions == sorted(set(positions))
    assert len(positions) == 6


async def test_a_launch_of_an_older_version_continues_at_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "perdure.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, shipped()[:7])
        columns = "session_id, machine_state, decided_seq, agent, workdir, state, status, title, labels, archived"
        connection.execute(
            f"INSERT INTO sessions ({columns}, last_active_at, public) VALUES"
            " ('s', X'', 1, 'a', '/', 'idle', 'running', '', '[]', 0, '', X'7B7D')"
        )
        connection.execute("INSERT INTO launches VALUES ('l', 1, 'a', 'acp', 'live', 77, 1, 0, X'90', X'')")
        for seq, event in enumerate((fact("first"), delta("said ")), 1):
            row = (seq, event.type, event.turn, event.decisive, event.body)
            connection.execute(
                "INSERT INTO events (session_key, seq, type, turn, decisive, body) VALUES (1, ?, ?, ?, ?, ?)", row
            )
        connection.execute("DELETE FROM events WHERE seq = 2")
        connection.execute("INSERT INTO events VALUES (9, 1, 2, 'assistant_text', 1, 0, ?, NULL, NULL)", (b"{}",))
    store, owner = await opened(path)
    assert [row.offset for row in await store.launches()] == [77]
    assert [(row.seq, row.type) for row in await owner.all("s")] == [(1, "plan"), (2, "assistant_text")]
    await owner.append("s", fact("next"), expect=1, state=b"")
    assert [position > 9 for position, *_ in await store.list_changes(9, ("plan",), 10)] == [True]
    await store.close()


# The file ----------------------------------------------------------------------------------------------------------


async def test_the_files_are_private_to_their_owner(tmp_path: Path) -> None:
    store, owner = await opened(tmp_path / "perdure.db")
    await owner.create("s")
    for name in ("perdure.db", "perdure.db-wal"):
        assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) == 0o600
    await store.close()


async def test_a_path_that_can_not_be_opened_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "missing" / "perdure.db")
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(FileNotFoundError):
            await store.open()
        await store.close()


async def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "perdure.db").write_bytes(b"this is text " * 100)
    store = SqliteStore(tmp_path / "perdure.db")
    with pytest.raises(StoreError, match="not a database"):
        await store.open()
    await store.close()


async def test_a_database_of_a_newer_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "perdure.db")
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    store = SqliteStore(tmp_path / "perdure.db")
    with pytest.raises(StoreError, match=r"newer Perdure.*Install"):
        await store.open()
    await store.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    good = Migration(1, "0001_good.sql", "CREATE TABLE a (x);\nINSERT INTO a VALUES (1);\n")
    bad = Migration(2, "0002_bad.sql", "CREATE TABLE b (x);\nINSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, [good, bad])
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("a",)]
    mended = Migration(2, "0002_mended.sql", "CREATE TABLE b (x)\n;")
    migrate(connection, [good, mended])
    migrate(connection, [good, mended])
    assert connection.execute("SELECT COUNT(*) FROM a").fetchone() == (1,)
    with pytest.raises(ValueError, match="unterminated SQL statement"):
        migrate(connection, [good, mended, Migration(3, "0003_torn.sql", "CREATE TABLE c (x)")])
    connection.close()


def test_native_sessions_of_older_versions_are_read_from_the_log(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    migrate(connection, shipped()[:3])
    numbers = itertools.count(1)

    def happened(session: int, event: Event) -> None:
        row = (session, next(numbers), type_of(event), encode(event))
        connection.execute("INSERT INTO events (session_key, seq, type, decisive, body) VALUES (?, ?, ?, 1, ?)", row)

    def opens(session: int, launch: str, *natives: str, asked: str | None = None, program: str = "bin") -> None:
        launched = AgentLaunched(launch_id=launch, agent="a", driver="acp", native_session_id=asked)
        launched.fingerprint = program
        happened(session, launched)
        for native in natives:
            reason = "resumed" if native == asked else "started"
            attached = AgentAttached(agent="a", pid=1, native_session_id=native, reason=reason, launch_id=launch)
            happened(session, attached)

    opens(1, "l1", "own", "own")
    opens(1, "l2", "own", asked="own")
    opens(1, "l3", "copy", asked="own")
    opens(1, "l4", "both")
    opens(2, "l5", "both")
    opens(2, "l6", "copy", program="other")
    opens(2, "l7", "again")
    opens(2, "l8", "again")
    opens(2, "l9")
    opens(3, "shared", "x")
    opens(3, "shared", "y")
    migrate(connection, shipped())
    found = connection.execute("SELECT program, native_session_id, session_key, twice FROM natives ORDER BY 1, 2, 3")
    assert found.fetchall() == [
        ("bin", "again", 2, 1),
        ("bin", "both", 1, 1),
        ("bin", "both", 2, 1),
        ("bin", "copy", 1, 0),
        ("bin", "own", 1, 0),
        ("bin", "x", 3, 0),
        ("bin", "y", 3, 0),
        ("other", "copy", 2, 0),
    ]
    connection.close()


def test_sessions_of_an_older_version_are_sorted_by_their_last_activity(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    migrate(connection, shipped()[:5])
    made, said, asked, answered, stopped = (f"2026-01-0{day}T00:00:00.000Z" for day in range(1, 6))
    shown = '{"id":"%s","last_active_at":"' + stopped + '","text":"\\"last_active_at\\":","n":123456789012345678901234}'

    def session(key: int, *events: Event) -> None:
        body = (shown % key).encode()
        row = (key, f"s{key}", body, "a", "/", "idle", "running", "", "[]", 0, stopped, body)
        connection.execute(
            "INSERT INTO sessions (session_key, session_id, machine_state, decided_seq, agent, workdir, state, status,"
            " title, labels, archived, last_active_at, public) VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        gone = AgentDetached(
            at=stopped, agent="a", pid=1, native_session_id="n", reason="server_stopped", launch_id="l"
        )
        for seq, event in enumerate((SessionCreated(at=made, session={}), *events, gone), 1):
            values = (key, seq, type_of(event), encode(event))
            connection.execute(
                "INSERT INTO events (session_key, seq, type, decisive, body) VALUES (?, ?, ?, 1, ?)", values
            )

    prompt = PendingPrompt(at=asked, turn=1, prompt_id="p", kind="permission", title="Deploy")
    by_rule = PromptResolved(at=answered, turn=1, prompt_id="p", by="rule", outcome="allowed", delivered=True)
    session(1, UserMessage(at=said, turn=1, message_id="m", text="hello", agent="a"), prompt, by_rule)
    session(2, prompt, msgspec.structs.replace(by_rule, by="person"))
    session(3)
    migrate(connection, shipped())
    rows = connection.execute(
        "SELECT session_id, last_active_at, CAST(machine_state AS TEXT), CAST(public AS TEXT), typeof(public)"
        " FROM sessions ORDER BY last_active_at DESC"
    ).fetchall()
    assert [row[:2] for row in rows] == [("s2", answered), ("s1", asked), ("s3", made)]
    for name, at, state, public, kind in rows:
        assert state == public == (shown % name[1:]).replace(stopped, at)
        assert kind == "blob"
    connection.close()


def test_migrations_are_shipped_and_numbered_without_a_gap() -> None:
    versions = [migration.version for migration in shipped()]
    assert versions == list(range(1, len(versions) + 1))
    assert versions


@pytest.mark.parametrize("count", [0, 1, 2, 3, 255, ROWS_MAX, 2 * ROWS_MAX + 7])
def test_any_number_of_rows_is_written_in_order(count: int) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
    Table("INSERT INTO t (a, b)", 2).write(connection, [(number, str(number)) for number in range(count)])
    assert connection.execute("SELECT a, b FROM t ORDER BY rowid").fetchall() == [(n, str(n)) for n in range(count)]
    connection.close()


@pytest.mark.parametrize(
    ("typed", "expression"),
    [("two words", '"two"* "words"*'), ('a"b', '"a""b"*'), ("!!! ok", '"ok"*'), ("--", ""), ("x\0y", '"x"* "y"*')],
)
def test_search_words_become_quoted_prefixes(typed: str, expression: str) -> None:
    assert match_expression(typed) == expression


async def test_lists_changes_and_reads_use_their_indexes(tmp_path: Path) -> None:
    from perdure.stores import sqlite_reads

    store, owner = await opened(tmp_path / "perdure.db")
    await owner.create("s", fact())
    await store.close()
    connection = sqlite3.connect(tmp_path / "perdure.db")

    def plan(statement: str, parameters: tuple[object, ...]) -> str:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
        return "; ".join(row[3] for row in rows)

    assert "USING INDEX events_by_session (session_key=? AND seq>?)" in plan(sqlite_reads._READ, ("s", 0, 5))
    assert "events_decisive (decisive=? AND rowid>?)" in plan(sqlite_reads._CHANGES, (0, "[]", 5))
    for statement, parameters in ((sqlite_reads._BEGIN, ("s", 1)), (sqlite_reads._CHANGED, ("s", 1, 2, 3))):
        assert "events_of_turns (session_key=? AND turn>?" in plan(statement, parameters)
    assert "USE TEMP B-TREE" not in plan(sqlite_reads._BEGIN, ("s", 1))
    assert "USE TEMP B-TREE" not in plan(sqlite_reads._READ, ("s", 0, 5))
    assert "USE TEMP B-TREE" not in plan(sqlite_reads._CHANGES, (0, "[]", 5))
    connection.close()
