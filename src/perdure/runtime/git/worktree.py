"""A session's own worktree and branch, so that several sessions can change the same repository at the same time.

Above: the verbs that create and delete sessions; merge.py. Below: `git worktree`. `plan` chooses, and `ensure` creates
whatever is missing: at first everything, later a deleted folder or branch, and after a kill the rest. Nothing is
overwritten: a folder with files is either a valid worktree or left alone with an error. Hooks and filters don't run,
so files in Git LFS stay pointers, which a note says. `remove` first renames the folder, so a killed removal leaves no
half of a worktree, and the next one continues. It removes nothing that is nowhere else: neither changes nor commits,
also not those of submodules, nor ignored files, except those that tools create again.
"""

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from perdure.runtime.git import checkout
from perdure.runtime.git.command import WORKTREES, Git, GitError, require, shown
from perdure.runtime.git.commit import Outdated, contains, move, named
from perdure.runtime.git.difference import SUBMODULE
from perdure.runtime.git.index import LOCK_POLL_S, LOCK_TIMEOUT_S, recorded
from perdure.runtime.git.repository import (
    UNFINISHED,
    InProgress,
    Repository,
    find,
    git_dir_of,
    head,
    in_progress,
    is_unfinished,
)
from perdure.runtime.git.repository import status as repository_status

CHECKOUT_TIMEOUT_S = 600.0
"""How long writing the files of a new worktree may take."""
MAX_NUMBER = 1000
"""The highest number that is appended to a branch name that is taken."""
UNCOMMITTED_BYTES = 1024 * 1024
"""How much of the list of uncommitted or ignored files is read."""
CREATE_ATTEMPTS = 50
"""How often a branch name is chosen while others that are created at the same time take it."""
REBUILT = {
    "__pycache__",
    ".gradle",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".venv",
    "node_modules",
    "target",
    "venv",
}
"""Ignored folders that are removed with a worktree: caches, installed packages and compiled code, which tools create
again from what is committed. `dist` and `build` are missing because people also keep finished work there."""

_REMOVED = ".perdure-removed"


class Worktree(msgspec.Struct, frozen=True):
    """Where a session works. It contains all that `ensure` needs."""

    repository: str
    """The top directory of the project's worktree."""
    path: str
    branch: str
    base: str | None
    """The branch from which it was created and into which it is merged; None if HEAD was detached."""
    base_commit: str
    workdir: str
    """The session's directory: the path, or the project's subdirectory in it."""


class WorktreeStatus(msgspec.Struct, frozen=True):
    missing: bool
    """The folder does not exist; `ensure` creates it again from the branch."""
    checked_out: str | None
    """The branch that is checked out, which the agent may have switched; None if HEAD is detached or missing."""
    ahead: int | None
    """How many commits the branch has that its base lacks; None if one of them is missing."""
    behind: int | None
    merged: bool
    """Deleting the branch loses no commit."""
    dirty: int
    """How many paths have uncommitted changes or are untracked; an untracked folder counts as one."""
    dirty_is_minimum: bool
    in_progress: InProgress | None
    reason: str | None
    """What is wrong, as a sentence."""


class Place(NamedTuple):
    """A worktree of a repository, as `git worktree list` reports it."""

    path: str
    branch: str | None
    is_locked: bool


def create(directory: str, folder: str, branch: str, *, deadline_s: float | None = None) -> Worktree:
    """Create a worktree and its branch, and return what `plan` chose. If that fails, neither is left."""
    for _ in range(CREATE_ATTEMPTS):
        chosen = plan(directory, folder, branch, deadline_s=deadline_s)
        repository = project(chosen, deadline_s)
        _remove_leftover(chosen, repository, deadline_s)
        try:
            # Fails if another creation took the name meanwhile: two sessions must never share a branch.
            _create_branch(chosen, repository.git(deadline_s), chosen.base_commit)
        except Outdated:
            continue
        try:
            ensure(chosen, deadline_s=deadline_s)
        except BaseException:
            with contextlib.suppress(GitError, OSError):
                if any(place.path == chosen.path for place in places(repository)):
                    _take_away(chosen, repository, None)
                _delete_branch(repository, chosen, None)
            raise
        return chosen
    raise GitError("Too many worktrees are created at the same time. Try again.")


