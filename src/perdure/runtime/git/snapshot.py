"""Snapshots of a working tree: all its files as they are, as a tree in the repository, kept by a ref.

Above: what records the changes of a turn. Below: private_index.py, which stores files; command.py. A snapshot has every
file that git tracks or would show as untracked, with its raw bytes. It changes neither the index, the branch, the stash
nor any file: it only adds objects, and refs below `refs/perdure/` that keep them.

Some files are left alone, and the snapshot names them: large ones, submodules, other repositories inside the working
tree, also bare ones. They are not in the tree, except submodules with the commit that the index has. So whoever
compares two snapshots must leave out what either of them has left alone.
"""

import contextlib
import json
import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from perdure.runtime.git.apply import TEMPORARY
from perdure.runtime.git.checkout import configured_filters, filtered
from perdure.runtime.git.command import Git, GitError, GitOutputTooLarge, GitTimeout, shown
from perdure.runtime.git.difference import differing
from perdure.runtime.git.ignore_rules import RULES, ignored
from perdure.runtime.git.private_index import Edition, PrivateIndex
from perdure.runtime.git.repository import Repository, head, in_progress

ATTEMPTS = 6
"""How often a snapshot is tried while files disappear or change as they are read."""
COMPLETE_ATTEMPTS = 4
"""After so many of them, files that have changed since the first one are left alone: they may never stop changing."""
REFS_TIMEOUT_S = 30.0
REFS = "refs/perdure/"
FILES_PER_LOOK = 1000
"""After so many files, the time is checked."""
PART_FILES = 5000
PART_BYTES = 64 * 1024 * 1024
"""How much one command records. If the time is over, the next try continues after the last complete part."""
LEFT_ALONE = 1000
"""With more files that would have to be left alone and named, there is no snapshot."""

_ENTRY = re.compile(rb"(.) (\d{6}) ([0-9a-f]+) \d\t(.*)", re.DOTALL)
_UNPROCESSED = re.compile(r"fatal: Unable to process path (.*)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_IDENTITY = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "Perdure"), ("EMAIL", "perdure@localhost"))
}
_BASE_DATE = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
"""So that the same tree always gets the same parent commit."""

_UNOPENED = re.compile(r"^warning: could not open directory '(.*)': ", re.MULTILINE)

Kind = Literal["large", "submodule", "nested_repository", "unreadable", "special", "too_many", "ignored"]


class LeftAlone(msgspec.Struct, frozen=True):
    """A file or folder that is not in the snapshot, and a sentence why. A folder ends with a slash. Only between two
    snapshots: one that is "ignored" is in one of them, because git ignored it at the time of the other."""

    path: str
    kind: Kind
    reason: str


class Snapshot(msgspec.Struct, frozen=True):
    tree: str
    head: str | None
    branch: str | None
    left_alone: list[LeftAlone]
    files: int


class Limits(msgspec.Struct, frozen=True):
    time_s: float = 30.0
    file_bytes: int = 20 * 1024 * 1024
    """Larger files are left alone."""
    total_bytes: int = 1024 * 1024 * 1024
    """Of all files together that git doesn't have as they are: those that are untracked or stored through a filter,
    such as Git LFS. The largest folders without tracked files, and the largest filtered files, are left alone."""
    files: int = 100_000
    """Tracked and untracked. More tracked files are over the budget; otherwise as with `total_bytes`."""


class OverBudget(GitError):
    """The working tree is too large, or the disk too slow, for a snapshot within its limits."""


class _Listing(NamedTuple):
    """What git knows about the working tree."""

    tracked: list[bytes]
    submodules: dict[bytes, str]
    """The paths in the index that are submodules, and their commits."""
    untracked: list[bytes]


