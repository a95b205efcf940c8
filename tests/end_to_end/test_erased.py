"""Erased means erased: after a purge, no byte of the conversation is left in the data directory.

The marks are single words, so that they would also be found in the search index.
"""

import base64
import json
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.end_to_end.victims import until_said
from tests.harness import NO_LIMITS, SOURCE, LiveServer, eventually
from tests.sizes import size

SHARED = "together"
AGENTS = (SHARED, "rehearsal", "rehearsal-stream", "rehearsal-resume")
SESSIONS = size("ERASED", 9, fast=2)
KILLS = size("ERASE_KILLS", 4, fast=1)
MARK = "quixmark"
SCRUB_LIMIT_S = 90
KEPT = "say what stays here"


def mark(number: int) -> str:
    return f"{MARK}{number:03d}zz"


def create(server: LiveServer, agent: str, **fields: Any) -> str:
    """Sessions of the shared agent all work in one directory, and therefore in one process."""
    place = {"workdir": str(server.data.parent / "work")} if agent == SHARED else {}
    return server.create(agent=agent, **place, **fields)


def make_marked(server: LiveServer, number: int) -> str:
    """A session that leaves its mark in every place where a session stores something."""
    word = mark(number)
    session = create(server, AGENTS[number % 4], title=f"about {word}", labels=[f"label-{word}"])
    file = {"name": f"{word}.txt", "mime_type": "text/plain", "data": base64.b64encode(word.encode() * 50).decode()}
    server.turn(session, f"say one {word}\nthink {word}\ntool Look {word}\nedit {word}.md", attachments=[file])
    server.turn(session, f"say two {word}\nplan {word} a; {word} b\ndelegate {word} {word}")
    server.post(f"/api/sessions/{session}/retry", {"turn": 2, "text": f"say three {word}"}, expect=202)
    server.wait_idle(session)
    server.http.patch(f"/api/sessions/{session}", json={"title": f"renamed {word}"}).raise_for_status()
    return session


def left(data: Path) -> dict[str, int]:
    """The number of marks in the content and name of each file in the data directory."""
    found = {}
    # Not rglob, which fails if a folder is removed meanwhile.
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
def server(make_server: Callable[..., LiveServer], tmp_path: Path) -> LiveServer:
    (tmp_path / "work").mkdir()
    command = json.dumps([sys.executable, "-m", "perdure.rehearsal", "--acp"])
    env = f'{{ PERDURE_REHEARSAL_DIR = "{tmp_path}/data/rehearsal", PYTHONPATH = "{SOURCE}" }}'
    shared = f'[agents.{SHARED}]\ndriver = "acp"\nshared = true\ncommand = {command}\nenv = {env}\n'
    return make_server(NO_LIMITS + shared)


