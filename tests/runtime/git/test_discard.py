"""Discarding a file's change or some of its hunks is exact, and merges with what happened since."""

import os
import random

import pytest

from perdure.core.patch import hunks as parse
from perdure.runtime.git.apply import apply
from perdure.runtime.git.command import GitError
from perdure.runtime.git.difference import patch
from perdure.runtime.git.discard import without
from perdure.runtime.git.snapshot import Snapshots
from tests.runtime.git.project import Project
from tests.sizes import size

LINES = [f"line {number}\n".encode() for number in range(40)]


class Stage:
    """A work tree before and after a turn."""

    def __init__(self, project: Project, snapshots: Snapshots) -> None:
        self.project = project
        self.snapshots = snapshots
        self.before = self.after = ""

    def take(self) -> str:
        return self.snapshots.take(self.project.repository).tree

    def discard(self, path: str, hunks: list[int] | None = None) -> None:
        steps = without(self.project.repository, self.before, self.after, self.take(), path, hunks)
        assert apply(self.project.repository, steps) == []


@pytest.fixture
def stage(project: Project, snapshots: Snapshots) -> Stage:
    """Three hunks in one file, and each other kind of change."""
    project.write("code", b"".join(LINES))
    project.write("old-name", b"".join(LINES[:20]))
    project.write("deleted", "deleted\n")
    project.write("binary", b"\x00\x01")
    project.write("link", "a file\n")
    made = Stage(project, snapshots)
    made.before = made.take()
    project.write("code", b"".join([b"first\n", *LINES[:20], b"middle\n", *LINES[21:39], b"last"]), mode=0o755)
    os.rename(project.place("old-name"), project.place("new-name"))
    project.write("new-name", b"".join([*LINES[:19], b"changed\n"]))
    project.delete("deleted")
    project.write("added", "added\n")
    project.write("binary", b"\x00\x02")
    project.delete("link")
    project.link("link", "code")
    made.after = made.take()
    return made


def test_single_hunks_are_taken_back(stage: Stage) -> None:
    stage.discard("code", [1])
    assert stage.project.read("code") == b"".join([b"first\n", *LINES[:39], b"last"])
    assert os.access(stage.project.place("code"), os.X_OK)
    stage.after = stage.take()
    stage.discard("code", [1])
    assert stage.project.read("code") == b"".join([b"first\n", *LINES])


def test_all_hunks_leave_the_mode_and_the_whole_change_does_not(stage: Stage) -> None:
    stage.discard("code", [2, 0, 1, 0])
    assert stage.project.read("code") == b"".join(LINES)
    assert os.access(stage.project.place("code"), os.X_OK)
    stage.discard("code")
    assert not os.access(stage.project.place("code"), os.X_OK)


def test_the_whole_change_is_taken_back_whatever_its_kind(stage: Stage) -> None:
    for path in ("code", "new-name", "deleted", "added", "binary", "link"):
        stage.discard(path)
        stage.discard(path)
    assert stage.take() == stage.before


def test_the_only_hunk_of_a_new_or_deleted_file_is_the_whole_change(stage: Stage) -> None:
    stage.discard("added", [0])
    stage.discard("deleted", [0])
    files = stage.project.files()
    assert b"added" not in files
    assert files[b"deleted"][1] == b"deleted\n"


def test_a_hunk_of_a_renamed_file_leaves_its_name(stage: Stage) -> None:
    stage.discard("new-name", [0])
    assert stage.project.read("new-name") == b"".join(LINES[:20])
    assert not os.path.exists(stage.project.place("old-name"))


def test_other_changes_since_then_are_kept(stage: Stage) -> None:
    text = stage.project.read("code").replace(b"line 10\n", b"by a person\n")
    stage.project.write("code", text, mode=0o755)
    stage.discard("code", [0])
    assert stage.project.read("code") == text.removeprefix(b"first\n")
    stage.discard("code")
    assert stage.project.read("code") == b"".join(LINES).replace(b"line 10\n", b"by a person\n")
    stage.project.write("new-name", stage.project.read("new-name").replace(b"line 3\n", b"by a person\n"))
    stage.discard("new-name")
    assert stage.project.read("old-name") == b"".join(LINES[:20]).replace(b"line 3\n", b"by a person\n")


def test_a_change_in_the_same_place_is_a_conflict_with_a_sentence(stage: Stage) -> None:
    stage.project.write("code", stage.project.read("code").replace(b"middle\n", b"by a person\n"), mode=0o755)
    before = stage.project.files()
    with pytest.raises(GitError, match="code was changed later in the same place"):
        stage.discard("code", [1])
    stage.project.write("binary", b"\x00\x03")
    with pytest.raises(GitError, match="binary was changed later in the same place"):
        stage.discard("binary")
    stage.project.write("added", "changed since\n")
    with pytest.raises(GitError, match="added was changed since, so it can't be deleted"):
        stage.discard("added")
    stage.project.write("deleted", "created again\n")
    with pytest.raises(GitError, match="deleted was deleted and then created again"):
        stage.discard("deleted")
    stage.project.write("old-name", "created again\n")
    with pytest.raises(GitError, match="old-name exists, so new-name can't get this name back"):
        stage.discard("new-name")
    stage.project.delete("link")
    stage.project.link("link", "elsewhere")
    with pytest.raises(GitError, match="link was changed since, and is or was a link"):
        stage.discard("link")
    assert stage.project.read("code") == before[b"code"][1]
    stage.project.delete("code")
    with pytest.raises(GitError, match="code was deleted since"):
        stage.discard("code", [0])


def test_what_can_not_be_discarded_is_refused(stage: Stage) -> None:
    with pytest.raises(GitError, match=r"a\.txt has no change to discard"):
        stage.discard("a.txt")
    with pytest.raises(GitError, match="binary has no lines"):
        stage.discard("binary", [0])
    with pytest.raises(GitError, match="link has no lines"):
        stage.discard("link", [0])
    with pytest.raises(GitError, match="code has changes in 3 places, numbered from 0"):
        stage.discard("code", [3])
    with pytest.raises(GitError, match="code has changes in 3 places, numbered from 0"):
        stage.discard("code", [-1])
    assert stage.take() == stage.after


@pytest.mark.parametrize("seed", range(size("DISCARDS", 60, fast=5)))
def test_generated_hunks_are_taken_back_exactly(seed: int, project: Project, snapshots: Snapshots) -> None:
    """Taking back hunks one after the other, in any order, leads to the bytes of the first state."""
    chance = random.Random(seed)
    ends = chance.choice([[b"\n"], [b"\r\n"], [b"\n", b"\r\n", b"\r\r\n"]])

    def text(count: int) -> list[bytes]:
        return [b"%d%s" % (chance.randrange(9), chance.choice(ends)) for _ in range(count)]

    old = text(chance.randrange(60))
    new = list(old)
    for _ in range(chance.randint(1, 6)):
        place = chance.randint(0, len(new))
        new[place : place + chance.randrange(3)] = text(chance.randrange(3))
    contents = [b"".join(lines)[: None if chance.random() < 0.7 else -1] for lines in (old, new)]
    stage = Stage(project, snapshots)
    project.write("code", contents[0])
    stage.before = stage.take()
    project.write("code", contents[1])
    stage.after = stage.take()
    while left := parse(patch(project.repository, stage.before, stage.after)[0]):
        stage.discard("code", [chance.randrange(len(left))])
        stage.after = stage.take()
        assert len(parse(patch(project.repository, stage.before, stage.after)[0])) == len(left) - 1
    assert project.read("code") == contents[0]
