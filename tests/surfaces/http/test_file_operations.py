"""Operations on files over HTTP, when something else happens to the session, its store or its directory meanwhile."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import StoreBusy
from perdure.runtime.git import apply
from perdure.runtime.review import operations
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_changes import Scratch

WAIT_S = 30.0


@pytest.fixture
def scratch(server: LocalServer, tmp_path: Path) -> Scratch:
    made = Scratch(server, tmp_path / "repository")
    made.turn("write b.txt one")
    made.turn("write b.txt two")
    return made


class Held:
    """An operation that is held back when its plan is stored and no file has changed yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        self.count = 0
        original = apply.apply

        def slow(*given: Any, **more: Any) -> Any:
            self.count += 1
            self.reached.set()
            assert self.go.wait(WAIT_S)
            return original(*given, **more)

        monkeypatch.setattr(apply, "apply", slow)

    def during(self, ask: Callable[[], Any], work: Callable[[], Any]) -> Any:
        """What `ask` returns, when `work` was done meanwhile."""
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask)
            try:
                assert self.reached.wait(WAIT_S)
                work()
            finally:
                self.go.set()
            return asked.result(WAIT_S)


def test_a_retry_whose_session_is_stopped_meanwhile_ends_and_restores_once(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, url = Held(monkeypatch), f"/api/sessions/{scratch.session}"
    refused = held.during(
        lambda: scratch.post("retry", {"turn": 2, "files": "restore"}, expect=409),
        lambda: scratch.server.post(f"{url}/stop", expect=200),
    )
    assert "The conversation is unchanged" in refused["detail"]
    assert scratch.server.session(scratch.session)["file_operation"] is None
    assert (scratch.read("b.txt"), held.count) == ("one\n", 1)
    scratch.server.http.delete(f"{url}?purge=true").raise_for_status()


def test_a_message_waits_until_files_are_restored(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    held = Held(monkeypatch)
    held.during(
        lambda: scratch.post("restore", {"turn": 1}),
        lambda: sent.append(scratch.server.send(scratch.session, "write c.txt three")),
    )
    assert (sent[0]["state"], sent[0]["waits_for"]["code"]) == ("accepted", "files")
    scratch.server.wait_idle(scratch.session)
    assert set(scratch.files()) == {"a.txt", "c.txt"}


def test_files_stay_if_the_history_could_not_change(scratch: Scratch) -> None:
    refused = scratch.post("retry", {"turn": 2, "files": "restore", "text": "/compact it"}, expect=409)
    assert "/compact" in refused["detail"], refused
    assert scratch.read("b.txt") == "two\n"
    assert scratch.server.session(scratch.session)["turn_count"] == 2


def test_a_store_that_fails_when_files_are_done_does_not_change_them_again(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(server, tmp_path / "repository")
    scratch.turn("write b.txt one")
    held, records = Held(monkeypatch), server.server.engine.recorder.records
    held.go.set()
    put, failures = records.put, [StoreBusy("busy"), StoreBusy("busy")]

    async def fail(session_id: str, name: str, record: Any) -> None:
        if name.startswith("operation-") and failures:
            failures.pop()
            raise StoreBusy("busy")
        await put(session_id, name, record)

    monkeypatch.setattr(records, "put", fail)
    monkeypatch.setattr(operations, "RETRY_S", 0.1)
    done = scratch.post("restore", {"turn": 1})
    assert (done["outcome"], held.count, failures) == ("done", 1, [])


def test_the_last_operation_that_can_be_undone_is_listed_however_old_it_is(scratch: Scratch) -> None:
    done = scratch.post("discard", {"path": "b.txt"})
    for _ in range(21):
        scratch.post("discard", {"path": "none.txt"}, expect=404)
    listed = scratch.changes()["operations"]
    assert [one["operation_id"] for one in listed if one["undoable"]] == [done["operation_id"]]
    assert len(listed) == 21


@pytest.mark.parametrize("operation", ["a\0b", "a/b", "x" * 200, "f_0000000000000000"])
def test_an_unknown_operation_can_not_be_undone(scratch: Scratch, operation: str) -> None:
    assert scratch.post("undo", {"operation_id": operation}, expect=404)["code"] == "not_found"


def test_a_session_outside_of_a_repository_says_so(server: LocalServer, tmp_path: Path) -> None:
    session = server.create(workdir=str(tmp_path))
    server.turn(session, "write b.txt x")
    for body in ({"turn": 1}, {"turn": 1, "preview": True}):
        refused = server.post(f"/api/sessions/{session}/restore", body, expect=409)
        assert refused["code"] == "no_repository"


def test_a_retry_that_must_not_wait_for_a_slot_restores_nothing_if_none_is_free(
    make_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    scratch = Scratch(make_server(slots=1), tmp_path / "repository")
    scratch.turn("write b.txt one")
    other = scratch.server.create()
    scratch.server.send(other, "hang")
    scratch.server.wait(other, lambda found: found["state"] == "processing")
    body = {"turn": 1, "files": "restore", "when_full": "refuse"}
    assert scratch.post("retry", body, expect=409)["code"] == "slots_full"
    assert scratch.read("b.txt") == "one\n"
    assert scratch.changes()["operations"] == []
