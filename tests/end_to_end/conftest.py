"""Servers for the end-to-end tests: each ends with its test, and nothing of it may be left."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import LiveServer, none_left

NO_LIMITS = "[server]\nslots = 0\nproject_slots = 0\n"


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., LiveServer]]:
    made: list[LiveServer] = []

    def make(config: str = NO_LIMITS, name: str = "data", **env: str) -> LiveServer:
        server = LiveServer(tmp_path / name, config, env)
        made.append(server)
        return server.start()

    yield make
    for server in made:
        end(server)


@pytest.fixture
def server(make_server: Callable[..., LiveServer]) -> LiveServer:
    return make_server()


def end(server: LiveServer) -> None:
    """Stop the server and every agent of it; fail if a process is left."""
    if server.process is None:
        server.start()
    for session in server.get("/api/sessions?limit=1000&status=running")["sessions"]:
        server.post(f"/api/sessions/{session['id']}/stop")
    server.stop()
    server.http.close()
    none_left(server.data)
