"""sandbox-agent, measured for comparison with Perdure: its published program with the load agent.

Above: the scenarios, for `./run bench --beside sandbox-agent`. Below: the program that `./run agents` installs, with
its own data folder. It starts whatever program is there as its `mock` agent. We put the load agent there, so that its
normal path from an agent's pipe to a viewer is measured. It keeps the last 1,024 messages of a session in memory and
stores nothing.
"""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import memory, spent
from benchmarks.load import LoadViewers
from benchmarks.reference import Outcome, spent_streaming, starts_ns
from benchmarks.subject import LEAD_PER_SESSION_S, LEAD_S, START_WAIT_S, STREAM_EXTRA_S
from tests.conftest import ROOT, find_agent

NAME = "sandbox-agent"
AGENT = "mock"
READY_WAIT_S = 30.0
POLL_S = 0.02
HTTP_OK = 200


class NotInstalled(Exception):
    """The program is not installed."""


def installed() -> list[str]:
    """Return the command line of the program, in the version that `run` pins. Installs it if needed."""
    subprocess.run([sys.executable, str(ROOT / "run"), "agents", NAME])
    found = find_agent(NAME)
    if isinstance(found, str):
        raise NotInstalled(found)
    # Its package does this in a script that npm does not run.
    os.chmod(found.argv[0], 0o755)
    return found.argv


class SandboxAgent:
    """A running server, with a connection per session, because a prompt is answered only when its turn is over."""

    def __init__(self, folder: Path, agent: Path, argv: list[str]) -> None:
        places = folder / NAME / "bin" / "agent_processes"
        places.mkdir(parents=True)
        shutil.copy2(agent, places / f"{AGENT}-acp")
        self.folder = folder
        self.argv = argv
        self.connections: list[http.client.HTTPConnection] = []

    def __enter__(self) -> "SandboxAgent":
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port: int = found.getsockname()[1]
        self.process = subprocess.Popen(
            [*self.argv, "server", "--no-token", "--no-telemetry", f"--port={self.port}"],
            env={**os.environ, "XDG_DATA_HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self.connections:
            connection.close()
        # On a normal stop, it and its agents wait for each other. If it is killed, the agents see EOF and exit.
        self.process.kill()
        self.process.wait()

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_WAIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), READY_WAIT_S).close()
                return
            except ConnectionRefusedError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{NAME} did not start; its log is in {self.folder / NAME / 'logs'}") from None
            time.sleep(POLL_S)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(f"/v1/acp/{number}" for number in range(len(self.connections)))

    def create(self) -> None:
        """Create a session whose agent is running and idle."""
        number = len(self.connections)
        self.connections.append(http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_WAIT_S))
        self.ask(number, "initialize", {"protocolVersion": 1, "clientCapabilities": {}}, f"?agent={AGENT}")
        self.answered(number)
        self.ask(number, "session/new", {"cwd": str(self.folder), "mcpServers": []})
        self.answered(number)

    def send(self, number: int, text: str) -> None:
        self.ask(number, "session/prompt", {"sessionId": "load", "prompt": [{"type": "text", "text": text}]})

    def ask(self, number: int, method: str, params: dict[str, Any], query: str = "") -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        headers = {"Content-Type": "application/json"}
        self.connections[number].request("POST", self.paths[number] + query, body, headers)

    def answered(self, number: int) -> None:
        response = self.connections[number].getresponse()
        said = response.read()
        if response.status != HTTP_OK or b'"result"' not in said:
            raise RuntimeError(f"{NAME} answered {response.status}: {said[:200]!r}")


def stream(peer: SandboxAgent, *, per_s: int, count: int, sessions: int) -> Outcome:
    """Like `subject.stream`, with one viewer per session."""
    for _ in range(sessions):
        peer.create()
    pid = peer.process.pid
    before = memory(pid).uss_bytes
    duration_s = count / per_s
    with LoadViewers(peer.port, sessions, peer.paths, max_s=2 * STREAM_EXTRA_S + duration_s) as crowd:
        connected = memory(pid).uss_bytes
        starts = starts_ns(sessions, per_s, LEAD_S + sessions * LEAD_PER_SESSION_S)
        for number, start in enumerate(starts):
            peer.send(number, f"load {per_s} {count} {start}")
        used = spent_streaming(partial(spent, pid), starts, duration_s)
        for number in range(sessions):
            peer.answered(number)
        return Outcome(crowd.finish(), used, (connected - before) // sessions)