class _Unsteady(Exception):
    """git could not read a file: it changed at that moment, or it can't be read. `name` is as git printed it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Snapshots:
    """Takes and keeps snapshots. `folder` is where their private git directories are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, repository: Repository, *, limits: Limits | None = None) -> Snapshot:
        """Record the whole working tree. Raises GitError if that isn't possible now, and OverBudget."""
        limits = limits or Limits()
        if in_progress(repository) == "rebase":
            raise GitError(
                f"A rebase is in progress in {shown(repository.root)}. Finish it (git rebase --continue) or stop it "
                "(git rebase --abort)."
            )
        deadline_s = time.monotonic() + limits.time_s
        try:
            return self._take(repository, limits, deadline_s)
        except GitTimeout as error:
            raise OverBudget(
                f"The files in {shown(repository.root)} could not be recorded within {limits.time_s:g} seconds.",
                error.stderr,
            ) from None
        except GitOutputTooLarge as error:
            raise OverBudget(f"There are too many files in {shown(repository.root)}.", error.stderr) from None

    def _take(self, repository: Repository, limits: Limits, deadline_s: float) -> Snapshot:
        index = PrivateIndex(self._folder, repository)
        git = repository.git(deadline_s)
        index.prepare(git)
        began_ns = time.time_ns()
        failed: list[str] = []
        is_new = False
        for attempt in range(ATTEMPTS):
            try:
                with index.edition() as edition:
                    # A file that failed twice doesn't just change at the moment.
                    unreadable = {name for name in failed if failed.count(name) > 1}
                    busy_since_ns = None if attempt < COMPLETE_ATTEMPTS else began_ns
                    return _Taking(repository, git, edition, limits, deadline_s, unreadable, busy_since_ns).take()
            except _Unsteady as unsteady:
                failed.append(unsteady.name)
            except (GitTimeout, GitOutputTooLarge, OverBudget):
                raise
            except GitError:
                # The index may name objects that the repository has lost. A new one doesn't.
                if is_new:
                    raise
                index.forget()
                is_new = True
        raise GitError(f"Files in {shown(repository.root)} changed all the time while they were recorded. Try again.")

    def keep(
        self, repository: Repository, ref: str, tree: str, *, parent_tree: str | None, note: dict[str, Any]
    ) -> str:
        """Let `ref` (refs/perdure/SESSION/TURN) keep one or two trees, with a note. Returns the id of its commit."""
        assert ref.startswith(REFS)
        git = repository.git(time.monotonic() + REFS_TIMEOUT_S)
        parent: list[str] = []
        if parent_tree is not None:
            base = self._commit(git, parent_tree, [], "before", _BASE_DATE)
            parent = ["-p", base]
        commit = self._commit(git, tree, parent, json.dumps({"root": repository.root} | note), {})
        git.run("-c", "core.logAllRefUpdates=false", "update-ref", ref, commit)
        return commit

    def _commit(self, git: Git, tree: str, parent: list[str], message: str, dates: dict[str, str]) -> str:
        arguments = ("-c", "i18n.commitEncoding=UTF-8", "commit-tree", *parent, tree)
        return git.run(*arguments, input=message.encode(), env=_IDENTITY | dates).decode().strip()

    def forget(self, repository: Repository, session_id: str) -> None:
        """Delete all refs of a session. git removes what only they have kept after its grace period, so the indexes
        that no other session uses are deleted too: they would name objects that are gone then."""
        git = repository.git(time.monotonic() + REFS_TIMEOUT_S)
        users: dict[str, set[str]] = {repository.root: {session_id}}
        for each, _, note in self._notes(repository):
            users.setdefault(str(note.get("root")), set()).add(each)
        for root, sessions in users.items():
            # A root that is no path is not from Perdure.
            with contextlib.suppress(UnicodeEncodeError):
                if sessions == {session_id}:
                    PrivateIndex(self._folder, msgspec.structs.replace(repository, root=root)).forget()
        names = git.run("for-each-ref", "--format=%(refname)", f"{REFS}{session_id}/").split(b"\n")[:-1]
        if names:
            commands = b"".join(b"delete " + name + b"\0\0" for name in names)
            git.run("update-ref", "-z", "--stdin", input=commands)

    def overlapping(
        self, repository: Repository, session_id: str, since_ms: int, until_ms: int
    ) -> list[tuple[str, int, int, bool]]:
        """The turns of other sessions that worked in the same working tree during a time: session, turn, when it began,
        and whether it is still running as far as its note says. Notes must have `since_ms`; without `until_ms`, the
        turn has not ended."""
        found = []
        for other, turn, note in self._notes(repository):
            began, ended = note.get("since_ms"), note.get("until_ms")
            if other == session_id or note.get("root") != repository.root or not isinstance(began, int):
                continue
            if began <= until_ms and (not isinstance(ended, int) or ended >= since_ms):
                found.append((other, turn, began, not isinstance(ended, int)))
        return sorted(found)

    def _notes(self, repository: Repository) -> Iterator[tuple[str, int, dict[str, Any]]]:
        git = repository.git(time.monotonic() + REFS_TIMEOUT_S)
        output = git.run("for-each-ref", "--format=%(refname)%00%(contents:subject)%00", REFS)
        fields = output.decode("utf-8", "replace").split("\0")
        for name, message in zip(fields[0::2], fields[1::2], strict=False):
            session_id, _, turn = name.strip().removeprefix(REFS).partition("/")
            try:
                note = json.loads(message)
                number = int(turn)
            except (ValueError, RecursionError):
                # Not one of ours.
                continue
            if isinstance(note, dict):
                yield session_id, number, note


