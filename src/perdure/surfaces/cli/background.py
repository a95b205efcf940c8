"""The background server: `perdure chat` and `perdure serve --background` start it, `perdure serve --stop` stops it.

Above: chat.py and serve.py. Below: files in the data directory, and `perdure serve` in its own process session, so it
outlives the chat and its terminal. Commands for scripts never start a server; they exit with code 3.

If two chats start at the same time, the first takes `starting.lock` and starts the server, and the second waits. A
server that a user starts meanwhile will do too: any running server ends the wait. `starting.lock` stores the pid of the
background server. If that server dies, a chat restarts it. A chat never restarts a server that was stopped, or one that
a user started with `perdure serve`.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from perdure.runtime.data.filesystem import make_private
from perdure.surfaces.cli.output import paragraph
from perdure.surfaces.cli.places import home_shortened
from perdure.surfaces.cli.reach import Failure, Reach, is_held
from perdure.surfaces.short_text import safe

LOG = "server.log"
STARTING = "starting.lock"
START_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0
SILENT_S = 1.0
"""A start that takes longer than this shows progress."""
LOOK_EVERY_S = 0.05
SHOWN_LINES = 10
LOG_KEPT_BYTES = 1_000_000
"""A longer log is rotated when the next server starts."""
NO_SERVER = 3
RESTARTS_MAX = 3
"""How often one chat restarts the server at most."""
START_YOURSELF = "Fix the problem, then try again or start the server with `perdure serve`."
GONE = "The server has stopped. Start it with `perdure serve` in another terminal; this chat then continues."


def start_server(reach: Reach) -> None:
    """Start the data directory's server, or report that it is already running."""
    if (url := reach.known_url()) is not None:
        click.echo(f"A server is already running: {url} (pid {reach.known_pid()}).", err=True)
        return
    ensure_server(reach)


def ensure_server(reach: Reach) -> None:
    """Start the data directory's server if none is running, and say so. Does nothing if the user gave a URL."""
    if reach.names_a_server or reach.known_url() is not None:
        return
    try:
        make_private(reach.data)
        with _only_one(reach):
            if reach.known_url() is None:
                _start(reach)
    except OSError as error:
        raise Failure(f"Can't start a server for {reach.data}: {error.strerror}.", NO_SERVER) from error


@contextlib.contextmanager
def _only_one(reach: Reach) -> Iterator[None]:
    """Allow one start at a time. The wait ends early if a server is running."""
    descriptor = os.open(reach.data / STARTING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in _while_waiting("Another chat is starting a server"):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if reach.known_url() is not None:
                break
        else:
            raise Failure(f"Another command is starting a server for {reach.data}, but has not finished.", NO_SERVER)
        yield
    finally:
        os.close(descriptor)


def _while_waiting(what: str, limit_s: float = START_LIMIT_S) -> Iterator[None]:
    """Loop until the limit, several times a second. After one second, the terminal shows progress."""
    begun, shown = time.monotonic(), -1
    try:
        while (passed_s := time.monotonic() - begun) < limit_s:
            if passed_s >= SILENT_S and int(passed_s) != shown and sys.stderr.isatty():
                shown = int(passed_s)
                click.echo(f"\r{what} ... {shown} s", nl=False, err=True)
            yield
            select.select([], [], [], LOOK_EVERY_S)
    finally:
        if shown >= 0:
            click.echo("\r\x1b[K", nl=False, err=True)


def _start(reach: Reach) -> None:
    lock, log = reach.data / "lock", reach.data / LOG
    # A server that is starting or stopping holds the lock, but its URL is not known.
    for _ in _while_waiting("Waiting for the server that is starting or stopping"):
        if not is_held(lock):
            break
        if reach.known_url() is not None:
            return
    else:
        raise Failure(f"A server is using {reach.data}, but its URL is not known.", NO_SERVER)
    end = _end_of(log)
    child = _spawn(reach, log)
    try:
        for _ in _while_waiting("Starting a server"):
            code = child.poll()
            if reach.known_url() is not None:
                break
            if code is not None and not is_held(lock):
                raise _failed(log, end, f"The server did not start (exit code {code}).")
        else:
            raise _failed(log, end, f"The server (pid {child.pid}) was not ready after {START_LIMIT_S:.0f} s.")
    except KeyboardInterrupt:
        click.echo(f"The server (pid {child.pid}) is still starting. Its log: {home_shortened(str(log))}", err=True)
        raise
    (reach.data / STARTING).write_text(str(child.pid), "utf-8")
    said = (
        f"Started a server in the background: {reach.known_url()} (pid {reach.known_pid()}).\n"
        f"It keeps running when you leave. Its log: {home_shortened(str(log))}\n"
        "Stop it with: perdure serve --stop\n"
    )
    click.echo(paragraph(said, sys.stderr), err=True)


def _end_of(log: Path) -> int:
    """Rotate the log if it is long. Returns its length."""
    try:
        length = log.stat().st_size
        if length > LOG_KEPT_BYTES:
            log.replace(log.with_name(f"{LOG}.1"))
            length = 0
    except FileNotFoundError:
        length = 0
    return length


def _spawn(reach: Reach, log: Path) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, **reach.server_environment()}
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            # -P: never import modules from the current directory.
            [sys.executable, "-P", "-m", "perdure", "--data", str(reach.data), "serve"],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd=reach.data,
            env=environment,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def _failed(log: Path, start: int, problem: str) -> Failure:
    with log.open("rb") as file:
        file.seek(start)
        said = file.read().decode("utf-8", "replace")
    lines = [f"  | {safe(line)}" for line in said.splitlines()[-SHOWN_LINES:]]
    return Failure("\n".join([f"{problem} Its log, {home_shortened(str(log))}:", *lines, START_YOURSELF]), NO_SERVER)


