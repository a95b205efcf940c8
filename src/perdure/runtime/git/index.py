"""The index of a working tree: reading some of its entries, and changing exactly these.

Above: commit.py, checkout.py and merge.py. Below: command.py, and git's lock file for the index. All other entries keep
what the user has staged. The lock is held from before a branch moves until the index agrees with it, as in git itself,
so no other git command sees or commits a state in between. It is a link whose target names the plan that it belongs to:
after a kill or a failure, finishing the same plan recognises and replaces it, and the user's git refuses to commit
until then. As in git, the new index is written before the branch moves, so that afterwards it only needs to be renamed.
"""

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from perdure.runtime.git.command import Git, GitError, shown
from perdure.runtime.git.difference import PATHS_PER_COMMAND, Entry
from perdure.runtime.git.repository import Repository, is_partial

LOCK_TIMEOUT_S = 5.0
"""How long to wait for another git command that changes the index."""
LOCK_POLL_S = 0.05

_TEMPORARY = "perdure-index-"
_WITH_CACHE = ("-c", "core.untrackedCache=keep")
"""Otherwise git drops the list of untracked folders, which saves the user's `git status` time."""


class Busy(GitError):
    """Another git command is changing the same index."""


class IndexChange(msgspec.Struct, frozen=True):
    """What an entry was when the change was planned, and what it becomes. None means that there is no entry."""

    path: str
    old: Entry | None
    new: Entry | None


class Recorded(NamedTuple):
    """An entry of the index. `stage` isn't 0 if the path has a conflict that nobody has resolved."""

    entry: Entry
    stage: int
    is_skipped: bool
    """The file is left out of the working tree, for example by `git sparse-checkout`."""
    is_assumed: bool
    """git assumes that the file is unchanged (`git update-index --assume-unchanged`)."""


