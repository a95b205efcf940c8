"""Commands that start at once: a process that has imported the command line once forks for each of them.

Above: tests that run many commands. Below: multiprocessing's fork server. Each command is a process with arguments,
environment, directory and streams of its own; only its imports, nearly all of what it costs, are done before. It is not
for signals and terminals: what needs those is started as people start it.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from multiprocessing.process import BaseProcess
from pathlib import Path

from perdure.surfaces.cli import COMMANDS, main

LATE_IMPORTS = ("httpx2", "perdure.surfaces.mcp.server", "rich.console", "rich.markdown", "rich.table")
"""What commands import when they need it."""
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tests.warm", *LATE_IMPORTS, *(f"perdure.surfaces.cli.{module}" for module, _ in COMMANDS.values())]
)


def start(arguments: list[str], streams: list[str], env: dict[str, str], cwd: Path) -> BaseProcess:
    """`perdure ARGUMENTS`, with files or named pipes for its stdin, stdout and stderr."""
    process = CONTEXT.Process(target=_command, args=(arguments, streams, env, str(cwd)), daemon=True)
    process.start()
    return process


def run(
    arguments: list[str], *, stdin: str, env: dict[str, str], cwd: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """`perdure ARGUMENTS`, as `subprocess.run` would with captured output."""
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


def _command(arguments: list[str], streams: list[str], env: dict[str, str], cwd: str) -> None:
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT), number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.exit(main(arguments))
