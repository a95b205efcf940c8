"""The index of a snapshot: which files it lets a snapshot skip, and when it is not trusted."""

import os
import shutil
import stat
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from perdure.runtime.git import private_index
from perdure.runtime.git.command import Git, GitTimeout
from perdure.runtime.git.private_index import TOO_RECENT_NS, UNUSED_S, Edition, PrivateIndex
from perdure.runtime.git.snapshot import OverBudget, Snapshot, Snapshots
from tests.runtime.git.project import Project, git_modes


def assert_exact(project: Project, snapshot: Snapshot) -> None:
    assert project.recorded(snapshot.tree) == git_modes(project.files())


def age(snapshots: Path) -> None:
    """Let the last snapshot look later than it was, so that it trusts the times of all files."""
    (index,) = snapshots.glob("*/index")
    later = time.time() + 60
    os.utime(index, (later, later))


def test_unchanged_files_are_not_read_again(project: Project, take: Callable[[], Snapshot], tmp_path: Path) -> None:
    """The object is deleted: recording the file would store it again."""
    project.write("large", os.urandom(100_000))
    first = take()
    oid = project.read_id("rev-parse", f"{first.tree}:large")
    age(tmp_path / "data" / "snapshots")
    (project.root / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
    assert take().tree == first.tree
    assert not (project.root / ".git" / "objects" / oid[:2] / oid[2:]).exists()


@pytest.mark.parametrize("damage", [b"", b"damaged", None], ids=["empty", "damaged", "cut off"])
def test_a_damaged_index_of_a_snapshot_is_made_again(
    project: Project, take: Callable[[], Snapshot], tmp_path: Path, damage: bytes | None
) -> None:
    tree = take().tree
    (index,) = tmp_path.glob("data/snapshots/*/index")
    index.write_bytes(index.read_bytes()[:-30] if damage is None else damage)
    assert take().tree == tree
    project.write("a.txt", "changed\n")
    assert_exact(project, take())


def test_objects_that_the_repository_has_lost_are_stored_again(
    project: Project, take: Callable[[], Snapshot], tmp_path: Path
) -> None:
    project.write("new/file", "new\n")
    project.write("other/file", "other\n")
    take()
    age(tmp_path / "data" / "snapshots")
    project.git("prune", "--expire=now")
    assert_exact(project, take())
    project.git("fsck", "--strict")


def test_a_repository_made_again_at_the_same_place_has_its_own_objects(project: Project, snapshots: Snapshots) -> None:
    project.write("new", "new\n")
    snapshots.take(project.repository)
    shutil.rmtree(project.root / ".git")
    again = Project(project.root)
    assert_exact(again, snapshots.take(again.repository))


def test_private_directories_that_are_not_used_any_more_are_deleted(
    project: Project, snapshots: Snapshots, tmp_path: Path
) -> None:
    old = tmp_path / "data" / "snapshots" / ("0" * 32)
    old.mkdir(parents=True)
    (old / "index").write_bytes(b"x")
    os.utime(old, (1, 1))
    snapshots.take(project.repository)
    assert not old.exists()
    (private,) = tmp_path.glob("data/snapshots/*")
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_a_file_that_changed_just_before_the_snapshot_is_read_again(
    project: Project, take: Callable[[], Snapshot], tmp_path: Path
) -> None:
    take()
    (place,) = tmp_path.glob("data/snapshots/*/index")
    found = os.stat(project.place("a.txt"))
    changed_ns = max(found.st_mtime_ns, found.st_ctime_ns)
    for written_ns, is_current in ((changed_ns + TOO_RECENT_NS, False), (changed_ns + TOO_RECENT_NS + 1, True)):
        os.utime(place, ns=(written_ns, written_ns))
        with PrivateIndex(tmp_path / "data" / "snapshots", project.repository).edition() as edition:
            assert edition.is_current(b"a.txt", found) == is_current
            assert edition.looks_current_to_git(b"a.txt", found)


def test_the_next_try_continues_where_a_snapshot_ran_out_of_time(
    project: Project, take: Callable[[], Snapshot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.runtime.git.snapshot.PART_FILES", 10)
    monkeypatch.setattr("perdure.runtime.git.snapshot.PART_BYTES", 1000)
    for number in range(25):
        project.write(f"new/{number:02}", f"{number}\n")
    project.write("new/99", b"x" * 2000)
    record = Edition.record
    read: list[list[bytes]] = []
    most = 2

    def limited(edition: Edition, git: Git, paths: Collection[bytes]) -> None:
        if len(read) == most:
            raise GitTimeout("There was no time left.")
        record(edition, git, paths)
        read.append(sorted(paths))

    monkeypatch.setattr(Edition, "record", limited)
    with pytest.raises(OverBudget, match="could not be recorded within"):
        take()
    assert [len(part) for part in read] == [10, 10]
    done = {path for part in read for path in part}
    age(tmp_path / "data" / "snapshots")
    read.clear()
    assert_exact(project, take())
    assert [len(part) for part in read] == [8, 1]
    assert not done & {path for part in read for path in part}
    project.git("fsck", "--strict")


def test_an_unfinished_snapshot_does_not_trust_files_that_it_has_not_read(
    project: Project, take: Callable[[], Snapshot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file changes in the same moment as it is recorded, and keeps its times and its size."""
    monkeypatch.setattr("perdure.runtime.git.snapshot.PART_FILES", 1)
    take()
    (place,) = tmp_path.glob("data/snapshots/*/index")
    found = os.stat(project.place("run.sh"))
    os.utime(place, ns=(found.st_ctime_ns, found.st_ctime_ns))
    record = Edition.record

    def only_the_first(edition: Edition, git: Git, paths: Collection[bytes]) -> None:
        if b"run.sh" in paths:
            raise GitTimeout("There was no time left.")
        record(edition, git, paths)

    with monkeypatch.context() as patched:
        patched.setattr(Edition, "record", only_the_first)
        with pytest.raises(OverBudget):
            take()
    age(tmp_path / "data" / "snapshots")
    with PrivateIndex(tmp_path / "data" / "snapshots", project.repository).edition() as edition:
        assert not edition.is_current(b"run.sh", found)
        assert edition.is_current(b"a.txt", os.stat(project.place("a.txt")))


def test_after_a_session_is_forgotten_its_objects_are_not_trusted_any_more(
    project: Project, snapshots: Snapshots, tmp_path: Path
) -> None:
    project.write("new/file", "new\n")
    repository = project.repository
    tree = snapshots.take(repository).tree
    snapshots.keep(repository, "refs/perdure/s1/1", tree, parent_tree=None, note={})
    snapshots.keep(repository, "refs/perdure/s2/1", tree, parent_tree=None, note={})
    age(tmp_path / "data" / "snapshots")
    snapshots.forget(repository, "s1")
    assert list(tmp_path.glob("data/snapshots/*/index"))
    snapshots.forget(repository, "s2")
    assert not list(tmp_path.glob("data/snapshots/*/index"))
    # What is left of a garbage collection: some trees, but not what is in them.
    oid = project.read_id("rev-parse", f"{tree}:new/file")
    (project.root / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
    assert_exact(project, snapshots.take(repository))
    project.git("fsck", "--strict")


def test_an_index_that_was_not_used_for_long_is_made_again(
    project: Project, take: Callable[[], Snapshot], tmp_path: Path
) -> None:
    project.write("new/file", "new\n")
    tree = take().tree
    age(tmp_path / "data" / "snapshots")
    (folder,) = tmp_path.glob("data/snapshots/*")
    before = time.time() - UNUSED_S - 60
    os.utime(folder, (before, before))
    oid = project.read_id("rev-parse", f"{tree}:new/file")
    (project.root / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
    assert_exact(project, take())
    project.git("fsck", "--strict")
    assert folder.stat().st_mtime > time.time() - UNUSED_S
    assert private_index.UNUSED_S < 14 * 86_400


def test_only_directories_of_working_trees_are_deleted_after_a_long_time(
    project: Project, take: Callable[[], Snapshot], tmp_path: Path
) -> None:
    notes, unused = tmp_path / "data/snapshots/open", tmp_path / f"data/snapshots/{'ab' * 16}"
    before = time.time() - UNUSED_S - 60
    for folder in (notes, unused):
        folder.mkdir(parents=True)
        (folder / "s_1").write_text("{}")
        os.utime(folder, (before, before))
    take()
    assert (notes / "s_1").exists() and not unused.exists()
