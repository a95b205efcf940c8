"""A git repository as Perdure sees it: where its parts are, and its branch, commit and changes in words.

Above: the verbs, and the other modules of this folder. Below: command.py and the files in `.git`. Nothing here writes.
"""

import os
import time
from functools import cached_property
from typing import Literal

import msgspec

from perdure.runtime.git.command import MINIMUM, Git, GitError, require, shown

FIND_TIMEOUT_S = 10.0
STATUS_BYTES = 4 * 1024 * 1024
"""How much of `git status` is read to count changes."""
UNFINISHED = "perdure-checkout"
"""A file in the git directory of a worktree whose files Perdure has not completely written."""

InProgress = Literal["rebase", "merge", "cherry-pick", "revert", "bisect"]

_SIGNS: tuple[tuple[str, InProgress], ...] = (
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("BISECT_LOG", "bisect"),
)


class Repository(msgspec.Struct, frozen=True, dict=True):
    """One working tree and its repository. All paths are absolute and contain no links."""

    root: str
    """The top directory of the working tree."""
    git_dir: str
    """The git directory of this working tree; of a linked worktree, the one in `worktrees/`."""
    common_dir: str
    """The git directory that all working trees share: objects, branches, configuration."""
    object_format: str
    """"sha1" or "sha256"."""

    def git(self, deadline_s: float | None = None) -> Git:
        """Commands for exactly this working tree, even if its `.git` disappears and a parent directory has one."""
        return Git(self.root, deadline_s=deadline_s, env={"GIT_DIR": self.git_dir, "GIT_WORK_TREE": self.root})

    @cached_property
    def null_id(self) -> str:
        return "0" * (64 if self.object_format == "sha256" else 40)


class Head(msgspec.Struct, frozen=True):
    branch: str | None
    """The branch's short name; None if HEAD is detached."""
    commit: str | None
    """None if the branch has no commit yet."""


class Status(msgspec.Struct, frozen=True):
    branch: str | None
    head: str | None
    detached: bool
    dirty: int
    """How many paths differ from the commit or are untracked; an untracked folder counts as one."""
    dirty_is_minimum: bool
    """There are more changes than were counted."""
    in_progress: InProgress | None
    upstream: str | None
    ahead: int | None
    behind: int | None


def find(directory: str, deadline_s: float | None = None) -> Repository | None:
    """The repository whose working tree contains a directory. Starts no process if there is none."""
    top = _likely_top(directory)
    if top is None:
        return None
    if deadline_s is None:
        deadline_s = time.monotonic() + FIND_TIMEOUT_S
    require(MINIMUM, "Snapshots of files need")
    git = Git(directory, deadline_s=deadline_s)
    wanted = ("--show-toplevel", "--absolute-git-dir", "--git-common-dir", "--show-object-format")
    try:
        found = git.run("rev-parse", "--path-format=absolute", *wanted).split(b"\n")
        if len(found) != len(wanted) + 1:  # a path contains a newline
            found = [git.run("rev-parse", "--path-format=absolute", name)[:-1] for name in wanted]
    except GitError as error:
        if "not a git repository" in error.stderr and not os.path.lexists(os.path.join(top, ".git")):
            return None
        raise _not_usable(top, error) from None
    *places, object_format = (os.fsdecode(part) for part in found[: len(wanted)])
    root, git_dir, common_dir = (os.path.realpath(place) for place in places)
    if not _is_beside(directory, root, git_dir):
        # Snapshots and restores must stay in the directory that a session was given.
        raise GitError(
            f"The repository of {shown(top)} has its files in {shown(root)} (core.worktree in its configuration). "
            "Perdure only uses repositories whose .git is in the same directory as their files."
        )
    return Repository(root, git_dir, common_dir, object_format)


def _is_beside(directory: str, root: str, git_dir: str) -> bool:
    """Whether the top of a working tree is the directory or above it, and has the `.git` of its git directory."""
    try:
        own, wanted, place = git_dir_of(root), os.stat(root), os.path.realpath(directory)
        # Paths may differ where upper and lower case don't matter.
        while not os.path.samestat(os.stat(place), wanted):
            if place == os.path.dirname(place):
                return False
            place = os.path.dirname(place)
        return own is not None and os.path.samefile(own, git_dir)
    except OSError:
        return False


def git_dir_of(root: str) -> str | None:
    """The git directory that the `.git` of a directory is, or that it names. Starts no process."""
    place = os.path.join(root, ".git")
    if os.path.isdir(place):
        return os.path.realpath(place)
    try:
        with open(place, "rb") as file:
            said = os.fsdecode(file.read(65_536)).rstrip("\r\n")
    except OSError:
        return None
    named = said.removeprefix("gitdir: ")
    return os.path.realpath(os.path.join(root, named)) if named != said else None


