"""A session's own worktree: created from the project's branch, repaired after losses, removed only without a loss."""

import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure.runtime.git import commit, worktree
from perdure.runtime.git.command import GitError
from perdure.runtime.git.worktree import (
    Worktree,
    create,
    ensure,
    is_complete,
    plan,
    removable,
    remove,
    status,
    uncommitted,
)
from tests.runtime.git.killed_finish import KILL_STEP, killed
from tests.runtime.git.project import Project, make_hostile, marked
from tests.runtime.git.session import Session, state
from tests.runtime.git.session import status as git_status


def refs(project: Project) -> str:
    return project.git("for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads").decode()


def parts(project: Project) -> dict[str, tuple[int, bytes]]:
    """The user's part of the repository, without what belongs to the session's worktree."""
    ours = ("worktrees", "refs/heads/perdure", "logs/refs/heads/perdure")
    return {path: part for path, part in project.private_parts().items() if not path.startswith(ours)}


def test_a_session_gets_the_committed_files_and_the_project_stays_as_it_is(project: Project) -> None:
    project.write("a.txt", "not committed\n")
    project.write("untracked", "untracked\n")
    project.git("add", "a.txt")
    before, files = parts(project), project.files()
    session = Session(project, "x")
    own = session.worktree
    assert parts(project) == before
    assert project.files() == files
    assert session.files() == project.recorded("HEAD")
    assert git_status(session) == []
    assert own == Worktree(
        repository=str(project.root),
        path=str(session.root),
        branch="perdure/x",
        base="main",
        base_commit=project.read_id("rev-parse", "HEAD"),
        workdir=str(session.root),
    )
    found = status(own)
    assert (found.missing, found.ahead, found.behind, found.merged, found.dirty) == (False, 0, 0, True, 0)
    assert (found.checked_out, found.in_progress, found.reason) == ("perdure/x", None, None)


def test_a_project_below_the_top_gets_its_folder_in_the_worktree(project: Project, tmp_path: Path) -> None:
    own = create(str(project.root / "folder"), str(tmp_path / "s"), "perdure/x")
    assert own.workdir == str(tmp_path / "s" / "folder")
    assert os.listdir(own.workdir) == ["b.txt"]
    (project.root / "untracked").mkdir()
    own = create(str(project.root / "untracked"), str(tmp_path / "t"), "perdure/y")
    assert os.listdir(own.workdir) == []


def test_directories_that_can_have_no_worktree_are_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    folder = str(tmp_path / "s")
    with pytest.raises(GitError, match="not in a git repository"):
        plan(str(tmp_path / "plain"), folder, "perdure/x")
    new = Project(tmp_path / "new")
    with pytest.raises(GitError, match="has no commit yet"):
        plan(str(new.root), folder, "perdure/x")
    bare = Project(tmp_path / "bare", "--bare")
    with pytest.raises(GitError, match="bare repository"):
        plan(str(bare.root), folder, "perdure/x")
    new.write("a")
    new.commit()
    (new.root / ".git" / "rebase-merge").mkdir()
    with pytest.raises(GitError, match="rebase is in progress"):
        plan(str(new.root), folder, "perdure/x")
    assert not os.path.lexists(folder)


def test_a_branch_name_that_is_taken_gets_a_number(project: Project, tmp_path: Path) -> None:
    def branch(wanted: str) -> str:
        return plan(str(project.root), str(tmp_path / "s"), wanted).branch

    project.git("branch", "perdure/x")
    project.git("branch", "perdure/x-2")
    project.git("branch", "perdure/Y")
    project.git("branch", "perdure/z/deep")
    assert branch("perdure/x") == "perdure/x-3"
    assert branch("perdure/y") == "perdure/y-2"
    assert branch("perdure/z") == "perdure/z-2"
    project.git("branch", "-D", "perdure/x", "perdure/x-2", "perdure/Y", "perdure/z/deep")
    project.git("branch", "perdure")
    assert branch("perdure/x") == "perdure-x"


def test_from_a_detached_head_there_is_no_base(project: Project) -> None:
    project.git("checkout", "--quiet", "--detach")
    session = Session(project, "x")
    assert session.worktree.base is None
    assert status(session.worktree).ahead == 0
    session.write("new")
    session.commit()
    assert status(session.worktree).ahead == 1
    assert "not on any other branch" in (removable(session.worktree) or "")
    project.git("branch", "kept", "perdure/x")
    assert remove(session.worktree)