@pytest.mark.smoke
def test_no_byte_of_an_erased_session_is_left_in_the_data_directory(server: LiveServer) -> None:
    kept = [create(server, agent) for agent in AGENTS]
    marked = []
    for number in range(SESSIONS):
        marked.append(make_marked(server, number))
        server.turn(kept[number % 4], f"{KEPT} {number}")
    server.send(marked[0], f"say half {mark(0)}\nhang")
    until_said(server, marked[0], 4, "half")
    assert len(left(server.data)) > 5
    for session in marked:
        purge(server, session)
    until_gone(server)
    found = server.get(f"/api/sessions?q={MARK}001zz")["sessions"]
    assert found == []
    assert len(server.get("/api/sessions?q=stays")["sessions"]) == min(4, SESSIONS)
    assert server.recalled(kept[0])[0] == f"{KEPT} 0"
    with closing(sqlite3.connect(server.data / "perdure.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA freelist_count").fetchone()[0] < 50


def in_launches(server: LiveServer) -> list[str]:
    """Files of processes that contain a mark."""
    return [name for name in left(server.data) if name.startswith("launches")]


def test_an_idle_shared_process_is_gone_when_the_erase_returns(
    server: LiveServer,
) -> None:
    kept, marked = create(server, SHARED), create(server, SHARED)
    server.turn(kept, KEPT)
    server.turn(marked, f"say {mark(1)}")
    assert server.session(kept)["pid"] == server.session(marked)["pid"]
    assert in_launches(server)
    purge(server, marked)
    assert not in_launches(server)
    assert server.recalled(kept) == [KEPT]
    until_gone(server)


def test_a_session_that_left_a_shared_process_is_erased_from_it_too(server: LiveServer) -> None:
    kept, marked = create(server, SHARED), create(server, SHARED)
    server.turn(kept, KEPT)
    server.turn(marked, f"say {mark(1)}")
    server.turn(marked, "say elsewhere", agent="rehearsal")
    eventually(lambda: server.session(kept)["pid"] != server.session(marked)["pid"], "it has another process")
    assert in_launches(server)
    purge(server, marked)
    assert not in_launches(server)
    assert server.recalled(kept) == [KEPT]
    until_gone(server)


@pytest.mark.parametrize("killed", [False, True])
def test_a_shared_process_that_is_busy_ends_after_the_other_sessions_turn(server: LiveServer, killed: bool) -> None:
    busy, marked, later = create(server, SHARED), create(server, SHARED), create(server, SHARED)
    server.turn(busy, KEPT)
    server.turn(marked, f"say {mark(1)}")
    server.send(busy, "permit Deploy\nsay end")
    prompt = server.prompt(busy)
    pid = server.session(busy)["pid"]
    purge(server, marked)
    assert in_launches(server)
    if killed:
        server.kill()
        server.restart()
    server.turn(later, "say later")
    assert server.session(later)["pid"] != pid == server.session(busy)["pid"]
    server.post(f"/api/sessions/{busy}/prompts/{prompt['prompt_id']}", {"option_id": "allow_once"}, expect=200)
    assert server.wait_idle(busy)["turns"][1]["stop_reason"] == "end_turn"
    until_gone(server)
    assert server.recalled(busy) == [KEPT, "permit Deploy\nsay end"]
    server.stop()
    server.restart()
    with closing(sqlite3.connect(server.data / "perdure.db")) as database:
        assert database.execute("SELECT COUNT(*) FROM documents WHERE kind = 'ending'").fetchone() == (0,)


def test_a_server_stopped_right_after_an_erase_leaves_nothing(server: LiveServer) -> None:
    session = make_marked(server, 1)
    purge(server, session)
    server.stop()
    assert left(server.data) == {}
    server.restart()


@pytest.mark.parametrize("number", range(KILLS))
def test_the_next_server_completes_an_erase_interrupted_by_a_crash(server: LiveServer, number: int) -> None:
    """Killed immediately, after the erase was recorded, and after the first rows were deleted."""
    session = make_marked(server, 1)
    server.turn(session, f"stream {4000 * number} 0\nsay end {mark(1)}")
    asking = threading.Thread(target=lambda: suppressed_purge(server, session))

    def rows(statement: str, *values: str) -> int:
        with closing(sqlite3.connect(server.data / "perdure.db")) as database:
            return int(database.execute(statement, values).fetchone()[0])

    ended = "SELECT COUNT(*) = 0 OR MAX(status <> 'running') FROM sessions WHERE session_id = ?"
    asking.start()
    if number:
        noted = "SELECT COUNT(*) FROM documents WHERE kind IN ('erasing', 'upkeep')"
        # Not measured by the rows of its events, because compaction reduces these too.
        eventually(lambda: rows(noted), "the erase is under way")
    else:
        eventually(lambda: rows(ended, session), "the erase has begun")
    server.kill()
    asking.join(30)
    server.restart()
    if number == 0 and server.http.get(f"/api/sessions/{session}").status_code == 200:
        purge(server, session)  # it was killed before it accepted the request
    until_gone(server)
    assert server.http.get(f"/api/sessions/{session}").status_code == 404


def suppressed_purge(server: LiveServer, session: str) -> None:
    with suppress(httpx2.HTTPError):
        purge(server, session)
