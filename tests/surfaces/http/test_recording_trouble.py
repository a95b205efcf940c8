"""Records that can't be stored, and operations that a server leaves unfinished: turns, aborts and the shutdown of the
server don't wait for them longer than necessary."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import StoreError, StoreFull
from perdure.runtime.git import apply, commit, repository
from perdure.runtime.git.command import HalfDone
from perdure.runtime.git.snapshot import Limits
from perdure.runtime.review import operations, recorder, working_trees
from tests.harness import WAIT_S, eventually
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_changes import Scratch, statuses
from tests.surfaces.http.test_snapshots import during_a_turn


class FullStore:
    """Records can't be stored while `is_full`."""

    def __init__(self, server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
        records = server.server.engine.recorder.records
        self.is_full, write = False, records.write

        async def full(session_id: str, name: str, data: bytes) -> None:
            if self.is_full:
                raise StoreFull("no room")
            await write(session_id, name, data)

        monkeypatch.setattr(records, "write", full)
        monkeypatch.setattr(recorder, "RETRY_S", 0.05)

    def fill(self) -> None:
        self.is_full = True


TURN_1 = {"turn": 1}


def preparing(server: LocalServer, session: str, text: str) -> None:
    """Send a message, and wait until its turn waits for a record or an operation."""
    server.send(session, text)
    server.wait(session, lambda found: found["state"] == "processing")


@contextlib.contextmanager
def restoring(scratch: Scratch, reached: threading.Event, go: threading.Event) -> Iterator[None]:
    """While another thread restores the files to before turn 1. It sets `reached` and waits for `go`."""
    url = f"/api/sessions/{scratch.session}/restore"
    asking = threading.Thread(target=lambda: scratch.server.http.post(url, json=TURN_1))
    asking.start()
    try:
        assert reached.wait(WAIT_S)
        yield
    finally:
        go.set()
        asking.join(WAIT_S)


def test_the_next_turn_begins_if_the_record_of_the_last_one_can_not_be_stored(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "FAILING_TIMEOUT_S", 0.2)
    scratch = Scratch(make_server(), tmp_path / "repository")
    store = FullStore(scratch.server, monkeypatch)
    during_a_turn(scratch, store.fill)
    assert scratch.changes(1)["state"] == "unavailable"
    scratch.server.turn(scratch.session, "write b.txt x")
    assert scratch.read("b.txt") == "x\n"
    store.is_full = False
    scratch.turn("write c.txt y")
    assert statuses(scratch.changes(3)) == {"c.txt": "added"}
    scratch.post("restore", {"turn": 3})
    assert set(scratch.files()) == {"a.txt", "b.txt"}


def test_an_abort_does_not_wait_for_a_record_that_can_not_be_stored(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "FAILING_TIMEOUT_S", 2 * WAIT_S)
    scratch = Scratch(make_server(), tmp_path / "repository")
    store = FullStore(scratch.server, monkeypatch)
    during_a_turn(scratch, store.fill)
    preparing(scratch.server, scratch.session, "write b.txt x")
    scratch.server.post(f"/api/sessions/{scratch.session}/abort", expect=202)
    scratch.server.wait_idle(scratch.session)
    assert not (scratch.root / "b.txt").exists()
    store.is_full = False
    scratch.turn("write c.txt y")
    assert statuses(scratch.changes(3)) == {"c.txt": "added"}


def test_a_server_that_stops_does_not_wait_for_a_record_that_can_not_be_stored(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "FAILING_TIMEOUT_S", 2 * WAIT_S)
    scratch = Scratch(make_server(), tmp_path / "repository")
    store = FullStore(scratch.server, monkeypatch)
    during_a_turn(scratch, store.fill)
    preparing(scratch.server, scratch.session, "write b.txt x")
    scratch.server.stop()
    scratch.server.restart()
    scratch.server.wait_idle(scratch.session)
    assert scratch.read("b.txt") == "x\n"
    assert scratch.changes(1)["state"] == "ready"
    assert statuses(scratch.changes(2)) == {"b.txt": "added"}


def test_a_record_that_the_store_refuses_is_stored_without_its_details(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(make_server(), tmp_path / "repository")
    records = scratch.server.server.engine.recorder.records
    write = records.write

    async def limited(session_id: str, name: str, data: bytes) -> None:
        if len(data) > 2000:
            raise StoreError("the record is too large")
        await write(session_id, name, data)

    monkeypatch.setattr(records, "write", limited)
    monkeypatch.setattr(recorder, "RETRY_S", 0.01)
    scratch.turn("\n".join(f"write {number}.txt x" for number in range(50)))
    found = scratch.changes(1)
    assert (found["state"], found["reason"]) == ("unavailable", recorder.UNSTORED)
    (event,) = [event for event in scratch.server.log(scratch.session) if event["type"] == "turn_changes"]
    assert event["state"] == "unavailable"
    scratch.turn("write b.txt x")
    assert statuses(scratch.changes(2)) == {"b.txt": "added"}


def test_a_turn_waits_for_an_operation_of_another_session_that_the_last_server_has_begun(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill: the plan is stored, and only some of its files are changed."""
    monkeypatch.setattr(working_trees, "CANCELLED_TIMEOUT_S", 0.1)
    scratch = Scratch(make_server(), tmp_path / "repository")
    scratch.turn("write b.txt x")
    server, other = scratch.server, scratch.server.create(workdir=str(scratch.root))
    reached, dead, original = threading.Event(), threading.Event(), apply.apply

    def dying(*given: Any, **more: Any) -> Any:
        reached.set()
        dead.wait(WAIT_S)
        raise OSError("the server was killed")

    monkeypatch.setattr(apply, "apply", dying)
    with restoring(scratch, reached, dead):
        preparing(server, other, "write c.txt y")
        server.stop()
        working: list[list[str]] = []

        def completing(*given: Any, **more: Any) -> Any:
            working.append(server.server.engine.recorder.works_in(str(scratch.root)))
            return original(*given, **more)

        monkeypatch.setattr(apply, "apply", completing)
        server.restart()
    server.wait_idle(other)
    server.wait(scratch.session, lambda found: found["file_operation"] is None)
    assert working == [[]]
    assert set(scratch.files()) == {"a.txt", "c.txt"}
    (file,) = eventually(lambda: server.get(f"/api/sessions/{other}/changes?turn=1")["files"], "the turn's changes")
    assert file["path"] == "c.txt"


def test_a_turn_that_waits_for_a_file_operation_can_be_aborted(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(make_server(), tmp_path / "repository")
    scratch.turn("write b.txt x")
    server, other = scratch.server, scratch.server.create(workdir=str(scratch.root))
    reached, go, original = threading.Event(), threading.Event(), apply.apply

    def slow(*given: Any, **more: Any) -> Any:
        reached.set()
        assert go.wait(WAIT_S)
        return original(*given, **more)

    monkeypatch.setattr(apply, "apply", slow)
    with restoring(scratch, reached, go):
        preparing(server, other, "write c.txt y")
        server.post(f"/api/sessions/{other}/abort", expect=202)
        server.wait_idle(other)
    server.wait(scratch.session, lambda found: found["file_operation"] is None)
    assert set(scratch.files()) == {"a.txt"}
    server.turn(other, "write c.txt y")
    assert set(scratch.files()) == {"a.txt", "c.txt"}


def test_no_turn_begins_between_two_tries_of_an_operation(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(make_server(), tmp_path / "repository")
    scratch.turn("write b.txt x")
    server, other = scratch.server, scratch.server.create(workdir=str(scratch.root))
    recording, original = server.server.engine.recorder, apply.apply
    reached, go, begun = threading.Event(), threading.Event(), list[bool]()

    def failing(*given: Any, **more: Any) -> Any:
        begun.append((scratch.root / "c.txt").exists() or recording.works_in(str(scratch.root)) != [])
        if len(begun) > 1:
            return original(*given, **more)
        reached.set()
        assert go.wait(WAIT_S)
        raise HalfDone("The disk is full.")

    monkeypatch.setattr(apply, "apply", failing)
    with restoring(scratch, reached, go):
        preparing(server, other, "write c.txt y")
    server.wait_idle(other)
    assert begun == [False, False]
    assert set(scratch.files()) == {"a.txt", "c.txt"}


def test_a_stored_plan_waits_for_turns_that_have_begun_beside_it(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a node that takes over the operation of a dead one, and already runs turns in the same directory."""
    monkeypatch.setattr(operations, "RETRY_S", 0.01)
    monkeypatch.setattr(operations, "LOOK_S", 0.01)
    scratch = Scratch(make_server(), tmp_path / "repository")
    scratch.turn("write b.txt x")
    recording, original = scratch.server.server.engine.recorder, apply.apply
    beside: list[list[str]] = []
    order: list[str] = []

    def works_in(root: str) -> list[str]:
        order.append("asked")
        return beside.pop() if beside else []

    def failing(*given: Any, **more: Any) -> Any:
        order.append("tried")
        if order.count("tried") > 1:
            return original(*given, **more)
        beside[:] = [["s_other"], ["s_other"], [scratch.session, "s_other"]]
        raise HalfDone("The disk is full.")

    monkeypatch.setattr(recording, "works_in", works_in)
    monkeypatch.setattr(apply, "apply", failing)
    scratch.post("restore", TURN_1)
    assert order == ["asked", "asked", "tried", "asked", "asked", "asked", "asked", "tried"]
    assert set(scratch.files()) == {"a.txt"}


def test_a_stored_commit_does_not_wait_for_turns_beside_it(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "RETRY_S", 0.01)
    scratch = Scratch(make_server(), tmp_path / "repository")
    scratch.turn("write b.txt x")
    recording, original = scratch.server.server.engine.recorder, commit.finish
    tried = 0

    def failing(*given: Any, **more: Any) -> Any:
        nonlocal tried
        tried += 1
        if tried > 1:
            return original(*given, **more)
        monkeypatch.setattr(recording, "works_in", lambda root: ["s_other"])
        raise HalfDone("The disk is full.")

    monkeypatch.setattr(commit, "finish", failing)
    assert scratch.post("commit", {"message": "Add b", "paths": ["b.txt"]})["outcome"] == "done"
    assert tried == 2 and scratch.git("log", "-1", "--format=%s").decode().strip() == "Add b"


def test_operations_on_a_file_system_that_hangs_are_refused_and_hold_up_nothing_else(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_trees, "OPERATION_THREADS", 1)
    scratch = Scratch(make_server(), tmp_path / "repository")
    hanging = [Scratch(scratch.server, tmp_path / f"hanging-{number}") for number in range(2)]
    for one in (scratch, *hanging):
        one.turn("write b.txt x")
    release, original = threading.Event(), repository._likely_top

    def look(directory: str) -> str | None:
        if "hanging" in directory:
            assert release.wait(WAIT_S)
        return original(directory)

    monkeypatch.setattr(working_trees, "GRACE_S", 0.2)
    scratch.server.server.engine.recorder.trees.limits = Limits(time_s=0.1)
    monkeypatch.setattr(repository, "_likely_top", look)
    try:
        for one in hanging:
            assert "does not respond" in one.post("restore", TURN_1, expect=503)["detail"]
        scratch.server.server.engine.recorder.trees.limits = Limits(time_s=30.0)
        scratch.post("restore", TURN_1)
    finally:
        release.set()
    assert set(scratch.files()) == {"a.txt"}


def test_a_server_starts_although_the_directory_of_an_unfinished_operation_hangs(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_trees, "CANCELLED_TIMEOUT_S", 0.1)
    scratch = Scratch(make_server(snapshot_timeout_s=0.5), tmp_path / "repository")
    scratch.turn("write b.txt x")
    server, reached, release = scratch.server, threading.Event(), threading.Event()
    original, original_look = apply.apply, repository._likely_top

    def dying(*given: Any, **more: Any) -> Any:
        reached.set()
        release.wait(WAIT_S)
        raise OSError("the server was killed")

    def hang(directory: str) -> str | None:
        assert release.wait(WAIT_S)
        return original_look(directory)

    monkeypatch.setattr(apply, "apply", dying)
    with restoring(scratch, reached, release):
        server.stop()
        monkeypatch.setattr(apply, "apply", original)
        monkeypatch.setattr(repository, "_likely_top", hang)
        monkeypatch.setattr(working_trees, "GRACE_S", 0.1)
        server.restart()
        assert server.session(scratch.session)["file_operation"] is not None
    server.wait(scratch.session, lambda found: found["file_operation"] is None)
    assert set(scratch.files()) == {"a.txt"}
