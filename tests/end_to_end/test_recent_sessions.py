"""Sessions that were all used a moment ago take a bounded amount of memory together."""

from collections.abc import Callable

import pytest

from perdure.runtime.frames import MAX_RECENT_BYTES
from tests.attack import resident_mb
from tests.harness import LiveServer
from tests.surfaces.http.test_import import body, turn

SESSIONS = 90
ANSWER_CHARS = 500_000
GROWTH_MAX_MB = MAX_RECENT_BYTES / 1024 / 1024 + 40


@pytest.mark.smoke
@pytest.mark.needs("linux")
def test_many_recently_used_sessions_share_one_limit(make_server: Callable[..., LiveServer]) -> None:
    server = make_server()
    server.get("/api/sessions")
    before = resident_mb(server)
    names = [f"recent{number}" for number in range(SESSIONS)]
    for name in names:
        server.post("/api/import", body(name, turn(1, "say one", "a" * ANSWER_CHARS)), expect=201)
        with server.watch(name) as stream:
            assert next(stream.frames())[1] == "snapshot"
    grown = resident_mb(server) - before
    print(f"{before} MB, {grown} more with {SESSIONS} sessions, {grown / SESSIONS} each")
    assert grown < GROWTH_MAX_MB
    with server.watch(names[0]) as first, server.watch(names[-1]) as last:
        for stream in (first, last):
            assert next(stream.frames())[2]["text"] == "a" * ANSWER_CHARS
        server.post(f"/api/sessions/{names[0]}/stop", expect=200)
        assert next(first.frames())[1] == "session_end"
    for name in names:
        server.http.delete(f"/api/sessions/{name}?purge=true").raise_for_status()
    print(f"{resident_mb(server) - before} more after all are erased")
    assert resident_mb(server) < before + GROWTH_MAX_MB