def _remove_leftover(chosen: Worktree, repository: Repository, deadline_s: float | None) -> None:
    """Make room if a killed creation for the same session has left a worktree. Nobody has worked in it."""
    for place in places(repository, deadline_s):
        if place.path == chosen.path:
            if place.is_locked:
                raise GitError(f"There is already a worktree {shown(chosen.path)}, and it is locked.")
            left = msgspec.structs.replace(chosen, branch=place.branch or chosen.branch)
            git_dir = git_dir_of(place.path)
            is_half = git_dir is None or is_unfinished(git_dir)
            reason = removable(left, deadline_s=deadline_s) if not is_half else None
            if reason:
                raise GitError(f"{shown(chosen.path)} is a worktree with work in it: {reason} Perdure leaves it alone.")
            _take_away(left, repository, deadline_s)
            _delete_branch(repository, left, deadline_s)


def _create_branch(worktree: Worktree, git: Git, start: str) -> None:
    ref, reason = f"refs/heads/{worktree.branch}", f"branch (perdure): created from {worktree.base or 'HEAD'}"
    move(git, {ref: (None, start)}, reason)


def plan(directory: str, folder: str, branch: str, *, deadline_s: float | None = None) -> Worktree:
    """Choose the base of a worktree in `folder`, for a session of the project in `directory`, and a free branch name
    that is or begins with `branch`. Changes nothing. Raises GitError if the project can't have worktrees."""
    require(WORKTREES, "Worktrees need")
    repository = find(directory, deadline_s)
    if repository is None:
        raise GitError(
            f"{shown(directory)} is not in a git repository, so a session can't have its own worktree. Run `git init` "
            "and commit, or let the session use the directory itself."
        )
    operation = in_progress(repository)
    if operation in ("rebase", "bisect"):
        raise GitError(f"A {operation} is in progress in {shown(repository.root)}. Finish or abort it first.")
    now = head(repository, deadline_s)
    if now.commit is None:
        raise GitError(f"The repository {shown(repository.root)} has no commit yet. Commit something first.")
    path = os.path.join(os.path.realpath(os.path.dirname(folder)), os.path.basename(folder))
    inside = os.path.relpath(os.path.realpath(directory), repository.root)
    return Worktree(
        repository=repository.root,
        path=path,
        branch=_free_branch(repository.git(deadline_s), branch),
        base=now.branch,
        base_commit=now.commit,
        workdir=os.path.normpath(os.path.join(path, inside)),
    )


def _free_branch(git: Git, wanted: str) -> str:
    listed = git.run("for-each-ref", "--format=%(refname)", "refs/heads/").split(b"\n")
    # Some file systems don't distinguish upper and lower case.
    taken = {os.fsdecode(ref).removeprefix("refs/heads/").lower() for ref in listed}
    folder = wanted.partition("/")[0]
    if folder != wanted and folder.lower() in taken:
        # A branch is stored as a file, so it can't also be the folder of others.
        wanted = wanted.replace("/", "-")
    for number in range(1, MAX_NUMBER + 1):
        name = wanted if number == 1 else f"{wanted}-{number}"
        if name.lower() not in taken and not any(other.startswith(name.lower() + "/") for other in taken):
            return name
    raise GitError(f"There are already {MAX_NUMBER} branches named {shown(wanted)}. Delete some of them.")


def ensure(worktree: Worktree, *, deadline_s: float | None = None) -> list[str]:
    """Create what is missing: branch, folder, files. Returns notes about files that differ from a usual checkout, if
    files were checked out."""
    deadline_s = deadline_s if deadline_s is not None else time.monotonic() + CHECKOUT_TIMEOUT_S
    repository = project(worktree, deadline_s)
    git = repository.git(deadline_s)
    opened = _opened(worktree, repository)
    if opened is not None and (other := head(opened, deadline_s).branch) not in (worktree.branch, None):
        raise GitError(
            f"The worktree {shown(worktree.path)} has the branch {shown(other or '')} checked out instead of "
            f"{shown(worktree.branch)}. Switch it back."
        )
    if commit_of(git, f"refs/heads/{worktree.branch}") is None:
        _create_branch(worktree, git, worktree.base_commit if opened is not None else _start(worktree, git))
    if opened is None:
        _clear(worktree, repository)
        git.run("worktree", "add", "--no-checkout", worktree.path, worktree.branch)
        opened = _opened(worktree, repository)
        if opened is None:
            raise GitError(f"git created no worktree in {shown(worktree.path)}.")
    is_new = _check_out(opened, deadline_s)
    if not os.path.isdir(worktree.workdir):
        os.makedirs(worktree.workdir, exist_ok=True)
    return _notes(opened, deadline_s) if is_new else []


