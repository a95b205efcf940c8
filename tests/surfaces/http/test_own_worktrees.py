"""Sessions with a worktree of their own, over HTTP: where none can be made, and what keeps one from being removed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.runtime.git.command import GitError
from perdure.runtime.review import working_trees
from perdure.runtime.verbs import workspaces
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_changes import Scratch


@pytest.fixture
def scratch(server: LocalServer, tmp_path: Path) -> Scratch:
    return Scratch(server, tmp_path / "repository")


def own(scratch: Scratch) -> tuple[str, Path]:
    """A session with a worktree, and the worktree."""
    session = scratch.server.create(workdir=str(scratch.root), workspace="worktree")
    return session, Path(scratch.server.session(session)["worktree"]["path"])


def archived(server: LocalServer, session: str) -> Any:
    """What became of the worktree of a session that is archived."""
    server.http.patch(f"/api/sessions/{session}", json={"archived": True}).raise_for_status()
    server.wait(session, lambda found: found["file_operation"] is None)
    return server.get(f"/api/sessions/{session}/changes")["operations"][0]


def test_a_branch_whose_name_is_not_utf_8_gets_no_worktree(scratch: Scratch) -> None:
    scratch.git("checkout", "-qb", os.fsdecode(b"caf\xe9"))
    before = scratch.git("worktree", "list"), scratch.git("for-each-ref")
    body = {"workdir": str(scratch.root), "workspace": "worktree"}
    refused = scratch.server.post("/api/sessions", body, expect=400)
    assert "caf\\xe9" in refused["detail"] and "Rename it." in refused["detail"]
    assert (scratch.git("worktree", "list"), scratch.git("for-each-ref")) == before


def test_a_repository_on_a_branch_whose_name_is_not_utf_8_is_shown(scratch: Scratch) -> None:
    scratch.git("checkout", "-qb", os.fsdecode(b"caf\xe9"))
    scratch.turn("write b.txt x")
    assert scratch.changes()["repository"]["branch"] == '"caf\\351"'


def test_a_session_that_can_not_be_created_leaves_no_worktree(
    make_server: Callable[..., LocalServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(make_server(), tmp_path / "repository")
    log = scratch.server.server.log

    async def fail(*given: Any, **more: Any) -> Any:
        raise UnicodeEncodeError("utf-8", "x", 0, 1, "surrogates not allowed")

    before = scratch.git("worktree", "list"), scratch.git("for-each-ref")
    with monkeypatch.context() as broken:
        broken.setattr(log, "create", fail)
        answer = scratch.server.http.post(
            "/api/sessions", json={"workdir": str(scratch.root), "workspace": "worktree", "title": "broken"}
        )
        assert answer.status_code == 500
    assert (scratch.git("worktree", "list"), scratch.git("for-each-ref")) == before


@pytest.mark.parametrize("how", ["archive", "erase"])
def test_a_worktree_stays_while_another_session_works_below_it(scratch: Scratch, how: str) -> None:
    session, path = own(scratch)
    (path / "inner").mkdir()
    other = scratch.server.create(workdir=str(path / "inner"))
    if how == "archive":
        operation = archived(scratch.server, session)
        assert operation["outcome"] in ("failed", "conflict"), operation
        assert "another session works in it" in operation["message"]
    else:
        scratch.server.http.delete(f"/api/sessions/{session}?purge=true").raise_for_status()
    assert (path / "inner").is_dir()
    scratch.server.turn(other, "write b.txt x")
    assert (path / "inner" / "b.txt").exists()


def test_snapshots_that_can_not_be_deleted_at_once_are_deleted_a_moment_later(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "FORGET_RETRY_S", 0.01)
    scratch.turn("write b.txt x")
    snapshots, tries = scratch.server.server.engine.recorder.trees.snapshots, list[str]()
    forget = snapshots.forget

    def locked(repository: Any, name: str) -> None:
        tries.append(name)
        if len(tries) < workspaces.FORGET_TRIES:
            raise GitError("Another git process has locked a ref.")
        forget(repository, name)

    monkeypatch.setattr(snapshots, "forget", locked)
    scratch.server.http.delete(f"/api/sessions/{scratch.session}?purge=true").raise_for_status()
    assert len(tries) == workspaces.FORGET_TRIES
    assert scratch.git("for-each-ref", "refs/perdure") == b""


@pytest.mark.parametrize("what", ["find", "forget"])
def test_the_log_says_so_if_the_snapshots_of_an_erased_session_stay(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    monkeypatch.setattr(workspaces, "FORGET_RETRY_S", 0.01)
    scratch.turn("write b.txt x")
    trees = scratch.server.server.engine.recorder.trees

    def failing(*given: Any) -> None:
        raise GitError("It is broken.")

    monkeypatch.setattr(working_trees if what == "find" else trees.snapshots, what, failing)
    scratch.server.http.delete(f"/api/sessions/{scratch.session}?purge=true").raise_for_status()
    (warning,) = [one.getMessage() for one in caplog.records if "could not delete the snapshots" in one.getMessage()]
    assert scratch.session in warning and str(scratch.root) in warning and "It is broken." in warning


def test_only_the_newest_worktrees_are_remembered_for_repeated_requests(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "WORKTREES_MAX", 2)
    made = [own(scratch)[0] for _ in range(3)]
    assert list(scratch.server.server.sessions.workspaces._worktrees) == made[1:]