class ServerWatch:
    """Watches a chat's server, and restarts a background server that died."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self.gone_since: float | None = None
        self._restarted: subprocess.Popen[bytes] | None = None
        self._restarts = 0

    def look(self) -> str:
        """A message about what happened since the last look; usually empty. Never blocks."""
        if self._reach.names_a_server:
            return ""
        if self._reach.known_url() is not None:
            self.gone_since = None
            return ""
        if self.gone_since is not None:
            return self._after_restart()
        self.gone_since = time.monotonic()
        if not self._has_died() or self._restarts >= RESTARTS_MAX:
            return GONE
        self._restarts += 1
        try:
            self._restarted = _spawn(self._reach, self._log)
            (self._reach.data / STARTING).write_text(str(self._restarted.pid), "utf-8")
        except OSError as error:
            return f"The server died and could not be restarted: {error.strerror}. {GONE}"
        return f"The server died and is being restarted. The agent keeps working. Server log: {self._shown_log}"

    def _after_restart(self) -> str:
        if self._restarted is None or self._restarted.poll() is None:
            return ""
        code, self._restarted = self._restarted.returncode, None
        return f"The server did not restart (exit code {code}). Its log: {self._shown_log}\n{START_YOURSELF}"

    def _has_died(self) -> bool:
        """Whether a background server died. One that stops normally removes server.json."""
        try:
            left = json.loads((self._reach.data / "server.json").read_text("utf-8"))
            return str(left["pid"]) == (self._reach.data / STARTING).read_text("utf-8")
        except (OSError, ValueError, KeyError, TypeError):
            return False

    @property
    def _log(self) -> Path:
        return self._reach.data / LOG

    @property
    def _shown_log(self) -> str:
        return home_shortened(str(self._log))


def stop_server(reach: Reach) -> None:
    """Stop the data directory's server, like Ctrl-C, and wait until it has exited."""
    pid = reach.known_pid()
    if pid is None:
        raise Failure(f"No server is running for {reach.data}.", NO_SERVER)
    lock = reach.data / "lock"
    if not _has_open(pid, lock):
        raise Failure(f"The server of {reach.data} runs on another machine or in another container. Stop it there.")
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError as error:
        raise Failure(f"Can't stop the server (pid {pid}): {error.strerror}.") from error
    for _ in _while_waiting("Stopping the server", STOP_LIMIT_S):
        if not is_held(lock):
            break
    else:
        raise Failure(f"The server (pid {pid}) has not stopped after {STOP_LIMIT_S:.0f} s.")
    click.echo("Stopped the server. Running turns continue; the next server picks them up.")


def _has_open(pid: int, lock: Path) -> bool:
    """Whether this process has the lock open: a pid from another container may belong to another process here. On a
    system without /proc, the pid is trusted."""
    if not os.path.isdir("/proc/self/fd"):
        return True
    wanted = lock.stat()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found = os.stat(entry.path)
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return True
    return False
