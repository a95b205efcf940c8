"""Commands and servers that start fast, because they are forked from a process that has already imported Perdure.

Above: tests that run many commands or kill many servers. Below: multiprocessing's fork server. Each command is a
process with its own arguments, environment, directory, session and streams. Only its imports, which are nearly all of
its cost, are already done. Tests that need a terminal, or inherited limits and masks, must start commands like users
do.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from perdure.surfaces.cli import COMMANDS, main

LATE_IMPORTS = (
    "httpx2",
    "perdure.server",
    "perdure.surfaces.mcp.server",
    "rich.console",
    "rich.markdown",
    "rich.table",
    "uvicorn.lifespan.off",
)
"""Modules that commands import lazily."""
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "tests.warm",
        *LATE_IMPORTS,
        *(f"perdure.surfaces.cli.{module}" for module, _ in COMMANDS.values()),
        "tests.frozen",
    ]
)


def start(arguments: list[str], streams: Sequence[str | Connection], env: dict[str, str], cwd: Path) -> BaseProcess:
    """Start `perdure ARGUMENTS`, with files or pipes for its stdin, stdout and stderr."""
    process = CONTEXT.Process(target=_command, args=(arguments, streams, env, str(cwd)), daemon=True)
    process.start()
    return process


def run(
    arguments: list[str], *, stdin: str, env: dict[str, str], cwd: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run `perdure ARGUMENTS` like `subprocess.run` with captured output."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("stdin", "stdout", "stderr")]
        Path(paths[0]).write_bytes(stdin.encode())
        process = start(arguments, paths, env, cwd)
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout_s)
        said = [Path(path).read_bytes().decode() for path in paths[1:]]
        return subprocess.CompletedProcess(arguments, process.exitcode, *said)


class Server:
    """`perdure serve ARGUMENTS`, with the parts of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: list[str], *, env: dict[str, str], log: Path) -> None:
        reader, writer = CONTEXT.Pipe(duplex=False)
        with writer:
            self._process = start(["serve", *arguments], [os.devnull, writer, str(log)], env, Path.cwd())
        with reader:
            self.stdout = os.fdopen(os.dup(reader.fileno()), "rb")
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("perdure serve", timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _command(arguments: list[str], streams: Sequence[str | Connection], env: dict[str, str], cwd: str) -> None:
    os.setsid()
    for number, given in enumerate(streams):
        how = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(given, how) if isinstance(given, str) else given.fileno(), number)
        if not isinstance(given, str):
            given.close()
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.exit(main(arguments))