def zero_terminated(paths: Collection[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def recorded(git: Git, paths: Collection[str], env: Mapping[str, str] | None = None) -> dict[str, list[Recorded]]:
    """The entries at exactly these paths."""
    wanted = set(paths)
    if not wanted:
        return {}
    listed = sorted(wanted) if len(wanted) <= PATHS_PER_COMMAND else []
    found: dict[str, list[Recorded]] = {}
    for line in git.run("ls-files", "--stage", "-v", "-z", "--", *listed, env=env).split(b"\0")[:-1]:
        facts, _, path_bytes = line.partition(b"\t")
        path = os.fsdecode(path_bytes)
        if path in wanted:
            tag, mode, oid, stage = facts.decode().split(" ")
            found.setdefault(path, []).append(Recorded(Entry(mode, oid), int(stage), tag in "Ss", tag.islower()))
    return found


def entry_at(found: Mapping[str, Sequence[Recorded]], path: str) -> Entry | None:
    """The entry of a path without a conflict."""
    rows = found.get(path)
    return rows[0].entry if rows and rows[0].stage == 0 else None


def write(
    repository: Repository, entries: Mapping[str, Entry | None], env: Mapping[str, str], deadline_s: float | None
) -> None:
    """Set entries of the index that `env` names; None removes the entry."""
    lines = [f"0 {repository.null_id}\t{path}" for path, entry in entries.items() if entry is None]
    # Removals first: a file may replace a directory.
    lines += [f"{entry.mode} {entry.oid}\t{path}" for path, entry in entries.items() if entry is not None]
    arguments = (*_WITH_CACHE, "update-index", "--replace", "-z", "--index-info")
    repository.git(deadline_s).run(*arguments, input=zero_terminated(lines), env=env)


def tree_with(
    repository: Repository, tree: str, entries: Mapping[str, Entry | None], deadline_s: float | None = None
) -> str:
    """A tree with these entries changed, made in an index of its own."""
    git = repository.git(deadline_s)
    with tempfile.TemporaryDirectory(prefix="perdure-git-") as place:
        own = {"GIT_INDEX_FILE": os.path.join(place, "index")}
        git.run("-c", "index.sparse=false", "read-tree", tree, env=own)
        write(repository, entries, own, deadline_s)
        return git.run(*write_tree(git), env=own).decode().strip()


def write_tree(git: Git) -> tuple[str, ...]:
    """In a partial clone, contents of files that are as in the commit need not be there."""
    return ("write-tree", "--missing-ok") if is_partial(git) else ("write-tree",)


@contextlib.contextmanager
def locked(repository: Repository, plan_id: str, stays: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold the lock of the worktree's index. Raises Busy. `stays`: whether the lock is kept after an exception."""
    lock = os.path.join(repository.git_dir, "index.lock")
    _acquire(lock, f"held by Perdure for {plan_id}")
    is_done = False
    try:
        for name in os.listdir(repository.git_dir):
            # A killed run has left it.
            if name.startswith(_TEMPORARY):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(repository.git_dir, name))
        yield
        is_done = True
    finally:
        if is_done or not stays():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(lock)


def _acquire(lock: str, holder: str) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            _create(lock, holder)
            return
        except FileExistsError:
            if _is_ours(lock, holder):
                return
        except OSError as error:
            raise GitError(f"The index can't be locked in {shown(os.path.dirname(lock))}: {error.strerror}.") from None
        if time.monotonic() >= deadline:
            raise Busy(
                "Another git process is changing the repository, or has left a lock. Wait until it has finished; if "
                f"no git process is running, delete {shown(lock)} and try again."
            )
        time.sleep(LOCK_POLL_S)


def _create(lock: str, holder: str) -> None:
    try:
        # Created together with its content, so that a kill can't leave a lock that nobody recognises.
        os.symlink(holder, lock)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no links.
        with open(lock, "x", encoding="utf-8") as file:
            file.write(holder)


def _is_ours(lock: str, holder: str) -> bool:
    try:
        if os.path.islink(lock):
            return os.readlink(lock) == holder
        with open(lock, "rb") as file:
            return file.read(len(holder) + 1) == holder.encode()
    except OSError:
        return False


@contextlib.contextmanager
def edition(
    repository: Repository, changes: Collection[IndexChange], *, deadline_s: float | None = None
) -> Iterator["Edition"]:
    """A new index with the changes whose entry is still as it was planned. Call this while holding the lock."""
    git = repository.git(deadline_s)
    found = recorded(git, [change.path for change in changes])
    # Also entries that stay the same: git may know the size that the file had with other line endings.
    wanted = {change.path: change.new for change in changes if _is_at(found.get(change.path), change.old)}
    # A name of its own: after a kill, a git command of the killed run may still be writing to the old one.
    temporary = os.path.join(repository.git_dir, _TEMPORARY + secrets.token_hex(6))
    made = Edition(git, os.path.join(repository.git_dir, "index"), temporary, [path for path in wanted if wanted[path]])
    try:
        if wanted:
            with contextlib.suppress(FileNotFoundError):
                # With its time: git compares it with the files' times to find changes that a file's time doesn't show.
                shutil.copy2(made.place, temporary)
            write(repository, wanted, made.env, deadline_s)
            rows = {path: found.get(path, ()) for path in made.paths}
            made.mark("--skip-worktree", [path for path in rows if any(row.is_skipped for row in rows[path])])
            made.mark("--assume-unchanged", [path for path in rows if any(row.is_assumed for row in rows[path])])
            made.refresh()
        yield made
    finally:
        for name in (temporary, f"{temporary}.lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


class Edition(NamedTuple):
    """A complete index that isn't in its place yet."""

    git: Git
    place: str
    temporary: str
    paths: Sequence[str]
    """The entries that it sets."""

    @property
    def env(self) -> dict[str, str]:
        return {"GIT_INDEX_FILE": self.temporary}

    def mark(self, option: str, paths: Collection[str]) -> None:
        """Give entries a mark that the user's entries have: setting an entry removes it."""
        if paths:
            arguments = (*_WITH_CACHE, "update-index", option, "-z", "--stdin")
            self.git.run(*arguments, input=zero_terminated(paths), env=self.env)

    def refresh(self) -> None:
        """Note the times of the files, so that the user's git needn't read them again to see that they are
        unchanged."""
        if len(self.paths) > PATHS_PER_COMMAND:
            self.git.returns(*_WITH_CACHE, "update-index", "-q", "--refresh", env=self.env)
        elif self.paths:
            arguments = (*_WITH_CACHE, "add", "--refresh", "--pathspec-from-file=-", "--pathspec-file-nul")
            self.git.returns(*arguments, input=zero_terminated(self.paths), env=self.env)

    def publish(self) -> None:
        """Make this the index."""
        # Nothing is written if nothing changes, or if entries are removed and there is no index.
        if os.path.exists(self.temporary):
            os.replace(self.temporary, self.place)


def _is_at(rows: Sequence[Recorded] | None, entry: Entry | None) -> bool:
    if not rows:
        return entry is None
    return rows[0].stage == 0 and rows[0].entry == entry


def differing(git: Git, changes: Collection[IndexChange]) -> list[str]:
    """Paths whose entry is neither what was planned to be there nor what it becomes."""
    found = recorded(git, [change.path for change in changes])
    return [
        change.path
        for change in changes
        if not any(_is_at(found.get(change.path), entry) for entry in (change.old, change.new))
    ]
