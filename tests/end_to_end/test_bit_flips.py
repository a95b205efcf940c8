"""A database with flipped bits, torn pages or a truncated end: the server starts, or refuses with a sentence. It never
prints a stack trace and never hangs.

Most tests run in this process, with the server's own wiring; a few use a real server.
"""

import asyncio
import contextlib
import logging
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.config import Config
from perdure.core.commands import UpdateSession
from perdure.core.errors import UNREADABLE, Refused, StoreDamaged, StoreError
from perdure.runtime.data import inspection
from perdure.runtime.verbs.outgoing import Outgoing
from perdure.runtime.verbs.sessions import NewSession, Query
from perdure.server import Server, StartError
from tests.end_to_end.victims import until_said
from tests.harness import LiveServer, marked_processes
from tests.sizes import size

ROUNDS = 20
SESSIONS = 6
FLIPS = size("FLIPS", 300, fast=20)
REAL_STARTS = size("FLIPS_REAL", 3, fast=1)
PAGE_BYTES = 4096
START_LIMIT_S = 60
ADVICE = ("perdure doctor --deep", "newer Perdure", "Free some space")


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data of a server that was killed while it worked, including its write-ahead log."""
    server = LiveServer(tmp_path_factory.mktemp("sample") / "data", "[server]\nslots = 0\nproject_slots = 0\n")
    server.start()
    project = server.post("/api/projects", {"path": str(server.data.parent), "name": "here"}, expect=201)["id"]
    sessions = [server.create(title=f"number {number}", project=project) for number in range(SESSIONS)]
    for session in sessions:
        server.turn(session, "stream 30 0\nsay the end")
    with closing(sqlite3.connect(server.data / "perdure.db")) as database:
        # So that most data is in the database and only the newest in the log, whose checksums detect every flip.
        busy, _, _ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not busy
    for session in sessions[:2]:
        server.send(session, "say half\nhang")
        until_said(server, session, 2, "^half$")
    server.kill()
    kept = tmp_path_factory.mktemp("kept") / "data"
    shutil.copytree(server.data, kept, ignore=shutil.ignore_patterns("sock", "*-shm", "server.json", "server.log"))
    yield kept
    server.destroy()


def damage(data: Path, chance: random.Random) -> str:
    """Change a few bits of the database or its log. Returns what was changed."""
    file = data / chance.choice(("perdure.db", "perdure.db", "perdure.db", "perdure.db-wal"))
    content = bytearray(file.read_bytes())
    pages = max(1, len(content) // PAGE_BYTES)
    kind = chance.choices(("header", "page", "anywhere", "page lost", "cut"), (2, 4, 8, 1, 1))[0]
    where = chance.randrange(pages) * PAGE_BYTES
    if kind == "cut":
        del content[chance.randrange(len(content)) :]
    elif kind == "page lost":
        content[where : where + PAGE_BYTES] = bytes(len(content[where : where + PAGE_BYTES]))
    else:
        for _ in range(chance.choice((1, 1, 1, 2, 8))):
            spread = {"header": (0, 100), "page": (where, where + 12), "anywhere": (0, len(content))}[kind]
            place = min(chance.randrange(*spread), len(content) - 1)
            content[place] ^= 1 << chance.randrange(8)
    file.write_bytes(content)
    return f"{kind} of {file.name}"


async def play(data: Path, sessions: list[str] | None = None) -> str:
    """Start a server on it, read all sessions, and stop it. Returns "started", or the sentence with which it
    refused."""
    server = Server(data=data, config=Config(), token="test-token-of-the-tests")
    try:
        async with asyncio.timeout(START_LIMIT_S):
            await server.start()
    except StartError as error:
        return str(error)
    try:
        async with asyncio.timeout(START_LIMIT_S):
            await look(server)
            if sessions is not None:
                await work(server, sessions)
    finally:
        async with asyncio.timeout(START_LIMIT_S):
            await server.stop(stop_agents=True)
    return "started"


def end_agents(data: Path) -> None:
    """Kill all agents. One whose session can no longer be written is left to its keeper, which would take a while."""
    for pid in marked_processes(data):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def look(server: Server) -> None:
    """Read everything that a user would open: it is returned, or refused with a sentence. The surface turns an
    unreadable event in the middle of a log into such a refusal."""
    sessions = server.sessions
    try:
        shown, _ = await sessions.search(Query(limit=100))
        await sessions.vitals()
        await sessions.search(Query(q="end"))
    except (Refused, StoreError):
        shown = []
    for entry in shown:
        with contextlib.suppress(Refused, StoreError, *UNREADABLE):
            await sessions.get(str(entry["id"]))
            await sessions.read(str(entry["id"]), 0, 1000)
            await sessions.log.history(str(entry["id"]))


async def work(server: Server, sessions: list[str]) -> None:
    """What is not damaged keeps working: all sessions but one can be written to, and a new one works."""
    refused = []
    for session in sessions:
        try:
            await server.sessions.update(session, UpdateSession(title="again"))
        except (StoreDamaged, *UNREADABLE):
            continue  # it was written, but one of its turns can't be shown
        except (Refused, StoreError) as error:
            refused.append(str(error))
    assert len(refused) <= 1, refused
    assert bool(refused) <= bool(server.log.quarantine.all()), refused
    journal, _ = await server.sessions.create(NewSession(agent="rehearsal"))
    await server.sessions.send(journal.state.id, Outgoing(text="say hello"))
    while journal.state.working:  # noqa: ASYNC110  bounded by the caller
        await asyncio.sleep(0.01)
    assert journal.state.turn is not None and journal.state.turn.stop_reason == "end_turn"


@pytest.mark.smoke
@pytest.mark.parametrize("number", range(ROUNDS))
async def test_a_server_on_flipped_bits_starts_or_says_what_to_do(
    sample: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    caplog.set_level(logging.ERROR)
    outcomes: list[str] = []
    for flip in range(number, FLIPS, ROUNDS):
        data = tmp_path / str(flip)
        shutil.copytree(sample, data)
        done = damage(data, random.Random(f"flip {flip}"))
        caplog.clear()
        outcome = await play(data)
        end_agents(data)
        told = [record.getMessage() for record in caplog.records if record.exc_info]
        assert not told, (flip, done, told, caplog.text)
        assert outcome == "started" or any(words in outcome for words in ADVICE), (flip, done, outcome)
        outcomes.append(outcome)
        # The doctor prints no stack trace either, and finds most of what a start stumbles over.
        found = [*inspection.look(data), *inspection.look_deep(data)]
        assert outcome == "started" or found, (flip, done, outcome)
        shutil.rmtree(data)
    assert "started" in outcomes or len(outcomes) < 10


HOSTILE = ("X'FF00'", "'text'", "CAST(X'FF00' AS TEXT)", "NULL", "-1", "9223372036854775807", "''")
COLUMN_PARTS = 8
MANY_LINES = 60
"""If a start and reading everything log more lines than this, something is looping."""


def columns(data: Path) -> list[tuple[str, str]]:
    """The columns of all our tables, without those inside the search index."""
    with closing(sqlite3.connect(data / "perdure.db")) as database:
        of_tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%\\_%' ESCAPE '\\'"
        tables = [name for (name,) in database.execute(of_tables)]
        return [(table, row[1]) for table in tables for row in database.execute(f"PRAGMA table_info({table})")]


def set_value(data: Path, table: str, column: str, value: str) -> bool:
    """Change a column of the table's first row. False if the table's constraints refuse that."""
    with closing(sqlite3.connect(data / "perdure.db", isolation_level=None)) as database:
        keys = [row[1] for row in database.execute(f"PRAGMA table_info({table})") if row[5]]
        first = f"SELECT {', '.join(keys)} FROM {table} ORDER BY {', '.join(keys)} LIMIT 1"
        try:
            return bool(
                database.execute(
                    f"UPDATE {table} SET {column} = {value} WHERE ({', '.join(keys)}) = ({first})"
                ).rowcount
            )
        except sqlite3.Error:
            return False


@pytest.mark.parametrize("part", range(COLUMN_PARTS))
async def test_a_server_starts_with_any_damage_in_the_first_row_of_a_table(
    sample: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest, part: int
) -> None:
    # In a copy, because SQLite removes the write-ahead log when the last connection closes, and other tests need it.
    shutil.copytree(sample, tmp_path / "looked at")
    cases = [(table, column, value) for table, column in columns(tmp_path / "looked at") for value in HOSTILE]
    assert {"sessions", "events", "turns", "launches", "documents", "meta"} <= {table for table, _, _ in cases}
    with closing(sqlite3.connect(tmp_path / "looked at" / "perdure.db")) as database:
        sessions = [session for (session,) in database.execute("SELECT session_id FROM sessions")]
    # There are about 500, and each needs a server and an agent. --slow runs all of them.
    usual = len(cases) if request.config.getoption("--slow") else 250
    cases = random.Random("columns").sample(cases, min(len(cases), size("COLUMNS", usual, fast=40)))
    for number, case in list(enumerate(cases))[part::COLUMN_PARTS]:
        data = tmp_path / str(number)
        shutil.copytree(sample, data)
        # The launches must belong to this server, so that it resumes them.
        (data / "install").write_text(f"{(data / 'install').read_text().split()[0]} {data.stat().st_ino}")
        if set_value(data, *case):
            found = list(inspection.look_deep(data))
            caplog.clear()
            caplog.set_level(logging.INFO)
            outcome = await play(data, sessions)
            assert outcome == "started" or "perdure doctor --deep" in outcome, (case, outcome)
            assert outcome == "started" or found, (case, outcome)
            assert not [record.getMessage() for record in caplog.records if record.exc_info], (case, caplog.text)
            assert len(caplog.records) < MANY_LINES, (case, caplog.text[:3000])
        shutil.rmtree(data)


async def test_an_undamaged_copy_starts_and_passes_the_checks(sample: Path, tmp_path: Path) -> None:
    shutil.copytree(sample, tmp_path / "data")
    assert [*inspection.look(tmp_path / "data"), *inspection.look_deep(tmp_path / "data")] == []
    assert await play(tmp_path / "data") == "started"


@pytest.mark.parametrize("number", range(REAL_STARTS))
def test_a_real_server_on_a_damaged_database_ends_with_a_sentence_or_starts(
    sample: Path, tmp_path: Path, number: int
) -> None:
    data = tmp_path / "data"
    shutil.copytree(sample, data)
    with (data / "perdure.db").open("r+b") as file:
        # The root page of a table: nothing in the table can be read.
        file.seek(PAGE_BYTES * (number + 1))
        file.write(os.urandom(PAGE_BYTES))
    server = LiveServer(data)
    refusals = []
    try:
        server.start()
        assert server.get("/api/health")["status"] == "ok"
    except AssertionError as error:
        refusals.append(str(error))
    assert all("exit code 1" in words and "perdure doctor --deep" in words for words in refusals)
    assert "Traceback" not in server.log_tail()
    server.destroy()
