"""A commit of chosen files is the one that `git commit --only` makes, and leaves everything else as it is staged."""

import errno
import json
import os
import random
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.runtime.git import commit, index
from perdure.runtime.git.command import GitError, GitTimeout, HalfDone
from perdure.runtime.git.commit import CommitPlan, Outdated, finish, prepare
from tests.runtime.git.edits import Editor
from tests.runtime.git.killed_finish import KILL_STEP, killed
from tests.runtime.git.project import COMMAND_TIMEOUT_S, IDENTITY, Project, make_hostile, marked
from tests.sizes import size

SECRET = "stays as it is\n"


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ada@example.org")


def stored(plan: CommitPlan) -> CommitPlan:
    """The plan as it comes back from the database."""
    return msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(plan))), CommitPlan)


def made(project: Project, *paths: str, message: str = "a change") -> CommitPlan:
    plan = stored(prepare(project.repository, paths, message))
    finish(project.repository, plan)
    return plan


def staged(project: Project) -> bytes:
    return project.git("ls-files", "--stage", "-t", "-z")


def state(project: Project) -> dict[str, Any]:
    """What a user sees of a repository."""
    unborn = not project.git("for-each-ref")
    return {
        "files": project.files(),
        "index": staged(project),
        "refs": project.git("for-each-ref", "--format=%(refname) %(objectname)"),
        "head": project.git("rev-parse", "HEAD") if not unborn else b"",
        "branch": (project.root / ".git" / "HEAD").read_bytes(),
        "leftovers": [name for name in os.listdir(project.root / ".git") if "perdure" in name or "lock" in name],
    }


def status(project: Project) -> list[str]:
    records = project.git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all").split(b"\0")
    return [os.fsdecode(record[3:]) for record in records if record]


def refusal(project: Project, *paths: str, message: str = "a change") -> str:
    """Why a commit is refused. Nothing of the user's may have changed."""
    before = project.private_parts()
    with pytest.raises(GitError) as raised:
        prepare(project.repository, paths, message)
    assert project.private_parts() == before
    return raised.value.message


def is_folder(project: Project, path: str) -> bool:
    return stat.S_ISDIR(os.lstat(project.place(path)).st_mode) if os.path.lexists(project.place(path)) else False


def commits_something(project: Project, *args: str) -> bool:
    """Commit as a user does. Returns whether there was something to commit."""
    command = ["git", *IDENTITY, "commit", "--quiet", "--message", "a change", *args]
    done = subprocess.run(command, cwd=project.root, capture_output=True, timeout=COMMAND_TIMEOUT_S)
    assert done.returncode == 0 or b"nothing" in done.stdout or b"no changes" in done.stdout, done
    return done.returncode == 0


