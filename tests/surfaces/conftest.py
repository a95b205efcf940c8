"""Real servers for the tests of surfaces: a process with a data directory of its own, on a free port."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.surfaces.client import Address, Client

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0
COMMAND_LIMIT_S = 60.0


class ServerProcess:
    """A server that a test may kill and start again on the same data directory."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.folder = folder
        self.url = ""
        self._process: subprocess.Popen[str] | None = None
        self._errors = folder / "server.stderr"

    @property
    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PERDURE_", "XDG_"))}
        return {**kept, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color", "HOME": str(self.folder)}

    @property
    def token(self) -> str:
        return (self.data / "token").read_text().strip()

    def address(self) -> Address:
        return Address(self.url, self.token)

    def client(self, *, patience_s: float = 0.0) -> Client:
        return Client(self.address, patience_s=patience_s)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self, port: int = 0) -> None:
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [*self.program, "serve", "--port", str(port), "--data", str(self.data)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self.environment,
                cwd=self.folder,
            )
        assert self._process.stdout is not None
        deadline = time.monotonic() + START_LIMIT_S
        ready = select.select([self._process.stdout], [], [], deadline - time.monotonic())[0]
        line = self._process.stdout.readline() if ready else ""
        if "listening on" not in line:
            self.kill()
            pytest.fail(f"the server did not start: {line!r} {self._errors.read_text()}")
        self.url = line.split()[-1]

    def kill(self) -> None:
        """As a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_LIMIT_S)
        finally:
            process.kill()
            process.wait(STOP_LIMIT_S)
            assert process.stdout is not None
            process.stdout.close()

    @property
    def program(self) -> list[str]:
        return [sys.executable, "-m", "perdure"]

    def command(self, *arguments: str) -> list[str]:
        return [*self.program, "--data", str(self.data), *arguments]

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command of the command line, against this server."""
        return subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            env=self.environment,
            cwd=self.folder,
        )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of its own. At its end every session is ended, so that no agent outlives the test."""
    process = ServerProcess(tmp_path)
    process.start()
    try:
        yield process
    finally:
        if not process.is_running:
            process.start()
        process.run("stop", "--all")
        process.stop()
