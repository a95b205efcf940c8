"""Generated merges and rebases equal those of git, and one that is killed anywhere is completed by the next."""

import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perdure.runtime.git import apply as applying
from perdure.runtime.git import merge
from perdure.runtime.git.command import GitError
from perdure.runtime.git.merge import MergeConflict, MergePlan, Strategy, finish, preview
from tests.runtime.git.edits import Editor
from tests.runtime.git.killed_finish import KILL_STEP, killed
from tests.runtime.git.project import COMMAND_TIMEOUT_S, IDENTITY, Project, git_modes
from tests.runtime.git.session import AUTHOR, Session, state, status
from tests.sizes import size

STRATEGIES: tuple[Strategy, Strategy] = ("merge", "rebase")


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AUTHOR.items():
        monkeypatch.setenv(name, value)


def succeeds(project: Project, *args: str) -> bool:
    command = ["git", *IDENTITY, *args]
    return subprocess.run(command, cwd=project.root, capture_output=True, timeout=COMMAND_TIMEOUT_S).returncode == 0


def history(tmp_path: Path, seed: int) -> tuple[Project, Session, random.Random]:
    """A project and a session that both have commits since the session began, and uncommitted edits."""
    project = Project(tmp_path / "project")
    editor = Editor(project, 9000 + seed)
    editor.setup()
    project.commit("start")
    session = Session(project, "x")
    project.git("config", "merge.conflictStyle", "merge")
    agent = Editor(session, 9500 + seed)
    for _ in range(editor.random.randint(1, 3)):
        for _ in range(editor.random.randint(1, 3)):
            agent.step()
        session.commit("by the agent")
    if editor.random.random() < 0.8:
        for _ in range(editor.random.randint(1, 3)):
            editor.step()
        project.commit("by the user")
    for _ in range(editor.random.choice([0, 0, 1, 2])):
        editor.step()
    return project, session, editor.random


def with_git(project: Project, strategy: Strategy, folder: Path) -> Project | None:
    """A copy of the project in which git has merged; None if it has not."""
    shutil.copytree(project.root, folder, symlinks=True)
    copy = Project(folder)
    shutil.rmtree(folder / ".git" / "worktrees")
    if strategy == "rebase":
        place = folder.with_name(f"{folder.name}-rebased")
        copy.git("worktree", "add", "--quiet", str(place), "perdure/x")
        if not succeeds(copy, "-C", str(place), "rebase", "--quiet", "main"):
            return None
        return copy if succeeds(copy, "merge", "--quiet", "--ff-only", "perdure/x") else None
    return copy if succeeds(copy, "merge", "--quiet", "--no-edit", "perdure/x") else None


@pytest.mark.parametrize("seed", range(size("MERGES", 24, fast=4)))
def test_generated_merges_and_rebases_equal_those_of_git(seed: int, tmp_path: Path) -> None:
    project, session, _ = history(tmp_path, seed)
    before, private = state(project, session), project.private_parts()
    staged = project.git("diff", "--cached", "--name-only", "-z").split(b"\0")
    for strategy in STRATEGIES:
        found = preview(session.worktree, strategy)
        assert (state(project, session), project.private_parts()) == (before, private)
        if found.blocked is None:
            assert bool(found.conflicts) == isinstance(attempt(session, strategy), MergeConflict)
    strategy = STRATEGIES[seed % 2]
    expected = with_git(project, strategy, tmp_path / "copy")
    plan = attempt(session, strategy)
    if isinstance(plan, GitError):
        assert state(project, session) == before
        # git overwrites ignored files, and creates files again that somebody has deleted.
        is_stricter = any(word in plan.message for word in ("in the way", "local changes", "staged changes"))
        assert expected is None or is_stricter or "nothing to merge" in plan.message, plan.message
        return
    assert finish(plan) == []
    assert state(project)["leftovers"] == []
    untouched = [line for line in project.git("diff", "--cached", "--name-only", "-z").split(b"\0") if line]
    assert sorted(untouched) == sorted(path for path in staged if path)
    if expected is None:
        # git refuses to merge while anything at all is staged or, in a rebase, changed.
        assert any(staged) or status(project)
        return
    assert project.git("rev-parse", "main^{tree}") == expected.git("rev-parse", "main^{tree}")
    log = ("log", "--format=%an %ae %ad%n%B", "--name-status", "main")
    if strategy == "rebase":
        assert project.git(*log) == expected.git(*log)
    assert git_modes(project.files()) == git_modes(expected.files())
    assert project.git("ls-files", "--stage") == expected.git("ls-files", "--stage")
    assert status(project) == status(expected)


def attempt(session: Session, strategy: Strategy) -> MergePlan | GitError:
    try:
        return session.plan(strategy)
    except GitError as error:
        return error


