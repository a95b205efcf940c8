"""A stalled disk: above a limit, senders are refused immediately; everything accepted is stored exactly once."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from perdure.core.errors import StoreBusy
from perdure.runtime.verbs import eraser
from perdure.stores import sqlite_writer
from perdure.stores.base import Append
from perdure.stores.sqlite_writer import Writer
from perdure.surfaces.client import Client
from perdure.surfaces.transport import Address, Problem
from tests.harness import WAIT_S, eventually
from tests.surfaces.http.local import TOKEN, LocalServer
from tests.surfaces.http.test_access import is_problem

SENDERS = 40
MAX_STEPS = 10
SOON_S = 5.0
WORDS = 300


class Disk:
    """The disk that the writer commits to. It can stall or be slow, and records the sessions that were refused."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._never, self.delay_s = threading.Event(), 0.0
        self.refused: list[str] = []
        commit, commit_now, enqueue = Writer._commit, Writer.append_now, Writer._enqueue

        def slow_commit(writer: Writer, steps: Any) -> Any:
            assert self._goes_on.wait(WAIT_S)
            self._never.wait(self.delay_s)
            return commit(writer, steps)

        def no_quick_commit(writer: Writer, steps: Any) -> Any:
            return None if self.delay_s else commit_now(writer, steps)

        def counted_enqueue(writer: Writer, given: Append | Sequence[Append], size: int) -> Any:
            try:
                return enqueue(writer, given, size)
            except StoreBusy:
                self.refused += [step.session_id for step in ([given] if isinstance(given, Append) else given)]
                raise

        patch.setattr(Writer, "_commit", slow_commit)
        patch.setattr(Writer, "append_now", no_quick_commit)
        patch.setattr(Writer, "_enqueue", counted_enqueue)

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        self._goes_on.clear()
        try:
            yield
        finally:
            self._goes_on.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def create(server: LocalServer, title: str) -> httpx2.Response:
    with server.client(authorization=f"Bearer {TOKEN}") as http:
        return http.post("/api/sessions", json={"title": title})


def titles(server: LocalServer) -> list[str]:
    return sorted(found["title"] for found in server.get("/api/sessions?limit=200")["sessions"])


def waiting(server: LocalServer) -> int:
    writer = server.server.store._writer
    return int(server.ask(lambda: len(writer._steps)))