def is_complete(worktree: Worktree) -> bool:
    """Whether nothing is missing that `ensure` would create, as far as files say. Starts no process."""
    git_dir = git_dir_of(worktree.path)
    return git_dir is not None and os.path.isdir(worktree.workdir) and not is_unfinished(git_dir)


def _start(worktree: Worktree, git: Git) -> str:
    """Where a missing branch begins: at its base as it is now, which has what was merged before `remove` deleted it."""
    base = commit_of(git, f"refs/heads/{worktree.base}") if worktree.base else None
    return base if base and contains(git, base, worktree.base_commit) else worktree.base_commit


def project(worktree: Worktree, deadline_s: float | None = None) -> Repository:
    """The repository of the project. Raises GitError if it does not exist any more."""
    require(WORKTREES, "Worktrees need")
    repository = find(worktree.repository, deadline_s)
    if repository is None or repository.root != worktree.repository:
        raise GitError(f"The repository {shown(worktree.repository)} does not exist any more.")
    return repository


def opened(worktree: Worktree, deadline_s: float | None = None) -> Repository | None:
    """The session's worktree; None if its folder is missing. Raises GitError if its repository is."""
    return _opened(worktree, project(worktree, deadline_s))


def _opened(worktree: Worktree, repository: Repository) -> Repository | None:
    if not os.path.lexists(os.path.join(worktree.path, ".git")):
        return None
    try:
        found = find(worktree.path)
    except GitError:
        # A killed `git worktree add` leaves metadata that git can't use.
        return None
    if found is None or (found.root, found.common_dir) != (worktree.path, repository.common_dir):
        return None
    return found


def _clear(worktree: Worktree, repository: Repository) -> None:
    """Make room for `git worktree add`: remove an empty folder and git's record of a lost one."""
    path = worktree.path
    if os.path.lexists(path):
        kept = sorted(os.listdir(path)) if os.path.isdir(path) and not os.path.islink(path) else ["."]
        if kept not in ([], [".git"]) or os.path.isdir(os.path.join(path, ".git")):
            raise GitError(
                f"{shown(path)} exists but is not a worktree of {shown(worktree.repository)}, so Perdure leaves it "
                "alone. Move it away, then try again."
            )
        if kept:
            os.unlink(os.path.join(path, ".git"))
        os.rmdir(path)
    place = next((place for place in places(repository) if place.path == path), None)
    if place is not None and place.is_locked:
        raise GitError(f"The worktree {shown(path)} is locked (git worktree lock), and its folder is missing now.")
    if place is not None:
        repository.git().run("worktree", "remove", "--force", "--force", path)


def places(repository: Repository, deadline_s: float | None = None) -> Iterator[Place]:
    """All worktrees of a repository, also those whose folder is missing."""
    git = repository.git(deadline_s)
    for number, record in enumerate(git.run("worktree", "list", "--porcelain", "-z").split(b"\0\0")):
        facts = dict(os.fsdecode(line).partition(" ")[::2] for line in record.split(b"\0") if line)
        if "worktree" in facts and "bare" not in facts:
            branch = facts["branch"].removeprefix("refs/heads/") if "branch" in facts else None
            # git guesses the place of the main worktree, wrongly if its git directory is elsewhere.
            is_here = number == 0 and repository.git_dir == repository.common_dir
            path = repository.root if is_here else os.path.realpath(facts["worktree"])
            # A killed `git worktree add` leaves its own lock.
            yield Place(path, branch, facts.get("locked", "initializing") != "initializing")


def _check_out(opened: Repository, deadline_s: float) -> bool:
    """Write the files, once. Later the folder belongs to the agent, also if it deletes everything in it."""
    unfinished, index = (os.path.join(opened.git_dir, name) for name in (UNFINISHED, "index"))
    is_new = not os.path.exists(index) and os.listdir(opened.root) == [".git"]
    if not is_new and not os.path.exists(unfinished):
        if not os.path.exists(index):
            opened.git(deadline_s).run("read-tree", "HEAD")
        return False
    with open(unfinished, "wb"):
        pass
    # A killed run leaves it, and its git command may still be writing. Nobody else uses the worktree yet.
    waited_until = time.monotonic() + LOCK_TIMEOUT_S
    while os.path.exists(f"{index}.lock") and time.monotonic() < waited_until:
        time.sleep(LOCK_POLL_S)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{index}.lock")
    opened.git(deadline_s).run("read-tree", "--reset", "-u", "HEAD")
    os.unlink(unfinished)
    return True


