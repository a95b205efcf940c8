"""Servers for the HTTP tests: one shared by each module, or one created for a single test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import postgres
from tests.harness import NO_LIMITS, ColdServer, LiveServer, SharedServers
from tests.surfaces.conftest import CONFIG, ServerProcess
from tests.surfaces.http.local import LocalNodes, LocalServer, settings

ON_NODES = {
    *("agents", "attachments", "config", "diane", "diane_prompts", "history", "import", "jobs", "joined_ranges"),
    *("changes", "many_sessions", "open_design", "page_endpoints", "parents", "run", "session_pages", "signing_out"),
    *("slash_commands", "snapshot", "teamhq", "teamhq_events", "usage", "watching", "contract"),
}
"""Modules that also run against two nodes on PostgreSQL; each request may go to either node."""
NODES = pytest.param("nodes", marks=[pytest.mark.nodes, pytest.mark.needs("postgresql")])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".test_")[2]
    of_one = metafunc.definition.get_closest_marker("one_server") is not None
    if "server" in metafunc.fixturenames and module in ON_NODES and not of_one:
        metafunc.parametrize("server", ["one", NODES], indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A server shared by the tests of a module, or two nodes used as one. Its streams take over their connections."""
    folder, given = tmp_path_factory.mktemp("http"), settings(heartbeat_s=0.2)
    if getattr(request, "param", "one") == "nodes":
        shared: postgres.Shared = request.getfixturevalue("postgres_server")
        name = postgres.make_database(shared, request.getfixturevalue("postgres_template"))
        made: LocalServer = LocalNodes(folder / "nodes", given, shared.url(name)).start()
    else:
        made = LocalServer(folder, given).start()
    yield made
    made.finish()


@pytest.fixture(scope="module", params=["taken_over", pytest.param("plain_asgi", marks=pytest.mark.full)])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """Like `server`, for tests that must pass for each way to serve a stream."""
    made = LocalServer(tmp_path_factory.mktemp("both"), settings(heartbeat_s=0.2), request.param).start()
    yield made
    made.finish()


@pytest.fixture
def process(servers: SharedServers, tmp_path: Path) -> Iterator[ServerProcess]:
    """An empty server in its own process. Its log has only the lines of this test."""
    with servers.borrowed(ServerProcess, CONFIG) as borrowed:
        borrowed.folder = tmp_path
        yield borrowed


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LiveServer]:
    """A server in its own process, used only by this test, so its memory can be measured. It has had some requests."""
    server = ColdServer(tmp_path / "own", NO_LIMITS).start()
    for _ in range(20):
        server.get("/api/sessions")
    yield server
    server.finish()


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., LocalServer]]:
    """Creates a server for one test: `make_server(slots=3)`."""
    made: list[LocalServer] = []

    def make(path: str = "taken_over", **given: Any) -> LocalServer:
        server = LocalServer(tmp_path / f"data{len(made)}", settings(**given), path)
        made.append(server)
        return server.start()

    yield make
    for server in made:
        server.finish()
