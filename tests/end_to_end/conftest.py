"""Servers for the end-to-end tests: an empty one that tests share, or a private one. Neither leaves a process
behind."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import SharedCluster
from tests.harness import NO_LIMITS, LiveServer, SharedServers

ON_NODES = {"abort", "context", "delegation", "messages", "prompts", "teamhq"}
"""The modules that must behave the same on two nodes with PostgreSQL, whichever node gets a request, and also when both
are killed and restarted."""
NODES = pytest.param(SharedCluster, id="nodes", marks=[pytest.mark.nodes, pytest.mark.needs("postgresql")])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".test_")[2]
    of_one = metafunc.definition.get_closest_marker("one_server") is not None
    if "server" in metafunc.fixturenames and module in ON_NODES and not of_one:
        metafunc.parametrize("server", [pytest.param(LiveServer, id="one"), NODES], indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: SharedServers) -> Iterator[LiveServer]:
    """An empty server without limits, which a test may kill and restart."""
    with servers.borrowed(getattr(request, "param", LiveServer), NO_LIMITS) as shared:
        yield shared


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., LiveServer]]:
    """`make_server("[server]\\nslots = 3\\n")`: a private server with these settings."""
    with contextlib.ExitStack() as ended:

        def make(config: str = NO_LIMITS, name: str = "data") -> LiveServer:
            server = LiveServer(tmp_path / name, config)
            ended.callback(server.finish)
            return server.start()

        yield make