def copied(place: Path, saved: Path) -> None:
    """Bring a folder back to a saved state, at the same path: worktrees know each other by their paths."""
    shutil.rmtree(place)
    shutil.copytree(saved, place, symlinks=True)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("is_forward", [False, True])
def test_a_merge_that_is_killed_anywhere_is_completed_by_the_next_one(
    strategy: Strategy, is_forward: bool, tmp_path: Path
) -> None:
    project = Project(tmp_path / "all" / "project")
    project.git("config", "core.autocrlf", "true")
    for name in ("a.txt", "gone/b.txt", "folder/staged.txt", "c.txt"):
        project.write(name, f"{name}\r\n")
    project.commit("first")
    session = Session(project, "x")
    session.write("a.txt", "changed\r\n")
    session.write("new/file.txt", "new\r\n")
    session.delete("gone/b.txt")
    session.link("link", "a.txt")
    session.commit("by the agent")
    session.write("c.txt", "not committed\r\n")
    session.git("add", "c.txt")
    if not is_forward:
        project.write("by-user.txt", "by the user\r\n")
        project.commit("by the user")
    project.write("folder/staged.txt", "staged\r\n")
    project.git("add", "folder/staged.txt")
    project.write("folder/staged.txt", "and changed\r\n")
    project.write("untracked", "untracked\r\n")
    plan = session.plan(strategy)
    old = state(project, session)
    shutil.copytree(tmp_path / "all", tmp_path / "saved", symlinks=True)
    assert finish(plan) == []
    new = state(project, session)
    assert new["leftovers"] == []
    assert status(project) == ["MM folder/staged.txt", "?? untracked"]
    assert status(session) == ["M  c.txt"]
    chance, changes = random.Random(0), 0
    while True:
        copied(tmp_path / "all", tmp_path / "saved")
        if not killed(lambda: finish(plan), changes):
            break
        check_between(state(project, session), old, new)
        killed(lambda: finish(plan), chance.randrange(30))
        check_between(state(project, session), old, new)
        assert finish(plan) == []
        assert state(project, session) == new
        changes += KILL_STEP
    assert state(project, session) == new
    assert finish(plan) == []
    assert state(project, session) == new
    assert changes > 30


def check_between(now: dict[str, Any], old: dict[str, Any], new: dict[str, Any]) -> None:
    """All branches are old or all are new, and so is each file and each index."""
    assert now["refs"] in (old["refs"], new["refs"])
    for tree, before, after in zip(now["trees"], old["trees"], new["trees"], strict=True):
        assert tree["index"] in (before["index"], after["index"])
        if now["refs"] == old["refs"]:
            assert tree["files"] == before["files"]
        for path in {*tree["files"], *before["files"], *after["files"]}:
            if not applying.TEMPORARY.fullmatch(os.fsdecode(os.path.basename(path))):
                file = tree["files"].get(path)
                assert file in (before["files"].get(path), after["files"].get(path))


def test_what_somebody_changes_after_a_kill_is_left_alone_and_returned(tmp_path: Path) -> None:
    project = Project(tmp_path / "all" / "project")
    project.write("a.txt", "a\n")
    project.write("b.txt", "b\n")
    project.commit("first")
    session = Session(project, "x")
    session.write("a.txt", "changed\n")
    session.write("b.txt", "changed\n")
    session.commit()
    plan = session.plan()
    shutil.copytree(tmp_path / "all", tmp_path / "saved", symlinks=True)
    changes = 0
    while killed(lambda: finish(plan), changes):
        is_begun = project.read_id("rev-parse", "main") == plan.base_new
        project.write("a.txt", "by the user\n")
        if is_begun:
            assert [conflict.path for conflict in finish(plan)] == ["a.txt"]
            assert status(project) == [" M a.txt"]
            assert project.read("b.txt") == b"changed\n"
        else:
            with pytest.raises(GitError):
                finish(plan)
            assert project.read("b.txt") == b"b\n"
            assert status(project) == [" M a.txt"]
        assert project.read("a.txt") == b"by the user\n"
        assert state(project)["leftovers"] == []
        copied(tmp_path / "all", tmp_path / "saved")
        changes += KILL_STEP
    assert changes > 15


def test_a_user_who_has_gone_on_after_a_kill_is_left_alone(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    project.write("a.txt", "a\n")
    project.commit("first")
    session = Session(project, "x")
    session.write("a.txt", "changed\n")
    session.commit()
    plan = session.plan()
    # Killed after the branch had moved; then the user removed the lock and committed.
    project.git("update-ref", "refs/heads/main", plan.base_new)
    project.git("commit", "--quiet", "--all", "--message", "by the user")
    before = state(project, session)
    assert merge.finish(plan) == []
    assert state(project, session) == before
