"""Lists of changes, patches and contents; test_generated_edits.py compares them with git."""

import os
from pathlib import Path

import pytest

from perdure.runtime.git.command import GitError
from perdure.runtime.git.difference import (
    PART_BYTES,
    Entry,
    FileChange,
    TooLarge,
    blob,
    changes,
    content,
    contents,
    differing,
    entries,
    patch,
)
from perdure.runtime.git.snapshot import Snapshots
from tests.runtime.git.project import Project, make_hostile, marked


@pytest.fixture
def trees(project: Project, snapshots: Snapshots) -> tuple[str, str]:
    project.write("moved.txt", "".join(f"line {number}\n" for number in range(30)))
    project.write("kind", "a file\n")
    project.write("image.bin", b"\x00\x01")
    before = snapshots.take(project.repository).tree
    os.rename(project.place("moved.txt"), project.place("folder/moved.txt"))
    project.write("a.txt", "one\n2\nthree\n")
    project.delete("kind")
    project.link("kind", "a.txt")
    project.write("image.bin", b"\x00\x01\x02")
    project.delete("folder/b.txt")
    project.write("new.txt", "new\n")
    os.chmod(project.place("run.sh"), 0o644)
    return before, snapshots.take(project.repository).tree


def test_each_kind_of_change_is_listed(project: Project, trees: tuple[str, str]) -> None:
    found = {change.path: change for change in changes(project.repository, *trees)}
    assert {path: change.status for path, change in found.items()} == {
        "a.txt": "modified",
        "folder/b.txt": "deleted",
        "folder/moved.txt": "renamed",
        "image.bin": "modified",
        "kind": "type_changed",
        "new.txt": "added",
        "run.sh": "modified",
    }
    assert found["folder/b.txt"] == FileChange(
        path="folder/b.txt", old_path=None, status="deleted", old_mode="100644", new_mode=None,
        old_id=project.read_id("rev-parse", "HEAD:folder/b.txt"), new_id=None, binary=False, added=0, removed=1,
        old_size=2, new_size=None,
    )  # fmt: skip
    image, script, kind = found["image.bin"], found["run.sh"], found["kind"]
    assert (image.binary, image.added, image.removed, image.old_size, image.new_size) == (True, None, None, 2, 3)
    assert (script.old_mode, script.new_mode, script.added) == ("100755", "100644", 0)
    assert (kind.old_mode, kind.new_mode, kind.new_size) == ("100644", "120000", 5)
    assert found["folder/moved.txt"].old_path == "moved.txt"


def test_changes_can_be_selected_by_paths_and_folders(project: Project, trees: tuple[str, str]) -> None:
    repository = project.repository
    assert [change.path for change in changes(repository, *trees, paths=["a.txt", "folder"])] == [
        "a.txt",
        "folder/b.txt",
        "folder/moved.txt",
    ]
    assert changes(repository, *trees, paths=[]) == []
    assert patch(repository, *trees, paths=[]) == (b"", False)
    many = ["a.txt", "folder/", *(f"x{number}" for number in range(600))]
    assert [change.path for change in changes(repository, *trees, paths=many)] == [
        "a.txt",
        "folder/b.txt",
        "folder/moved.txt",
    ]
    assert differing(repository, *trees, paths=["new.txt"]).keys() == {"new.txt"}


def test_white_space_can_be_ignored(project: Project, snapshots: Snapshots) -> None:
    before = snapshots.take(project.repository).tree
    project.write("a.txt", "one\n  two\nthree\n")
    project.write("folder/b.txt", " b\nc\n")
    os.chmod(project.place("run.sh"), 0o644)
    after = snapshots.take(project.repository).tree
    found = changes(project.repository, before, after, ignore_whitespace=True)
    assert [(change.path, change.added, change.removed) for change in found] == [
        ("folder/b.txt", 1, 0),
        ("run.sh", 0, 0),
    ]
    text, _ = patch(project.repository, before, after, ignore_whitespace=True)
    assert text == project.git("diff", "-w", before, after)
    assert b"a.txt" not in text


def test_a_long_patch_is_cut_off_between_two_files(project: Project, trees: tuple[str, str]) -> None:
    whole, _ = patch(project.repository, *trees)
    starts = [0, *(index for index in range(len(whole)) if whole.startswith(b"\ndiff --git ", index - 1)), len(whole)]
    for max_bytes in range(0, len(whole) + 2, 7):
        text, truncated = patch(project.repository, *trees, max_bytes=max_bytes)
        assert truncated == (max_bytes < len(whole))
        assert len(text) in starts
        assert whole.startswith(text)
        assert max_bytes >= len(text)


