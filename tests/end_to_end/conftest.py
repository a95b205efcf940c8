"""Servers for the end-to-end tests: an empty one that tests share, or one of a test's own. Neither leaves a process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import NO_LIMITS, LiveServer, SharedServers


@pytest.fixture
def server(servers: SharedServers) -> Iterator[LiveServer]:
    """An empty server without limits, which may be killed and started again."""
    with servers.borrowed(LiveServer, NO_LIMITS) as shared:
        yield shared


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., LiveServer]]:
    """`make_server("[server]\\nslots = 3\\n")`: a server of one's own, with these settings."""
    made: list[LiveServer] = []

    def make(config: str = NO_LIMITS, name: str = "data", **env: str) -> LiveServer:
        server = LiveServer(tmp_path / name, config, env)
        made.append(server)
        return server.start()

    yield make
    for server in made:
        server.finish()