class _Taking:
    """One attempt at a snapshot."""

    def __init__(
        self,
        repository: Repository,
        git: Git,
        edition: Edition,
        limits: Limits,
        deadline_s: float,
        unreadable: set[str],
        busy_since_ns: int | None,
    ) -> None:
        """With `busy_since_ns`, files that changed since then are left alone."""
        self._repository = repository
        self._git = git
        self._edition = edition
        self._limits = limits
        self._deadline_s = deadline_s
        self._unreadable = unreadable
        self._busy_since_ns = busy_since_ns
        self._root = os.path.join(os.fsencode(repository.root), b"")
        self._parents: dict[bytes, bool] = {b"": True}
        self._left_alone: list[LeftAlone] = []
        self._is_changed = False

    def take(self) -> Snapshot:
        now = head(self._repository, self._deadline_s)
        listing = self._list()
        files = self._look(listing.tracked)
        if len(files) > self._limits.files:
            raise OverBudget(
                f"git tracks {len(files)} files in {shown(self._repository.root)}, more than the limit of "
                f"{self._limits.files}."
            )
        untracked = self._look(self._outside_bare_repositories(listing))
        self._leave_out_masses(files, untracked, listing)
        files |= untracked
        submodules = self._submodules(listing, files)
        try:
            self._record(files, submodules)
            if len(self._left_alone) > LEFT_ALONE:
                raise OverBudget(
                    f"{len(self._left_alone)} files and folders in {shown(self._repository.root)} would have to be "
                    "left alone. Add what isn't part of the project to .gitignore."
                )
            tree = self._write_tree()
        finally:
            # Also if the time was over: the next try then needn't read again what this one has recorded.
            if self._is_changed:
                self._edition.publish()
        return Snapshot(
            tree=tree,
            head=now.commit,
            branch=now.branch,
            left_alone=sorted(self._left_alone, key=lambda each: each.path),
            files=len(files),
        )

    def _list(self) -> _Listing:
        arguments = ("-z", "-t", "--stage", "--cached", "--others", "--exclude-standard")
        tracked: dict[bytes, None] = {}
        submodules: dict[bytes, str] = {}
        untracked = []
        output, warnings = self._git.warned("ls-files", *arguments)
        self._name_unopened(warnings)
        for record in output.split(b"\0")[:-1]:
            if record.startswith(b"? "):
                untracked.append(record[2:])
            elif entry := _ENTRY.fullmatch(record):
                _, mode, oid, path = entry.groups()
                if mode == b"160000":
                    submodules[path] = oid.decode()
                else:
                    # A path with a conflict has up to three entries.
                    tracked[path] = None
        return _Listing(list(tracked), submodules, untracked)

    def _outside_bare_repositories(self, listing: _Listing) -> list[bytes]:
        """The untracked files without those of bare repositories, which git lists as if they were ordinary files. One
        that git tracks as files has files that belong to the project."""
        heads = [path for path in listing.untracked if path.endswith(b"/HEAD")]
        found = {path[:-4] for path in heads if self._is_bare_repository(path[:-4])}
        if found:
            found -= {folder for path in listing.tracked for folder in _folders(path)}
        if not found:
            return listing.untracked
        outside, named = [], set()
        for path in listing.untracked:
            bare = next((folder for folder in _folders(path) if folder in found), None)
            if bare:
                named.add(bare)
            else:
                outside.append(path)
        for folder in sorted(named):
            self._name(folder, "nested_repository", "It is a bare repository of its own.")
        return outside

    def _is_bare_repository(self, folder: bytes) -> bool:
        return all(os.path.isdir(os.path.join(self._root, folder, name)) for name in (b"objects", b"refs"))

    def _name_unopened(self, warnings: str) -> None:
        """Name the folders of which git could not list the untracked files."""
        for printed in dict.fromkeys(_UNOPENED.findall(warnings)):
            if printed == ".":
                raise GitError(f"The server may not list the files in {shown(self._repository.root)}.")
            self._name(os.fsencode(printed), "unreadable", "The server may not list its files.")

    def _look(self, paths: list[bytes]) -> dict[bytes, os.stat_result]:
        """The files among some paths that can be recorded. The others are gone or left alone."""
        files = {}
        for number, path in enumerate(paths):
            if number % FILES_PER_LOOK == 0 and time.monotonic() >= self._deadline_s:
                raise GitTimeout("There was no time left to look at the files.")
            try:
                if not self._is_in_folder(path):
                    continue
                found = os.lstat(self._root + path)
            except PermissionError:
                self._name(path, "unreadable", "The server may not read its folder.")
                continue
            except OSError:
                # Deleted, or a parent is a file now.
                continue
            if not self._leave_alone(path, found):
                files[path] = found
        return files

    def _is_in_folder(self, path: bytes) -> bool:
        """Whether a path's parents are folders. Behind a link are other files, even if their names are the same."""
        parent = path.rstrip(b"/").rpartition(b"/")[0]
        known = self._parents.get(parent)
        if known is None:
            known = self._is_in_folder(parent) and stat.S_ISDIR(os.lstat(self._root + parent).st_mode)
            self._parents[parent] = known
        return known

    def _leave_alone(self, path: bytes, found: os.stat_result) -> bool:
        """Whether a path is not recorded; except for folders in a tracked file's place, it is named then."""
        name = path.rpartition(b"/")[2]
        mode = found.st_mode
        if path.endswith(b"/"):
            self._name(path, "nested_repository", "It is a repository of its own.")
        elif stat.S_ISDIR(mode) or (name.startswith(b".") and TEMPORARY.fullmatch(os.fsdecode(name))):
            pass
        elif not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
            self._name(path, "special", "It is neither a file nor a link.")
        elif _is_refused(path, mode):
            self._name(path, "special", "git does not allow this name.")
        elif found.st_size > self._limits.file_bytes:
            size, limit = _size(found.st_size), _size(self._limits.file_bytes)
            self._name(path, "large", f"It has {size}, more than the limit of {limit}.")
        elif self._unreadable and _as_printed(path) in self._unreadable:
            self._name(path, "unreadable", "It can't be read.")
        elif self._busy_since_ns is not None and found.st_ctime_ns >= self._busy_since_ns:
            self._name(path, "unreadable", "It changed all the time while it was read.")
        else:
            return False
        return True

    def _name(self, path: bytes, kind: Kind, reason: str) -> None:
        self._left_alone.append(LeftAlone(os.fsdecode(path), kind, reason))

    def _leave_out_masses(
        self, tracked: dict[bytes, os.stat_result], untracked: dict[bytes, os.stat_result], listing: _Listing
    ) -> None:
        """Leave the largest folders without tracked files, and the largest files that git stores through a filter,
        alone until the rest is within the limits."""
        size = sum(found.st_size for found in untracked.values())
        stored_twice = self._stored_twice(tracked, self._limits.total_bytes - size)
        size += sum(tracked[path].st_size for path in stored_twice)
        excess_files = len(tracked) + len(untracked) - self._limits.files
        if excess_files <= 0 and size <= self._limits.total_bytes:
            return
        groups: dict[bytes, list[bytes]] = {}
        folders = {folder for path in listing.tracked for folder in _folders(path)}
        for path in untracked:
            top = next((folder for folder in _folders(path) if folder not in folders), path)
            groups.setdefault(top, []).append(path)
        groups |= {path: [path] for path in stored_twice}
        known = untracked | {path: tracked[path] for path in stored_twice}
        by_count = excess_files > 0
        weight = {
            top: len(paths) if by_count else sum(known[path].st_size for path in paths) for top, paths in groups.items()
        }
        for top in sorted(groups, key=lambda top: (-weight[top], top)):
            if excess_files <= 0 and size <= self._limits.total_bytes:
                return
            volume = sum(known[path].st_size for path in groups[top])
            count = len(groups[top])
            size -= volume
            excess_files -= count
            for path in groups[top]:
                (tracked if path in stored_twice else untracked).pop(path)
            reason = f"There are too many untracked files; here {count} of {_size(volume)}. Add it to .gitignore if it "
            reason += "isn't part of the project."
            if top in stored_twice:
                reason = f"git stores it through the filter {shown(stored_twice[top])}, so a snapshot needs its "
                reason += f"{_size(volume)} once more. There are too many such files."
            self._name(top, "too_many", reason)

    def _stored_twice(self, tracked: dict[bytes, os.stat_result], budget_bytes: int) -> dict[bytes, str]:
        """The tracked files whose bytes are not in the repository because of a filter, and its name. Empty if all
        tracked files together are within a budget."""
        if sum(found.st_size for found in tracked.values()) <= budget_bytes:
            return {}
        configured = configured_filters(self._git)
        found = filtered(self._git, [os.fsdecode(path) for path in tracked]) if configured else {}
        return {os.fsencode(path): name for path, name in found.items() if name in configured}

    def _submodules(self, listing: _Listing, files: dict[bytes, os.stat_result]) -> dict[bytes, str]:
        """The submodules that no file has replaced."""
        kept = {}
        for path, oid in listing.submodules.items():
            try:
                found = os.lstat(self._root + path)
                is_file = self._is_in_folder(path) and not stat.S_ISDIR(found.st_mode)
            except OSError:
                is_file = False
            if is_file and not self._leave_alone(path, found):
                files[path] = found
            elif not is_file:
                kept[path] = oid
                self._name(path, "submodule", "It is a submodule.")
        # A file in a submodule's folder can be tracked only by a damaged index.
        if kept:
            for path in [path for path in files if any(folder[:-1] in kept for folder in _folders(path))]:
                del files[path]
        return kept

    def _record(self, files: dict[bytes, os.stat_result], submodules: dict[bytes, str]) -> None:
        """Bring the index to exactly these files."""
        edition = self._edition
        changed = [path for path, found in files.items() if not edition.is_current(path, found)]
        for path in changed[:]:
            is_file = stat.S_ISREG(files[path].st_mode)
            if is_file and not os.access(self._root + path, os.R_OK, effective_ids=True):
                self._name(path, "unreadable", "The server may not read it.")
                changed.remove(path)
                del files[path]
        removed = edition.entries.keys() - files.keys() - submodules.keys()
        removed |= {path for path in changed if edition.looks_current_to_git(path, files[path])}
        moved = {
            path: oid
            for path, oid in submodules.items()
            if path not in edition.entries or edition.entries[path].oid != oid
        }
        # What was a submodule and is a file now, or the reverse, is taken out first.
        removed |= {path for path in moved if path in edition.entries}
        if not (changed or removed or moved):
            return
        git = edition.git(self._deadline_s)
        with _steady_files():
            edition.remove(git, removed, moved)
            # From here on, each entry is right as far as its file's times say.
            self._is_changed = True
            for part in _parts(changed, files):
                edition.record(git, part)

    def _write_tree(self) -> str:
        # It compares files that changed just before they were recorded.
        with _steady_files():
            return self._edition.git(self._deadline_s).run("write-tree").decode().strip()


