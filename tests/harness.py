"""A real server as a child process, with helpers to make requests, read streams and kill it. Every wait is bounded."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx2

from perdure.runtime.keeping import cgroups
from perdure.surfaces.cli.reach import is_held
from tests import warm

WAIT_S = 30.0
START_S = 60.0
LOOK_EVERY_S = 0.01
LOOK_AT_LEAST_EVERY_S = 0.1
MOST_FREE_SERVERS = 3
SWEEP_S = 2.0
SOURCE = str(Path(__file__).resolve().parent.parent / "src")
NO_LIMITS = "[server]\nslots = 0\nproject_slots = 0\nagent = 'rehearsal'\n"
"""No limit on sessions, and the rehearsal agent as the default, whatever else is installed."""

Kind = TypeVar("Kind", bound="LiveServer")


def eventually(look: Callable[[], Any], what: str | Callable[[], str], timeout_s: float = WAIT_S) -> Any:
    """Wait for a truthy result of `look` and return it. Fails with `what`, which may be a function, after the
    timeout."""
    begun = time.monotonic()
    while True:
        # Look once more after the deadline: the process may have been stalled until then.
        waited_s = time.monotonic() - begun
        found = look()
        if found:
            return found
        if waited_s >= timeout_s:
            raise AssertionError(f"did not happen within {timeout_s} s: {what() if callable(what) else what}")
        # Poll less often after a long wait: each look is a request, which slows down others.
        select.select([], [], [], min(max(LOOK_EVERY_S, waited_s / 8), LOOK_AT_LEAST_EVERY_S))


def is_loaded() -> bool:
    """Return whether the machine is busy, so that timings are not meaningful. The load average lags behind."""
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1 or os.getloadavg()[0] > (os.cpu_count() or 1) / 2


class LiveServer:
    """`perdure serve` on a free port. It can be killed and restarted on the same data."""

    given_token: str | None = "test-token-of-the-tests"
    """None: the server creates one and stores it in its data directory."""
    is_warm = False
    """Whether it is forked from a process that has imported everything, so that a start takes a third of the time."""

    def __init__(self, data: Path, config: str = "", env: dict[str, str] | None = None) -> None:
        self.data = data
        self.config = config
        if config:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            (data / "perdure.toml").write_text(config)
        self._env = env or {}
        self._started_with: dict[str, Any] = {}
        self.process: subprocess.Popen[bytes] | warm.Server | None = None
        self.port = 0
        self.url = ""
        self.errors = data / "server.log"
        self.http: httpx2.Client = httpx2.Client(verify=False)

    @property
    def start_environment(self) -> dict[str, str]:
        token = {} if self.given_token is None else {"PERDURE_TOKEN": self.given_token}
        return {**os.environ, "PYTHONPATH": SOURCE, **token, **self._env}

    @property
    def token(self) -> str:
        return self.given_token or (self.data / "token").read_text().strip()

    def _settings(self) -> str:
        file = self.data / "perdure.toml"
        return file.read_text() if file.exists() else ""

    def start(self, port: int | None = None) -> Self:
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.process = self._begin("--port", str(port or 0), "--data", str(self.data))
        line = self._first_line()
        self._started_with = start_settings(self._settings())
        self.url = line.rsplit(" ", 1)[-1]
        self.port = urlsplit(self.url).port or 0
        self.http.close()
        self.http = httpx2.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {self.token}"},
            timeout=WAIT_S,
            trust_env=False,
            # TLS is not used, and creating its context would take most of the time of a start.
            verify=False,
        )
        return self

    def _begin(self, *arguments: str) -> "subprocess.Popen[bytes] | warm.Server":
        if self.is_warm:
            return warm.Server(list(arguments), env=self.start_environment, log=self.errors)
        with self.errors.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "perdure", "serve", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.start_environment,
                start_new_session=True,
            )

    def _first_line(self) -> str:
        assert self.process is not None and self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline().decode() if ready else ""
        if "listening on" not in line:
            # After the end of its output, it is exiting; without any output, kill it.
            code = self._give_up(WAIT_S if ready and not line else 0)
            raise AssertionError(f"the server did not start (exit code {code}): {line!r}\n{self.log_tail()}")
        return line.strip()

    def _give_up(self, patience_s: float) -> int:
        """End the process of a failed start."""
        assert self.process is not None
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return self._end(signal.SIGKILL)

    def log_tail(self) -> str:
        return self.errors.read_text(errors="replace")[-4000:] if self.errors.exists() else ""

    def kill(self) -> None:
        """Kill it with SIGKILL, like a crash."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Stop it gracefully, like a service manager does."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        if self.process is None:
            return 0
        process, self.process = self.process, None
        process.send_signal(number)
        try:
            return process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(WAIT_S)
            raise AssertionError(f"the server did not end within {WAIT_S} s\n{self.log_tail()}") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def restart(self) -> None:
        """Start it again, on the same port unless another process has taken it."""
        try:
            self.start(self.port)
        except AssertionError as error:
            if f"Port {self.port} on" not in str(error):
                raise
            self.start()

    def finish(self) -> None:
        """Stop every session, then the server. Fails if a process is left."""
        if self.process is None:
            self.start()
        for session in self.get("/api/sessions?limit=1000&status=running")["sessions"]:
            self.post(f"/api/sessions/{session['id']}/stop")
        self.stop()
        self.http.close()
        none_left(self.data)
        remove_groups(self.data)

    def destroy(self) -> None:
        """Kill it and everything that it started."""
        self.kill()
        self.http.close()

        def killed() -> bool:
            """Kill the processes. A keeper may start another one meanwhile. A keeper that is just starting already
            holds its lock, but still looks like the server that started it."""
            found = marked_processes(self.data)
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not found and not any(map(is_held, (self.data / "launches").glob("*/lock")))

        eventually(killed, "all that it started is killed")
        remove_groups(self.data)

    def clear(self) -> None:
        """Erase every job, session and project and restore the settings, so that the next test gets an empty server.

        The server keeps what it knows about agents, by their names, and its sign-ins."""
        settings_before = self._settings()
        if settings_before != self.config:
            (self.data / "perdure.toml").write_text(self.config)
        if self.process is not None and self._started_with != start_settings(self.config):
            self.stop()
        if self.process is None:
            self.restart()
        elif settings_before != self.config:
            self.post("/api/agents/reload", expect=200)
        # Jobs first, because a job could start another session.
        for job in self.get("/api/jobs")["jobs"]:
            self.http.delete(f"/api/jobs/{job['id']}").raise_for_status()
        while sessions := self.get("/api/sessions?limit=1000")["sessions"]:
            for session in sessions:
                self.http.delete(f"/api/sessions/{session['id']}?purge=true").raise_for_status()
        for project in self.get("/api/projects")["projects"]:
            if f"[projects.{project['id']}]" not in self.config:
                self.http.delete(f"/api/projects/{project['id']}").raise_for_status()
        none_left(self.data)
        try:
            eventually(lambda: not list((self.data / "launches").glob("*")), "no launch is left", SWEEP_S)
        except AssertionError:
            # A restart removes what a test left there after a kill.
            self.stop()
            self.restart()
        os.truncate(self.errors, 0)

    def configure(self, more: str) -> None:
        """Restart with additional settings, until the server is cleared."""
        self.stop()
        (self.data / "perdure.toml").write_text(self._settings() + more)
        self.restart()

    def add_agents(self, sections: str) -> None:
        """Add agents to those of the configuration, until the server is cleared."""
        assert start_settings(self._settings()) == start_settings(self.config), "add agents before other settings"
        (self.data / "perdure.toml").write_text(self.config + sections)
        self.post("/api/agents/reload", expect=200)

    # Requests --------------------------------------------------------------------------------------------------

    def post(self, path: str, body: dict[str, Any] | None = None, *, expect: int | None = None) -> Any:
        answer = self.http.post(path, json=body or {})
        if expect is not None:
            assert answer.status_code == expect, f"{path} {body}: {answer.status_code} {answer.text}"
        return answer.json()

    def get(self, path: str) -> Any:
        answer = self.http.get(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def create(self, **fields: Any) -> str:
        return str(self.post("/api/sessions", fields, expect=201)["id"])

    def send(self, session: str, text: str, **fields: Any) -> Any:
        return self.post(f"/api/sessions/{session}/messages", {"text": text, **fields}, expect=202)

    def session(self, session: str) -> Any:
        return self.get(f"/api/sessions/{session}")

    def wait_idle(self, session: str, timeout_s: float = WAIT_S) -> Any:
        """Wait until no turn is running or waiting to start. Returns the session."""
        return self.wait(session, lambda s: s["state"] in ("idle", "ended"), timeout_s)

    def wait(self, session: str, ready: Callable[[Any], bool], timeout_s: float = WAIT_S) -> Any:
        found: list[Any] = []

        def look() -> bool:
            found[:] = [self.session(session)]
            return ready(found[0])

        eventually(look, lambda: f"session {session} as wanted; it was {found}\n{self.account(session)}", timeout_s)
        return found[0]

    def account(self, session: str) -> str:
        """Return details about a session for a failure message."""
        return f"{self.session(session)}\n{self.log(session)[-12:]}\n{self.log_tail()}"

    def turn(self, session: str, text: str, **fields: Any) -> Any:
        """Send a message and wait for the end of its turn. Returns the turn from the transcript."""
        number = self.send(session, text, **fields)["turn"]
        self.wait_idle(session)
        return next(t for t in self.transcript(session) if t["turn"] == number)

    def transcript(self, session: str) -> Any:
        return self.get(f"/api/sessions/{session}/transcript")["turns"]

    def text(self, session: str, turn: int) -> str:
        parts = next(t for t in self.transcript(session) if t["turn"] == turn)["parts"]
        return "".join(part["text"] for part in parts if part["type"] == "text")

    def log(self, session: str, after: int = 0) -> list[Any]:
        answer = self.http.get(f"/api/sessions/{session}/log", params={"offset": after, "limit": 10_000_000})
        return [json.loads(line) for line in answer.text.split("\n") if line]

    def recalled(self, session: str, **fields: Any) -> list[str]:
        """Return every user message in the agent's own context, except the one that asks for them."""
        turn = self.turn(session, "recall", **fields)
        text = "".join(part["text"] for part in turn["parts"] if part["type"] == "text")
        return [json.loads(line[2:]) for line in text.split("\n") if line.startswith("- ")][:-1]

    def prompt(self, session: str, timeout_s: float = WAIT_S) -> Any:
        """Wait for an open prompt and return the first one."""
        return eventually(
            lambda: self.get(f"/api/sessions/{session}/prompts")["prompts"],
            lambda: f"a prompt of {session}; {self.account(session)}",
            timeout_s,
        )[0]

    def watch(self, session: str, position: str | None = None, timeout_s: float = WAIT_S) -> "Stream":
        return Stream(self, f"/api/sessions/{session}/events", position, timeout_s)

    def stream(self, path: str, position: str | None = None) -> "Stream":
        return Stream(self, path, position)


class ColdServer(LiveServer):
    """A server that is started like users start it, so that its memory and limits are its own from the start."""

    is_warm = False


def start_settings(settings: str) -> dict[str, Any]:
    """Return the settings that a server reads only at its start."""
    return {name: section for name, section in tomllib.loads(settings).items() if name != "agents"}


class SharedServers:
    """Servers that tests borrow: started once per configuration, and cleared after each test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._free: list[LiveServer] = []
        self._made = 0

    def borrow(self, kind: "type[Kind]", config: str) -> "Kind":
        for server in reversed(self._free):
            if type(server) is kind and server.config == config:
                self._free.remove(server)
                return server
        self._made += 1
        return kind(self._folder / f"server{self._made}" / "data", config).start()

    def give_back(self, server: LiveServer) -> None:
        """Clear the server for the next test. If that fails, it is not reused, and the current test fails."""
        try:
            server.clear()
        except BaseException:
            server.destroy()
            raise
        self._free.append(server)
        if len(self._free) > MOST_FREE_SERVERS:
            self._free.pop(0).finish()

    @contextlib.contextmanager
    def borrowed(self, kind: "type[Kind]", config: str) -> "Iterator[Kind]":
        server = self.borrow(kind, config)
        try:
            yield server
        finally:
            self.give_back(server)

    def close(self) -> None:
        with contextlib.ExitStack() as ended:
            while self._free:
                ended.callback(self._free.pop().finish)


class Stream:
    """A viewer over a plain socket. Its frames are (id, type, data)."""

    def __init__(self, server: LiveServer, path: str, position: str | None = None, timeout_s: float = WAIT_S) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout_s)
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\n"
        if position is not None:
            request += f"Last-Event-ID: {position}\r\n"
        self._socket.sendall((request + "\r\n").encode())
        self._buffer = b""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.comments = 0
        self._read_head()

    def _read_head(self) -> None:
        while b"\r\n\r\n" not in self._buffer:
            data = self._socket.recv(65536)
            assert data, "the server closed the connection"
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}

    def frames(self) -> Iterator[tuple[str, str, Any]]:
        """Yield frames until the server closes. Raises if nothing arrives within the timeout."""
        while True:
            while b"\n\n" in self._buffer:
                frame, _, self._buffer = self._buffer.partition(b"\n\n")
                fields = dict(line.split(": ", 1) for line in frame.decode().split("\n") if not line.startswith(":"))
                if not fields:
                    self.comments += 1
                    continue
                yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                return
            if not data:
                return
            self._buffer += data

    def until(self, event_type: str) -> list[tuple[str, str, Any]]:
        """Return the frames up to and including the first of this type."""
        found = []
        for frame in self.frames():
            found.append(frame)
            if frame[1] == event_type:
                return found
        raise AssertionError(f"the stream ended before {event_type}: {[f[1] for f in found][-20:]}")

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def no_holes(events: list[Any]) -> None:
    """Check that events are numbered from 1, without gaps or duplicates. Joined runs count as their parts."""
    position = 0
    for event in events:
        assert event.get("first_seq", event["seq"]) == position + 1, (position, event)
        position = event["seq"]


def none_left(data: Path) -> None:
    """Wait until no process of this installation runs."""
    eventually(lambda: not marked_processes(data), lambda: f"no process is left: {marked_processes(data)}")


def remove_groups(data: Path) -> None:
    """Remove the control groups that a killed server left behind, because no next server will do that."""
    if (data / "install").exists():
        install = (data / "install").read_text().split()[0]
        for base in cgroups.here():
            for group in base.folder.glob(f"{cgroups.PREFIX}{install}-*"):
                cgroups.remove(group)


def marked_processes(data: Path) -> dict[int, str]:
    """Return the processes with the mark of a launch of this installation, and its keepers."""
    install = (data / "install").read_text().split()[0] if (data / "install").exists() else "?"
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        marked = any(part.startswith(b"PERDURE_LAUNCH=" + install.encode()) for part in environment)
        if marked or ("/keeper." in command and str(data) in command):
            found[int(entry.name)] = command
    return found
