"""In a partial clone, contents are missing that git would fetch. Perdure says so and never lets git use the network."""

from pathlib import Path

import pytest

from perdure.runtime.git import command
from perdure.runtime.git.apply import apply, plan
from perdure.runtime.git.command import GitError
from perdure.runtime.git.commit import finish, prepare
from perdure.runtime.git.difference import patch
from perdure.runtime.git.snapshot import Snapshots
from tests.runtime.git.project import IDENTITY, Project, git_modes, marked


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    place = tmp_path / "marks"
    place.mkdir()
    return place


@pytest.fixture
def clone(project: Project, marks: Path, tmp_path: Path) -> Project:
    """A clone without the contents of old commits, and of `other/`. Fetching would leave a mark."""
    for number in range(2):
        project.write("a.txt", f"{number}\n")
        project.write("other/c.txt", f"other {number}\n")
        project.commit()
    project.git("config", "uploadpack.allowFilter", "true")
    project.git("config", "uploadpack.allowAnySHA1InWant", "true")
    address = f"file://{project.root}"
    project.git("clone", "--quiet", "--filter=blob:none", "--no-checkout", address, str(tmp_path / "clone"))
    made = Project(tmp_path / "clone")
    made.git("sparse-checkout", "set", "--no-cone", "/*", "!/other/")
    made.git("checkout", "--quiet")
    for key, value in zip(("user.name", "user.email"), IDENTITY[1::2], strict=True):
        made.git("config", key, value.partition("=")[2])
    program = tmp_path / "upload-pack"
    program.write_text(f'#!/bin/sh\ntouch {marks}/fetched\nexec git-upload-pack "$@"\n')
    program.chmod(0o755)
    made.git("config", "remote.origin.uploadpack", str(program))
    made.git("config", "protocol.file.allow", "always")
    return made


def test_content_that_is_missing_is_never_fetched(clone: Project, marks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As older versions of git, which don't know the variable.
    for known in (True, False):
        if not known:
            monkeypatch.delitem(command.ENVIRONMENT, "GIT_NO_LAZY_FETCH")
        for args in (("cat-file", "blob", "HEAD:other/c.txt"), ("diff-tree", "-p", "HEAD^", "HEAD")):
            with pytest.raises(GitError, match=r"partial clone.*git fetch --refetch --no-filter"):
                clone.repository.git().run(*args)
    with pytest.raises(GitError, match="partial clone"):
        patch(clone.repository, "HEAD^", "HEAD")
    assert marked(marks) == []
    # The user's git does fetch.
    assert clone.git("cat-file", "blob", "HEAD:other/c.txt") == b"other 1\n"
    assert marked(marks) == ["fetched"]


def test_a_snapshot_needs_nothing_that_is_missing(clone: Project, marks: Path, snapshots: Snapshots) -> None:
    repository, files = clone.repository, clone.files()
    first = snapshots.take(repository).tree
    clone.write("a.txt", "changed\n")
    clone.write("other/c.txt", "there after all\n")
    second = snapshots.take(repository).tree
    assert clone.recorded(second) == git_modes(clone.files())
    assert b"+changed" in patch(repository, first, second)[0]
    assert apply(repository, plan(repository, second, first)) == []
    assert clone.files() == files
    assert marked(marks) == []


def test_a_restore_of_missing_content_changes_nothing(clone: Project, marks: Path) -> None:
    steps = plan(clone.repository, "HEAD", "HEAD^")
    before = clone.files()
    with pytest.raises(GitError, match="partial clone"):
        apply(clone.repository, steps)
    assert clone.files() == before
    assert marked(marks) == []


def test_a_commit_needs_only_the_contents_of_its_files(clone: Project, marks: Path) -> None:
    clone.write("a.txt", "changed\n")
    clone.write("other/new", "new\n")
    repository = clone.repository
    finish(repository, prepare(repository, ["a.txt", "other/new"], "message"))
    assert clone.git("diff-tree", "-r", "--name-only", "HEAD^", "HEAD") == b"a.txt\nother/new\n"
    assert marked(marks) == []
