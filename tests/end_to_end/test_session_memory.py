"""The server's memory for sessions: nearly nothing for unused ones, and a fixed total for recently used ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.runtime.log.frames import MAX_RECENT_BYTES
from tests.attack import resident_mb
from tests.harness import LiveServer, eventually
from tests.sizes import size
from tests.surfaces.http.test_import import body, turn

SESSIONS = size("IDLE_SESSIONS", 300, fast=60)
EVICTED_AFTER_S = 45.0
RECENT = 120
LONG_CHARS = 500_000
GROWTH_MAX_MB = MAX_RECENT_BYTES / 1024 / 1024 + 32
"""Allowance for fragmentation by large blocks of memory."""
TOOLS = 4
PIECES = 4


@pytest.fixture
def server(make_server: Callable[..., LiveServer]) -> LiveServer:
    """A server without memory from earlier tests."""
    return make_server()


def rss_kb(server: LiveServer) -> int:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def fill(server: LiveServer) -> list[str]:
    """Sessions without a message, and a few that were used and suspended."""
    used = [server.create(limits={"idle_timeout_s": 1}) for _ in range(5)]
    for session in used:
        server.turn(session, "say one")
    for session in used:
        server.wait(session, lambda found: found["attached"] == "suspended")
    before = rss_kb(server)
    sessions = [server.create() for _ in range(SESSIONS)]
    each = (rss_kb(server) - before) / SESSIONS
    print(f"{each:.1f} KB for each session just made")
    assert each < 50
    return [*used, *sessions]


@pytest.mark.smoke
@pytest.mark.needs("linux")
def test_three_hundred_idle_sessions_take_little_memory(server: LiveServer) -> None:
    sessions = fill(server)
    assert len(server.get("/api/sessions?limit=1000")["sessions"]) == len(sessions)


@pytest.mark.slow
@pytest.mark.needs("linux")
def test_memory_does_not_grow_when_idle_sessions_are_read_again_and_again(server: LiveServer) -> None:
    sessions = fill(server)
    for session in sessions:
        server.session(session)
    high = rss_kb(server)
    for _ in range(3):
        for session in sessions:
            server.session(session)
    print(f"{(rss_kb(server) - high) / SESSIONS:.1f} KB more for each")
    assert rss_kb(server) - high < 20 * SESSIONS
    eventually(lambda: server.get("/api/health")["status"] == "ok", "the server answers", EVICTED_AFTER_S)


def said() -> list[dict[str, Any]]:
    return turn(1, "say one", "a" * LONG_CHARS)


def given_to_tools() -> list[dict[str, Any]]:
    begun, *rest = turn(1, "say one", "done")
    tools = []
    for number in range(TOOLS):
        about = {"turn": 1, "at": begun["at"], "tool_id": f"t{number}"}
        tools.append({**about, "type": "tool_use", "name": "Write", "input": {"content": "c" * LONG_CHARS}})
        tools.append({**about, "type": "tool_result", "status": "completed", "content": "ok"})
    return [begun, rest[0], *tools, *rest[1:]]


def asked() -> list[dict[str, Any]]:
    return turn(1, "m" * 2 * LONG_CHARS, "done")


def in_pieces() -> list[dict[str, Any]]:
    """They all fit into the cache for viewers, and each viewer's position needs a copy."""
    begun, start, text, end = turn(1, "say one", "")
    return [begun, start, *({**text, "delta": "p" * 60_000} for _ in range(PIECES)), end]


@pytest.mark.needs("linux")
@pytest.mark.parametrize("kept", [said, given_to_tools, asked, in_pieces])
def test_many_recently_used_sessions_share_one_limit(
    server: LiveServer, kept: Callable[[], list[dict[str, Any]]]
) -> None:
    server.get("/api/sessions")
    before = resident_mb(server)
    names = [f"recent{number}" for number in range(RECENT)]
    for name in names:
        server.post("/api/import", body(name, kept()), expect=201)
        if kept in (said, asked):
            with server.watch(name) as stream:
                assert next(stream.frames())[1] == "snapshot"
        for position in range(1, PIECES + 1) if kept is in_pieces else ():
            with server.watch(name, str(position)) as stream:
                assert next(stream.frames())[2]["seq"] == position + 1
    grown = resident_mb(server) - before
    print(f"{before} MB, {grown} more with {RECENT} sessions, {grown / RECENT} each")
    assert grown < GROWTH_MAX_MB
    with server.watch(names[0]) as first, server.watch(names[-1]) as last:
        text = "".join(event["delta"] for event in kept() if event["type"] == "assistant_text")
        for stream in (first, last):
            assert next(stream.frames())[2]["text"] == text
        server.post(f"/api/sessions/{names[0]}/stop", expect=200)
        assert next(first.frames())[1] == "session_end"
    for name in names:
        server.http.delete(f"/api/sessions/{name}?purge=true").raise_for_status()
    print(f"{resident_mb(server) - before} more after all are erased")
    assert resident_mb(server) < before + GROWTH_MAX_MB