@contextlib.contextmanager
def _steady_files() -> Iterator[None]:
    """Raise _Unsteady if git fails because a file changes while it is read."""
    try:
        yield
    except GitTimeout:
        raise
    except GitError as error:
        if found := _UNPROCESSED.search(error.stderr):
            raise _Unsteady(found[1]) from None
        if error.status == -signal.SIGBUS:  # a file became shorter
            raise _Unsteady("") from None
        raise


def ignored_between(
    repository: Repository, before: str, after: str, *, deadline_s: float | None = None
) -> list[LeftAlone]:
    """What is in only one of two snapshots because the ignore rules have changed, while the file may be the same. The
    second snapshot must be that of the files as they are."""
    found = differing(repository, before, after, deadline_s=deadline_s)
    have_changed = any(path.rpartition("/")[2] == RULES for path in found)
    appeared = [path for path, (old, _) in found.items() if old is None] if have_changed else []
    was = ignored(repository, before, appeared, deadline_s=deadline_s)
    gone = [path for path, (_, new) in found.items() if new is None]
    gone = [path for path in gone if os.path.lexists(os.path.join(repository.root, path))]
    now = ignored(repository, after, gone, deadline_s=deadline_s)
    reasons = dict.fromkeys(was.values(), "git ignored it before, so it isn't known what has changed in it.")
    reasons |= dict.fromkeys(now.values(), "git ignores it now, so it isn't known what has changed in it.")
    if len(reasons) > LEFT_ALONE:
        raise OverBudget(
            f"git ignored {len(reasons)} files and folders in {shown(repository.root)} in only one of the two "
            "snapshots, so they can't be compared."
        )
    return [LeftAlone(path, "ignored", reason) for path, reason in sorted(reasons.items())]