@pytest.mark.parametrize("seed", range(size("COMMITS", 40, fast=5)))
def test_a_generated_commit_equals_the_one_of_git(seed: int, tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    editor = Editor(project, 5000 + seed)
    editor.setup()
    for _ in range(editor.random.randint(1, 10)):
        editor.step()
    # `git commit --only` fails if a folder has taken the place of a file; the next test has this case.
    changed = [path for path in status(project) if not is_folder(project, path)]
    chosen = editor.random.sample(changed, editor.random.randint(1, len(changed))) if changed else []
    shutil.copytree(project.root, tmp_path / "copy", symlinks=True)
    copy = Project(tmp_path / "copy")
    for path in chosen:
        if os.path.lexists(copy.place(path)):
            copy.git("add", "--force", "--", f":(literal){path}")
    before = state(project)
    literal = [f":(literal){path}" for path in chosen]
    if not chosen or not commits_something(copy, "--only", "--", *literal):
        refusal(project, *chosen)
        return
    plan = prepare(project.repository, chosen, "a change")
    assert state(project) == before
    finish(project.repository, stored(plan))
    assert project.git("rev-parse", "HEAD^{tree}") == copy.git("rev-parse", "HEAD^{tree}")
    assert staged(project) == staged(copy)
    assert project.files() == copy.files() == before["files"]
    assert sorted(set(status(project))) == sorted(set(status(copy)))
    changes = project.git("diff-tree", "-r", "--root", "--no-renames", "--no-commit-id", "--name-status", "-z", "HEAD")
    fields = [os.fsdecode(field) for field in changes.split(b"\0")[:-1]]
    letters = {"A": "added", "D": "deleted", "M": "modified", "T": "modified"}
    assert plan.files == {path: letters[letter] for letter, path in zip(fields[0::2], fields[1::2], strict=True)}


def test_a_folder_in_the_place_of_a_file_and_a_file_in_the_place_of_a_folder(project: Project) -> None:
    project.delete("a.txt")
    project.write("a.txt/inner", "inner\n")
    shutil.rmtree(project.root / "folder")
    project.write("folder", "now a file\n")
    assert made(project, "a.txt").files == {"a.txt": "deleted"}
    assert made(project, "a.txt/inner", "folder").files == {
        "a.txt/inner": "added",
        "folder": "added",
        "folder/b.txt": "deleted",
    }
    assert status(project) == []


def test_everything_else_stays_staged_as_it_was(project: Project) -> None:
    project.write("folder/b.txt", "staged\n")
    project.write("staged only.txt", "new\n")
    project.git("add", "--all")
    project.git("rm", "--quiet", "--cached", "run.sh")
    project.write("folder/b.txt", "staged and changed again\n")
    project.write("a.txt", "committed\n")
    project.write("moved.txt", "one\ntwo\nthree\n")
    before = project.git("diff", "--cached")
    plan = made(project, "a.txt", message="  Change a\r\n\r\n\r\nwhy  \n\n")
    assert project.git("diff", "--cached") == before
    assert project.git("show", "--format=%an <%ae>%n%B", "--name-only").decode().split("\n") == [
        "Ada <ada@example.org>",
        "Change a",
        "",
        "why",
        "",
        "",
        "a.txt",
        "",
    ]
    assert plan.branch == "main"
    assert plan.files == {"a.txt": "modified"}
    assert project.git("reflog", "-1", "--format=%gs") == b"commit (perdure): Change a\n"
    assert project.git("diff-files", "--name-only") == b"folder/b.txt\n"


def test_the_first_commit_and_one_on_a_detached_head(tmp_path: Path) -> None:
    project = Project(tmp_path / "new")
    project.write("a.txt", "a\n")
    project.write("b.txt", "b\n")
    project.git("add", "b.txt")
    assert made(project, "a.txt").head is None
    assert project.git("ls-tree", "--name-only", "main") == b"a.txt\n"
    assert status(project) == ["b.txt"]
    project.git("checkout", "--quiet", "--detach")
    first = project.read_id("rev-parse", "main")
    plan = made(project, "b.txt")
    assert (plan.head, plan.branch) == (first, None)
    assert project.read_id("rev-parse", "main") == first
    assert project.read_id("rev-parse", "HEAD") == plan.commit


def test_line_endings_are_stored_as_git_add_stores_them(project: Project) -> None:
    project.git("config", "core.autocrlf", "true")
    project.write("a.txt", b"one\r\ntwo\r\n")
    project.write("raw.bin", b"\0\r\n")
    project.write(".gitattributes", "*.bin -text\n")
    made(project, "a.txt", "raw.bin", ".gitattributes")
    assert project.git("show", "HEAD:a.txt") == b"one\ntwo\n"
    assert project.git("show", "HEAD:raw.bin") == b"\0\r\n"
    assert status(project) == []
    assert project.read("a.txt") == b"one\r\ntwo\r\n"


def test_modes_come_from_the_index_where_the_file_system_has_none(project: Project) -> None:
    project.git("config", "core.fileMode", "false")
    project.write("tool.sh", "#!/bin/sh\n")
    project.git("add", "--chmod=+x", "tool.sh")
    project.write("run.sh", "#!/bin/sh\necho\n", mode=0o644)
    made(project, "tool.sh", "run.sh")
    listed = project.git("ls-tree", "HEAD", "tool.sh", "run.sh").decode()
    assert listed.count("100755") == 2


def test_what_git_keeps_in_another_way_is_refused_by_name(project: Project, tmp_path: Path) -> None:
    library = Project(tmp_path / "library")
    library.write("c.txt")
    library.commit()
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.root), "sub")
    project.commit("with a submodule")
    project.git("config", "filter.lfs.clean", "false")
    project.write(".gitattributes", "*.big filter=lfs\n")
    project.write("x.big", "content\n")
    project.write("nested/inner.txt", "inner\n")
    Project(tmp_path / "project" / "nested")
    (tmp_path / "outside").mkdir()
    project.link("link", str(tmp_path / "outside"))
    os.mkfifo(project.root / "pipe")
    assert "x.big: stored through the filter lfs" in refusal(project, "x.big", "a.txt")
    assert "does not commit submodules" in refusal(project, "sub")
    assert "belongs to another repository, nested" in refusal(project, "nested/inner.txt")
    assert "is a folder" in refusal(project, "folder")
    assert "neither a file nor a link" in refusal(project, "pipe")
    assert "does not exist" in refusal(project, "gone.txt")
    assert "does not exist" in refusal(project, "link/outside.txt")
    for path in ("../outside/x", "/etc/passwd", ".git/config", "folder/../a.txt", "", "a\0b", "x/.GIT/config"):
        assert "not a path of a file inside the repository" in refusal(project, path)
    # The deletion of a filtered file needs no filter.
    project.git("add", "x.big", env={"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "filter.lfs.clean",
                                     "GIT_CONFIG_VALUE_0": "cat"})  # fmt: skip
    project.git("commit", "--quiet", "--message", "big", "x.big")
    project.delete("x.big")
    assert made(project, "x.big").files == {"x.big": "deleted"}


