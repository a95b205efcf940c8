"""Servers for the end-to-end tests: an empty one that tests share, or one of a test's own. Neither leaves a process."""

import contextlib
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
    """`make_server("[server]\\nslots = 3\\n")`: a server for this test alone, with these settings."""
    with contextlib.ExitStack() as ended:

        def make(config: str = NO_LIMITS, name: str = "data") -> LiveServer:
            server = LiveServer(tmp_path / name, config)
            ended.callback(server.finish)
            return server.start()

        yield make