def test_a_deleted_folder_or_branch_is_created_again(project: Project) -> None:
    session = Session(project, "x")
    session.write("new", "new\n")
    session.commit()
    expected = state(session)
    shutil.rmtree(session.root)
    found = status(session.worktree)
    assert found.missing and found.reason and "is missing" in found.reason
    assert found.ahead == 1
    ensure(session.worktree)
    assert state(session) == expected
    assert git_status(session) == []
    shutil.rmtree(session.root)
    project.git("worktree", "prune")
    project.git("update-ref", "-d", "refs/heads/perdure/x")
    ensure(session.worktree)
    assert session.files() == project.recorded("main")
    # Without a branch, the files of an existing folder stay.
    session.write("new", "new\n")
    project.git("update-ref", "-d", "refs/heads/perdure/x")
    ensure(session.worktree)
    assert git_status(session) == ["?? new"]


def test_what_an_agent_did_in_its_folder_is_never_overwritten(project: Project) -> None:
    session = Session(project, "x")
    session.write("a.txt", "changed\n")
    session.delete("run.sh")
    files = session.files()
    assert ensure(session.worktree) == []
    assert session.files() == files
    for path in list(session.files()):
        session.delete(path)
    shutil.rmtree(session.root / "folder")
    ensure(session.worktree)
    assert session.files() == {}
    session.write("work", "work\n")
    os.unlink(Path(session.repository.git_dir, "index"))
    ensure(session.worktree)
    assert set(session.files()) == {b"work"}
    assert "?? work" in git_status(session)
    assert "?? a.txt" not in git_status(session)
    # The repository has forgotten the worktree.
    shutil.rmtree(project.root / ".git" / "worktrees")
    with pytest.raises(GitError, match="Move it away"):
        ensure(session.worktree)
    assert "is not a worktree" in (removable(session.worktree) or "")
    assert (session.root / "work").read_text() == "work\n"


def test_a_branch_that_is_checked_out_elsewhere_is_not_checked_out_twice(project: Project) -> None:
    session = Session(project, "x")
    shutil.rmtree(session.root)
    project.git("worktree", "prune")
    project.git("checkout", "--quiet", "perdure/x")
    with pytest.raises(GitError, match="already checked out"):
        ensure(session.worktree)
    assert remove(session.worktree) is False
    assert project.git("branch", "--show-current") == b"perdure/x\n"


def test_hooks_and_filters_do_not_run_and_filtered_files_are_named(project: Project, tmp_path: Path) -> None:
    project.write("data.bin", "a pointer\n")
    project.write(".gitattributes", "*.bin filter=evil\n")
    project.commit("stored")
    marks = make_hostile(project, tmp_path)
    (project.root / ".git" / "info" / "attributes").unlink()
    own = plan(str(project.root), str(tmp_path / "s"), "perdure/x")
    notes = ensure(own)
    assert len(notes) == 1 and "stored through the filter evil" in notes[0] and "data.bin" in notes[0]
    assert (tmp_path / "s" / "data.bin").read_text() == "a pointer\n"
    assert uncommitted(own) == []
    assert status(own).dirty == 0
    assert remove(own)
    assert marked(marks) == []


def test_a_sparse_checkout_is_kept(project: Project) -> None:
    project.git("sparse-checkout", "set", "folder")
    session = Session(project, "x")
    assert session.files() == project.files()
    assert git_status(session) == []


