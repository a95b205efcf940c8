"""Sessions with a worktree of their own, over HTTP: where none can be made, and what keeps one from being removed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
