"""Changes files of a working tree from one recorded state to another. Nothing else in Perdure writes into one.

Above: the verbs that restore, discard and merge. Below: difference.py, index.py, and the operating system.

A step names what a path has now and what it should have. `apply` rolls forward: a path that has the new state is done,
a path that has the old one is changed, and any other is left alone and returned. So after a crash the same steps are
applied again. A file is written under a temporary name in its folder and then renamed, so at each moment a path has its
old or its new state. The temporary name is derived from the step, so the next run finds and removes what a killed one
left. Files are not synced to disk: after a power failure the steps are applied again too.

Folders are opened one after the other, without following links. A new file is linked into place, which fails if there
is one by now. Before a file is replaced or deleted, its inode and times are compared once more; only a change in the
microseconds after that would be lost. Submodules and the index are not touched.
"""

import contextlib
import errno
import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from perdure.runtime.git.command import GitError, shown
from perdure.runtime.git.difference import EXECUTABLE, LINK, SUBMODULE, Entry, contents, differing, is_below, sizes
from perdure.runtime.git.ignore_rules import ignored
from perdure.runtime.git.index import tree_with
from perdure.runtime.git.repository import Repository

READ_BYTES = 1024 * 1024
TEMPORARY = re.compile(r"\.perdure-[0-9a-f]{20}\.part")
"""The names of unfinished files, which snapshots leave out."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocked by a pipe that has taken the file's place.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
"""The errors of a file system without hard links."""

_FULL = {errno.ENOSPC, errno.EDQUOT}

CHANGED = "It was changed in the meantime."
APPEARED = "There is a file now that was not there before."
DELETED = "It was deleted in the meantime."


class Step(msgspec.Struct, frozen=True):
    """One path: what it has, and what it should have. None: there is no file. A path can have surrogates, for bytes
    that are no UTF-8, so store steps with `json.dumps`."""

    path: str
    old: Entry | None
    new: Entry | None


class Conflict(msgspec.Struct, frozen=True):
    """A path that was left alone, and a sentence why."""

    path: str
    reason: str


class _Seen(NamedTuple):
    """What is at a path. `entry` is None if there is no file; a folder is none either."""

    entry: Entry | None
    found: os.stat_result | None
    obstacle: str | None = None
    """The parent that is a file or a link."""
    strange: str | None = None
    """Why this can be neither the old nor the new state."""


Between = Callable[[str], None]


def plan(
    repository: Repository,
    from_tree: str,
    to_tree: str,
    paths: Collection[str] | None = None,
    *,
    without: Collection[str] = (),
    deadline_s: float | None = None,
) -> list[Step]:
    """The steps from one tree to another. `without`: files and folders that either snapshot has left alone. Submodules
    and everything that is or was below them are left out. So is what either tree's rules ignore and only the other tree
    has: a snapshot doesn't contain ignored files, so nobody knows whether there was one, or what is in one now."""
    found = differing(repository, from_tree, to_tree, paths=paths, deadline_s=deadline_s)
    submodules = {path for path, sides in found.items() if any(side and side.mode == SUBMODULE for side in sides)}
    left_out = submodules | {path.rstrip("/") for path in without}
    steps = [Step(path, old, new) for path, (old, new) in found.items() if not is_below(path, left_out)]
    deleted = [step.path for step in steps if step.new is None]
    kept = set(ignored(repository, to_tree, deleted, deadline_s=deadline_s))
    created = [step.path for step in steps if step.old is None]
    present = [path for path in created if os.path.lexists(os.path.join(repository.root, path))]
    kept |= set(ignored(repository, from_tree, present, deadline_s=deadline_s))
    return [step for step in steps if step.path not in kept]


def check(repository: Repository, steps: Sequence[Step], *, deadline_s: float | None = None) -> list[Conflict]:
    """The paths that `apply` would leave alone. Changes nothing."""
    with _Tree(repository, steps, deadline_s) as tree:
        return tree.conflicts


def apply(
    repository: Repository,
    steps: Sequence[Step],
    *,
    keep: Collection[str] = (),
    must_fit: bool = False,
    between: Between = lambda _: None,
    deadline_s: float | None = None,
) -> list[Conflict]:
    """Bring each path to its new state, and return those that had neither state. `keep`: folders that stay even if they
    become empty. `must_fit`: if the disk is full, raise GitError instead of leaving files alone. `between` is called
    before each change, for tests that stop the process there."""
    with _Tree(repository, steps, deadline_s) as tree:
        writer = _Writer(tree, keep, must_fit, between)
        wanted = [step.new.oid for step in tree.waiting.values() if step.new]
        # All of it before the first change: what git can't read must not leave the files half way.
        with contents(repository, wanted, deadline_s=deadline_s) as stored:
            writer.remove_leftovers()
            writer.delete()
            for step in list(tree.waiting.values()):
                if step.new:
                    writer.write(step, stored.parts(step.new.oid))
        return sorted(tree.conflicts, key=lambda conflict: conflict.path)


