"""Rescuing a damaged database as described in docs/operations.md: the two code blocks of that page run on real data."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.harness import NO_LIMITS, LiveServer, eventually
from tests.sizes import size

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
PAGE_BYTES = 4096
LEAF = 0x0D
"""The first byte of a page with rows of a table."""
LOST_PAGES = size("LOST_PAGES", 40, fast=6)
SESSIONS = 4
RUN_S = 120


def blocks() -> tuple[str, str]:
    """The script, and the commands that run it."""
    section = PAGE.read_text("utf-8").partition("## Damage\n")[2].partition("\n## ")[0]
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", section, re.MULTILINE | re.DOTALL)
    [(_, script), (_, commands)] = found
    assert [language for language, _ in found] == ["python", ""]
    return dedent(script), dedent(commands)


def rescue(data: Path, *, script_only: bool = False) -> subprocess.CompletedProcess[str]:
    """As a user does it in that directory."""
    script, commands = blocks()
    (data / "rescue.py").write_text(script)
    where = "~/.local/share/perdure"
    assert where in commands
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PERDURE_DATA": str(data)}
    lines = f"cd '{data}' && python3 rescue.py" if script_only else commands.replace(where, f"'{data}'")
    return subprocess.run(["sh", "-c", lines], env=env, capture_output=True, text=True, timeout=RUN_S)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, list[Any]]]]:
    """The data of a stopped server, and the log of each of its sessions."""
    server = LiveServer(tmp_path_factory.mktemp("sample") / "data", NO_LIMITS).start()
    for number in range(SESSIONS):
        session = server.create(title=f"number {number}")
        for turn in range(3):
            server.turn(session, f"say session {number} turn {turn} " + "word " * 200)
        server.post(f"/api/sessions/{session}/stop", expect=200)
    sessions = [session["id"] for session in server.get("/api/sessions")["sessions"]]
    eventually(lambda: all(is_compacted(server.log(session)) for session in sessions), "finished turns are joined")
    logs = {session: server.log(session) for session in sessions}
    server.stop()
    yield server.data, logs
    server.destroy()


@pytest.fixture
def data(sample: tuple[Path, dict[str, list[Any]]], tmp_path: Path) -> Path:
    copied = tmp_path / "data"
    shutil.copytree(sample[0], copied, ignore=shutil.ignore_patterns("sock", "server.json"))
    return copied


def logs_in(data: Path, sessions: list[str]) -> dict[str, list[Any]]:
    """What a server on this data shows. It must start and accept a message."""
    server = LiveServer(data, NO_LIMITS).start()
    try:
        shown = {session["id"] for session in server.get("/api/sessions?q=turn")["sessions"]}
        assert shown == set(sessions), "the search index is complete"
        assert server.turn(server.create(), "say new")["stop_reason"] == "end_turn"
        return {session: server.log(session) for session in sessions}
    finally:
        server.destroy()


def is_compacted(log: list[Any]) -> bool:
    """Whether the deltas of the first turn's text are joined. The other turns have too few events for that."""
    return len([event for event in log if event["type"] == "assistant_text" and event["turn"] == 1]) == 1


def lose(data: Path, page: int) -> None:
    with (data / "perdure.db").open("r+b") as file:
        file.seek(page * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))


def is_sound(database: Path) -> bool:
    with closing(sqlite3.connect(database)) as opened:
        try:
            return bool(opened.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
        except sqlite3.DatabaseError:
            return False


def test_a_healthy_database_is_complete_after_a_rescue(data: Path, sample: tuple[Path, dict[str, list[Any]]]) -> None:
    done = rescue(data)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert (data / "damaged" / "perdure.db").exists() and (data / "perdure.db").stat().st_mode & 0o777 == 0o600
    assert logs_in(data, list(sample[1])) == sample[1]


@pytest.mark.smoke
def test_a_rescue_loses_only_the_events_of_a_lost_page(data: Path, sample: tuple[Path, dict[str, list[Any]]]) -> None:
    content = (data / "perdure.db").read_bytes()
    starts = range(0, len(content), PAGE_BYTES)
    holds = [at for at in starts if content[at] == LEAF and b'"say session 2 turn 1' in content[at : at + PAGE_BYTES]]
    lose(data, holds[0] // PAGE_BYTES)
    assert not is_sound(data / "perdure.db")
    done = rescue(data)
    assert done.stdout.startswith("events: database disk image is malformed"), (done.stdout, done.stderr)
    assert is_sound(data / "perdure.db") and not is_sound(data / "damaged" / "perdure.db")
    found = logs_in(data, list(sample[1]))
    lost = {session: len(log) - len(found[session]) for session, log in sample[1].items()}
    assert 0 < sum(lost.values()) < 20 and len([count for count in lost.values() if count]) <= 2, lost
    assert all(event in sample[1][session] for session in found for event in found[session])


def test_a_file_that_is_not_a_database_is_left_alone(data: Path) -> None:
    (data / "perdure.db").write_bytes(b"nothing of SQLite" * 1000)
    done = rescue(data)
    assert done.returncode != 0 and "file is not a database" in done.stderr
    assert (data / "perdure.db").read_bytes().startswith(b"nothing") and not (data / "damaged").exists()


def test_whichever_page_is_lost_the_rescue_succeeds_or_says_that_it_failed(
    data: Path, sample: tuple[Path, dict[str, list[Any]]]
) -> None:
    pages = (data / "perdure.db").stat().st_size // PAGE_BYTES
    whole = 0
    for page in range(1, pages, max(1, pages // LOST_PAGES)):
        for file in data.glob("rescued.db*"):
            file.unlink()
        shutil.copy(sample[0] / "perdure.db", data / "perdure.db")
        lose(data, page)
        done = rescue(data, script_only=True)
        if done.returncode == 0:
            assert is_sound(data / "rescued.db"), (page, done.stdout)
            with closing(sqlite3.connect(data / "rescued.db")) as database:
                whole += database.execute("SELECT COUNT(*) FROM sessions").fetchone() == (SESSIONS,)
    assert whole > LOST_PAGES // 2
