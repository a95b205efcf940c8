"""A session that nobody uses costs (nearly) nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import LiveServer, eventually
from tests.sizes import size

SESSIONS = size("IDLE_SESSIONS", 300, fast=60)
EVICTED_AFTER_S = 45.0


@pytest.fixture
def server(make_server: Callable[..., LiveServer]) -> LiveServer:
    """One that holds no memory from before."""
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
    eventually(lambda: server.get("/api/health")["status"] == "ok", "the server is there", EVICTED_AFTER_S)