def _folders(path: bytes) -> Iterator[bytes]:
    """The folders above a path, the topmost first, each with a slash at its end."""
    position = path.find(b"/")
    while position >= 0:
        yield path[: position + 1]
        position = path.find(b"/", position + 1)


def _parts(paths: list[bytes], files: dict[bytes, os.stat_result]) -> Iterator[list[bytes]]:
    """The paths in parts that one command each can record."""
    part: list[bytes] = []
    size = 0
    for path in paths:
        if part and (len(part) >= PART_FILES or size + files[path].st_size > PART_BYTES):
            yield part
            part, size = [], 0
        part.append(path)
        size += files[path].st_size
    if part:
        yield part


def _is_refused(path: bytes, mode: int) -> bool:
    """Whether git refuses to store a file with this path."""
    if b".git" not in path.lower():
        return False
    parts = path.lower().split(b"/")
    return b".git" in parts or (stat.S_ISLNK(mode) and parts[-1] == b".gitmodules")


def _as_printed(path: bytes) -> str:
    """A path as git prints it in an error."""
    return _CONTROL.sub("?", path.decode("utf-8", "replace")).strip()


def _size(count: int) -> str:
    """A size in words."""
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 1024:.1f} KiB" if count < 1024 * 1024 else f"{count / 1024 / 1024:.1f} MiB"