def test_a_commit_without_content_message_or_author_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing to commit" in refusal(project, "a.txt")
    assert "Choose at least one" in refusal(project)
    project.write("a.txt", "changed\n")
    assert "message is empty" in refusal(project, "a.txt", message=" \n\t\n")
    monkeypatch.delenv("GIT_AUTHOR_EMAIL")
    monkeypatch.setenv("EMAIL", "guessed@example.org")
    assert "git config --global user.email" in refusal(project, "a.txt")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "ada@example.org")
    monkeypatch.delenv("GIT_COMMITTER_NAME")
    assert "git config --global user.name" in refusal(project, "a.txt")


def test_nothing_is_committed_during_a_merge_or_of_a_conflict(project: Project) -> None:
    project.git("checkout", "--quiet", "-b", "other")
    project.write("a.txt", "other\n")
    project.commit("other")
    project.git("checkout", "--quiet", "main")
    project.write("a.txt", "main\n")
    project.commit("main")
    project.write("folder/b.txt", "changed\n")
    plan = prepare(project.repository, ["folder/b.txt"], "a change")
    project.git("merge", "--no-commit", "-s", "ours", "other")
    assert "A merge is in progress" in refusal(project, "folder/b.txt")
    before = state(project)
    with pytest.raises(GitError, match="A merge is in progress"):
        finish(project.repository, plan)
    assert state(project) == before
    project.git("merge", "--abort")
    project.write("a.txt", "stashed\n")
    project.git("stash", "--quiet")
    project.write("a.txt", "main again\n")
    project.commit("main again")
    os.spawnlp(os.P_WAIT, "git", "git", "-C", str(project.root), "stash", "pop", "--quiet")
    assert "resolve the conflict" in refusal(project, "a.txt")


def test_files_that_are_not_checked_out_are_not_deleted(project: Project) -> None:
    project.git("sparse-checkout", "set", "--no-cone", "/a.txt", "/run.sh")
    assert "not checked out here" in refusal(project, "folder/b.txt")
    project.write("a.txt", "changed\n")
    before = [line for line in staged(project).split(b"\0") if b"folder" in line]
    made(project, "a.txt")
    assert [line for line in staged(project).split(b"\0") if b"folder" in line] == before
    assert project.git("ls-tree", "-r", "--name-only", "HEAD").count(b"\n") == 3


