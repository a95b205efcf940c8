"""Real servers for the tests of surfaces, and the command line against them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.surfaces.client import Address, Client
from tests import warm
from tests.harness import SOURCE, LiveServer, SharedServers

ROOT = Path(__file__).resolve().parents[2]
COMMAND_LIMIT_S = 60.0
CONFIG = "[server]\nagent = 'rehearsal'\n"


class ServerProcess(LiveServer):
    """A server with its own token and default limits, and commands that run against it."""

    given_token = None

    def __init__(self, data: Path, config: str = CONFIG) -> None:
        super().__init__(data, config)
        self.folder = data.parent
        """The directory where commands run. Their home is a folder in it that does not exist yet."""

    @property
    def start_environment(self) -> dict[str, str]:
        return {**self.environment, "HOME": str(self.data.parent)}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PERDURE_", "XDG_"))}
        return {**kept, "PYTHONPATH": SOURCE, "TERM": "xterm-256color", "HOME": str(self.folder / "home")}

    def address(self) -> Address:
        return Address(self.url, self.token)

    def client(self, *, patience_s: float = 0.0) -> Client:
        return Client(self.address, patience_s=patience_s)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "perdure", "--data", str(self.data), *arguments]

    def run(self, *arguments: str, stdin: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A command against this server."""
        given = ["--data", str(self.data), *arguments]
        return warm.run(given, stdin=stdin, env=self.environment, cwd=cwd or self.folder, timeout_s=COMMAND_LIMIT_S)


@pytest.fixture
def server(servers: SharedServers, tmp_path: Path) -> Iterator[ServerProcess]:
    """An empty server, which a test may kill."""
    with servers.borrowed(ServerProcess, CONFIG) as process:
        process.folder = tmp_path
        yield process