def outcome(repository: Repository, tree: str, steps: Sequence[Step], *, deadline_s: float | None = None) -> str:
    """The tree that steps have made of another one, as far as they are done. It has nothing that anybody else changed
    in the meantime."""
    with _Tree(repository, steps, deadline_s) as compared:
        left = {*compared.waiting, *(conflict.path for conflict in compared.conflicts)}
    done = {step.path: step.new for step in steps if step.path not in left}
    return tree_with(repository, tree, done, deadline_s) if done else tree


class _Tree:
    """The working tree, compared with the steps: which are waiting, which are done, and which conflict."""

    def __init__(self, repository: Repository, steps: Sequence[Step], deadline_s: float | None) -> None:
        self.repository = repository
        self.steps = {step.path: step for step in steps}
        self.root = os.open(repository.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.waiting: dict[str, Step] = {}
        self.seen: dict[str, _Seen] = {}
        self.conflicts: list[Conflict] = []
        try:
            git = repository.git(deadline_s)
            self._sizes = sizes(git, {side.oid for step in steps for side in (step.old, step.new) if side})
            said = git.run("config", "--type=bool", "--default=true", "core.fileMode").strip()
            self._has_modes = said != b"false"
            self._compare()
        except BaseException:
            os.close(self.root)
            raise

    def __enter__(self) -> "_Tree":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.root)

    def conflict(self, path: str, reason: str) -> None:
        self.waiting.pop(path, None)
        self.conflicts.append(Conflict(path, reason))

    def _compare(self) -> None:
        for path, step in self.steps.items():
            reason = _unsafe(path)
            self.seen[path] = seen = _Seen(None, None) if reason else self._look(step)
            if reason:
                self.conflict(path, reason)
            elif seen.strange:
                self.conflict(path, seen.strange)
            elif self._same(seen.entry, step.new):
                pass
            elif step.new and step.new.oid not in self._sizes:
                self.conflict(path, "Its recorded content is missing from the repository.")
            elif self._same(seen.entry, step.old):
                self.waiting[path] = step
            else:
                self.conflict(path, DELETED if seen.entry is None else CHANGED if step.old else APPEARED)
        for path in list(self.waiting):
            self._check_obstacles(path)
        self._check_spellings()

    def _check_spellings(self) -> None:
        """Where upper and lower case are the same, a file that is renamed from `a` to `A` already has both names: to
        delete one would delete the other."""
        spellings: dict[str, list[str]] = {}
        for path, seen in self.seen.items():
            if seen.found:
                spellings.setdefault(unicodedata.normalize("NFC", path).casefold(), []).append(path)
        for paths in spellings.values():
            for path in [each for each in paths if each in self.waiting]:
                others = [each for each in paths if each != path and self._are_same(each, path)]
                if others:
                    self.conflict(path, f"Here it is the same file as {shown(others[0])}. Rename it yourself.")

    def _are_same(self, first: str, second: str) -> bool:
        one, other = self.seen[first].found, self.seen[second].found
        return one is not None and other is not None and os.path.samestat(one, other)

    def _same(self, first: Entry | None, second: Entry | None) -> bool:
        if first is None or second is None or self._has_modes:
            return first == second
        return first.oid == second.oid and (first.mode == LINK) == (second.mode == LINK)

    def _look(self, step: Step) -> _Seen:
        """What is at a step's path. Only a file of the right size is read."""
        try:
            with self.folder(step.path) as (folder, name):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    return _Seen(None, found)
                if stat.S_ISLNK(found.st_mode):
                    target = os.fsencode(os.readlink(name, dir_fd=folder))
                    return _Seen(Entry(LINK, self._id(len(target), [target])), found)
                if not stat.S_ISREG(found.st_mode):
                    return _Seen(None, found, strange="It is neither a file nor a link now.")
                likely = [self._sizes.get(side.oid) for side in (step.old, step.new) if side]
                if found.st_size not in likely:
                    return _Seen(None, found, strange=CHANGED if step.old else APPEARED)
                with open(os.open(name, _READ, dir_fd=folder), "rb") as file:
                    oid = self._id(found.st_size, iter(lambda: file.read(READ_BYTES), b""))
                return _Seen(Entry(EXECUTABLE if found.st_mode & stat.S_IXUSR else "100644", oid), found)
        except FileNotFoundError:
            return _Seen(None, None)
        except _Obstacle as obstacle:
            return _Seen(None, None, obstacle=obstacle.path)
        except OSError as error:
            return _Seen(None, None, strange=f"It can't be read: {error.strerror}.")

    def _id(self, size: int, parts: Iterator[bytes] | list[bytes]) -> str:
        digest = hashlib.new(self.repository.object_format, b"blob %d\0" % size, usedforsecurity=False)
        for part in parts:
            digest.update(part)
        return digest.hexdigest()

    def _check_obstacles(self, path: str) -> None:
        """A new file needs folders above it, and no folder in its place: allowed if other steps make room."""
        step, seen = self.waiting.get(path), self.seen[path]
        if step is None or step.new is None:
            return
        if seen.obstacle is not None:
            if seen.obstacle not in self.waiting or self.steps[seen.obstacle].new is not None:
                self.conflict(path, f"{shown(seen.obstacle)} is not a folder.")
        elif seen.found and stat.S_ISDIR(seen.found.st_mode):
            stays = next((name for name in self._files_in(path) if not self._goes(name)), None)
            if stays is not None:
                reason = f"The folder {shown(path)} has other files, such as {shown(stays)}."
                self.conflict(path, reason)
                for below in [name for name in self.waiting if name.startswith(path + "/")]:
                    self.conflict(below, reason)

    def _goes(self, path: str) -> bool:
        """Whether a file is one that a step deletes, or that an earlier run left."""
        step = self.waiting.get(path)
        return (step is not None and step.new is None) or bool(TEMPORARY.fullmatch(os.path.basename(path)))

    def _files_in(self, path: str) -> Iterator[str]:
        """Everything below a folder except folders. Links are not followed."""
        for place, folders, files in os.walk(os.path.join(self.repository.root, path)):
            links = [name for name in folders if os.path.islink(os.path.join(place, name))]
            for name in [*files, *links]:
                yield os.path.relpath(os.path.join(place, name), self.repository.root)

    @contextlib.contextmanager
    def folder(self, path: str, before_creation: Between | None = None) -> Iterator[tuple[int, str]]:
        """Open a path's folder, and yield it with the path's last name. With `before_creation`, missing folders are
        created."""
        *parents, name = path.split("/")
        folder = os.dup(self.root)
        try:
            for depth, parent in enumerate(parents, start=1):
                try:
                    deeper = os.open(parent, _FOLDER, dir_fd=folder)
                except FileNotFoundError:
                    if before_creation is None:
                        raise
                    before_creation("mkdir")
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(parent, dir_fd=folder)
                    deeper = os.open(parent, _FOLDER, dir_fd=folder)
                except OSError as error:
                    if error.errno in (errno.ENOTDIR, errno.ELOOP):
                        raise _Obstacle("/".join(parents[:depth])) from None
                    raise
                os.close(folder)
                folder = deeper
            yield folder, name
        finally:
            os.close(folder)


