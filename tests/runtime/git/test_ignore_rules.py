"""Ignored files are in no snapshot: changed ignore rules don't change them, and a restore never deletes them."""

from collections.abc import Callable, Collection

import pytest

from perdure.runtime.git import apply, difference, discard
from perdure.runtime.git.command import GitError
from perdure.runtime.git.ignore_rules import ignored
from perdure.runtime.git.snapshot import Snapshot, ignored_between
from perdure.runtime.review.comparison import compare
from perdure.runtime.review.records import Change
from tests.runtime.git.project import Project


def turn(project: Project, before: Snapshot, after: Snapshot) -> Change:
    """What the changes of a turn show."""
    alone = [*before.left_alone, *after.left_alone]
    change = Change(turn=1, state="ready", before=before.tree, after=after.tree, left_alone=alone)
    return compare(project.repository, change)[0]


def alone(change: Change) -> dict[str, str]:
    return {each.path: each.kind for each in change.left_alone}


def restore(project: Project, now: Snapshot, target: Snapshot, without: Collection[str] = ()) -> None:
    steps = apply.plan(project.repository, now.tree, target.tree, without=without)
    assert apply.apply(project.repository, steps) == []


def test_a_file_that_is_no_longer_ignored_is_not_new_and_a_restore_leaves_it(
    project: Project, take: Callable[[], Snapshot]
) -> None:
    project.write(".gitignore", ".env\nlogs/\n")
    project.write(".env", "secret\n")
    project.write("logs/one", "1\n")
    project.write("logs/two", "2\n")
    before = take()
    project.write(".gitignore", "")
    project.write("new", "new\n")
    after = take()
    change = turn(project, before, after)
    assert [file.path for file in change.files] == [".gitignore", "new"]
    assert alone(change) == {".env": "ignored", "logs/": "ignored"}
    restore(project, after, before)
    assert project.read(".gitignore") == b".env\nlogs/\n"
    assert project.read(".env") == b"secret\n"
    assert project.read("logs/two") == b"2\n"
    assert b"new" not in project.files()
    assert take().tree == before.tree


def test_a_file_that_is_ignored_now_is_not_deleted_and_undoing_a_restore_leaves_it(
    project: Project, take: Callable[[], Snapshot]
) -> None:
    project.write(".env", "secret\n")
    project.write("node_modules/a/index.js", "a\n")
    project.write("node_modules/b/index.js", "b\n")
    project.write("gone.log", "log\n")
    before = take()
    project.write(".gitignore", ".env\nnode_modules/\n*.log\n")
    project.delete("gone.log")
    after = take()
    change = turn(project, before, after)
    assert [(file.path, file.status) for file in change.files] == [(".gitignore", "added"), ("gone.log", "deleted")]
    assert alone(change) == {".env": "ignored", "node_modules/": "ignored"}
    restore(project, after, before)
    restored = take()
    assert restored.tree == before.tree
    restore(project, restored, after)
    assert project.read(".env") == b"secret\n"
    assert project.read("node_modules/b/index.js") == b"b\n"
    assert take().tree == after.tree


def test_an_ignored_file_that_has_changed_stays_and_does_not_stop_a_restore(
    project: Project, take: Callable[[], Snapshot]
) -> None:
    project.write(".env", "secret\n")
    project.write("other.env", "other\n")
    before = take()
    project.write(".gitignore", "*.env\n")
    project.write(".env", "changed later\n")
    project.delete("other.env")
    restore(project, take(), before)
    assert project.read(".env") == b"changed later\n"
    assert project.read("other.env") == b"other\n"
    assert b".gitignore" not in project.files()


def test_a_file_that_is_untracked_and_ignored_in_one_turn_is_not_deleted(
    project: Project, take: Callable[[], Snapshot]
) -> None:
    before = take()
    project.git("rm", "--quiet", "--cached", "a.txt")
    project.write(".gitignore", "a.txt\n")
    change = turn(project, before, take())
    assert [file.path for file in change.files] == [".gitignore"]
    assert alone(change) == {"a.txt": "ignored"}


def test_rules_of_nested_folders_exceptions_and_special_names_are_those_of_git(
    project: Project, take: Callable[[], Snapshot]
) -> None:
    project.write(".gitignore", "*.log\n!kept.log\n/out/\nempty/\n")
    project.write("folder/.gitignore", "private\n")
    project.write("out/tracked.js", "x\n")
    project.git("add", "--force", "out/tracked.js")
    project.link("linked/.gitignore", "../.gitignore")
    tree = take().tree
    names = [
        "x.log", "deep/x.log", "kept.log", "folder/private", "private", "out/x.js", "empty/a/b", ":(top)x.log", "*.log",
        "line\nbreak.log", "deep/out/x.js",
    ]  # fmt: skip
    assert ignored(project.repository, tree, names) == {
        "x.log": "x.log",
        "deep/x.log": "deep/x.log",
        "folder/private": "folder/private",
        # The folder has a file that git tracks, so it isn't ignored as a whole.
        "out/x.js": "out/x.js",
        "empty/a/b": "empty/",
        ":(top)x.log": ":(top)x.log",
        "*.log": "*.log",
        "line\nbreak.log": "line\nbreak.log",
    }


def test_without_changed_rules_a_patch_is_that_of_git(project: Project, take: Callable[[], Snapshot]) -> None:
    project.write(".gitignore", "*.log\n")
    before = take()
    project.write("forced.log", "forced\n")
    project.git("add", "--force", "forced.log")
    project.delete("a.txt")
    after = take()
    change = Change(turn=1, state="ready", before=before.tree, after=after.tree)
    found, patch = compare(project.repository, change)
    assert patch == project.git("diff", before.tree, after.tree)
    assert [file.path for file in found.files] == ["a.txt", "forced.log"]
    assert found.left_alone == []


def test_a_deleted_file_is_not_shown_as_renamed_to_one_that_was_ignored(
    project: Project, take: Callable[[], Snapshot]
) -> None:
    project.write(".gitignore", "copy\n")
    project.write("copy", "one\ntwo\nthree\n")
    before = take()
    project.write(".gitignore", "")
    project.delete("a.txt")
    after = take()
    assert "renamed" in {change.status for change in difference.changes(project.repository, before.tree, after.tree)}
    change = turn(project, before, after)
    assert [(file.path, file.status) for file in change.files] == [(".gitignore", "modified"), ("a.txt", "deleted")]


def test_a_file_that_was_ignored_before_is_not_discarded(project: Project, take: Callable[[], Snapshot]) -> None:
    project.write(".gitignore", ".env\n")
    project.write(".env", "secret\n")
    before = take().tree
    project.write(".gitignore", "")
    after = take().tree
    with pytest.raises(GitError, match="nobody knows whether it is new"):
        discard.without(project.repository, before, after, after, ".env")


def test_two_equal_snapshots_need_no_rules(project: Project, take: Callable[[], Snapshot]) -> None:
    tree = take().tree
    assert ignored_between(project.repository, tree, tree) == []