def _notes(opened: Repository, deadline_s: float) -> list[str]:
    notes = []
    git = opened.git(deadline_s)
    configured = checkout.configured_filters(git)
    if configured:
        files = [os.fsdecode(path) for path in git.run("ls-files", "-z").split(b"\0")[:-1]]
        found = {path: name for path, name in checkout.filtered(git, files).items() if name in configured}
        if found:
            filters = ", ".join(sorted(set(found.values())))
            notes.append(
                f"These files are stored through the filter {filters}, which Perdure does not run, so they have the "
                f"content that git stores: {named(found)}."
            )
    if os.path.lexists(os.path.join(opened.root, ".gitmodules")):
        notes.append("Submodules are not checked out. Run `git submodule update --init` if the session needs them.")
    return notes


def status(worktree: Worktree, *, deadline_s: float | None = None) -> WorktreeStatus:
    """The state of branch and folder. Raises GitError if the repository is missing."""
    repository = project(worktree, deadline_s)
    git = repository.git(deadline_s)
    tip = commit_of(git, f"refs/heads/{worktree.branch}")
    base = commit_of(git, f"refs/heads/{worktree.base}") if worktree.base else worktree.base_commit
    counts = git.run("rev-list", "--count", "--left-right", f"{base}...{tip}").split() if tip and base else None
    tree = _opened(worktree, repository)
    now = repository_status(tree, deadline_s) if tree else None
    reason = None
    if tree is None:
        reason = f"The folder {shown(worktree.path)} is missing."
    elif is_unfinished(tree.git_dir, tree.common_dir):
        reason = "The files were not completely checked out. The session's next message completes them."
    elif tip is None:
        reason = f"The branch {shown(worktree.branch)} is missing."
    elif base is None:
        reason = f"The branch {shown(worktree.base or '')}, from which this worktree was created, is missing."
    elif now and now.branch != worktree.branch:
        other = f"the branch {shown(now.branch)}" if now.branch else "a single commit (detached HEAD)"
        reason = f"The worktree has {other} checked out instead of {shown(worktree.branch)}."
    return WorktreeStatus(
        missing=tree is None,
        checked_out=now.branch if now else None,
        ahead=int(counts[1]) if counts else None,
        behind=int(counts[0]) if counts else None,
        merged=tip is None or _is_kept(git, worktree, tip),
        dirty=now.dirty if now else 0,
        dirty_is_minimum=now.dirty_is_minimum if now else False,
        in_progress=now.in_progress if now else None,
        reason=reason,
    )


def uncommitted(worktree: Worktree, *, deadline_s: float | None = None) -> list[str]:
    """Files with uncommitted changes and untracked files, as paths from the top; of very many, the first."""
    tree = opened(worktree, deadline_s)
    return [path for path in _dirty(tree, deadline_s) if not path.endswith("/")] if tree else []


def _dirty(tree: Repository, deadline_s: float | None) -> list[str]:
    """The same, and untracked folders that are repositories of their own."""
    if is_unfinished(tree.git_dir, tree.common_dir):
        # To git, the files that are missing look deleted.
        raise GitError(f"The files of the worktree {shown(tree.root)} were not completely checked out.")
    arguments = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty")
    output, _ = tree.git(deadline_s).head(*arguments, max_bytes=UNCOMMITTED_BYTES)
    return [os.fsdecode(record[3:]) for record in output.split(b"\0")[:-1]]


def _ignored(tree: Repository, deadline_s: float | None) -> list[str]:
    """Ignored files and folders that no tool creates again."""
    arguments = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--ignored=matching")
    output, is_cut = tree.git(deadline_s).head(*arguments, max_bytes=UNCOMMITTED_BYTES)
    listed = [os.fsdecode(record[3:]) for record in output.split(b"\0")[:-1] if record.startswith(b"!! ")]
    kept = [path for path in listed if REBUILT.isdisjoint(path.split("/"))]
    kept = kept or [inner for path in listed for inner in _repositories_in(tree.root, path)]
    return kept or (listed if is_cut else [])


