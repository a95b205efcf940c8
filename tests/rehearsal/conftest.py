"""Real rehearsal agents for the tests; each ends with its test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rehearsal.client import Client

Launch = Callable[[], Client]


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def launch(tmp_path: Path, workdir: Path) -> Iterator[Launch]:
    """Starts an agent. All agents of one test share their memory on disk."""
    clients: list[Client] = []

    def start() -> Client:
        clients.append(Client(tmp_path / "memory", workdir))
        return clients[-1]

    yield start
    for client in clients:
        client.kill()


@pytest.fixture
def agent(launch: Launch) -> Client:
    """An agent, initialized by a client that can show forms."""
    client = launch()
    client.initialize(elicitation={"form": {}})
    return client