class _Writer:
    """Makes the changes. Each is one system call that leaves the old or the new state."""

    def __init__(self, tree: _Tree, keep: Collection[str], must_fit: bool, between: Between) -> None:
        self._tree = tree
        self._must_fit = must_fit
        self._between = between
        self._keep = {"", "."}
        # Folders that get files are kept too: a process may work in one.
        filled = (path.rpartition("/")[0] for path, step in tree.steps.items() if step.new)
        for path in (*keep, *filled):
            while path not in self._keep:
                self._keep.add(path)
                path = path.rpartition("/")[0]

    def remove_leftovers(self) -> None:
        """Delete what a killed run has left. It can also be complete and linked already."""
        for path, step in self._tree.steps.items():
            if step.new and not _unsafe(path):
                with contextlib.suppress(FileNotFoundError, _Obstacle), self._tree.folder(path) as (folder, _):
                    os.unlink(_temporary(step), dir_fd=folder)

    def delete(self) -> None:
        """Delete files, the deepest first, and the folders that are empty then."""
        for path in sorted(self._tree.steps, reverse=True):
            if self._tree.steps[path].new is not None or _unsafe(path):
                continue
            if path in self._tree.waiting:
                with self._reported(path), self._tree.folder(path) as (folder, name):
                    self._between("unlink")
                    if self._is_as_seen(path, folder, name):
                        os.unlink(name, dir_fd=folder)
            # Also if an earlier run has deleted the file.
            self._prune(path.rpartition("/")[0])

    def _prune(self, path: str) -> None:
        while path not in self._keep:
            try:
                with self._tree.folder(path) as (folder, name):
                    self._between("rmdir")
                    os.rmdir(name, dir_fd=folder)
            except FileNotFoundError:
                pass
            except (OSError, _Obstacle):
                return
            path = path.rpartition("/")[0]

    def write(self, step: Step, content: Iterator[bytes]) -> None:
        """Give one path its new state."""
        assert step.new
        with self._reported(step.path), self._tree.folder(step.path, self._between) as (folder, name):
            temporary = _temporary(step)
            found = self._tree.seen[step.path].found
            if found and stat.S_ISDIR(found.st_mode):
                self._remove_empty_folders(folder, name)
            if step.old and step.old.oid == step.new.oid and LINK not in (step.old.mode, step.new.mode):
                return self._change_mode(step, folder, name)
            try:
                if step.new.mode == LINK:
                    self._between("symlink")
                    os.symlink(b"".join(content), os.fsencode(temporary), dir_fd=folder)
                else:
                    self._create(temporary, folder, content, step)
                self._place(temporary, name, folder, step)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
        return None

    def _change_mode(self, step: Step, folder: int, name: str) -> None:
        file = os.open(name, _READ, dir_fd=folder)
        try:
            self._between("chmod")
            if self._is_as_seen(step.path, folder, name):
                os.fchmod(file, _permissions(os.fstat(file).st_mode, step))
        finally:
            os.close(file)

    def _create(self, temporary: str, folder: int, content: Iterator[bytes], step: Step) -> None:
        """Write a complete file with the permissions and the owner of the one that it replaces."""
        replaced = self._tree.seen[step.path].found if step.old and step.old.mode != LINK else None
        # Without the umask's knowledge, the system applies it. A replaced file may be private.
        mode = 0o600 if replaced else 0o777 if step.new and step.new.mode == EXECUTABLE else 0o666
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._between("create")
        with open(os.open(temporary, flags, mode, dir_fd=folder), "wb") as file:
            self._between("write")
            file.writelines(content)
            file.flush()
            if replaced:
                made = os.fstat(file.fileno())
                if (made.st_uid, made.st_gid) != (replaced.st_uid, replaced.st_gid):
                    with contextlib.suppress(PermissionError):
                        os.fchown(file.fileno(), replaced.st_uid, replaced.st_gid)
                self._between("permissions")
                os.fchmod(file.fileno(), _permissions(replaced.st_mode, step))

    def _place(self, temporary: str, name: str, folder: int, step: Step) -> None:
        """Give the complete file its name, if nothing has happened to the path since it was compared."""
        if step.old is None:
            self._between("link")
            try:
                if self._is_as_seen(step.path, folder, name):
                    os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                self._between("unlink temporary")
                return
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
        self._between("rename")
        if self._is_as_seen(step.path, folder, name):
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _is_as_seen(self, path: str, folder: int, name: str) -> bool:
        """Whether a path is still what it was when it was compared. If not, it is reported."""
        seen = self._tree.seen[path].found
        try:
            now = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            if seen is None or stat.S_ISDIR(seen.st_mode):
                return True
            self._tree.conflict(path, DELETED)
            return False
        if seen is not None and _signature(seen) == _signature(now):
            return True
        self._tree.conflict(path, CHANGED if self._tree.steps[path].old else APPEARED)
        return False

    def _remove_empty_folders(self, folder: int, name: str) -> None:
        with contextlib.suppress(OSError):
            for _, inner, _, place in os.fwalk(name, topdown=False, dir_fd=folder):
                for each in inner:
                    self._between("rmdir")
                    os.rmdir(each, dir_fd=place)
            self._between("rmdir")
            os.rmdir(name, dir_fd=folder)

    @contextlib.contextmanager
    def _reported(self, path: str) -> Iterator[None]:
        """Report what the system refuses as a conflict of this path, so that the others are still changed."""
        try:
            yield
        except _Obstacle as obstacle:
            self._tree.conflict(path, f"{shown(obstacle.path)} is not a folder.")
        except FileExistsError:
            self._tree.conflict(path, APPEARED)
        except OSError as error:
            if self._must_fit and error.errno in _FULL:
                raise GitError(f"{shown(path)} can't be changed: {error.strerror}.") from None
            self._tree.conflict(path, f"It can't be changed: {error.strerror}.")


class _Obstacle(Exception):
    """A parent of a path is a file or a link."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def _signature(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_dev, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _permissions(mode: int, step: Step) -> int:
    """The permissions of the replaced file; only whether it can be executed is the step's."""
    kept = stat.S_IMODE(mode) & 0o666
    return kept | (kept & 0o444) >> 2 if step.new and step.new.mode == EXECUTABLE else kept


def _temporary(step: Step) -> str:
    assert step.new
    digest = hashlib.sha256(f"{step.path}\0{step.new.oid}".encode("utf-8", "surrogateescape")).hexdigest()
    return f".perdure-{digest[:20]}.part"


def _unsafe(path: str) -> str | None:
    """Why a path must not be written. Trees made by git have no such paths, but stored steps are only data."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        return "It is not a path inside the repository."
    return None