def test_senders_above_the_limit_are_refused_immediately_and_the_others_are_stored_once(
    make_server: Callable[..., LocalServer], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    monkeypatch.setattr(sqlite_writer, "QUEUE_MAX_STEPS", MAX_STEPS)
    with ThreadPoolExecutor(SENDERS) as pool:
        with disk.stalled():
            begun = time.monotonic()
            sent = {title: pool.submit(create, server, title) for title in (f"s{number}" for number in range(SENDERS))}
            eventually(
                lambda: sum(one.done() for one in sent.values()) == SENDERS - MAX_STEPS, "all others are refused"
            )
            assert time.monotonic() - begun < SOON_S
            for answer in (one.result() for one in sent.values() if one.done()):
                assert is_problem(answer, 503, "unavailable")
                assert answer.headers["retry-after"] == "1" and "Try again in a moment" in answer.json()["detail"]
            assert waiting(server) == MAX_STEPS
            with (
                Client(Address(server.url, TOKEN)) as client,
                pytest.raises(Problem, match="too slow for the current load"),
            ):
                client.create_session(title="none")
            assert server.get("/api/sessions")["sessions"] == [], "reading goes on"
        taken = sorted(title for title, one in sent.items() if one.result().status_code == 201)
    assert len(taken) == MAX_STEPS and titles(server) == taken
    assert waiting(server) == 0
    assert create(server, "after").status_code == 201
    assert titles(server) == sorted([*taken, "after"])
    assert len(list((server.data / "workspaces").glob("*"))) == len(taken) + 1


def test_an_agent_that_streams_while_the_disk_is_slow_loses_and_duplicates_nothing(
    make_server: Callable[..., LocalServer], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    session = server.create(title="streaming")
    server.send(session, f"stream {WORDS} 10\nsay the end")
    eventually(lambda: server.session(session)["event_count"] > 10, "the answer begins")
    disk.delay_s = 0.03
    monkeypatch.setattr(sqlite_writer, "QUEUE_MAX_STEPS", 0)
    is_over = threading.Event()
    taken: list[str] = []

    def send(sender: int) -> None:
        with server.client(authorization=f"Bearer {TOKEN}") as http:
            for number in range(10_000):
                answer = http.post("/api/sessions", json={"title": f"{sender}.{number}"})
                if answer.status_code == 201:
                    taken.append(f"{sender}.{number}")
                else:
                    assert is_problem(answer, 503, "unavailable")
                if is_over.is_set():
                    return

    with ThreadPoolExecutor(6) as pool:
        senders = [pool.submit(send, number) for number in range(6)]
        try:
            eventually(lambda: disk.refused.count(session) > 1, "the agent's own output is refused too")
            monkeypatch.setattr(sqlite_writer, "QUEUE_MAX_STEPS", 2)
            eventually(lambda: taken, "a sender gets in again")
        finally:
            is_over.set()
        for one in senders:
            one.result(WAIT_S)
    disk.delay_s = 0.0
    server.wait_idle(session)
    words = "".join(event["delta"] for event in server.log(session) if event["type"] == "assistant_text").split()
    assert words[:WORDS] == [f"w{number}" for number in range(WORDS)] and words[WORDS:] == ["the", "end"]
    listed = {found["title"] for found in server.get("/api/sessions?limit=200")["sessions"]}
    assert len(taken) == len(set(taken)) and (listed == {*taken, "streaming"} or len(listed) == 200)
    assert waiting(server) == 0


def test_other_writes_of_the_store_have_their_own_limit(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    monkeypatch.setattr(sqlite_writer, "QUEUE_MAX_STEPS", 0)
    (tmp_path / "site").mkdir()
    project = {"name": "site", "path": str(tmp_path / "site")}
    assert is_problem(create(server, "none"), 503, "unavailable")
    server.post("/api/projects", project, expect=201)
    monkeypatch.setattr(sqlite_writer, "QUEUE_MAX_STEPS", MAX_STEPS)
    monkeypatch.setattr(sqlite_writer, "QUEUE_MAX_TASKS", 0)
    answer = server.http.post("/api/projects", json={**project, "name": "other"})
    assert is_problem(answer, 503, "unavailable") and answer.headers["retry-after"] == "1"
    assert create(server, "now").status_code == 201


def test_a_step_larger_than_the_byte_limit_is_accepted_alone(
    make_server: Callable[..., LocalServer], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    monkeypatch.setattr(sqlite_writer, "QUEUE_MAX_BYTES", 100)
    with ThreadPoolExecutor(2) as pool, disk.stalled():
        first = pool.submit(create, server, "large " + "x" * 150)
        eventually(lambda: waiting(server) == 1, "it waits")
        assert is_problem(create(server, "second"), 503, "unavailable")
    assert first.result().status_code == 201 and create(server, "second").status_code == 201


def test_an_erasure_interrupted_by_a_stalled_disk_is_reported_and_finished_later(
    make_server: Callable[..., LocalServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    session = server.create(title="gone")
    submit, is_busy = Writer.submit, [True]

    def busy_submit(writer: Writer, work: Any, *, stale: Any = (), plainly: bool = False) -> Any:
        if stale is None and is_busy[0]:
            raise StoreBusy("1 changes are waiting to be written")
        return submit(writer, work, stale=stale, plainly=plainly)

    monkeypatch.setattr(Writer, "submit", busy_submit)
    monkeypatch.setattr(eraser, "RETRY_S", 0.1)
    answer = server.http.delete(f"/api/sessions/{session}?purge=true")
    assert is_problem(answer, 503, "unavailable") and answer.headers["retry-after"] == "1"
    assert "half erased" in answer.json()["detail"]
    is_busy[0] = False
    eventually(lambda: titles(server) == [], "the rest is erased")