def test_no_program_of_the_repository_runs(project: Project, tmp_path: Path) -> None:
    project.write("a.txt", "changed\n")
    marks = make_hostile(project, tmp_path)
    (project.root / ".git" / "info" / "attributes").write_text("* diff=evil merge=evil\n")
    made(project, "a.txt")
    assert marked(marks) == []


def test_a_commit_on_a_branch_that_moved_changes_nothing(project: Project) -> None:
    project.write("a.txt", "changed\n")
    plan = prepare(project.repository, ["a.txt"], "a change")
    project.git("commit", "--quiet", "--allow-empty", "--message", "by the user")
    before = state(project)
    with pytest.raises(Outdated, match="nothing was committed"):
        finish(project.repository, plan)
    assert state(project) == before
    project.git("reset", "--quiet", "HEAD~")
    project.git("checkout", "--quiet", "-b", "other")
    before = state(project)
    with pytest.raises(Outdated):
        finish(project.repository, plan)
    assert state(project) == before
    project.git("checkout", "--quiet", "main")
    finish(project.repository, plan)
    assert status(project) == []


def test_what_the_user_staged_after_a_killed_commit_stays(project: Project) -> None:
    project.write("a.txt", "changed\n")
    project.write("folder/b.txt", "changed\n")
    plan = prepare(project.repository, ["a.txt", "folder/b.txt"], "a change")
    # Killed after the branch had moved; then the user removed the lock and staged something newer.
    project.git("update-ref", "refs/heads/main", plan.commit)
    project.write("a.txt", "newer\n")
    project.git("add", "a.txt")
    finish(project.repository, plan)
    assert project.git("diff", "--cached", "--name-only") == b"a.txt\n"
    assert project.git("diff", "--name-only") == b""
    # If the user has committed since, even the index is left alone.
    project.git("commit", "--quiet", "--message", "by the user")
    project.git("rm", "--quiet", "--cached", "folder/b.txt")
    before = state(project)
    finish(project.repository, plan)
    assert state(project) == before


def test_another_git_process_is_waited_for_and_then_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "LOCK_TIMEOUT_S", 0.2)
    project.write("a.txt", "changed\n")
    plan = prepare(project.repository, ["a.txt"], "a change")
    lock = project.root / ".git" / "index.lock"
    lock.write_bytes(b"")
    before = state(project)
    with pytest.raises(index.Busy, match="Another git process"):
        finish(project.repository, plan)
    assert state(project) == before
    lock.unlink()
    # The lock of another plan is not taken over either.
    with index.locked(project.repository, "another"), pytest.raises(index.Busy):
        finish(project.repository, plan)
    finish(project.repository, plan)
    assert status(project) == []


def test_a_file_system_without_links_gets_a_lock_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    project.write("a.txt", "changed\n")
    plan = prepare(project.repository, ["a.txt"], "a change")
    monkeypatch.setattr(os, "symlink", refuse)
    lock = project.root / ".git" / "index.lock"
    with index.locked(project.repository, plan.commit):
        left = lock.read_bytes()
    assert not lock.exists()
    lock.write_bytes(left)
    finish(project.repository, plan)
    assert status(project) == []
    assert not lock.exists()


