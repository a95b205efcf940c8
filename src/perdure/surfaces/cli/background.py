"""A server in the background: `perdure chat` starts one where none runs, as `perdure serve --background` does;
`perdure serve --stop` stops it.

Above: chat.py and serve.py. Below: the data directory's files, and `perdure serve` in a session of its own, so that it
outlives the chat and its terminal. Commands for scripts start no server: they exit with code 3.

Of two chats that start at once, the first takes `starting.lock` and starts the server; the second waits for it. A
server that somebody starts by hand meanwhile is as good: what counts is that one says where it listens. The file keeps
the process id of the server that was started so: if that one dies, a chat starts it again. One that was stopped, or
that somebody started with options of their own, is left to people.
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
from perdure.surfaces.cli.output import paragraph, safe
from perdure.surfaces.cli.places import home_shortened
from perdure.surfaces.cli.reach import Failure, Reach, is_held

LOG = "server.log"
STARTING = "starting.lock"
START_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0
SILENT_S = 1.0
"""A start that takes longer than this says that it is under way."""
LOOK_EVERY_S = 0.05
SHOWN_LINES = 10
LOG_KEPT_BYTES = 1_000_000
"""A longer log is set aside when the next server is started."""
NO_SERVER = 3
RESTARTS_MAX = 3
"""A chat does not start a server again more often than this."""
START_YOURSELF = "Correct that, or start a server yourself with `perdure serve`."
GONE = "The server was stopped. Start it with `perdure serve` in another terminal; this chat then continues."


def start_server(reach: Reach) -> None:
    """Start the data directory's server, or say that it runs already."""
    if (url := reach.known_url()) is not None:
        click.echo(f"A server runs already: {url} (pid {reach.known_pid()}).", err=True)
        return
    ensure_server(reach)


def ensure_server(reach: Reach) -> None:
    """Start the data directory's server if none runs, and say so. Whoever names a server by its address means that
    one."""
    if reach.names_a_server or reach.known_url() is not None:
        return
    try:
        make_private(reach.data)
        with _only_one(reach):
            if reach.known_url() is None:
                _start(reach)
    except OSError as error:
        raise Failure(f"No server can be started on {reach.data}: {error.strerror}.", NO_SERVER) from error


@contextlib.contextmanager
def _only_one(reach: Reach) -> Iterator[None]:
    """One start at a time. Waiting ends early when the other one has its server."""
    descriptor = os.open(reach.data / STARTING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in _while_waiting("Another chat starts a server"):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if reach.known_url() is not None:
                break
        else:
            raise Failure(f"Another command starts a server on {reach.data} and does not get done.", NO_SERVER)
        yield
    finally:
        os.close(descriptor)


def _while_waiting(what: str, limit_s: float = START_LIMIT_S) -> Iterator[None]:
    """Until the limit, a few times a second. From the first second on the terminal shows what is going on."""
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
    # One that is just starting, or stopping, has the lock and does not say where it listens.
    for _ in _while_waiting("Waiting for the server that is starting or stopping"):
        if not is_held(lock):
            break
        if reach.known_url() is not None:
            return
    else:
        raise Failure(f"A server uses {reach.data}, but has not said where it listens.", NO_SERVER)
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
            raise _failed(log, end, f"The server (pid {child.pid}) is not ready after {START_LIMIT_S:.0f} s.")
    except KeyboardInterrupt:
        click.echo(f"The server (pid {child.pid}) goes on starting. Its log: {home_shortened(str(log))}", err=True)
        raise
    (reach.data / STARTING).write_text(str(child.pid), "utf-8")
    said = (
        f"Started a server in the background: {reach.known_url()} (pid {reach.known_pid()}).\n"
        f"It keeps running when you leave. Its log: {home_shortened(str(log))}\n"
        "Stop it with: perdure serve --stop\n"
    )
    click.echo(paragraph(said, sys.stderr), err=True)


def _end_of(log: Path) -> int:
    """How long the log is. A long one is set aside first."""
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
            # Not from the current directory (-P): the server must not import what happens to lie there.
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
    """Whether a chat's server is still there. One that a chat had started in the background, and that died, is started
    again."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self.gone_since: float | None = None
        self._restarted: subprocess.Popen[bytes] | None = None
        self._restarts = 0

    def look(self) -> str:
        """What happened since the last look, for the person; mostly nothing. Does not wait for a server."""
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
            return f"The server died, and could not be started again: {error.strerror}. {GONE}"
        return f"The server died. It is started again; what the agent did meanwhile is kept. Its log: {self._shown_log}"

    def _after_restart(self) -> str:
        if self._restarted is None or self._restarted.poll() is None:
            return ""
        code, self._restarted = self._restarted.returncode, None
        return f"The server did not start again (exit code {code}). Its log: {self._shown_log}\n{START_YOURSELF}"

    def _has_died(self) -> bool:
        """A server that is stopped removes what one that dies leaves behind."""
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
    """Stop the data directory's server, as Ctrl-C does, and wait until it has ended."""
    pid = reach.known_pid()
    if pid is None:
        raise Failure(f"No server runs on {reach.data}.", NO_SERVER)
    lock = reach.data / "lock"
    if not _has_open(pid, lock):
        raise Failure(f"The server of {reach.data} is not a process that can be seen here. Stop it where it runs.")
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError as error:
        raise Failure(f"The server (pid {pid}) can't be stopped: {error.strerror}.") from error
    for _ in _while_waiting("Stopping the server", STOP_LIMIT_S):
        if not is_held(lock):
            break
    else:
        raise Failure(f"The server (pid {pid}) has not ended within {STOP_LIMIT_S:.0f} s.")
    click.echo("Stopped the server. Running turns go on, and the next server takes them up.")


def _has_open(pid: int, lock: Path) -> bool:
    """Whether this process has the lock open: in another container its number may be somebody else's. Where the system
    does not show what a process has open, its number is believed."""
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
