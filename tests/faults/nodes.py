"""Nodes for fault injection: each is a real server that reaches its database through its own proxy.

Above: run.py and the scenarios. Below: tests/cluster.py (a node as a process), proxy.py and database.py. Nodes are
forked from a warm process, like the servers of other tests, unless their wall clock must jump (libfaketime is loaded
when a process starts) or they are mutants (mutants.py).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx2

from tests import warm
from tests.cluster import NodeProcess
from tests.faults import agent, mutants
from tests.faults.database import Database
from tests.faults.proxy import Proxy
from tests.harness import SOURCE, eventually, marked_processes

ROOT = str(Path(SOURCE).parent)
FAKETIME = "libfaketimeMT.so.1"
FAKETIME_FOLDERS = ("/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime")
REQUEST_TIMEOUT_S = 4.0
START_AGAIN_S = 0.5
STREAM_HEARTBEAT_S = 1
CONFIG = """
[server]
slots = 0
project_slots = 0
agent = "fault"
node_name = "{name}"
heartbeat_s = {heartbeat_s}
workdirs = "{workdirs}"
workspaces = "{workspaces}"
takeover_after_s = {takeover_s:g}
placement_patience_s = 0.3
[agents.fault]
driver = "acp"
command = {command}
env = {{ {env} }}
"""


def faketime() -> str | None:
    """The library that changes a process's wall clock; None if it isn't installed (Debian: faketime)."""
    found = (Path(folder) / FAKETIME for folder in FAKETIME_FOLDERS)
    return next((str(path) for path in found if path.exists()), None)


class FaultNode(NodeProcess):
    """A node process. `should_run`: whether the supervisor restarts it when it ends."""

    def __init__(
        self, data: Path, config: str, url: str, proxy: Proxy, *, clock: Path | None = None, mutant: str = ""
    ) -> None:
        env = {"PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}"}
        if clock is not None:
            clock.write_text("+0s\n")
            env |= {
                "LD_PRELOAD": str(faketime()),
                "FAKETIME_TIMESTAMP_FILE": str(clock),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DISABLE_SHM": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
        super().__init__(data, config, url, env)
        self.name = data.name
        self.proxy = proxy
        self.should_run = False
        self._clock = clock
        self.mutant = mutant
        self.lock = threading.RLock()
        """Held while the node is being started or ended."""

    def _begin(self, *arguments: str) -> "subprocess.Popen[bytes] | warm.Server":
        if not self.mutant:
            return super()._begin(*arguments)
        with self.errors.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", mutants.__name__, self.mutant, "serve", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.start_environment,
                start_new_session=True,
            )

    @property
    def is_warm(self) -> bool:  # type: ignore[override]
        return self._clock is None and not self.mutant

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def set_clock(self, offset_s: float) -> None:
        """Make its wall clock jump."""
        assert self._clock is not None
        new = self._clock.with_suffix(".new")
        new.write_text(f"{offset_s:+g}s\n")
        new.replace(self._clock)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. Doesn't take the lock, so it also works while the node is starting."""
        process = self.process
        if process is not None:
            process.send_signal(number)

    def crash(self) -> None:
        """Kill it with SIGKILL and don't restart it."""
        self.should_run = False
        with self.lock:
            self.kill()

    def revive(self) -> None:
        """Start it if it isn't running. Raises AssertionError if it doesn't start."""
        with self.lock:
            if self.process is not None and self.process.poll() is not None:
                self.kill()  # it has already ended: this only cleans up
            if self.process is None:
                self.restart()

    def call(self, http: httpx2.Client, method: str, path: str, body: Any = None) -> httpx2.Response:
        headers = {"authorization": f"Bearer {self.token}"}
        return http.request(method, f"{self.url}{path}", json=body, headers=headers)

    def ask(self, http: httpx2.Client, path: str) -> Any:
        """The response to a GET request; None if it fails."""
        try:
            answer = self.call(http, "GET", path)
        except httpx2.HTTPError:
            return None
        return answer.json() if answer.status_code == 200 else None

    def events(self, http: httpx2.Client, session: str) -> list[Any] | None:
        try:
            answer = self.call(http, "GET", f"/api/sessions/{session}/log?offset=0&limit=10000000")
        except httpx2.HTTPError:
            return None
        return [json.loads(line) for line in answer.text.split("\n") if line] if answer.status_code == 200 else None