def _repositories_in(root: str, path: str) -> Iterator[str]:
    """Repositories in an ignored folder, such as those of `pip install --editable git+...` in `.venv/src`."""
    top = os.path.join(root, path)
    for place, folders, files in () if os.path.islink(top) else os.walk(top):
        if ".git" in folders or ".git" in files:
            yield os.path.relpath(place, root) + "/"
            folders.clear()


def _hidden(tree: Repository, deadline_s: float | None) -> list[str]:
    """Changed files that `git status` doesn't show, because their entry is marked."""
    git = tree.git(deadline_s)
    records = git.run("ls-files", "-v", "-z").split(b"\0")[:-1]
    marked = [os.fsdecode(record[2:]) for record in records if record[:1] == b"S" or record[:1].islower()]
    present = [path for path in marked if os.path.lexists(os.path.join(tree.root, path))]
    entries = {path: rows[0].entry for path, rows in recorded(git, present).items()}
    files = {path: entry for path, entry in entries.items() if entry.mode != SUBMODULE}
    return sorted(checkout.found(tree, files, deadline_s).changed)


def _submodules(tree: Repository, deadline_s: float | None) -> list[str]:
    """Submodules that are checked out in the worktree: their repositories would be removed with it."""
    records = tree.git(deadline_s).run("ls-files", "--stage", "-z").split(b"\0")[:-1]
    paths = [os.fsdecode(record.partition(b"\t")[2]) for record in records if record.startswith(b"160000 ")]
    return [path for path in paths if os.path.lexists(os.path.join(tree.root, path, ".git"))]


def removable(worktree: Worktree, *, deadline_s: float | None = None) -> str | None:
    """Why removing the worktree would lose something, as a sentence; None if it would not."""
    if not os.path.lexists(worktree.repository) and not os.path.lexists(worktree.path):
        return None
    repository = project(worktree, deadline_s)
    git = repository.git(deadline_s)
    tree = _opened(worktree, repository)
    if os.path.islink(worktree.path):
        return f"{shown(worktree.path)} is a link now, not a worktree of {shown(worktree.repository)}."
    if tree is None and os.path.isdir(worktree.path) and set(os.listdir(worktree.path)) - {".git"}:
        return f"{shown(worktree.path)} has files but is not a worktree of {shown(worktree.repository)} any more."
    if any(place.path == worktree.path and place.is_locked for place in places(repository, deadline_s)):
        return "The worktree is locked. Run `git worktree unlock` first."
    kept = _repositories_of_submodules(worktree, repository)
    if kept:
        return (
            f"The worktree has repositories of submodules, whose commits may be nowhere else: {named(kept)}. Push them "
            "and run `git worktree remove --force`."
        )
    if tree:
        reason = _reason_in_files(tree, git, deadline_s)
        if reason:
            return reason
    tip = commit_of(git, f"refs/heads/{worktree.branch}")
    if tip and not _is_kept(git, worktree, tip):
        base = commit_of(git, f"refs/heads/{worktree.base}") if worktree.base else None
        without = [worktree.base_commit, *([base] if base else [])]
        count = int(git.run("rev-list", "--count", tip, "--not", *without))
        target = f"in {shown(worktree.base)}" if base and worktree.base else "on any other branch"
        commits = "1 commit that is" if count == 1 else f"{count} commits that are"
        return f"The branch {shown(worktree.branch)} has {commits} not {target}."
    return None


def _repositories_of_submodules(worktree: Worktree, repository: Repository) -> list[str]:
    """The repositories that git keeps in the worktree's own git directory, also if the folder is missing."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(os.path.join(repository.common_dir, "worktrees")):
            if _names(entry.path, worktree.path):
                with contextlib.suppress(FileNotFoundError):
                    found += sorted(os.listdir(os.path.join(entry.path, "modules")))
    return found


def _names(git_dir: str, path: str) -> bool:
    """Whether a worktree's git directory belongs to a path."""
    try:
        with open(os.path.join(git_dir, "gitdir"), "rb") as file:
            place = os.fsdecode(file.read(65_536)).rstrip("\r\n")
    except OSError:
        return False
    return os.path.realpath(os.path.join(git_dir, os.path.dirname(place))) == path