def test_everything_that_could_be_lost_keeps_a_worktree(project: Project) -> None:
    project.write(".gitignore", "*.log\n")
    project.commit("ignore logs")
    session = Session(project, "x")
    own = session.worktree

    def kept(part: str) -> None:
        before = state(project, session)
        reason = removable(own)
        assert reason and part in reason, reason
        with pytest.raises(GitError, match=part):
            remove(own)
        assert state(project, session) == before

    session.write("deep/untracked", "x\n")
    kept("uncommitted changes: deep/untracked")
    assert uncommitted(own) == ["deep/untracked"]
    session.delete("deep/untracked")
    session.delete("a.txt")
    kept("uncommitted changes: a.txt")
    session.git("checkout", "--quiet", "a.txt")
    nested = Project(session.root / "nested")
    kept("uncommitted changes: nested/")
    assert uncommitted(own) == []
    shutil.rmtree(nested.root)
    session.git("update-index", "--skip-worktree", "a.txt")
    session.git("update-index", "--assume-unchanged", "run.sh", "folder/b.txt")
    session.write("a.txt", "the only copy\n")
    os.chmod(session.place("run.sh"), 0o644)
    assert git_status(session) == []
    kept("git was told not to look at: a.txt, run.sh. Run")
    session.git("update-index", "--no-skip-worktree", "a.txt")
    session.git("update-index", "--no-assume-unchanged", "run.sh", "folder/b.txt")
    os.chmod(session.place("run.sh"), 0o755)
    session.write("a.txt", "changed\n")
    session.commit()
    kept("1 commit that is not in main")
    session.git("checkout", "--quiet", "--detach")
    session.git("commit", "--quiet", "--allow-empty", "--message", "on no branch")
    kept("is on no branch")
    session.git("checkout", "--quiet", "perdure/x")
    project.git("merge", "--quiet", "perdure/x")
    (Path(session.repository.git_dir) / "MERGE_HEAD").write_text(project.read_id("rev-parse", "HEAD") + "\n")
    kept("merge is in progress")
    (Path(session.repository.git_dir) / "MERGE_HEAD").unlink()
    session.write("build/x.log", "ignored\n")
    kept("files that git ignores, which are nowhere else: build/x.log")
    session.delete("build/x.log")
    (project.root / ".git" / "info" / "exclude").write_text(".venv\n")
    inner = Project(session.root / ".venv" / "src" / "package")
    inner.commit("only here")
    kept("files that git ignores, which are nowhere else: .venv/src/package/")
    shutil.rmtree(session.root / ".venv")
    session.link(".venv", str(project.root))
    project.git("worktree", "lock", str(session.root))
    kept("locked")
    project.git("worktree", "unlock", str(session.root))
    assert removable(own) is None
    assert remove(own)
    assert not session.root.exists()
    assert "perdure" not in refs(project)
    assert project.git("worktree", "list").count(b"\n") == 1
    assert remove(own)


def test_ignored_folders_that_tools_create_again_are_removed_even_if_they_are_write_protected(project: Project) -> None:
    project.write(".gitignore", "node_modules/\n*.pyc\n.env\n")
    project.commit()
    session = Session(project, "x")
    session.write("node_modules/inner/package.json", "{}\n")
    session.write("folder/__pycache__/b.pyc", "compiled\n")
    os.chmod(session.root / "node_modules" / "inner", stat.S_IRUSR | stat.S_IXUSR)
    session.write("folder/.env", "secret\n")
    assert "which are nowhere else: folder/.env" in (removable(session.worktree) or "")
    session.delete("folder/.env")
    assert remove(session.worktree)
    assert os.listdir(session.root.parent) == []


def test_a_worktree_whose_submodules_have_commits_is_kept(project: Project, tmp_path: Path) -> None:
    library = Project(tmp_path / "library")
    library.write("lib", "1\n")
    library.commit()
    allowed = ("-c", "protocol.file.allow=always")
    project.git(*allowed, "submodule", "--quiet", "add", str(library.root), "lib")
    project.commit("a submodule")
    session = Session(project, "x")
    assert removable(session.worktree) is None
    session.git(*allowed, "submodule", "--quiet", "update", "--init")
    assert git_status(session) == []
    assert "submodules, whose commits may be nowhere else: lib" in (removable(session.worktree) or "")
    with pytest.raises(GitError, match="submodules"):
        remove(session.worktree)
    # Its repository is in the project's .git, so deleting the folder doesn't delete it.
    shutil.rmtree(session.root)
    with pytest.raises(GitError, match="submodules"):
        remove(session.worktree)
    assert (project.root / ".git" / "worktrees" / "x" / "modules" / "lib" / "HEAD").exists()


def test_a_worktree_with_a_repository_that_was_added_as_a_submodule_is_kept(project: Project) -> None:
    session = Session(project, "x")
    inner = Project(session.root / "inner")
    inner.write("only", "here\n")
    inner.commit()
    session.commit("with a repository inside")
    project.git("merge", "--quiet", "perdure/x")
    assert git_status(session) == []
    assert "submodules, whose commits may be nowhere else: inner" in (removable(session.worktree) or "")


