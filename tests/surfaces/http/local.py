"""A server in a thread of this process. It starts in milliseconds and is used like a real one.

Above: the fixtures and tests of this folder. Below: tests/harness.py, whose methods for requests and streams it
inherits. It can't be killed: tests that kill a server need a process.
"""

import asyncio
import os
import random
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from perdure.config import Config
from perdure.runtime.running.runner import Runner
from perdure.server import Server
from perdure.surfaces.http.connections import BoundedProtocol
from tests.cluster import AnyNode
from tests.harness import WAIT_S, LiveServer, Stream, eventually

TOKEN = "test-token-of-the-tests"
PATHS: dict[str, type[HttpToolsProtocol]] = {"taken_over": BoundedProtocol, "plain_asgi": HttpToolsProtocol}
"""The two ways to serve an event stream."""


def settings(**given: Any) -> Config:
    """Always the rehearsal agent, and no limit of slots by default. Example: `settings(heartbeat_s=0.1)`."""
    sections: dict[str, Any] = {name: given.pop(name) for name in ("limits", "agents", "projects") if name in given}
    config: dict[str, Any] = {"server": {"slots": 0, "project_slots": 0, "agent": "rehearsal", **given}, **sections}
    return msgspec.convert(config, Config)


def _works(follower: object) -> bool:
    return isinstance(follower, Runner)


class Unchunked:
    """A socket that decodes chunked transfer encoding."""

    def __init__(self, connection: socket.socket, received: bytes) -> None:
        self._connection = connection
        self._rest = received

    def recv(self, size: int) -> bytes:
        """The next chunk; empty at the end."""
        while True:
            length, mark, after = self._rest.partition(b"\r\n")
            if mark and len(after) >= int(length, 16) + 2:
                self._rest = after[int(length, 16) + 2 :]
                return after[: int(length, 16)]
            data = self._connection.recv(size)
            if not data:
                return b""
            self._rest += data

    def close(self) -> None:
        self._connection.close()


class LocalStream(Stream):
    """A viewer that also understands the chunked responses of plain ASGI."""

    _socket: Any

    def __init__(self, server: LiveServer, path: str, position: str | None = None, timeout_s: float = WAIT_S) -> None:
        super().__init__(server, path, position, timeout_s)
        if self.headers.get("transfer-encoding") == "chunked":
            self._socket, self._buffer = Unchunked(self._socket, self._buffer), b""


class LocalServer(LiveServer):
    def __init__(self, data: Path, config: Config, path: str = "taken_over", *, database: str | None = None) -> None:
        super().__init__(data)
        self._config = config
        self._database = database
        self._protocol = PATHS[path]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self, port: int | None = None) -> "LocalServer":
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server", daemon=True)
        self._thread.start()
        self.server = self.run(self._started(port))
        self.url = self.server.url
        self.port = urlsplit(self.url).port or 0
        self.http.close()
        self.http = self.client(authorization=f"Bearer {TOKEN}")
        return self

    async def _started(self, port: int | None) -> Server:
        server = Server(
            data=self.data,
            port=port or 0,
            config=self._config,
            token=TOKEN,
            http_protocol=self._protocol,
            database=self._database,
        )
        await server.start()
        return server

    def client(self, **headers: str) -> httpx2.Client:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx2.Client(base_url=self.url, headers=named, timeout=WAIT_S, trust_env=False, verify=False)

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float = WAIT_S) -> Any:
        """Run a coroutine on the server's event loop and wait for its result."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def ask(self, look: Callable[[], Any]) -> Any:
        """Call a function on the server's event loop, to inspect its internal state."""

        async def looked() -> Any:
            return look()

        return self.run(looked())

    def watch(self, session: str, position: str | None = None, timeout_s: float = WAIT_S) -> LocalStream:
        return self.stream(f"/api/sessions/{session}/events", position)

    def stream(self, path: str, position: str | None = None) -> LocalStream:
        return LocalStream(self, path, position)

    def compacted(self) -> None:
        """Wait until finished turns are compacted."""
        self.run(self.server.engine.compactor.settle())

    def viewers(self, session: str) -> list[Any]:
        """The followers of a session, except its runner."""
        log = self.server.log
        found: list[Any] = self.ask(lambda: [one for one in log.journals[session].followers if not _works(one)])
        return found

    def evict(self, session: str) -> None:
        """Evict a session from memory, so the next request reads it from the store."""
        log = self.server.log
        eventually(lambda: self.ask(lambda: log.evict(-1) or session not in log.journals), f"{session} is let go of")

    def _end(self, number: int) -> int:
        self._leave()
        return 0

    def _leave(self, *, stop_agents: bool = False) -> None:
        if self._loop is None or self._thread is None:
            return
        self.run(self.server.stop(stop_agents=stop_agents))
        self.run(self._aborted())
        self.http.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self._loop.close()
        self._loop = self._thread = None

    async def _aborted(self) -> None:
        """Close all connections, as at the end of a process. Stopping the loop leaves those whose peer never reads."""
        for transport in list(getattr(self._loop, "_transports", {}).values()):
            transport.abort()
        for _ in range(3):
            await asyncio.sleep(0)

    def finish(self) -> None:
        """Stop the server and its agents."""
        if self._loop is None:
            return
        for session in self.get("/api/sessions?limit=1000&status=running")["sessions"]:
            self.post(f"/api/sessions/{session['id']}/stop")
        self._leave(stop_agents=True)


class LocalNodes(LocalServer):
    """Two servers on one PostgreSQL, used as one: each request and each stream goes to a random one."""

    def __init__(self, data: Path, config: Config, database: str) -> None:
        super().__init__(data, config)
        (data / "workspaces").mkdir(parents=True)
        together = {"workdirs": "shared", "workspaces": str(data / "workspaces")}
        config = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, **together))
        self.nodes = [LocalServer(data / name, config, database=database) for name in "ab"]
        self.random = random.Random(os.environ.get("PERDURE_TEST_SEED", "nodes"))

    def any(self) -> LocalServer:
        return self.random.choice(self.nodes)

    def start(self, port: int | None = None) -> "LocalNodes":
        for node in self.nodes:
            node.start()
        self.server = self.nodes[0].server
        self._loop = self.nodes[0]._loop
        self.url = self.nodes[0].url
        self.http.close()
        self.http = self.client(authorization=f"Bearer {TOKEN}")
        return self

    def client(self, **headers: str) -> httpx2.Client:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx2.Client(base_url=self.url, headers=named, timeout=WAIT_S, transport=AnyNode(self))

    def stream(self, path: str, position: str | None = None) -> LocalStream:
        return LocalStream(self.any(), path, position)

    def finish(self) -> None:
        self.http.close()
        for node in self.nodes:
            node.finish()