@pytest.mark.parametrize("seed", range(size("COMMIT_KILLS", 3, fast=1)))
def test_a_commit_that_is_killed_anywhere_is_completed_by_the_next_one(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    original = Project(tmp_path / "project")
    for name in ("a.txt", "b.txt", "gone.txt", "folder/staged.txt"):
        original.write(name, f"{name}\n")
    if chance.random() < 0.7:
        original.commit("first")
    original.write("folder/staged.txt", SECRET)
    original.git("add", "folder/staged.txt")
    original.write("a.txt", "partly staged\n")
    original.git("add", "a.txt")
    original.write("a.txt", "changed\n")
    original.write("new.txt", "new\n")
    original.delete("gone.txt")
    chosen = sorted({"a.txt", "new.txt", *(["gone.txt"] if original.git("for-each-ref") else [])})
    plan = stored(prepare(original.repository, chosen, "a change"))
    old = state(original)

    def copied(name: str) -> Project:
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        shutil.copytree(original.root, tmp_path / name, symlinks=True)
        return Project(tmp_path / name)

    whole = copied("whole")
    finish(whole.repository, plan)
    new, changes = state(whole), 0
    assert new["leftovers"] == []
    assert whole.git("show", ":folder/staged.txt") == SECRET.encode()
    while True:
        project = copied("copy")
        repository = project.repository
        if not killed(lambda: finish(repository, plan), changes):  # noqa: B023
            break
        now = state(project)
        assert all(now[part] in (old[part], new[part]) for part in ("files", "index", "refs"))
        killed(lambda: finish(repository, plan), chance.randrange(12))  # noqa: B023
        finish(repository, plan)
        assert state(project) == new
        finish(repository, plan)
        assert state(project) == new
        changes += KILL_STEP
    assert state(project) == new
    assert changes > 8


def test_the_lock_of_a_killed_commit_stops_the_users_git_until_it_is_finished(project: Project) -> None:
    project.write("a.txt", "changed\n")
    plan = prepare(project.repository, ["a.txt"], "a change")
    os.symlink(f"held by Perdure for {plan.commit}", project.root / ".git" / "index.lock")
    with pytest.raises(AssertionError, match=r"index\.lock"):
        project.git("commit", "--all", "--message", "by the user")
    finish(project.repository, plan)
    project.write("a.txt", "changed again\n")
    project.git("commit", "--quiet", "--all", "--message", "by the user")


def test_a_path_that_is_no_text_can_be_committed_and_stored(project: Project) -> None:
    project.write(b"\xff\n.txt", "content\n")
    name = os.fsdecode(b"\xff\n.txt")
    assert made(project, name).files == {name: "added"}
    assert status(project) == []


def test_permissions_of_the_index_are_kept(project: Project) -> None:
    place = project.root / ".git" / "index"
    place.chmod(0o600)
    project.write("a.txt", "changed\n")
    project.git("config", "core.sharedRepository", "0600")
    made(project, "a.txt")
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


@pytest.mark.parametrize("setting", ["core.splitIndex=true", "index.version=4", "core.untrackedCache=true", "sparse"])
def test_every_format_of_the_index_stays_readable(setting: str, project: Project) -> None:
    if setting == "sparse":
        project.git("sparse-checkout", "set", "--cone", "--sparse-index", "folder")
    else:
        project.git("config", *setting.split("="))
        project.git("update-index", "--force-write-index")
    project.git("status")
    project.write("folder/b.txt", "staged\n")
    project.git("add", "folder/b.txt")
    before = project.git("diff", "--cached")
    project.write("a.txt", "changed\n")
    project.write("folder/new.txt", "new\n")
    made(project, "a.txt", "folder/new.txt")
    assert project.git("diff", "--cached") == before
    assert status(project) == ["folder/b.txt"]
    if setting != "sparse":
        # With a sparse index, git itself records trees that it doesn't store.
        project.git("fsck", "--strict")


def test_a_repository_with_sha256(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "--object-format=sha256")
    project.write("a.txt", "a\n")
    project.write("b.txt", "b\n")
    project.commit()
    project.delete("a.txt")
    project.write("b.txt", "changed\n")
    assert made(project, "a.txt", "b.txt").files == {"a.txt": "deleted", "b.txt": "modified"}
    assert status(project) == []


def test_a_message_keeps_its_lines() -> None:
    assert commit.cleaned("\n\n# title\n\n\n\nbody \t\n  indented\n\n") == "# title\n\nbody\n  indented\n"


def test_a_commit_that_fails_before_the_branch_moves_changes_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise GitError("The disk is full.")

    project.write("a.txt", "changed\n")
    plan, before = prepare(project.repository, ["a.txt"], "a change"), state(project)
    with monkeypatch.context() as patched:
        patched.setattr(index, "write", fail)
        with pytest.raises(GitError, match="disk is full") as raised:
            finish(project.repository, plan)
    assert not isinstance(raised.value, HalfDone)
    assert state(project) == before
    finish(project.repository, plan)
    assert status(project) == []


def test_a_commit_that_fails_after_the_branch_has_moved_is_completed_by_the_next_try(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    project.write("a.txt", "changed\n")
    plan = stored(prepare(project.repository, ["a.txt"], "a change"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        with pytest.raises(HalfDone, match="No space left on device"):
            finish(project.repository, plan)
    assert project.read_id("rev-parse", "HEAD") == plan.commit
    # Until then, nobody can commit with the old index, which would revert the change.
    with pytest.raises(AssertionError, match=r"index\.lock"):
        project.git("commit", "--allow-empty", "--message", "another")
    with monkeypatch.context() as patched:
        patched.setattr(index, "write", fail)
        with pytest.raises(HalfDone):
            finish(project.repository, plan)
    finish(project.repository, plan)
    assert status(project) == []
    assert state(project)["leftovers"] == []
    assert project.read_id("rev-parse", "HEAD") == plan.commit


def test_after_a_timeout_it_is_not_taken_for_granted_that_the_branch_stayed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*arguments: Any) -> None:
        real(*arguments)
        raise GitTimeout("git update-ref did not finish in time.")

    project.write("a.txt", "changed\n")
    plan, real = prepare(project.repository, ["a.txt"], "a change"), commit.move
    with monkeypatch.context() as patched:
        patched.setattr(commit, "move", late)
        with pytest.raises(HalfDone):
            finish(project.repository, plan)
    finish(project.repository, plan)
    assert status(project) == []


def test_without_an_index_a_commit_of_deletions_works(project: Project) -> None:
    project.delete("a.txt")
    (project.root / ".git" / "index").unlink()
    made(project, "a.txt")
    assert project.git("show", "--name-status", "--format=", "HEAD") == b"D\ta.txt\n"


def test_a_split_index_leaves_nothing_behind(project: Project) -> None:
    project.git("config", "core.splitIndex", "true")
    project.git("update-index", "--split-index")
    project.write("a.txt", "changed\n")
    project.write("b.txt", "staged\n")
    project.git("add", "b.txt")

    def shared() -> set[str]:
        return {name for name in os.listdir(project.root / ".git") if name.startswith("sharedindex")}

    before = shared()
    assert before
    made(project, "a.txt")
    assert shared() == before
    assert status(project) == ["b.txt"]


def test_marks_of_entries_and_the_cache_of_untracked_files_stay(project: Project) -> None:
    project.git("update-index", "--assume-unchanged", "a.txt", "folder/b.txt")
    project.git("update-index", "--skip-worktree", "a.txt", "run.sh")
    project.git("update-index", "--untracked-cache")
    project.write("untracked/x", "x")
    project.write("new", "new\n")
    place = project.root / ".git" / "index"
    assert project.git("status", "--porcelain") == b"?? new\n?? untracked/\n"
    assert b"UNTR" in place.read_bytes()
    for path in ("a.txt", "folder/b.txt", "new"):
        project.write(path, "changed\n")
    made(project, "a.txt", "folder/b.txt", "new")
    assert project.git("ls-files", "-v") == b"s a.txt\nh folder/b.txt\nH new\nS run.sh\n"
    assert project.git("show", "HEAD:folder/b.txt") == b"changed\n"
    assert b"UNTR" in place.read_bytes()
    assert project.git("status", "--porcelain") == b"?? untracked/\n"
    project.write("another", "x")
    assert project.git("status", "--porcelain") == b"?? another\n?? untracked/\n"
