"""Snapshots of turns over HTTP: their limits, turns without one, and a store or a server that fails in between."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.core.errors import StoreBusy
from perdure.runtime.review import recorder
from perdure.runtime.review.records import FILES_MAX
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_changes import Scratch, statuses
from tests.surfaces.http.waiting import keeps_a_restore_away, waiting_turn, without_snapshots

MEGABYTE = 1024 * 1024


@pytest.fixture
def scratch(server: LocalServer, tmp_path: Path) -> Scratch:
    return Scratch(server, tmp_path / "repository")


def during_a_turn(scratch: Scratch, work: Callable[[], Any]) -> None:
    """A turn in which files change as if a shell command had changed them."""
    server = scratch.server
    server.send(scratch.session, "ask Go on? | yes")
    prompt = server.prompt(scratch.session)
    work()
    answers = {"answers": {prompt["questions"][0]["question_id"]: "yes"}}
    server.post(f"/api/sessions/{scratch.session}/prompts/{prompt['prompt_id']}", answers, expect=200)
    server.wait_idle(scratch.session)


def test_files_over_the_limit_are_named_and_so_is_that_they_changed(
    make_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    scratch = Scratch(make_server(snapshot_max_file_mb=1), tmp_path / "repository")
    scratch.write("large.bin", "x" * 2 * MEGABYTE)

    def work() -> None:
        scratch.write("large.bin", "y" * 3 * MEGABYTE)
        scratch.write("b.txt", "b\n")

    during_a_turn(scratch, work)
    found = scratch.changes(1)
    assert (found["state"], statuses(found)) == ("partial", {"b.txt": "added"})
    assert [(one["path"], one["changed"]) for one in found["left_alone"]] == [("large.bin", True)]
    (event,) = [event for event in scratch.server.log(scratch.session) if event["type"] == "turn_changes"]
    assert event["state"] == "partial"
    scratch.post("restore", {"turn": 1})
    assert scratch.read("large.bin") == "y" * 3 * MEGABYTE and not (scratch.root / "b.txt").exists()


def test_without_snapshots_the_changes_are_those_of_the_edit_tools(
    make_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    scratch = Scratch(make_server(snapshots=False), tmp_path / "repository")
    scratch.turn("write b.txt x")
    found = scratch.changes(1)
    assert (found["source"], statuses(found)) == ("edits", {"b.txt": "added"})
    assert scratch.git("for-each-ref", "refs/perdure") == b""
    assert scratch.post("restore", {"turn": 1}, expect=404)["code"] == "not_found"


def test_a_turn_over_the_time_budget_says_so_and_is_not_held_up(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(server, tmp_path / "repository")
    trees = server.server.engine.recorder.trees
    limits = trees.limits
    assert limits is not None
    monkeypatch.setattr(trees, "limits", msgspec.structs.replace(limits, time_s=0.0))
    for number in (1, 2):
        scratch.turn(f"write {number}.txt x")
    for turn, names in ((1, {"1.txt"}), (2, {"2.txt"}), (None, {"1.txt", "2.txt"})):
        found = scratch.changes(turn)
        assert (found["source"], set(statuses(found))) == ("edits", names)
        assert "could not be recorded within" in found["reason"]
    assert "tries again in 10 minutes" in scratch.changes(2)["reason"]
    assert scratch.changes()["reason"].startswith("There are no snapshots of turns 1 and 2: ")


def test_a_turn_without_a_snapshot_is_named_and_its_files_are_not_called_somebody_elses(scratch: Scratch) -> None:
    scratch.turn("write one.txt 1")
    rebasing = scratch.root / ".git" / "rebase-merge"
    rebasing.mkdir()
    scratch.turn("write two.txt 2")
    rebasing.rmdir()
    scratch.turn("write three.txt 3")
    whole = scratch.changes()
    assert set(statuses(whole)) == {"one.txt", "two.txt", "three.txt"}
    assert whole["reason"].startswith("There are no snapshots of turn 2: ") and "rebase" in whole["reason"]
    assert scratch.changes(3)["outside"] == [] == whole["outside"]
    refused = scratch.post("restore", {"turn": 1}, expect=409)
    (outside,) = refused["outside"]
    assert outside["path"] == "two.txt" and "turn 2, of which there is no snapshot" in outside["reason"]
    assert refused["choice"] is True
    scratch.post("restore", {"turn": 1, "outside": "keep"})
    assert set(scratch.files()) == {"a.txt", "two.txt"}


def test_edits_in_an_ignored_folder_or_in_another_repository_inside_are_shown_as_elsewhere(scratch: Scratch) -> None:
    scratch.write(".gitignore", "build/\n")
    scratch.git("init", "-q", "nested")
    scratch.git("-C", "nested", "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "x", "--allow-empty")
    scratch.turn("write nested/x.txt 1\nwrite build/y.txt 2\nwrite b.txt 3")
    for found in (scratch.changes(1), scratch.changes()):
        assert statuses(found) == {"b.txt": "added"}
        places = {one["directory"]: one["files"] for one in found["elsewhere"]}
        root = str(scratch.root)
        assert places == {f"{root}/nested": [f"{root}/nested/x.txt"], f"{root}/build": [f"{root}/build/y.txt"]}
    assert [(one["path"], one["changed"]) for one in scratch.changes(1)["left_alone"]] == [("nested/", True)]


def test_very_many_files_that_somebody_else_changed_are_all_kept(scratch: Scratch) -> None:
    names = [f"many/{number}" for number in range(FILES_MAX + 50)]
    (scratch.root / "many").mkdir()
    for name in names:
        scratch.write(name, "first\n")
    scratch.turn("write b.txt x")
    for name in names:
        scratch.write(name, "mine\n")
    scratch.turn("write b.txt y")
    assert scratch.post("restore", {"turn": 1}, expect=409)["code"] == "files_changed"
    scratch.post("restore", {"turn": 1, "outside": "keep"})
    assert {scratch.read(name) for name in names} == {"mine\n"} and not (scratch.root / "b.txt").exists()


def test_a_commit_takes_all_files_of_a_very_large_turn(scratch: Scratch) -> None:
    names = [f"many/{number}" for number in range(FILES_MAX + 50)]

    def write() -> None:
        (scratch.root / "many").mkdir()
        for name in names:
            scratch.write(name, "new\n")

    during_a_turn(scratch, write)
    found = scratch.changes(1)
    assert (found["truncated"], found["file_count"]) == (True, len(names))
    scratch.post("commit", {"message": "All"})
    assert scratch.git("status", "--porcelain") == b""


def test_a_store_that_fails_when_a_turn_ends_delays_its_record_only(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, records = Scratch(server, tmp_path / "repository"), server.server.engine.recorder.records
    put, failures = records.put_patch, [StoreBusy("full"), StoreBusy("full")]

    async def fail(*given: Any) -> None:
        if failures:
            raise failures.pop()
        scratch.write("later.txt", "written after the turn\n")
        await put(*given)

    monkeypatch.setattr(records, "put_patch", fail)
    monkeypatch.setattr(recorder, "RETRY_S", 0.1)
    scratch.turn("write b.txt x")
    found = scratch.changes(1)
    assert (found["state"], found["reason"], statuses(found)) == ("ready", None, {"b.txt": "added"})
    assert failures == []


@pytest.mark.parametrize("unseen_s", [0.0, 60.0])
def test_changes_of_a_turn_that_may_have_ended_while_no_server_ran_may_include_later_ones(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unseen_s: float
) -> None:
    monkeypatch.setattr(recorder, "UNSEEN_S", unseen_s)
    scratch = Scratch(make_server(), tmp_path / "repository")
    server = scratch.server
    server.send(scratch.session, "write b.txt x\nask Go on? | yes")
    prompt = server.prompt(scratch.session)
    server.stop()
    server.restart()
    answers = {"answers": {prompt["questions"][0]["question_id"]: "yes"}}
    server.post(f"/api/sessions/{scratch.session}/prompts/{prompt['prompt_id']}", answers, expect=200)
    server.wait_idle(scratch.session)
    found = scratch.changes(1)
    assert (found["state"], statuses(found)) == ("ready", {"b.txt": "added"})
    assert found["reason"] == (recorder.LATE if unseen_s else None)


@pytest.mark.one_server
def test_a_turn_that_never_ends_does_not_count_as_working_beside_others_for_ever(scratch: Scratch) -> None:
    """A server that is killed may leave the note of a turn open."""
    scratch.turn("write b.txt x")
    note = json.dumps({"since_ms": 1, "root": str(scratch.root)})
    tree = scratch.git("write-tree").decode().strip()
    commit = scratch.git("commit-tree", "-m", note, tree).decode().strip()
    scratch.git("update-ref", f"refs/perdure/{scratch.server.create(workdir=str(scratch.root))}/1", commit)
    scratch.git("update-ref", "refs/perdure/s_unknown/1", commit)
    scratch.turn("write b.txt y")
    assert scratch.changes(2)["shared_with"] == []


def test_no_other_session_changes_files_under_a_turn_that_has_no_snapshot(
    make_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    scratch = Scratch(make_server(), tmp_path / "repository")
    scratch.turn("write b.txt x")
    server, other = scratch.server, scratch.server.create(workdir=str(scratch.root))
    with without_snapshots(scratch):
        answer = waiting_turn(server, other)
    keeps_a_restore_away(scratch, other, answer)
