"""Finding a repository, and its state in words."""

import os
import shutil
from pathlib import Path

import pytest

from perdure.runtime.git.command import GitError
from perdure.runtime.git.repository import Head, find, head, in_progress, status
from tests.runtime.git.project import Project, make_hostile, marked


def test_a_directory_without_repository_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert find(str(tmp_path)) is None
    assert find(str(tmp_path / "gone")) is None


def test_the_repository_of_a_sub_directory_has_the_top_of_the_work_tree(project: Project, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project.root / "folder")
    for directory in (project.root / "folder", tmp_path / "link"):
        found = find(str(directory))
        assert found is not None
        assert found.root == str(project.root)
        assert found.git_dir == found.common_dir == str(project.root / ".git")
        assert found.object_format == "sha1"


def test_a_linked_work_tree_has_its_own_git_directory(project: Project, tmp_path: Path) -> None:
    project.git("worktree", "add", "--quiet", str(tmp_path / "second"))
    found = find(str(tmp_path / "second"))
    assert found is not None
    assert found.root == str(tmp_path / "second")
    assert found.git_dir == str(project.root / ".git" / "worktrees" / "second")
    assert found.common_dir == str(project.root / ".git")
    assert head(found).branch == "second"


def test_paths_with_newlines_and_other_bytes_are_found(tmp_path: Path) -> None:
    made = Project(tmp_path / "a\nb" / os.fsdecode(b"\xff"))
    assert made.repository.root == str(made.root)


def test_a_repository_with_sha256_is_recognised(tmp_path: Path) -> None:
    repository = Project(tmp_path / "project", "--object-format=sha256").repository
    assert repository.object_format == "sha256"
    assert repository.null_id == "0" * 64


def test_a_bare_repository_is_refused_with_a_sentence(tmp_path: Path) -> None:
    Project(tmp_path / "bare", "--bare")
    with pytest.raises(GitError, match="bare repository"):
        find(str(tmp_path / "bare"))


def test_a_folder_that_only_looks_like_a_bare_repository_is_none(tmp_path: Path) -> None:
    for name in ("HEAD", "objects", "refs"):
        (tmp_path / name).mkdir()
    assert find(str(tmp_path)) is None


def test_a_broken_repository_is_refused_with_a_sentence(project: Project) -> None:
    (project.root / ".git" / "HEAD").unlink()
    with pytest.raises(GitError, match="is not a valid repository"):
        find(str(project.root))


def test_a_repository_whose_files_are_in_another_directory_is_refused(project: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "other")
    for place in ("../..", "../../other", "../folder"):
        project.git("config", "core.worktree", place)
        with pytest.raises(GitError, match=r"core\.worktree in its configuration"):
            find(str(project.root))
    project.git("config", "core.worktree", str(project.root))
    assert project.repository.root == str(project.root)
    assert other.repository.root == str(other.root)


def test_submodules_and_folders_below_an_empty_git_folder_are_found(project: Project, tmp_path: Path) -> None:
    library = Project(tmp_path / "library")
    library.commit()
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.root), "lib")
    found = find(str(project.root / "lib"))
    assert found is not None
    assert found.root == str(project.root / "lib")
    assert found.git_dir == str(project.root / ".git" / "modules" / "lib")
    (project.root / "folder" / ".git").mkdir()
    found = find(str(project.root / "folder"))
    assert found is not None
    assert found.root == str(project.root)


@pytest.mark.needs("root")
def test_a_repository_of_another_user_is_refused_with_what_to_do(project: Project) -> None:
    for place in (project.root, project.root / ".git"):
        os.chown(place, 12345, 12345)
    advice = rf"belongs to another user.*git config --global --add safe\.directory {project.root}$"
    with pytest.raises(GitError, match=advice):
        find(str(project.root / "folder"))


def test_commands_never_go_to_a_repository_of_a_parent_directory(project: Project) -> None:
    inner = Project(project.root / "inner")
    repository = inner.repository
    shutil.rmtree(inner.root / ".git")
    with pytest.raises(GitError, match="not a git repository"):
        repository.git().run("status")


def test_the_head_is_read_from_files_and_from_packed_refs(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, commit = project.repository, project.read_id("rev-parse", "HEAD")
    project.git("pack-refs", "--all")
    assert head(repository) == Head("main", commit)
    project.git("checkout", "--quiet", "-b", "feature/ä")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert head(repository) == Head("feature/ä", commit)


def test_a_detached_head_has_no_branch_and_a_new_one_no_commit(project: Project) -> None:
    commit = project.read_id("rev-parse", "HEAD")
    project.git("checkout", "--quiet", "--detach")
    assert head(project.repository) == Head(None, commit)
    assert status(project.repository).detached
    project.git("checkout", "--quiet", "--orphan", "empty")
    assert head(project.repository) == Head("empty", None)
    assert status(project.repository).head is None


def test_the_status_counts_changes_and_knows_the_upstream(project: Project, tmp_path: Path) -> None:
    project.git("clone", "--quiet", str(project.root), str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    assert status(clone.repository).dirty == 0
    clone.commit("ahead")
    clone.write("a.txt", "changed\n")
    clone.write("new/one", "")
    clone.write("new/two", "")
    clone.delete("run.sh")
    found = status(clone.repository)
    assert (found.branch, found.head) == ("main", clone.read_id("rev-parse", "HEAD"))
    assert (found.upstream, found.ahead, found.behind) == ("origin/main", 1, 0)
    assert (found.dirty, found.dirty_is_minimum, found.detached) == (3, False, False)


def test_the_status_neither_writes_nor_starts_configured_programs(project: Project, tmp_path: Path) -> None:
    marks = make_hostile(project, tmp_path / "hostile")
    project.write("a.txt", "changed\n")
    os.utime(project.root / "run.sh")
    before = project.private_parts()
    assert status(project.repository).dirty >= 1
    assert project.private_parts() == before
    assert marked(marks) == []


def test_operations_in_progress_are_recognised(project: Project) -> None:
    repository = project.repository
    assert in_progress(repository) is None
    project.git("checkout", "--quiet", "-b", "other")
    project.write("a.txt", "theirs\n")
    project.commit()
    project.git("checkout", "--quiet", "main")
    project.write("a.txt", "ours\n")
    project.commit()
    for command, name in (
        (("merge", "other"), "merge"),
        (("rebase", "other"), "rebase"),
        (("cherry-pick", "other"), "cherry-pick"),
    ):
        with pytest.raises(AssertionError):
            project.git(*command)
        assert in_progress(repository) == name
        assert status(repository).in_progress == name
        project.git(command[0], "--abort")
    project.git("bisect", "start")
    assert in_progress(repository) == "bisect"
