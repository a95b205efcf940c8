"""The first snapshot of a turn: of one that begins while its agent is prepared, of one that a restarted server finds,
and of a session that is erased meanwhile."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import Refused, StoreError, StoreFull
from perdure.runtime.review import comparison, recorder, records
from perdure.runtime.review.open_turns import OpenTurns
from perdure.runtime.running import runner
from tests.harness import WAIT_S, eventually
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_changes import Scratch, statuses
from tests.surfaces.http.waiting import keeps_a_restore_away, waiting_turn, without_snapshots, works_in

Json = dict[str, Any]


class Held:
    """A function of the server that waits, once, before it returns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.reached, self.go, original = threading.Event(), threading.Event(), getattr(owner, name)

        async def held(*given: Any, **more: Any) -> Any:
            found = await original(*given, **more)
            if not self.reached.is_set():
                self.reached.set()
                assert await asyncio.to_thread(self.go.wait, WAIT_S)
            return found

        monkeypatch.setattr(owner, name, held)


def start_agent(server: LocalServer, session: str) -> None:
    """Start a session's agent ahead of its first message."""
    engine = server.server.engine

    async def start() -> None:
        await engine.runners.prewarm_anywhere(await server.server.log.open(session))

    server.run(start())


@pytest.mark.parametrize("during", ["the worktree's check", "the agent's check"])
def test_a_turn_whose_message_arrives_while_its_agent_is_prepared_has_a_snapshot(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    scratch = Scratch(make_server(), tmp_path / "repository", workspace="worktree")
    server, engine = scratch.server, scratch.server.server.engine
    if during == "the worktree's check":
        held = Held(monkeypatch, engine.recorder, "_ensure_worktree")
    else:
        held = Held(monkeypatch, engine.facts.agents, "ready")
    start_agent(server, scratch.session)
    assert held.reached.wait(WAIT_S)
    monkeypatch.undo()
    server.send(scratch.session, "write b.txt x")
    server.wait(scratch.session, lambda found: found["state"] == "processing")
    held.go.set()
    server.wait_idle(scratch.session)
    found = scratch.changes(1)
    assert (found["source"], found["state"], statuses(found)) == ("snapshots", "ready", {"b.txt": "added"})


def test_a_turn_whose_agent_was_not_started_before_a_restart_is_recorded_once(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(make_server(), tmp_path / "repository")
    server, reached = scratch.server, threading.Event()

    async def full(*given: Any) -> Any:
        reached.set()
        raise StoreFull("no room")

    with monkeypatch.context() as broken:
        broken.setattr(runner, "plan_start", full)
        server.send(scratch.session, "write b.txt x")
        assert reached.wait(WAIT_S)
        server.stop()
    began, original, read = threading.Event(), recorder.Recorder.before, OpenTurns.all

    async def before(self: recorder.Recorder, journal: Any) -> None:
        began.set()
        await original(self, journal)

    def slow(self: OpenTurns) -> dict[str, int]:
        found = read(self)
        began.wait(0.5)  # as on a slow disk
        return found

    monkeypatch.setattr(recorder.Recorder, "before", before)
    monkeypatch.setattr(OpenTurns, "all", slow)
    server.restart()
    server.wait_idle(scratch.session)
    found = scratch.changes(1)
    assert (found["state"], statuses(found)) == ("ready", {"b.txt": "added"})
    events = [event["type"] for event in server.log(scratch.session)]
    assert events.count("turn_changes") == 1
    assert events.index("turn_changes") > events.index("turn_end")


def test_a_turn_that_goes_on_after_a_restart_without_a_snapshot_keeps_operations_of_others_away(
    make_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    scratch = Scratch(make_server(), tmp_path / "repository")
    scratch.turn("write b.txt x")
    server, other = scratch.server, scratch.server.create(workdir=str(scratch.root))
    with without_snapshots(scratch):
        answer = waiting_turn(server, other)
        server.stop()
    server.restart()
    assert works_in(scratch) == [other]
    keeps_a_restore_away(scratch, other, answer)


def test_a_turn_keeps_operations_of_others_away_if_the_turn_before_it_can_not_be_read(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(make_server(), tmp_path / "repository")

    async def failing(*given: Any) -> list[str]:
        raise StoreError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(scratch.server.server.engine.recorder.records, "names", failing)
        answer = waiting_turn(scratch.server, scratch.session)
        assert works_in(scratch) == [scratch.session]
    answer()


def test_a_turn_does_not_wait_long_to_learn_what_others_have_changed(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(make_server(), tmp_path / "repository")
    scratch.turn("write b.txt x")
    scratch.write("mine.txt", "mine\n")
    go, original = threading.Event(), comparison.outside_of

    def slow(*given: Any) -> Any:
        assert go.wait(WAIT_S)
        return original(*given)

    monkeypatch.setattr(recorder, "outside_of", slow)
    monkeypatch.setattr(recorder, "COMPARING_TIMEOUT_S", 0.1, raising=False)
    try:
        scratch.turn("write b.txt y")
    finally:
        go.set()
    assert statuses(scratch.changes(2)) == {"b.txt": "modified"}
    refused = scratch.post("restore", {"turn": 1}, expect=409)
    assert refused["code"] == "files_changed"
    assert [one["path"] for one in refused["outside"]] == ["mine.txt"]


def test_nothing_of_an_erased_session_is_stored_again(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(make_server(), tmp_path / "repository")
    scratch.turn("write b.txt x")
    server, stored = scratch.server, scratch.server.server.engine.recorder.records
    folder, write = server.data / "attachments" / scratch.session, records._write
    assert folder.is_dir()
    reached, go = threading.Event(), threading.Event()

    def slow(*given: Any) -> None:
        reached.set()
        assert go.wait(WAIT_S)
        write(*given)

    async def put() -> bool:
        try:
            await stored.write(scratch.session, "late", b"{}")
        except Refused as refusal:
            return refusal.code == "not_found"
        return False

    with monkeypatch.context() as slowed:
        slowed.setattr(records, "_write", slow)
        late: list[bool] = []
        writing = threading.Thread(target=lambda: late.append(server.run(put())))
        writing.start()
        assert reached.wait(WAIT_S)
        assert server.http.delete(f"/api/sessions/{scratch.session}?purge=true").is_success
        go.set()
        writing.join(WAIT_S)
    assert (late, server.run(put()), folder.exists()) == ([True], True, False)


def test_a_snapshot_that_is_taken_longer_than_an_erase_waits_does_not_stay(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(make_server(), tmp_path / "repository")
    server, trees = scratch.server, scratch.server.server.engine.recorder.trees
    answer = waiting_turn(server, scratch.session)
    monkeypatch.setattr(recorder, "FINISHED_TIMEOUT_S", 0.1 - trees.patience_s)
    held = Held(monkeypatch, trees, "take")
    answer()
    assert held.reached.wait(WAIT_S)
    assert server.http.delete(f"/api/sessions/{scratch.session}?purge=true").is_success
    assert b"refs/perdure" not in scratch.git("for-each-ref")
    scratch.git("update-ref", f"refs/perdure/{scratch.session}/1", "HEAD")  # what the thread does last
    held.go.set()
    eventually(lambda: b"refs/perdure" not in scratch.git("for-each-ref"), "its snapshot is deleted")


class Changing(str):
    """A path that is compared while a turn begins in another thread."""

    places: Json

    def __eq__(self, other: object) -> bool:
        self.places[f"s_{time.monotonic_ns()}"] = self.places["s_1"]
        return str(self) is other

    __hash__ = str.__hash__


def test_threads_can_ask_who_works_in_a_directory_while_turns_begin(server: LocalServer) -> None:
    found = server.server.engine.recorder
    root = Changing("/r")
    root.places = found._places
    found._places["s_1"] = found._places["s_2"] = recorder._Place(root, 1)
    assert found.works_in("/elsewhere") == []
