"""Generated edit sequences: patches are those of git, and going back restores every byte."""

from pathlib import Path

import pytest

from perdure.runtime.git.apply import apply, check, plan
from perdure.runtime.git.difference import changes, differing, patch
from perdure.runtime.git.snapshot import Snapshots
from tests.runtime.git.edits import Editor
from tests.runtime.git.project import Project, git_modes
from tests.sizes import size


def ignored(path: bytes) -> bool:
    return path.startswith(b"ignored/") or path.endswith(b".ignored")


@pytest.mark.parametrize("seed", range(size("EDIT_SEQUENCES", 200, fast=10)))
def test_patches_equal_those_of_git_and_a_restore_is_exact(seed: int, tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    editor = Editor(project, seed)
    editor.setup()
    snapshots, repository = Snapshots(tmp_path / "data"), project.repository

    first_files, first_private = project.files(), project.private_parts()
    first = snapshots.take(repository)
    assert project.private_parts() == first_private
    assert project.files() == first_files
    for number in range(editor.random.randint(1, 15)):
        editor.step()
        if number % 5 == 4:
            snapshots.take(repository)
    last_files, last_private = project.files(), project.private_parts()
    last = snapshots.take(repository)
    recorded = project.recorded(last.tree)
    assert recorded == {path: file for path, file in git_modes(last_files).items() if path in recorded}
    left_out = {path: file for path, file in last_files.items() if path not in recorded}
    assert all(ignored(path) for path in left_out)

    compare_with_git(project, first.tree, last.tree)

    # There, and back again.
    for target, source, files in ((first, last, first_files), (last, first, last_files)):
        steps = plan(repository, source.tree, target.tree)
        assert check(repository, steps) == []
        assert apply(repository, steps) == []
        assert snapshots.take(repository).tree == target.tree
        # An ignored file that git tracked for a while can be in the first snapshot only.
        assert project.files() == left_out | {path: file for path, file in files.items() if path not in left_out}
        assert project.private_parts() == last_private


def compare_with_git(project: Project, before: str, after: str) -> None:
    repository = project.repository
    assert patch(repository, before, after) == (project.git("diff", before, after), False)
    assert patch(repository, before, after, context=0, ignore_whitespace=True) == (
        project.git("diff", "-w", "-U0", before, after),
        False,
    )
    found = changes(repository, before, after)
    numstat = []
    for change in found:
        counts = b"-\t-\t" if change.binary else b"%d\t%d\t" % (change.added or 0, change.removed or 0)
        names = [change.path] if change.old_path is None else ["", change.old_path, change.path]
        numstat.append(counts + "\0".join(names).encode("utf-8", "surrogateescape") + b"\0")
    assert b"".join(numstat) == project.git("diff", "--numstat", "-z", before, after)
    assert project.git("diff", "--name-only", "-z", "--no-renames", before, after).split(b"\0")[:-1] == [
        path.encode("utf-8", "surrogateescape") for path in differing(repository, before, after)
    ]
    for change in found:
        names = [change.path] if change.old_path is None else [change.old_path, change.path]
        literal = [f":(literal){name}" for name in names]
        expected = project.git("diff", before, after, "--", *literal)
        assert patch(repository, before, after, paths=names) == (expected, False)
        for oid, length in ((change.old_id, change.old_size), (change.new_id, change.new_size)):
            assert length == (None if oid is None else int(project.read_id("cat-file", "-s", oid)))