def is_unfinished(git_dir: str, common_dir: str | None = None) -> bool:
    """Whether the files of a worktree were not completely written: to git, those that are missing look deleted. A new
    repository has no index either; with `common_dir`, this is taken into account."""
    if os.path.lexists(os.path.join(git_dir, UNFINISHED)):
        return True
    return git_dir != common_dir and not os.path.exists(os.path.join(git_dir, "index"))


def _likely_top(directory: str) -> str | None:
    """The directory or the first of its parents on the same file system that has a `.git`, or is a bare repository."""
    try:
        place = os.path.realpath(directory, strict=True)
        device = os.stat(place).st_dev
        while os.stat(place).st_dev == device:
            if os.path.lexists(os.path.join(place, ".git")):
                return place
            if all(os.path.exists(os.path.join(place, name)) for name in ("HEAD", "objects", "refs")):
                return place
            if place == os.path.dirname(place):
                return None
            place = os.path.dirname(place)
    except (OSError, ValueError):
        return None
    return None


def _not_usable(top: str, error: GitError) -> GitError:
    """Say why a repository that exists can't be used, and what to do."""
    place = shown(top)
    if "dubious ownership" in error.stderr:
        return GitError(
            f"The repository of {place} belongs to another user. If you trust it, run as the server's user: "
            f"git config --global --add safe.directory {place}",
            error.stderr,
        )
    if "must be run in a work tree" in error.stderr:
        return GitError(f"{place} is in a bare repository or in a .git directory, which has no files to compare.")
    if "not a git repository" in error.stderr:
        return GitError(f"The .git of {place} is not a valid repository. `git status` in it shows details.")
    if "unknown repository extension" in error.stderr or "repo version" in error.stderr:
        return GitError(f"The repository of {place} needs a newer git than the server has.", error.stderr)
    return error


def in_progress(repository: Repository) -> InProgress | None:
    """Which operation of git was begun in the working tree and not finished. An `am` counts as a rebase."""
    for name, operation in _SIGNS:
        if os.path.lexists(os.path.join(repository.git_dir, name)):
            return operation
    # Between two commits of a longer cherry-pick or revert, only this list is left.
    try:
        with open(os.path.join(repository.git_dir, "sequencer", "todo"), "rb") as file:
            return "revert" if file.read(6) == b"revert" else "cherry-pick"
    except OSError:
        return None


def head(repository: Repository, deadline_s: float | None = None) -> Head:
    """The current branch and commit. Reads files, and starts a process only if they don't have the answer."""
    said = _first_line(os.path.join(repository.git_dir, "HEAD"))
    branch = None
    if _is_id(said, repository):
        return Head(None, said)
    if said.startswith("ref: refs/heads/") and said != "ref: refs/heads/.invalid":
        branch = said.removeprefix("ref: refs/heads/")
        commit = _first_line(os.path.join(repository.common_dir, "refs", "heads", branch))
        if _is_id(commit, repository):
            return Head(branch, commit)
    git = repository.git(deadline_s)
    if branch is None:
        status, name = git.returns("symbolic-ref", "--quiet", "HEAD")
        branch = os.fsdecode(name.strip()).removeprefix("refs/heads/") if status == 0 else None
    # Status 1: the branch has no commit yet.
    status, commit_id = git.returns("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
    return Head(branch, commit_id.decode().strip() if status == 0 else None)


def is_partial(git: Git) -> bool:
    """Whether git fetches objects only when it needs them, so that some are missing."""
    # Status 1: there is no such setting.
    return bool(git.run("config", "--get-regexp", r"^(remote\..*\.promisor|extensions\.partialclone)$", ok=(0, 1)))


def _first_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.readline(4096)).rstrip("\n")
    except OSError:
        return ""


def _is_id(text: str, repository: Repository) -> bool:
    return len(text) == len(repository.null_id) and all(character in "0123456789abcdef" for character in text)


def status(repository: Repository, deadline_s: float | None = None) -> Status:
    """Branch, commit and the number of uncommitted changes. Submodules count only if their commit changed."""
    output, truncated = repository.git(deadline_s).head(
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
        "--untracked-files=normal",
        "--no-renames",
        "--ignore-submodules=dirty",
        max_bytes=STATUS_BYTES,
    )
    records = output.split(b"\0")[:-1]
    facts = {}
    for record in records:
        if record.startswith(b"# "):
            key, _, value = record[2:].partition(b" ")
            facts[key.decode()] = os.fsdecode(value)
    branch, commit = facts.get("branch.head"), facts.get("branch.oid")
    ahead, _, behind = facts.get("branch.ab", "").partition(" ")
    detached = branch == "(detached)"
    return Status(
        branch=None if detached else branch,
        head=None if commit == "(initial)" else commit,
        detached=detached,
        dirty=sum(not record.startswith(b"# ") for record in records),
        dirty_is_minimum=truncated,
        in_progress=in_progress(repository),
        upstream=facts.get("branch.upstream"),
        ahead=int(ahead) if ahead else None,
        behind=-int(behind) if behind else None,
    )