@pytest.mark.parametrize("lost", ["marked", "without index"])
def test_a_worktree_that_was_not_completely_checked_out_is_completed_and_its_missing_files_are_not_deletions(
    lost: str, project: Project
) -> None:
    session = Session(project, "x")
    own, git_dir = session.worktree, Path(session.repository.git_dir)
    assert is_complete(own)
    for path in list(session.files()):
        session.delete(path)
    shutil.rmtree(session.root / "folder")
    if lost == "marked":
        (git_dir / "perdure-checkout").touch()
    else:
        (git_dir / "index").unlink()
    assert not is_complete(own)
    assert "not completely checked out" in (status(own).reason or "")
    with pytest.raises(GitError, match="not completely checked out"):
        uncommitted(own)
    with pytest.raises(GitError, match="not completely checked out"):
        commit.prepare(session.repository, ["a.txt"], "delete it")
    with pytest.raises(GitError, match="not completely checked out"):
        remove(own)
    ensure(own)
    assert is_complete(own)
    check_created(project, own)
    assert uncommitted(own) == []


def test_to_see_that_a_worktree_is_complete_no_process_is_started(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(project, "x")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert is_complete(session.worktree)
    shutil.rmtree(session.root)
    assert not is_complete(session.worktree)


def test_a_file_that_cannot_be_deleted_is_an_error_with_a_sentence(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: str) -> None:
        raise PermissionError(1, "Operation not permitted", "inner")

    session = Session(project, "x")
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        with pytest.raises(GitError, match=r"x\.perdure-removed can't be deleted: Operation not permitted"):
            remove(session.worktree)
    assert remove(session.worktree)
    assert os.listdir(session.root.parent) == []


def test_a_link_in_the_place_of_a_worktree_is_not_followed(project: Project, tmp_path: Path) -> None:
    session = Session(project, "x")
    other = Project(tmp_path / "other")
    (other.root / ".git" / "hooks").chmod(0o755)
    shutil.rmtree(session.root)
    session.root.symlink_to(other.root)
    with pytest.raises(GitError, match="is a link now, not a worktree of"):
        remove(session.worktree)
    assert session.root.is_symlink()
    # Left by a removal during which it became one.
    session.root.rename(f"{session.root}.perdure-removed")
    assert remove(session.worktree)
    assert not os.listdir(session.root.parent)
    assert stat.S_IMODE((other.root / ".git" / "hooks").stat().st_mode) == 0o755


def test_a_failed_creation_leaves_neither_branch_nor_folder(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, folder = parts(project), tmp_path / "sessions" / "x"

    def fail(*_: object) -> bool:
        raise GitError("The disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(worktree, "_check_out", fail)
        with pytest.raises(GitError, match="disk is full"):
            create(str(project.root), str(folder), "perdure/x")
    assert not os.path.lexists(folder)
    assert parts(project) == before
    assert "perdure" not in refs(project)
    # A folder with files of somebody else stays.
    folder.mkdir(parents=True)
    (folder / "mine").touch()
    with pytest.raises(GitError, match="Move it away"):
        create(str(project.root), str(folder), "perdure/x")
    assert (folder / "mine").exists()
    assert "perdure" not in refs(project)


def test_after_a_killed_creation_the_same_session_gets_its_worktree_and_branch(
    project: Project, tmp_path: Path
) -> None:
    folder, changes, is_killed = str(tmp_path / "sessions" / "x"), 0, True
    while is_killed:
        is_killed = killed(lambda: create(str(project.root), folder, "perdure/x"), changes)
        own = create(str(project.root), folder, "perdure/x")
        assert status(own).reason is None
        check_created(project, own)
        assert remove(own)
        # Between the branch and the folder, a kill leaves the branch.
        for branch in project.git("for-each-ref", "--format=%(refname)", "refs/heads/perdure").decode().split():
            project.git("update-ref", "-d", branch)
        changes += KILL_STEP
    assert changes > 5


def test_a_worktree_with_work_is_not_given_to_another_session_of_the_same_name(project: Project) -> None:
    session = Session(project, "x")
    session.write("work", "work\n")
    with pytest.raises(GitError, match="is a worktree with work in it"):
        Session(project, "x")
    assert session.read("work") == b"work\n"
    assert status(session.worktree).checked_out == "perdure/x"


def test_a_worktree_with_another_branch_is_not_taken_for_the_sessions(project: Project) -> None:
    session = Session(project, "x")
    session.git("checkout", "--quiet", "-b", "other")
    with pytest.raises(GitError, match="has the branch other checked out instead of perdure/x"):
        ensure(session.worktree)


def test_sessions_that_are_created_at_the_same_time_with_the_same_words_get_different_branches(
    project: Project, tmp_path: Path
) -> None:
    def made(number: int) -> Worktree:
        return create(str(project.root), str(tmp_path / f"s{number}"), "perdure/fix")

    with ThreadPoolExecutor(4) as pool:
        created = list(pool.map(made, range(8)))
    assert len({own.branch for own in created}) == 8
    for own in created:
        assert status(own).checked_out == own.branch
        check_created(project, own)


def test_a_locked_worktree_whose_folder_is_missing_is_not_replaced(project: Project) -> None:
    session = Session(project, "x")
    project.git("worktree", "lock", str(session.root))
    os.rename(session.root, session.root.parent / "unmounted")
    with pytest.raises(GitError, match="is locked"):
        ensure(session.worktree)
    assert "locked" in (removable(session.worktree) or "")
    with pytest.raises(GitError, match="is locked"):
        Session(project, "x")
    os.rename(session.root.parent / "unmounted", session.root)
    assert git_status(session) == []


def test_worktrees_of_others_are_left_alone(project: Project, tmp_path: Path) -> None:
    project.git("worktree", "add", "--quiet", str(tmp_path / "mine"), "-b", "mine")
    os.rename(tmp_path / "mine", tmp_path / "unmounted")
    session = Session(project, "x")
    shutil.rmtree(session.root)
    ensure(session.worktree)
    assert remove(session.worktree)
    os.rename(tmp_path / "unmounted", tmp_path / "mine")
    assert project.git("-C", str(tmp_path / "mine"), "status", "--porcelain") == b""


def test_a_creation_that_is_killed_anywhere_is_completed_by_the_next_one(project: Project, tmp_path: Path) -> None:
    own = plan(str(project.root), str(tmp_path / "sessions" / "x"), "perdure/x")
    changes = 0
    while True:
        if not killed(lambda: ensure(own), changes):
            break
        ensure(own)
        check_created(project, own)
        assert remove(own)
        changes += KILL_STEP
    check_created(project, own)
    assert changes > 5


def check_created(project: Project, own: Worktree) -> None:
    session = Session.__new__(Session)
    session.root = Path(own.path)
    assert session.files() == project.recorded("main")
    assert git_status(session) == []
    assert state(session)["leftovers"] == []
    assert status(own).reason is None


def test_a_checkout_that_was_stopped_half_way_is_repeated(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worktree, "LOCK_TIMEOUT_S", 0.1)
    session = Session(project, "x")
    git_dir = Path(session.repository.git_dir)
    (git_dir / "perdure-checkout").touch()
    (git_dir / "index.lock").write_bytes((git_dir / "index").read_bytes()[:40])
    (git_dir / "index").unlink()
    session.write("a.txt", "on")
    session.delete("run.sh")
    ensure(session.worktree)
    check_created(project, session.worktree)
    # Of `git worktree add`: a folder that has only its link to the repository, which doesn't know it.
    shutil.rmtree(git_dir)
    shutil.rmtree(session.root)
    session.write(".git", f"gitdir: {git_dir}\n")
    git_dir.mkdir(parents=True)
    (git_dir / "locked").write_text("initializing\n")
    (git_dir / "gitdir").write_text(f"{session.root}/.git\n")
    ensure(session.worktree)
    check_created(project, session.worktree)


def test_a_removal_that_is_killed_anywhere_is_completed_by_the_next_one(project: Project, tmp_path: Path) -> None:
    changes, is_killed = 0, True
    while is_killed:
        session = Session(project, "x")
        own = session.worktree
        session.write("node_modules/ignored.log", "x\n")
        (project.root / ".git" / "info" / "exclude").write_text("*.log\n")
        is_killed = killed(lambda: remove(own), changes)  # noqa: B023
        assert remove(own)
        assert not os.path.lexists(own.path)
        assert os.listdir(tmp_path / "sessions") == []
        assert refs(project).count("\n") == 1
        assert project.git("worktree", "list").count(b"\n") == 1
        changes += KILL_STEP
    assert changes > 5
