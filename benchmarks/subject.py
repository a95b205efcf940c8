"""Perdure under measurement: a real server in its own process, with the load agent.

Above: the scenarios. Below: the tests' live server, and agent.c. This measures the whole path: the agent's pipe, its
keeper, the driver, the commit and the viewers' sockets. As always, events are stored before they are shown.
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.figures import memory, spent
from benchmarks.load import LoadViewers
from benchmarks.reference import Outcome, spent_streaming, starts_ns
from tests.harness import ColdServer

HEADERS = ("Authorization: Bearer test-token-of-the-tests",)
POLL_S = 0.1
START_WAIT_S = 120.0
STREAM_EXTRA_S = 60.0
LEAD_S = 1.0
LEAD_PER_SESSION_S = 0.04


class Subject:
    """A running server. Its data stays in its folder, so it can be restarted. With a database, it is a node."""

    def __init__(self, folder: Path, agent: Path, database: str | None = None) -> None:
        self.workdir = folder / "workdir"
        self.workdir.mkdir(parents=True, exist_ok=True)
        config = (
            '[server]\nslots = 0\nproject_slots = 0\nworkdirs = "local"\n'
            f'[agents.load]\ndriver = "acp"\ncommand = ["{agent}"]\n'
        )  # fmt: skip
        self.server = ColdServer(folder / "data", config, None if database is None else {"PERDURE_DATABASE": database})

    def __enter__(self) -> "Subject":
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.http.close()
        self.server.stop()

    @property
    def pid(self) -> int:
        assert self.server.process is not None
        return self.server.process.pid

    @property
    def node(self) -> str:
        """The id of this node."""
        return (self.server.data / "install").read_text().split()[0]

    def create(self) -> str:
        return self.server.create(agent="load", workdir=str(self.workdir))

    def ready_session(self) -> str:
        """Create a session whose agent is running and idle."""
        session = self.create()
        self.server.send(session, "load 0 0 0")
        return session

    def wait_idle(self, session: str, timeout_s: float) -> int:
        """Wait until its turn is over. Returns the number of its last event."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.server.session(session)
            if found["state"] not in ("accepted", "processing"):
                return int(found["event_count"])
            if time.monotonic() > deadline:
                raise TimeoutError(f"the turn of {session} did not end within {timeout_s} s\n{self.server.log_tail()}")
            # Poll rarely, because each request is work for the measured server.
            time.sleep(POLL_S)


def stream(
    subject: Subject, *, viewers: int, per_s: int, count: int, sessions: int = 1, light: bool = False
) -> Outcome:
    """Like `reference.stream`: `count` deltas per session, at a rate or (0) as fast as possible."""
    return stream_over([subject], viewers=viewers, per_s=per_s, count=count, sessions=sessions, light=light)


def stream_over(
    nodes: Sequence[Subject],
    *,
    viewers: int,
    per_s: int,
    count: int,
    sessions: int = 1,
    light: bool = False,
    database: int | None = None,
) -> Outcome:
    """Spread the sessions over the nodes, with the viewers of each session on the next node. The CPU time is that of
    all nodes, and of the PostgreSQL whose main process is `database`."""
    owners = [nodes[number % len(nodes)] for number in range(sessions)]
    names = [owner.ready_session() for owner in owners]
    for owner, name in zip(owners, names, strict=True):
        owner.wait_idle(name, START_WAIT_S)
        if len(nodes) > 1 and (found := owner.server.session(name)["node"]) != owner.node:
            raise RuntimeError(f"{name} runs on node {found}, not on {owner.node}, where it was created")
    pids = [node.pid for node in nodes]
    used_so_far = partial(spent, *pids, database=database)
    before = sum(memory(pid).uss_bytes for pid in pids)
    duration_s = count / per_s if per_s else 0.0
    paths = tuple(f"/api/sessions/{name}/events" for name in names)
    ports = tuple(nodes[(number + 1) % len(nodes)].server.port for number in range(sessions))
    with LoadViewers(ports, viewers, paths, HEADERS, 2 * STREAM_EXTRA_S + duration_s, light) as crowd:
        connected = sum(memory(pid).uss_bytes for pid in pids)
        begun = used_so_far()
        starts = starts_ns(sessions, per_s, LEAD_S + sessions * LEAD_PER_SESSION_S)
        for owner, name, start in zip(owners, names, starts, strict=True):
            owner.server.send(name, f"load {per_s} {count} {start}")
        used = spent_streaming(used_so_far, starts, duration_s) if per_s else None
        last = [owner.wait_idle(name, STREAM_EXTRA_S) for owner, name in zip(owners, names, strict=True)]
        report = crowd.finish(*last)
        return Outcome(report, used or used_so_far().since(begun), (connected - before) // viewers)