def _reason_in_files(tree: Repository, git: Git, deadline_s: float | None) -> str | None:
    """What removing the folder would lose."""
    operation = in_progress(tree)
    if operation:
        return f"A {operation} is in progress in the worktree."
    files = _dirty(tree, deadline_s)
    if files:
        return f"The worktree has uncommitted changes: {named(files)}."
    hidden = _hidden(tree, deadline_s)
    if hidden:
        return (
            f"The worktree has changes in files that git was told not to look at: {named(hidden)}. Run `git "
            "update-index --no-skip-worktree FILE` and `git update-index --no-assume-unchanged FILE`, then commit or "
            "undo them."
        )
    submodules = _submodules(tree, deadline_s)
    if submodules:
        return f"The worktree has submodules, whose commits may be nowhere else: {named(submodules)}."
    ignored = _ignored(tree, deadline_s)
    if ignored:
        return f"The worktree has files that git ignores, which are nowhere else: {named(ignored)}."
    current = head(tree, deadline_s)
    if current.branch is None and current.commit and not _other_refs(git, current.commit):
        return f"The commit {current.commit[:10]}, which is checked out, is on no branch."
    return None


def remove(worktree: Worktree, *, deadline_s: float | None = None) -> bool:
    """Delete the folder, and the branch if no commit is lost with it; returns whether the branch is gone. Raises
    GitError if something would be lost, or can't be deleted."""
    reason = removable(worktree, deadline_s=deadline_s)
    if reason:
        raise GitError(reason)
    repository = project(worktree, deadline_s) if os.path.lexists(worktree.repository) else None
    _take_away(worktree, repository, deadline_s)
    return repository is None or _delete_branch(repository, worktree, deadline_s)


def _take_away(worktree: Worktree, repository: Repository | None, deadline_s: float | None) -> None:
    """Delete the folder and git's record of it, whatever is in it."""
    removed = worktree.path + _REMOVED
    try:
        if os.path.lexists(worktree.path):
            _delete(removed)
            os.rename(worktree.path, removed)
        if repository and any(place.path == worktree.path for place in places(repository, deadline_s)):
            repository.git(deadline_s).run("worktree", "remove", "--force", "--force", worktree.path)
        _delete(removed)
    except OSError as error:
        place = removed if os.path.lexists(removed) else worktree.path
        raise GitError(f"{shown(place)} can't be deleted: {error.strerror or error}. Delete it yourself.") from None


def _delete_branch(repository: Repository, worktree: Worktree, deadline_s: float | None) -> bool:
    git = repository.git(deadline_s)
    ref = f"refs/heads/{worktree.branch}"
    tip = commit_of(git, ref)
    if tip is None:
        return True
    is_used = any(place.branch == worktree.branch for place in places(repository, deadline_s))
    if is_used or not _is_kept(git, worktree, tip):
        return False
    git.run("update-ref", "-d", ref, tip)
    return True


def _delete(folder: str) -> None:
    if os.path.islink(folder):
        os.unlink(folder)
    if not os.path.isdir(folder):
        return
    for place, folders, _ in os.walk(folder):
        # Package managers write-protect folders, whose files could not be deleted.
        for name in folders:
            inner = os.path.join(place, name)
            if not os.path.islink(inner):
                os.chmod(inner, stat.S_IRWXU)
    shutil.rmtree(folder)


def commit_of(git: Git, ref: str) -> str | None:
    """The commit of a reference; None if that does not exist."""
    found, commit = git.returns("rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}")
    return commit.decode().strip() if found == 0 else None


def _is_kept(git: Git, worktree: Worktree, tip: str) -> bool:
    """Whether the branch's commits are all in its base; if that is missing or was none, on any other branch."""
    if tip == worktree.base_commit:
        return True
    if worktree.base and commit_of(git, f"refs/heads/{worktree.base}"):
        return contains(git, f"refs/heads/{worktree.base}", tip)
    return bool(_other_refs(git, tip) - {f"refs/heads/{worktree.branch}"})


def _other_refs(git: Git, commit: str) -> set[str]:
    """The branches and tags that contain a commit."""
    where = ("refs/heads", "refs/remotes", "refs/tags")
    listed = git.run("for-each-ref", "--format=%(refname)", f"--contains={commit}", *where)
    return {os.fsdecode(ref) for ref in listed.split(b"\n") if ref}
