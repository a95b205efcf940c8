"""Perdure as it is measured: a real server in a process of its own, with the load agent, and streams through it.

Above: the scenarios. Below: the tests' live server, and agent.c. What is measured is the whole way: the agent's pipe,
its keeper, the driver, the commit and the viewers' sockets. Events are stored before they are shown, here as always.
"""

import time
from pathlib import Path

from benchmarks.figures import memory, spent
from benchmarks.load import Viewers
from benchmarks.reference import Outcome, spent_streaming, starts_ns
from tests.harness import ColdServer

HEADERS = ("Authorization: Bearer test-token-of-the-tests",)
POLL_S = 0.1
START_WAIT_S = 120.0
STREAM_EXTRA_S = 60.0
LEAD_S = 1.0
LEAD_PER_SESSION_S = 0.04


class Subject:
    """A running server. Its data stays in its folder, so that it can be started again."""

    def __init__(self, folder: Path, agent: Path) -> None:
        self.workdir = folder / "workdir"
        self.workdir.mkdir(parents=True, exist_ok=True)
        config = (
            "[server]\nslots = 0\nproject_slots = 0\n"
            f'[agents.load]\ndriver = "acp"\ncommand = ["{agent}"]\n'
        )  # fmt: skip
        self.server = ColdServer(folder / "data", config)

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

    def create(self) -> str:
        return self.server.create(agent="load", workdir=str(self.workdir))

    def ready_session(self) -> str:
        """A session whose agent is running and has nothing to do."""
        session = self.create()
        self.server.send(session, "load 0 0 0")
        return session

    def wait_idle(self, session: str, timeout_s: float) -> int:
        """Until its turn is over; the number of its last event."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.server.session(session)
            if found["state"] != "processing":
                return int(found["event_count"])
            if time.monotonic() > deadline:
                raise TimeoutError(f"the turn of {session} did not end within {timeout_s} s\n{self.server.log_tail()}")
            # Seldom, as each look is work for the server that is being measured.
            time.sleep(POLL_S)


def stream(
    subject: Subject, *, viewers: int, per_s: int, count: int, sessions: int = 1, light: bool = False
) -> Outcome:
    """As `reference.stream`: `count` deltas in each session, at a rate or (0) as fast as they are taken."""
    names = [subject.ready_session() for _ in range(sessions)]
    for name in names:
        subject.wait_idle(name, START_WAIT_S)
    pid, port = subject.pid, subject.server.port
    before = memory(pid).uss_bytes
    duration_s = count / per_s if per_s else 0.0
    paths = tuple(f"/api/sessions/{name}/events" for name in names)
    with Viewers(port, viewers, paths, HEADERS, 2 * STREAM_EXTRA_S + duration_s, light) as crowd:
        connected = memory(pid).uss_bytes
        begun = spent(pid)
        starts = starts_ns(sessions, per_s, LEAD_S + sessions * LEAD_PER_SESSION_S)
        for name, start in zip(names, starts, strict=True):
            subject.server.send(name, f"load {per_s} {count} {start}")
        used = spent_streaming(pid, starts, duration_s) if per_s else None
        last = [subject.wait_idle(name, STREAM_EXTRA_S) for name in names]
        report = crowd.finish(*last)
        return Outcome(report, used or spent(pid).since(begun), (connected - before) // viewers)
