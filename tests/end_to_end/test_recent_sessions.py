"""Sessions that were all used a moment ago take a bounded amount of memory together, whatever is kept of each."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure.runtime.frames import MAX_RECENT_BYTES
from tests.attack import resident_mb
from tests.harness import LiveServer
from tests.surfaces.http.test_import import body, turn

SESSIONS = 120
LONG_CHARS = 500_000
GROWTH_MAX_MB = MAX_RECENT_BYTES / 1024 / 1024 + 56
"""Large blocks of memory come and go, and leave holes."""
TOOLS = 4
PIECES = 4


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
    """They all fit into what is kept ready for viewers, and each place of a viewer wants a copy."""
    begun, start, text, end = turn(1, "say one", "")
    return [begun, start, *({**text, "delta": "p" * 60_000} for _ in range(PIECES)), end]


@pytest.mark.needs("linux")
@pytest.mark.parametrize("kept", [pytest.param(said, marks=pytest.mark.smoke), given_to_tools, asked, in_pieces])
def test_many_recently_used_sessions_share_one_limit(
    make_server: Callable[..., LiveServer], kept: Callable[[], list[dict[str, Any]]]
) -> None:
    server = make_server()
    server.get("/api/sessions")
    before = resident_mb(server)
    names = [f"recent{number}" for number in range(SESSIONS)]
    for name in names:
        server.post("/api/import", body(name, kept()), expect=201)
        if kept in (said, asked):
            with server.watch(name) as stream:
                assert next(stream.frames())[1] == "snapshot"
        for position in range(1, PIECES + 1) if kept is in_pieces else ():
            with server.watch(name, str(position)) as stream:
                assert next(stream.frames())[2]["seq"] == position + 1
    grown = resident_mb(server) - before
    print(f"{before} MB, {grown} more with {SESSIONS} sessions, {grown / SESSIONS} each")
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
