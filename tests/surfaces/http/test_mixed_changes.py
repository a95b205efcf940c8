"""A session's files that somebody else changes too: nothing of theirs is lost, committed or discarded silently."""

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from perdure.runtime.git import apply
from perdure.runtime.git.command import GitError
from perdure.runtime.review import recorder
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_changes import Scratch

WAIT_S = 30.0
LINES = "".join(f"{number}\n" for number in range(1, 31))


def changed(old: str, new: str) -> str:
    """The lines with one replaced, as the agent's verb takes them."""
    return " | ".join(new if line == old else line for line in LINES.split())


@pytest.fixture
def scratch(server: LocalServer, tmp_path: Path) -> Scratch:
    made = Scratch(server, tmp_path / "repository")
    made.write("long.txt", LINES)
    made.git("add", ".")
    made.git("commit", "-qm", "second")
    return made


def test_a_restore_asks_again_after_one_that_overwrote_was_undone(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    scratch.write("b.txt", "mine\n")
    done = scratch.post("restore", {"turn": 1, "outside": "overwrite"})
    scratch.post("undo", {"operation_id": done["operation_id"]})
    assert scratch.read("b.txt") == "mine\n"
    refused = scratch.post("restore", {"turn": 1}, expect=409)
    assert [one["path"] for one in refused["outside"]] == ["b.txt"]
    assert [file["path"] for file in scratch.changes()["files"] if file["outside"]] == ["b.txt"]
    assert scratch.read("b.txt") == "mine\n"


@pytest.mark.parametrize("is_undone", [False, True])
def test_a_restore_asks_after_a_discard_that_kept_lines_of_somebody_else(scratch: Scratch, is_undone: bool) -> None:
    scratch.turn(f"write long.txt {changed('2', 'second')}")
    mine = scratch.read("long.txt").replace("29\n", "mine\n")
    scratch.write("long.txt", mine)
    done = scratch.post("discard", {"path": "long.txt"})
    assert scratch.read("long.txt") == LINES.replace("29\n", "mine\n")
    if is_undone:
        scratch.post("undo", {"operation_id": done["operation_id"]})
        assert scratch.read("long.txt") == mine
    refused = scratch.post("restore", {"turn": 1}, expect=409)
    assert [one["path"] for one in refused["outside"]] == ["long.txt"]


def test_a_discard_asks_before_it_reverts_what_somebody_else_changed(scratch: Scratch) -> None:
    scratch.turn(f"write long.txt {changed('2', 'second')}")
    scratch.write("long.txt", scratch.read("long.txt").replace("29\n", "mine\n"))
    scratch.write("secret.txt", "mine\n")
    scratch.turn("write b.txt x")
    for path in ("long.txt", "secret.txt"):
        refused = scratch.post("discard", {"path": path}, expect=409)
        assert (refused["code"], refused["choice"]) == ("files_changed", True)
        assert [one["path"] for one in refused["outside"]] == [path]
    only = {file["path"]: file["only_outside"] for file in scratch.changes()["files"]}
    assert only == {"b.txt": False, "long.txt": False, "secret.txt": True}
    scratch.post("discard", {"path": "long.txt", "turn": 1})
    assert scratch.read("long.txt") == LINES.replace("29\n", "mine\n")
    scratch.post("discard", {"path": "secret.txt", "outside": "overwrite"})
    assert set(scratch.files()) == {"a.txt", "b.txt", "long.txt"}


def test_a_commit_has_only_what_was_read(scratch: Scratch) -> None:
    scratch.turn("write b.txt x\nwrite c.txt y\nremove a.txt")
    files = [{"path": file["path"], "new_id": file["new_id"]} for file in scratch.changes()["files"]]
    head = scratch.git("rev-parse", "HEAD")
    scratch.write("b.txt", "mine\n")
    refused = scratch.post("commit", {"message": "Ours", "files": files}, expect=409)
    assert (refused["code"], [one["path"] for one in refused["outside"]]) == ("files_changed", ["b.txt"])
    assert scratch.git("rev-parse", "HEAD") == head
    scratch.post("commit", {"message": "Ours", "files": [one for one in files if one["path"] != "b.txt"]})
    assert scratch.git("show", "--name-status", "--format=", "HEAD") == b"D\ta.txt\nA\tc.txt\n"
    both = {"message": "Ours", "files": files, "paths": ["b.txt"]}
    assert scratch.post("commit", both, expect=400)["code"] == "invalid"


def test_a_commit_of_everything_leaves_out_what_another_session_may_have_written(scratch: Scratch) -> None:
    server, other = scratch.server, scratch.server.create(workdir=str(scratch.root), title="Other")
    server.send(scratch.session, "ask Wait? | yes\nedit a.txt")
    prompt = server.prompt(scratch.session)
    server.turn(other, "write c.txt y")
    refused = server.post(f"/api/sessions/{other}/commit", {"message": "Theirs"}, expect=409)
    assert refused["code"] == "turn_active"
    answer = {"answers": {prompt["questions"][0]["question_id"]: "yes"}}
    server.post(f"/api/sessions/{scratch.session}/prompts/{prompt['prompt_id']}", answer, expect=200)
    server.wait_idle(scratch.session)
    assert {file["path"] for file in scratch.changes()["files"]} == {"a.txt", "c.txt"}
    done = scratch.post("commit", {"message": "Ours"})
    assert [one["path"] for one in done["skipped"]] == ["c.txt"]
    assert scratch.git("show", "--name-only", "--format=", "HEAD") == b"a.txt\n"


def test_a_commit_of_everything_leaves_out_new_files_that_are_gone(scratch: Scratch) -> None:
    scratch.turn("write b.txt x\nwrite c.txt y")
    (scratch.root / "b.txt").unlink()
    scratch.post("commit", {"message": "Ours"})
    assert scratch.git("show", "--name-only", "--format=", "HEAD") == b"c.txt\n"


def test_a_commit_of_everything_during_a_rebase_says_so(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    scratch.post("commit", {"message": "Ours"})
    rebase = ["git", "rebase", "-q", "--exec", "false", "HEAD~1"]
    assert subprocess.run(rebase, cwd=scratch.root, capture_output=True, check=False).returncode != 0
    refused = scratch.post("commit", {"message": "Ours"}, expect=409)
    assert "A rebase is in progress" in refused["detail"]


def test_an_undo_that_changed_nothing_can_be_repeated(scratch: Scratch) -> None:
    scratch.turn("write b.txt x")
    done = scratch.post("restore", {"turn": 1})
    scratch.write("b.txt", "mine\n")
    undo = {"operation_id": done["operation_id"]}
    refused = scratch.post("undo", undo, expect=409)
    assert "after this operation" in refused["outside"][0]["reason"]
    assert scratch.post("undo", {**undo, "outside": "keep"})["file_count"] == 0
    scratch.post("undo", {**undo, "outside": "overwrite"})
    assert scratch.read("b.txt") == "x\n"


def test_the_preview_of_a_merge_shows_the_conflicts_of_uncommitted_files(server: LocalServer, tmp_path: Path) -> None:
    scratch = Scratch(server, tmp_path / "repository", workspace="worktree")
    scratch.turn("write a.txt theirs")
    scratch.write("a.txt", "ours\n")
    scratch.git("commit", "-qam", "ours")
    preview = {"preview": True}
    assert scratch.post("merge", preview)["conflicts"] == []
    shown = scratch.post("merge", {**preview, "commit_message": "Theirs"})
    assert (shown["conflicts"], shown["uncommitted"]) == (["a.txt"], ["a.txt"])
    assert scratch.git("rev-list", "--branches", "--not", "main") == b""


@pytest.mark.one_server
def test_what_somebody_changes_during_a_restore_stays_theirs(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch.turn("write b.txt x")
    original = apply.apply

    def meanwhile(*given: Any, **more: Any) -> Any:
        scratch.write("a.txt", "mine\n")
        return original(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(apply, "apply", meanwhile)
        done = scratch.post("restore", {"turn": 1})
    assert [one["path"] for one in done["files"]] == ["b.txt"]
    refused = scratch.post("restore", {"turn": 1}, expect=409)
    assert [one["path"] for one in refused["outside"]] == ["a.txt"]
    undone = scratch.post("undo", {"operation_id": done["operation_id"]})
    assert [one["path"] for one in undone["files"]] == ["b.txt"]
    assert (scratch.read("a.txt"), scratch.read("b.txt")) == ("mine\n", "x\n")


@pytest.mark.one_server
def test_a_discard_asks_however_many_files_somebody_else_has_changed(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "FILES_MAX", 1)
    scratch.turn(f"write long.txt {changed('2', 'second')}")
    scratch.write("a.txt", "mine\n")
    scratch.write("long.txt", scratch.read("long.txt").replace("29\n", "mine\n"))
    scratch.turn("write b.txt x")
    refused = scratch.post("discard", {"path": "long.txt"}, expect=409)
    assert (refused["code"], refused["choice"]) == ("files_changed", True)


def test_a_merge_waits_for_who_works_where_the_base_is_checked_out(server: LocalServer, tmp_path: Path) -> None:
    scratch = Scratch(server, tmp_path / "repository", workspace="worktree")
    scratch.turn("write b.txt x")
    scratch.git("checkout", "-q", "-b", "elsewhere")
    scratch.git("worktree", "add", "-q", str(tmp_path / "base"), "main")
    other = server.create(workdir=str(tmp_path / "base"), title="Other")
    server.send(other, "ask Wait? | yes")
    prompt = server.prompt(other)
    refused = scratch.post("merge", {"commit_message": "Ours"}, expect=409)
    assert refused["code"] == "turn_active" and str(tmp_path / "base") in refused["detail"]
    answer = {"answers": {prompt["questions"][0]["question_id"]: "yes"}}
    server.post(f"/api/sessions/{other}/prompts/{prompt['prompt_id']}", answer, expect=200)
    server.wait_idle(other)
    scratch.post("merge", {"commit_message": "Ours"})
    assert (tmp_path / "base" / "b.txt").read_text() == "x\n"


@pytest.mark.one_server
def test_files_that_an_error_left_half_restored_can_be_changed_back(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch.turn("write b.txt x\nwrite c.txt y")
    before, original = scratch.files(), apply.apply

    def fail(repository: Any, steps: Any, **more: Any) -> Any:
        original(repository, steps[:1], **more)
        raise GitError("git cat-file failed.")

    with monkeypatch.context() as patched:
        patched.setattr(apply, "apply", fail)
        refused = scratch.post("rewind", {"turn": 1, "files": "restore"}, expect=409)
    assert "Undo the operation" in refused["detail"] and scratch.files() != before
    assert scratch.server.session(scratch.session)["turn_count"] == 1
    scratch.post("undo", {"operation_id": refused["operation_id"]})
    assert scratch.files() == before


@pytest.mark.one_server
def test_a_result_that_can_not_be_recorded_does_not_block_the_session(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = scratch.server.server.engine
    original = engine.operations._result

    def damaged(*given: Any) -> Any:
        result = original(*given)
        result.message = "\ud800"
        return result

    monkeypatch.setattr(engine.operations, "_result", damaged)
    scratch.turn("write b.txt x")
    refused = scratch.post("restore", {"turn": 1}, expect=409)
    assert "could not be recorded" in refused["detail"]
    scratch.turn("write c.txt y")
    assert set(scratch.files()) == {"a.txt", "c.txt", "long.txt"}


def test_a_branch_whose_name_is_not_utf_8_can_be_committed_to(scratch: Scratch) -> None:
    scratch.git("checkout", "-qb", os.fsdecode(b"caf\xe9"))
    scratch.turn("write b.txt x")
    done = scratch.post("commit", {"message": "On it"})
    assert done["message"] == "Committed 1 file to caf\\xe9: On it"
    scratch.turn("write c.txt y")


@pytest.mark.one_server
def test_a_session_is_running_before_its_first_snapshot_is_taken(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch.turn("write b.txt x")
    snapshots = scratch.server.server.engine.recorder.trees.snapshots
    reached, go, original = threading.Event(), threading.Event(), snapshots.take

    def slow(*given: Any, **more: Any) -> Any:
        reached.set()
        assert go.wait(WAIT_S)
        return original(*given, **more)

    monkeypatch.setattr(snapshots, "take", slow)
    scratch.server.send(scratch.session, "write c.txt y")
    try:
        assert reached.wait(WAIT_S)
        found = scratch.changes()
        assert (found["state"], [file["path"] for file in found["files"]]) == ("running", ["b.txt"])
    finally:
        go.set()
    scratch.server.wait_idle(scratch.session)
