"""A git command starts no program of the repository, ends at its deadline, and says in a sentence why it failed."""

import os
import shutil
import time
from pathlib import Path

import pytest

from perdure.runtime.git import command, worktree
from perdure.runtime.git.command import (
    Git,
    GitError,
    GitMissing,
    GitOutputTooLarge,
    GitTimeout,
    GitTooOld,
    failure,
    shown,
    verb,
)
from perdure.runtime.git.repository import find
from tests.runtime.git.project import Project, make_hostile, marked

AUTHOR = {f"GIT_{role}_{key}": "x" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


def script(folder: Path, text: str) -> Path:
    """A program called git, first in the PATH of whoever uses this folder."""
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "git").chmod(0o755)
    return folder


def test_output_input_and_exit_status_are_those_of_git(project: Project) -> None:
    git = project.repository.git()
    assert git.run("cat-file", "--batch=", input=b"HEAD:a.txt\n") == b"\none\ntwo\nthree\n\n"
    assert git.returns("rev-parse", "--quiet", "--verify", "nothing") == (1, b"")
    assert git.run("rev-parse", "--quiet", "--verify", "nothing", ok=(1,)) == b""


def test_a_failure_is_a_sentence_with_the_reason_and_the_whole_error_output(project: Project) -> None:
    with pytest.raises(GitError, match=r"^git cat-file failed: Not a valid object name nothing\.$") as caught:
        project.repository.git().run("cat-file", "blob", "nothing")
    assert caught.value.status == 128
    assert caught.value.stderr == "fatal: Not a valid object name nothing"


def test_without_git_the_error_says_to_install_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    git = project.repository.git()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(GitMissing, match="git is not installed on the server's machine"):
        git.run("status")


def test_in_a_directory_that_is_gone_the_error_names_it(tmp_path: Path) -> None:
    with pytest.raises(GitError, match=r"The directory .*gone does not exist"):
        Git(str(tmp_path / "gone")).run("status")


def test_at_the_deadline_the_whole_process_group_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = tmp_path / "started"
    monkeypatch.setenv("PATH", f"{script(tmp_path / 'bin', f'sleep 1000 & echo $! > {started}; wait')}:/usr/bin:/bin")
    with pytest.raises(GitTimeout, match="git ls-files did not finish in time"):
        Git(str(tmp_path), deadline_s=time.monotonic() + 0.5).run("ls-files")
    child = int(started.read_text())
    end = time.monotonic() + 10
    while _is_running(child):
        assert time.monotonic() < end


