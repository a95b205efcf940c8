"""A restore that is killed at any step is completed by the next one, and never leaves half a file."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from perdure.runtime.git.apply import TEMPORARY, Step, apply, plan
from perdure.runtime.git.snapshot import Snapshots
from tests.runtime.git import killed_apply
from tests.runtime.git.edits import Editor
from tests.runtime.git.project import Files, Project
from tests.sizes import size


class Killer:
    """Runs `apply` in children that are killed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def apply(self, changes: int) -> bool:
        """Kill it before the change after `changes` many. Returns whether it had that many."""
        assert self._process.stdin and self._process.stdout
        print(changes, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        assert answer in ("killed", "done"), answer
        return answer == "killed"


@contextmanager
def killer(project: Project, steps: list[Step], folder: Path) -> Iterator[Killer]:
    (folder / "steps.json").write_text(json.dumps(msgspec.to_builtins(steps)))
    command = [sys.executable, killed_apply.__file__, str(project.root), str(folder / "steps.json")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield Killer(process)
        finally:
            process.kill()


class Saved:
    """A copy of a work tree to come back to."""

    def __init__(self, project: Project, folder: Path) -> None:
        self._project = project
        self._folder = folder
        shutil.copytree(project.root, folder, symlinks=True, ignore=shutil.ignore_patterns(".git"))

    def restore(self) -> None:
        for entry in list(os.scandir(self._project.root)):
            if entry.name != ".git":
                shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
        shutil.copytree(self._folder, self._project.root, symlinks=True, dirs_exist_ok=True)


def unfinished(files: Files) -> list[bytes]:
    return [path for path in files if TEMPORARY.fullmatch(os.fsdecode(os.path.basename(path)))]


def assert_old_or_new(files: Files, old: Files, new: Files) -> None:
    """Each path is as it was, as it should be, or not there yet."""
    for path, file in files.items():
        if not TEMPORARY.fullmatch(os.fsdecode(os.path.basename(path))):
            assert file in (old.get(path), new.get(path)), path
    for path in old.keys() & new.keys():
        if old[path] == new[path]:
            assert files[path] == old[path]


@pytest.mark.parametrize("seed", range(size("APPLY_KILLS", 12, fast=1)))
def test_a_restore_that_is_killed_anywhere_is_completed_by_the_next_one(
    seed: int, tmp_path: Path, snapshots: Snapshots
) -> None:
    project = Project(tmp_path / "project")
    editor = Editor(project, 1000 + seed)
    editor.setup()
    repository = project.repository
    new, first = project.files(), snapshots.take(repository)
    for _ in range(12):
        editor.step()
    old, last = project.files(), snapshots.take(repository)
    new |= {path: file for path, file in old.items() if b"ignored" in path}
    private = project.private_parts()
    steps = plan(repository, last.tree, first.tree)
    saved = Saved(project, tmp_path / "saved")
    chance = random.Random(seed)
    with killer(project, steps, tmp_path) as kill:
        changes = 0
        while kill.apply(changes):
            assert_old_or_new(project.files(), old, new)
            # Sometimes the next one is killed too.
            kill.apply(chance.randrange(20))
            assert_old_or_new(project.files(), old, new)
            assert apply(repository, steps) == []
            assert project.files() == new
            assert project.private_parts() == private
            saved.restore()
            changes += 1
    assert project.files() == new
    assert changes >= len(steps)


@pytest.mark.full
def test_what_somebody_changes_after_a_kill_is_left_alone_and_reported(
    project: Project, tmp_path: Path, snapshots: Snapshots
) -> None:
    project.write("deep/er/c.txt", "c\n")
    new, first = project.files(), snapshots.take(project.repository)
    project.write("a.txt", "changed\n")
    project.delete("run.sh")
    project.write("added", "added\n")
    project.write("folder/b.txt", "b\nmore\n")
    shutil.rmtree(project.root / "deep")
    repository = project.repository
    steps = plan(repository, snapshots.take(repository).tree, first.tree)
    saved = Saved(project, tmp_path / "saved")
    with killer(project, steps, tmp_path) as kill:
        for step in steps:
            changes = 0
            while kill.apply(changes):
                project.write(step.path, "by somebody else\n")
                assert [conflict.path for conflict in apply(repository, steps)] == [step.path]
                expected = new | {step.path.encode(): project.files()[step.path.encode()]}
                assert project.files() == expected
                assert project.read(step.path) == b"by somebody else\n"
                saved.restore()
                changes += 1
            assert changes > 5
            saved.restore()


def test_what_somebody_changes_while_it_runs_is_never_lost(
    project: Project, tmp_path: Path, snapshots: Snapshots
) -> None:
    first = snapshots.take(project.repository)
    project.write("a.txt", "changed\n")
    project.delete("run.sh")
    project.write("added", "added\n")
    os.chmod(project.place("folder/b.txt"), 0o755)
    repository = project.repository
    steps = plan(repository, snapshots.take(repository).tree, first.tree)
    saved = Saved(project, tmp_path / "saved")
    for step in steps:
        moment, happened = 0, True
        while happened:
            left, happened = moment, False

            def between(_: str, path: str = step.path) -> None:
                nonlocal left, happened
                left -= 1
                if left < 0 and not happened:
                    happened = True
                    project.write(path, "by somebody else\n")

            conflicts = apply(repository, steps, between=between)
            if happened:
                assert project.read(step.path) == b"by somebody else\n"
                assert {conflict.path for conflict in conflicts} <= {step.path}
            else:
                assert conflicts == []
            assert not unfinished(project.files())
            saved.restore()
            moment += 1
        assert moment > 5
