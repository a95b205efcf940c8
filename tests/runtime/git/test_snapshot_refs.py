"""Refs keep snapshots, know which turns ran at the same time, and go away with their session."""

import json
from typing import Any

import pytest

from perdure.runtime.git.command import GitError
from perdure.runtime.git.snapshot import Snapshots
from tests.runtime.git.project import Project


def test_a_kept_snapshot_survives_garbage_collection(project: Project, snapshots: Snapshots) -> None:
    repository = project.repository
    first = snapshots.take(repository)
    project.write("new", "new\n")
    second = snapshots.take(repository)
    commit = snapshots.keep(
        repository, "refs/perdure/s1/1", second.tree, parent_tree=first.tree, note={"text": "ä \udcff\n"}
    )
    project.delete("new")
    project.git("gc", "--prune=now", "--quiet")
    assert project.git("cat-file", "blob", f"{commit}:new") == b"new\n"
    assert project.read_id("rev-parse", f"{commit}^^{{tree}}") == first.tree
    note = json.loads(project.git("log", "-1", "--format=%B", commit))
    assert note == {"root": repository.root, "text": "ä \udcff\n"}
    project.git("fsck", "--strict")


def test_a_ref_can_be_written_again(project: Project, snapshots: Snapshots) -> None:
    repository = project.repository
    tree = snapshots.take(repository).tree
    for number in range(2):
        commit = snapshots.keep(repository, "refs/perdure/s1/1", tree, parent_tree=None, note={"number": number})
    assert project.read_id("rev-parse", "refs/perdure/s1/1") == commit
    assert not (project.root / ".git" / "logs" / "refs" / "perdure").exists()


def test_no_identity_and_no_settings_of_the_user_are_needed(project: Project, snapshots: Snapshots) -> None:
    project.git("config", "user.useConfigOnly", "true")
    project.git("config", "i18n.commitEncoding", "latin1")
    project.git("config", "core.logAllRefUpdates", "always")
    repository = project.repository
    commit = snapshots.keep(repository, "refs/perdure/s1/1", snapshots.take(repository).tree, parent_tree=None, note={})
    said = project.git("cat-file", "commit", commit)
    assert b"author Perdure <perdure@localhost>" in said
    assert b"encoding" not in said
    assert not (project.root / ".git" / "logs" / "refs" / "perdure").exists()


@pytest.mark.parametrize("packed", [False, True])
def test_forgetting_a_session_deletes_its_refs_and_no_others(
    project: Project, snapshots: Snapshots, packed: bool
) -> None:
    repository = project.repository
    tree = snapshots.take(repository).tree
    for name in ("s1/1", "s1/2", "s10/1"):
        snapshots.keep(repository, f"refs/perdure/{name}", tree, parent_tree=None, note={})
    # An agent can write notes too.
    snapshots.keep(repository, "refs/perdure/s1/3", tree, parent_tree=None, note={"root": "\ud800"})
    nested = project.read_id("commit-tree", "-m", "[" * 100_000, tree)
    project.git("update-ref", "refs/perdure/s1/4", nested)
    if packed:
        project.git("pack-refs", "--all")
    snapshots.forget(repository, "s1")
    snapshots.forget(repository, "unknown")
    assert project.git("for-each-ref", "--format=%(refname)") == b"refs/heads/main\nrefs/perdure/s10/1\n"
    assert not (project.root / ".git" / "refs" / "perdure" / "s1").exists()


def test_turns_of_other_sessions_at_the_same_time_are_found(project: Project, snapshots: Snapshots) -> None:
    repository = project.repository
    tree = snapshots.take(repository).tree
    notes: dict[str, dict[str, Any]] = {
        "mine/1": {"since_ms": 100, "until_ms": 200},
        "before/1": {"since_ms": 10, "until_ms": 99},
        "over/2": {"since_ms": 50, "until_ms": 150},
        "within/13": {"since_ms": 120, "until_ms": 130},
        "running/1": {"since_ms": 150},
        "later/1": {"since_ms": 201, "until_ms": 300},
        "elsewhere/1": {"since_ms": 120, "until_ms": 130, "root": "/other"},
        "strange/1": {"since_ms": "x"},
        "strange/x": {"since_ms": 120},
    }
    for name, note in notes.items():
        snapshots.keep(repository, f"refs/perdure/{name}", tree, parent_tree=None, note=note)
    project.git("update-ref", "refs/perdure/foreign/1", "HEAD")
    found = snapshots.overlapping(repository, "mine", 100, 200)
    assert found == [("over", 2, 50, False), ("running", 1, 150, True), ("within", 13, 120, False)]


def test_a_tree_that_does_not_exist_is_an_error(project: Project, snapshots: Snapshots) -> None:
    repository = project.repository
    with pytest.raises(GitError, match="is not a valid object"):
        snapshots.keep(repository, "refs/perdure/s/1", "0" * 39 + "1", parent_tree=None, note={})
