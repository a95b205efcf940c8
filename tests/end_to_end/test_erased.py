"""Erased means erased: after a purge, no byte of what was said is left in the data directory.

The marks are single words, so that they would also be found in the search index."""

import base64
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import httpx2
import pytest

from tests.end_to_end.victims import until_said
from tests.harness import LiveServer, eventually
from tests.sizes import size

AGENTS = ("rehearsal", "rehearsal-stream", "rehearsal-resume")
SESSIONS = size("ERASED", 9, fast=3)
KILLS = size("ERASE_KILLS", 4, fast=1)
MARK = "quixmark"
SCRUB_LIMIT_S = 90
KEPT = "say what stays here"


def mark(number: int) -> str:
    return f"{MARK}{number:03d}zz"


def make_marked(server: LiveServer, number: int) -> str:
    """A session that leaves its mark wherever a session can leave something."""
    word = mark(number)
    session = server.create(agent=AGENTS[number % 3], title=f"about {word}", labels=[f"label-{word}"])
    file = {"name": f"{word}.txt", "mime_type": "text/plain", "data": base64.b64encode(word.encode() * 50).decode()}
    server.turn(session, f"say one {word}\nthink {word}\ntool Look {word}\nedit {word}.md", attachments=[file])
    server.turn(session, f"say two {word}\nplan {word} a; {word} b\ndelegate {word} {word}")
    server.post(f"/api/sessions/{session}/retry", {"turn": 2, "text": f"say three {word}"}, expect=202)
    server.wait_idle(session)
    server.http.patch(f"/api/sessions/{session}", json={"title": f"renamed {word}"}).raise_for_status()
    return session


def left(data: Path) -> dict[str, int]:
    """How many marks each file of the data directory holds, in its bytes and in its name."""
    found = {}
    # Not rglob, which fails when a folder goes while it looks.
    for folder, _, names in os.walk(data):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            count = str(path.relative_to(data)).count(MARK)
            with suppress(FileNotFoundError):
                count += path.read_bytes().count(MARK.encode()) if path.is_file() else 0
            if count:
                found[str(path.relative_to(data))] = count
    return found


def until_gone(server: LiveServer) -> None:
    eventually(lambda: not left(server.data), lambda: f"no mark is left: {left(server.data)}", SCRUB_LIMIT_S)


def purge(server: LiveServer, session: str) -> None:
    server.http.delete(f"/api/sessions/{session}?purge=true").raise_for_status()


@pytest.fixture
def server(make_server: Callable[..., LiveServer]) -> LiveServer:
    return make_server()


@pytest.mark.smoke
def test_no_byte_of_an_erased_session_is_left_in_the_data_directory(server: LiveServer) -> None:
    kept = [server.create(agent=AGENTS[number % 3]) for number in range(3)]
    marked = []
    for number in range(SESSIONS):
        marked.append(make_marked(server, number))
        server.turn(kept[number % 3], f"{KEPT} {number}")
    server.send(marked[0], f"say half {mark(0)}\nhang")
    until_said(server, marked[0], 4, "half")
    assert len(left(server.data)) > 5
    for session in marked:
        purge(server, session)
    until_gone(server)
    found = server.get(f"/api/sessions?q={MARK}001zz")["sessions"]
    assert found == []
    assert len(server.get("/api/sessions?q=stays")["sessions"]) == min(3, SESSIONS)
    assert server.recalled(kept[0])[0] == f"{KEPT} 0"
    with closing(sqlite3.connect(server.data / "perdure.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA freelist_count").fetchone()[0] < 50


def test_a_server_that_is_stopped_right_after_an_erase_leaves_nothing(server: LiveServer) -> None:
    session = make_marked(server, 1)
    purge(server, session)
    server.stop()
    assert left(server.data) == {}
    server.restart()


@pytest.mark.parametrize("number", range(KILLS))
def test_an_erase_that_a_crash_cuts_short_is_completed_by_the_next_server(server: LiveServer, number: int) -> None:
    """Killed at once, when it is written down, and when the first rows are gone."""
    session = make_marked(server, 1)
    server.turn(session, f"stream {4000 * number} 0\nsay end {mark(1)}")
    asking = threading.Thread(target=lambda: suppressed_purge(server, session))

    def rows(statement: str, *values: str) -> int:
        with closing(sqlite3.connect(server.data / "perdure.db")) as database:
            return int(database.execute(statement, values).fetchone()[0])

    ended = "SELECT COUNT(*) = 0 OR MAX(status <> 'running') FROM sessions WHERE session_id = ?"
    of_it = "SELECT COUNT(*) FROM events JOIN sessions USING (session_key) WHERE session_id = ?"
    before = rows(of_it, session)
    asking.start()
    if number:
        noted = "SELECT COUNT(*) FROM documents WHERE kind IN ('erasing', 'upkeep')"
        eventually(lambda: rows(noted) or rows(of_it, session) < before, "the erase is under way")
    else:
        eventually(lambda: rows(ended, session), "the erase has begun")
    server.kill()
    asking.join(30)
    server.restart()
    if number == 0 and server.http.get(f"/api/sessions/{session}").status_code == 200:
        purge(server, session)  # it was killed before it had taken the request
    until_gone(server)
    assert server.http.get(f"/api/sessions/{session}").status_code == 404


def suppressed_purge(server: LiveServer, session: str) -> None:
    with suppress(httpx2.HTTPError):
        purge(server, session)