def test_a_patch_is_the_default_one_whatever_the_user_has_configured(
    project: Project, trees: tuple[str, str], tmp_path: Path
) -> None:
    expected = project.git("diff", *trees)
    for key, value in {
        "diff.noprefix": "true", "diff.mnemonicPrefix": "true", "diff.context": "10", "diff.interHunkContext": "5",
        "diff.renames": "false", "diff.renameLimit": "1", "diff.algorithm": "patience", "diff.indentHeuristic": "false",
        "diff.suppressBlankEmpty": "true", "diff.wordRegex": ".", "diff.colorMoved": "zebra", "color.ui": "always",
        "core.abbrev": "20", "core.quotePath": "false", "core.pager": "false", "diff.relative": "true",
        "diff.orderFile": "/nonexistent", "diff.external": "false", "diff.ignoreSubmodules": "all",
    }.items():  # fmt: skip
        project.git("config", key, value)
    assert patch(project.repository, *trees) == (expected, False)
    marks = make_hostile(project, tmp_path / "hostile")
    assert patch(project.repository, *trees) == (expected, False)
    assert len(changes(project.repository, *trees)) == 7
    assert marked(marks) == []


def test_attributes_say_what_is_binary(project: Project, trees: tuple[str, str]) -> None:
    project.write(".gitattributes", "a.txt -diff\n")
    (change,) = changes(project.repository, *trees, paths=["a.txt"])
    assert change.binary
    assert patch(project.repository, *trees, paths=["a.txt"])[0] == project.git("diff", *trees, "--", "a.txt")


def test_contents_are_read_with_a_limit(project: Project) -> None:
    repository, tree = project.repository, "HEAD^{tree}"
    assert content(repository, tree, "a.txt", 14) == b"one\ntwo\nthree\n"
    assert content(repository, tree, "missing", 14) is None
    assert content(repository, tree, "folder", 14) is None
    with pytest.raises(TooLarge, match="larger than 13 bytes"):
        content(repository, tree, "a.txt", 13)
    oid = entries(repository, tree)["run.sh"].oid
    assert blob(repository, oid, 100) == b"#!/bin/sh\n"
    with pytest.raises(GitError):
        blob(repository, "1" * 40, 100)


def test_entries_are_listed_with_modes(project: Project) -> None:
    found = entries(project.repository, "HEAD")
    assert {path: entry.mode for path, entry in found.items()} == {
        "a.txt": "100644",
        "folder/b.txt": "100644",
        "run.sh": "100755",
    }
    assert entries(project.repository, "HEAD", ["folder"]) == {"folder/b.txt": found["folder/b.txt"]}
    assert entries(project.repository, "HEAD", []) == {}
    assert isinstance(found["a.txt"], Entry)


def test_several_contents_are_read_in_parts(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.runtime.git.difference.BATCH_BYTES", PART_BYTES + 2000)
    texts = [os.urandom(size) for size in (0, 1, 1000, PART_BYTES, 5, PART_BYTES + 1)]
    oids = [project.git("hash-object", "-w", "--stdin", input=text).decode().strip() for text in texts]
    with contents(project.repository, [*oids, oids[0]]) as stored:
        for oid, text in [*zip(oids, texts, strict=True), (oids[1], texts[1])]:
            parts = list(stored.parts(oid))
            assert b"".join(parts) == text
            assert all(len(part) <= PART_BYTES for part in parts)
    with pytest.raises(GitError, match="is missing from the repository"), contents(project.repository, ["1" * 40]):
        pass


def test_with_binary_files_a_patch_can_be_applied_and_is_cut_off_between_two_files(
    project: Project, trees: tuple[str, str]
) -> None:
    whole, _ = patch(project.repository, *trees, binary=True)
    assert whole == project.git("diff", "--binary", *trees)
    project.git("read-tree", trees[0])
    project.git("apply", "--cached", input=whole)
    assert project.read_id("write-tree") == trees[1]
    starts = [0, *(index for index in range(len(whole)) if whole.startswith(b"\ndiff --git ", index - 1))]
    for max_bytes in range(0, len(whole), 7):
        text, truncated = patch(project.repository, *trees, binary=True, max_bytes=max_bytes)
        assert truncated
        assert len(text) in starts