class Nodes:
    """All nodes of a run, their proxies, and their database."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        random: Random,
        *,
        count: int = 2,
        takeover_s: float = 3,
        workdirs: str = "shared",
        clocks: bool = False,
        shared_memory: bool = True,
        mutant: str = "",
    ) -> None:
        self.folder = folder
        self.database = database
        self.takeover_s = takeover_s
        self.lifetimes = folder / "lifetimes"
        self._ended = contextlib.ExitStack()
        self.all: list[FaultNode] = []
        for part in (self.lifetimes, folder / "workspaces", folder / "rehearsal"):
            part.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            name = "abc"[number]
            proxy = self._ended.enter_context(Proxy(database.port, Random(random.random())))
            config = self._config(name, workdirs, shared_memory)
            clock = folder / f"clock-{name}" if clocks else None
            url = database.url(proxy.port)
            node = FaultNode(folder / name, config, url, proxy, clock=clock, mutant=mutant)
            self._ended.callback(node.destroy)
            self.all.append(node)

    def _config(self, name: str, workdirs: str, shared_memory: bool) -> str:
        memory = self.folder / "rehearsal" / ("shared" if shared_memory else name)
        env = {
            agent.FOLDER: str(self.lifetimes),
            "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}",
            "PERDURE_REHEARSAL_DIR": str(memory),
        }
        return CONFIG.format(
            name=f"node-{name}",
            heartbeat_s=STREAM_HEARTBEAT_S,
            workdirs=workdirs,
            workspaces=self.folder / "workspaces",
            takeover_s=self.takeover_s,
            command=json.dumps([sys.executable, "-m", agent.__name__]),
            env=", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items()),
        )

    def __enter__(self) -> "Nodes":
        try:
            for node in self.all:
                node.start()
                node.should_run = True
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.all:
            node.should_run = False
            node.signal(signal.SIGCONT)
        self._ended.close()

    def __iter__(self) -> Iterator[FaultNode]:
        return iter(self.all)

    def __getitem__(self, number: int) -> FaultNode:
        return self.all[number]

    def named(self, name: str) -> FaultNode:
        return next(node for node in self.all if node.name == name)

    def directory(self, name: str) -> str:
        """A working directory that all nodes can access."""
        path = self.folder / "work" / name
        path.mkdir(parents=True, exist_ok=True)
        return str(path)

    def owner(self, session: str) -> str | None:
        """The name of the node that owns the session, from the database."""
        rows = self.database.ask(f"SELECT owner FROM heads WHERE session_id = '{session}'")
        ids = {node.id: node.name for node in self.all}
        return ids.get(rows[0][0]) if rows else None

    def until_owned(self, session: str, by: str, timeout_s: float) -> None:
        eventually(lambda: self.owner(session) == by, lambda: f"{by} owns it; {self.owner(session)} does", timeout_s)

    def agents(self, node: FaultNode) -> dict[int, str]:
        """The agent processes of the node's launches, without their keepers."""
        return {pid: words for pid, words in marked_processes(node.data).items() if agent.__name__ in words}


class Supervisor:
    """Restarts nodes that have ended but should run, as a service manager does. Uses one thread for each node."""

    def __init__(self, nodes: Nodes, note: Callable[..., None]) -> None:
        self._nodes = nodes
        self._note = note
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(node,), daemon=True) for node in nodes]

    def __enter__(self) -> "Supervisor":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, node: FaultNode) -> None:
        while not self._over.wait(START_AGAIN_S):
            if not node.should_run or node.is_up:
                continue
            with node.lock:
                if node.process is not None:
                    self._note("fault", what="ended", node=node.name, code=node.process.poll())
                try:
                    if node.should_run:
                        node.revive()
                        self._note("fault", what="started", node=node.name)
                except AssertionError as error:
                    self._note("fault", what="start_failed", node=node.name, why=str(error)[:300])