def _is_running(process: int) -> bool:
    """Zombies of another parent are not running."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_at_the_deadline_git_deletes_its_lock_files(project: Project, tmp_path: Path) -> None:
    started = tmp_path / "started"
    project.write(".gitattributes", "*.slow filter=slow\n")
    project.write("x.slow", "x\n")
    # The filter runs while `git add` holds the lock of the index.
    slow = f"filter.slow.clean=touch {started}; sleep 1000"
    with pytest.raises(GitTimeout):
        project.repository.git(time.monotonic() + 3).run("-c", slow, "add", "x.slow")
    assert started.exists()
    assert not (project.root / ".git" / "index.lock").exists()
    project.git("add", "a.txt")


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "TERM_GRACE_S", 0.1)
    started = tmp_path / "started"
    text = f"trap '' TERM; echo $$ > {started}; while :; do sleep 0.1; done"
    monkeypatch.setenv("PATH", f"{script(tmp_path / 'bin', text)}:/usr/bin:/bin")
    with pytest.raises(GitTimeout):
        Git(str(tmp_path), deadline_s=time.monotonic() + 0.5).run("ls-files")
    assert not _is_running(int(started.read_text()))


def test_a_git_that_is_too_old_is_refused_with_both_versions(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.which("git")

    def install(version: str) -> None:
        text = f'case "$1" in version) echo "git version {version}";; *) exec {real} "$@";; esac'
        monkeypatch.setenv("PATH", f"{script(tmp_path / version, text)}:/usr/bin:/bin")

    install("2.30.2")
    with pytest.raises(GitTooOld, match=r"^Snapshots of files need git 2\.31 or newer, .* server has git 2\.30\. "):
        find(str(project.root))
    install("2.37.1 (Apple Git-137.1)")
    assert find(str(project.root)) is not None
    with pytest.raises(GitTooOld, match=r"^Worktrees need git 2\.38 or newer, .* server has git 2\.37\. "):
        worktree.plan(str(project.root), str(tmp_path / "s"), "perdure/x")
    install("2.38.0.windows.1")
    assert worktree.plan(str(project.root), str(tmp_path / "s"), "perdure/x").branch == "perdure/x"


def test_no_command_starts_after_the_deadline(project: Project) -> None:
    with pytest.raises(GitTimeout, match="no time left for git status"):
        project.repository.git(time.monotonic()).run("status")


def test_a_program_that_goes_on_after_its_output_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{script(tmp_path / 'bin', 'exec >&- 2>&-; exec sleep 1000')}:/usr/bin:/bin")
    with pytest.raises(GitTimeout):
        Git(str(tmp_path), deadline_s=time.monotonic() + 0.5).run("ls-files")


def test_more_output_than_the_limit_is_an_error_or_is_cut_off(project: Project) -> None:
    git = project.repository.git()
    with pytest.raises(GitOutputTooLarge, match="git cat-file printed more than 5 bytes"):
        git.run("cat-file", "blob", "HEAD:a.txt", max_bytes=5)
    assert git.head("cat-file", "blob", "HEAD:a.txt", max_bytes=5) == (b"one\nt", True)
    assert git.head("cat-file", "blob", "HEAD:a.txt", max_bytes=14) == (b"one\ntwo\nthree\n", False)


def test_large_input_and_output_at_the_same_time_do_not_block(project: Project) -> None:
    names = project.git("rev-parse", "HEAD:a.txt") * 20_000
    output = project.repository.git().run("cat-file", "--buffer", "--batch=", input=names)
    assert output == b"\none\ntwo\nthree\n\n" * 20_000


def test_variables_of_another_repository_are_not_passed_on(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nonexistent")
    monkeypatch.setenv("GIT_WORK_TREE", "/nonexistent")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/nonexistent")
    assert Git(str(project.root)).run("ls-files") == b"a.txt\nfolder/b.txt\nrun.sh\n"


def test_commands_that_look_at_files_and_refs_start_no_configured_program(project: Project, tmp_path: Path) -> None:
    marks = make_hostile(project, tmp_path / "hostile")
    project.write("a.txt", "changed\n")
    project.write("new.long", "new\n")
    git = project.repository.git()
    git.run("status", "--porcelain=v2")
    git.run("hash-object", "-w", "--path=a.txt", "a.txt")
    git.run("add", "--dry-run", "--all")
    git.run("update-ref", "refs/heads/other", "HEAD")
    git.run("commit-tree", "HEAD^{tree}", input=b"text", env=AUTHOR)
    git.run("merge-tree", "--write-tree", "HEAD", "other")
    git.run("diff-tree", "-p", "--root", "HEAD")
    git.run("log", "-1")
    git.run("worktree", "add", "--quiet", str(tmp_path / "second"), "other")
    assert marked(marks) == []


def test_a_configured_merge_program_leads_to_a_conflict_rather_than_a_wrong_result(
    project: Project, tmp_path: Path
) -> None:
    project.git("branch", "other")
    project.write("a.txt", "zero\none\ntwo\nthree\n")
    project.commit()
    project.git("checkout", "--quiet", "other")
    project.write("a.txt", "one\ntwo\nthree\nfour\n")
    project.commit()
    marks = make_hostile(project, tmp_path / "hostile")
    status, output = project.repository.git().returns("merge-tree", "--write-tree", "--name-only", "main", "other")
    assert (status, output.split(b"\n")[1]) == (1, b"a.txt")
    assert marked(marks) == []


def test_paths_are_never_patterns(project: Project) -> None:
    project.write("*.txt", "a star\n")
    project.write(":(top)x", "a colon\n")
    project.commit()
    assert project.repository.git().run("ls-files", "--", "*.txt", ":(top)x") == b"*.txt\n:(top)x\n"


def test_a_path_with_a_zero_byte_is_refused(project: Project) -> None:
    with pytest.raises(GitError, match="zero byte"):
        project.repository.git().run("ls-files", "--", "a\0b")


def test_too_many_paths_are_an_error_rather_than_a_crash(project: Project) -> None:
    with pytest.raises(GitError, match="too many paths for one git ls-files"):
        project.repository.git().run("ls-files", "--", *["x" * 1000] * 4000)


@pytest.mark.parametrize(
    ("path", "text"),
    [("a b.txt", "a b.txt"), ("ä", "ä"), (os.fsdecode(b"\xff"), "\\xff"), ("a\nb", "a\\nb"), ("\x1b[0m", "\\x1b[0m")],
)
def test_a_path_in_a_sentence_is_printable(path: str, text: str) -> None:
    assert shown(path) == text


def test_the_verb_is_found_behind_settings() -> None:
    assert verb(("-c", "core.x=y", "diff-tree", "-r")) == "diff-tree"
    assert verb(("--version",)) == "--version"


def test_known_causes_have_their_own_sentence() -> None:
    assert failure(("commit",), 128, "fatal: Unable to create '/x/.git/index.lock': File exists.").message.startswith(
        "Another git command is running"
    )
    assert failure(("commit",), 128, "error: x: No space left on device").message == "The disk is full."
    assert failure(("commit",), -9, "").message == "git commit was ended by signal 9."
    assert failure(("commit",), 3, "").message == "git commit failed: exit status 3."
