"""Two nodes on one PostgreSQL that look like one server to tests: each request and stream goes to a random node.

Above: tests that hold for one server as well as for several, through the same interface (harness.LiveServer), and tests
of nodes. Below: two real servers and a private PostgreSQL (tests/postgres.py).
"""

import contextlib
import os
import random
from pathlib import Path
from typing import Any, Protocol, Self

import httpx2

from tests import postgres
from tests.harness import NO_LIMITS, WAIT_S, LiveServer, none_left, remove_groups

SHARED = '{config}\nworkdirs = "shared"\nworkspaces = "{workspaces}"\ntakeover_after_s = {takeover_s}\n'


def shared_settings(config: str, folder: Path, takeover_s: float = 30) -> str:
    """Return settings of a node with shared directories. `config` may have a section [server]."""
    head, server, rest = config.partition("[server]\n")
    section, between, more = rest.partition("\n[")
    given = SHARED.format(config=f"[server]\n{section}", workspaces=folder / "workspaces", takeover_s=takeover_s)
    return f"{head if server else ''}{given}{between}{more}" if server else f"{given}{head}"


class NodeProcess(LiveServer):
    """One node: a server with its own data directory on the cluster's database."""

    def __init__(self, data: Path, config: str, database: str, env: dict[str, str] | None = None) -> None:
        super().__init__(data, config, {**(env or {}), "PERDURE_DATABASE": database})

    @property
    def id(self) -> str:
        return (self.data / "install").read_text().split()[0]


class Nodes(Protocol):
    def any(self) -> LiveServer:
        """Return a random running node."""
        ...


class AnyNode(httpx2.BaseTransport):
    """Sends each request to a random running node."""

    def __init__(self, cluster: Nodes) -> None:
        self._cluster = cluster
        self._inner = httpx2.HTTPTransport(verify=False)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        port = self._cluster.any().port
        request.url = request.url.copy_with(port=port)
        request.headers["host"] = f"127.0.0.1:{port}"
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


class Cluster(LiveServer):
    """Several nodes as one server."""

    def __init__(
        self, data: Path, config: str = NO_LIMITS, *, database: str, nodes: int = 2, takeover_s: float = 30
    ) -> None:
        self.random = random.Random(os.environ.get("PERDURE_TEST_SEED", data.name))
        (data / "workspaces").mkdir(parents=True, exist_ok=True)
        settings = shared_settings(config, data, takeover_s)
        self.nodes = [NodeProcess(data / chr(ord("a") + number), settings, database) for number in range(nodes)]
        super().__init__(data, "")
        self.config = config
        self.errors = self.nodes[0].errors

    def any(self) -> NodeProcess:
        return self.random.choice([node for node in self.nodes if node.process is not None])

    def start(self, port: int | None = None) -> Self:
        for node in self.nodes:
            if node.process is None:
                node.start()
        self._connect()
        return self

    def _connect(self) -> None:
        self.http.close()
        self.http = httpx2.Client(
            base_url=self.any().url,
            headers={"authorization": f"Bearer {self.token}"},
            timeout=WAIT_S,
            transport=AnyNode(self),
        )

    @property
    def token(self) -> str:
        return self.nodes[0].token

    @property
    def port(self) -> int:
        return self.any().port

    @port.setter
    def port(self, _: int) -> None:
        """Ignored: each node has its own."""

    @property
    def url(self) -> str:
        return self.any().url

    @url.setter
    def url(self, _: str) -> None:
        """Ignored: each node has its own."""

    @property
    def process(self) -> Any:
        """The process of any running node; None if there is none."""
        return next((node.process for node in self.nodes if node.process is not None), None)

    @process.setter
    def process(self, _: Any) -> None:
        """Ignored: each node has its own."""

    def log_tail(self) -> str:
        return "\n".join(f"--- {node.data.name}\n{node.log_tail()}" for node in self.nodes)

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def stop(self) -> int:
        return max(node.stop() for node in self.nodes)

    def restart(self) -> None:
        for node in self.nodes:
            if node.process is None:
                node.restart()
        self._connect()

    def clear(self) -> None:
        """Like `LiveServer.clear`, but without restoring settings."""
        self.restart()
        for job in self.get("/api/jobs")["jobs"]:
            self.http.delete(f"/api/jobs/{job['id']}").raise_for_status()
        while sessions := self.get("/api/sessions?limit=1000")["sessions"]:
            for session in sessions:
                self.http.delete(f"/api/sessions/{session['id']}?purge=true").raise_for_status()
        for node in self.nodes:
            none_left(node.data)
            os.truncate(node.errors, 0)

    def finish(self) -> None:
        if self.process is None:
            self.start()
        for session in self.get("/api/sessions?limit=1000&status=running")["sessions"]:
            self.post(f"/api/sessions/{session['id']}/stop")
        self.stop()
        self.http.close()
        for node in self.nodes:
            node.http.close()
            none_left(node.data)
            remove_groups(node.data)

    def destroy(self) -> None:
        self.http.close()
        with contextlib.ExitStack() as ended:
            for node in self.nodes:
                ended.callback(node.destroy)


class SharedCluster(Cluster):
    """A cluster that tests borrow, with its own database on the PostgreSQL server shared by all tests of this run."""

    def __init__(self, data: Path, config: str) -> None:
        place = postgres.run_folder()
        server = postgres.shared_server(place)
        name = postgres.make_database(server, postgres.make_template(server, place))
        super().__init__(data, config, database=server.url(name))
