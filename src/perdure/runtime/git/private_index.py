"""A private git directory for one working tree, with an index of its raw bytes.

Above: snapshot.py, which decides what is recorded. Below: command.py. The directory is in Perdure's data directory, and
git stores objects in the repository's own object directory. The configuration is only the one written here, and its
attributes disable all conversions, so a file is stored as it is. The user's index, configuration and hooks are never
read with it.

The index remembers the times of each file, so that unchanged files aren't read again. git compares whole seconds; the
comparison here uses the nanoseconds that the index contains too, and also reads a file again if it changed shortly
before it was recorded. An index is only replaced by one whose entries were all right when it was made, and one that
can't be used is made from scratch. It may lack files: these are read by the next snapshot.
"""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import stat
import struct
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from perdure.runtime.data.filesystem import make_private, write_private
from perdure.runtime.git.command import Git
from perdure.runtime.git.repository import Repository

TOO_RECENT_NS = 3_000_000_000
"""A file that changed less than this before it was recorded may have changed again within the resolution of its times,
which is 2 s on FAT. It is read once more."""
UNUSED_S = 7 * 86_400.0
"""A working tree's index isn't used any more after this time without a snapshot, and its directory is deleted. This is
shorter than the two weeks for which `git gc` keeps objects that no ref needs: the index may name such ones."""
ABANDONED_S = 86_400.0
"""Copies of an index that a killed server left are deleted after this time."""
NAME_CHARS = 32
"""Of the hash that names the directory of a working tree."""

_ATTRIBUTES = "* -text -crlf -eol -filter -ident !working-tree-encoding\n"
_SETTINGS = """[core]
\tbare = false
\tlogAllRefUpdates = false
\tautocrlf = false
\tprotectNTFS = false
\tprotectHFS = false
\tlooseCompression = 1
[index]
\tversion = 2
[gc]
\tauto = 0
"""
_COPIED = r"^core\.(filemode|symlinks|ignorecase|precomposeunicode|sharedrepository)$"
"""Settings that describe the file system, or who may read the objects."""
_NAME = re.compile(rf"[0-9a-f]{{{NAME_CHARS}}}")
_LOW = 0xFFFFFFFF
_FIELDS = struct.Struct(">10I")
"""Of an index entry: ctime and mtime in seconds and nanoseconds, device, inode, mode, user, group, size."""


class Cached(NamedTuple):
    """One entry of the index: what was recorded, and the facts about the file at that time."""

    mode: int
    oid: str
    facts: tuple[int, ...]


class PrivateIndex:
    """The index of one working tree. Several snapshots may use it at the same time."""

    def __init__(self, folder: Path, repository: Repository) -> None:
        name = f"{repository.root}\0{repository.common_dir}\0{repository.object_format}"
        self._folder = folder / hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:NAME_CHARS]
        self._repository = repository
        if not self._folder.is_dir():
            _delete_unused(folder)

    def prepare(self, git: Git) -> None:
        """Create the directory, or write its configuration again if the repository's has changed. `git` runs commands
        in the repository itself."""
        source = f"# {self._source()}\n"
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self._folder).st_mtime < time.time() - UNUSED_S:
                self.forget()
        with contextlib.suppress(OSError), open(self._folder / "config", encoding="utf-8") as file:
            if file.readline() == source:
                os.utime(self._folder)
                return
        settings = [f"{source}{_SETTINGS}[core]\n"]
        for record in git.run("config", "-z", "--get-regexp", _COPIED, ok=(0, 1)).decode().split("\0")[:-1]:
            key, _, value = record.partition("\n")
            # A key without a value means true.
            settings.append(f"\t{key.removeprefix('core.')} = {value if value.isalnum() else 'true'}\n")
        settings.append("\trepositoryFormatVersion = 1\n[extensions]\n")
        settings.append(f"\tobjectFormat = {self._repository.object_format}\n")
        for name in ("refs", "info"):
            make_private(self._folder / name)
        for name, text in (("HEAD", "ref: refs/heads/none\n"), ("info/attributes", _ATTRIBUTES)):
            self._write(name, text)
        # The last one, because it says that all are written.
        self._write("config", "".join(settings))

    def _source(self) -> str:
        """Identifies the version of the repository's configuration."""
        facts = []
        for place in (f"{self._repository.common_dir}/config", f"{self._repository.git_dir}/config.worktree"):
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(place)
                facts.append(f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}")
        return " ".join(facts)

    def _write(self, name: str, text: str) -> None:
        temporary = self._folder / f"new.{secrets.token_hex(8)}"
        write_private(temporary, text)
        temporary.replace(self._folder / name)

    @contextlib.contextmanager
    def edition(self) -> Iterator["Edition"]:
        """A copy of the index to change. Call its `publish` to make it the index."""
        copy = self._folder / f"new.{secrets.token_hex(8)}"
        try:
            yield Edition(self._folder, copy, self._repository)
        finally:
            copy.unlink(missing_ok=True)
            copy.with_name(f"{copy.name}.lock").unlink(missing_ok=True)

    def forget(self) -> None:
        """Delete the index, so that all files are read again."""
        (self._folder / "index").unlink(missing_ok=True)


class Edition:
    """A copy of the index while one snapshot changes it."""

    def __init__(self, folder: Path, copy: Path, repository: Repository) -> None:
        self._folder = folder
        self._copy = copy
        self._repository = repository
        self._began_ns = time.time_ns()
        self._written_ns = 0
        self.entries: dict[bytes, Cached] = {}
        with contextlib.suppress(FileNotFoundError, ValueError, struct.error):
            with open(folder / "index", "rb") as file:
                data = file.read()
                self._written_ns = os.fstat(file.fileno()).st_mtime_ns
            self.entries = read_index(data, len(repository.null_id) // 2)
            copy.write_bytes(data)

    def git(self, deadline_s: float) -> Git:
        env = {
            "GIT_DIR": str(self._folder),
            "GIT_WORK_TREE": self._repository.root,
            "GIT_INDEX_FILE": str(self._copy),
            "GIT_OBJECT_DIRECTORY": os.path.join(self._repository.common_dir, "objects"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
        }
        return Git(self._repository.root, deadline_s=deadline_s, env=env, own_configuration=True)

    def is_current(self, path: bytes, found: os.stat_result) -> bool:
        """Whether a file's recorded content is certainly its content."""
        known = self.entries.get(path)
        changed_ns = max(found.st_mtime_ns, found.st_ctime_ns)
        return known is not None and known.facts == facts(found) and changed_ns < self._written_ns - TOO_RECENT_NS

    def looks_current_to_git(self, path: bytes, found: os.stat_result) -> bool:
        """Whether git might consider a file unchanged, as it compares fewer facts."""
        known = self.entries.get(path)
        if known is None:
            return False
        now = facts(found)
        return (known.facts[0], known.facts[2], *known.facts[4:]) == (now[0], now[2], *now[4:])

    def remove(self, git: Git, paths: Collection[bytes], submodules: Mapping[bytes, str]) -> None:
        """Take paths out, and record the commits of submodules."""
        lines = [b"0 " + self._repository.null_id.encode() + b"\t" + path + b"\0" for path in sorted(paths)]
        lines += [b"160000 " + oid.encode() + b"\t" + path + b"\0" for path, oid in sorted(submodules.items())]
        if lines:
            git.run("update-index", "-z", "--index-info", input=b"".join(lines))

    def record(self, git: Git, paths: Collection[bytes]) -> None:
        """Store the contents of files. One that has disappeared is taken out."""
        if paths:
            listed = b"".join(path + b"\0" for path in paths)
            git.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", input=listed)

    def publish(self) -> None:
        """Make this the index. Its time is when the snapshot began: all files were read later. Entries that are not
        certain must have been removed."""
        # git has written nothing if all files have disappeared.
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._copy, ns=(self._began_ns, self._began_ns))
            os.replace(self._copy, self._folder / "index")


def facts(found: os.stat_result) -> tuple[int, ...]:
    """What is compared to find out whether a file changed, as the index stores it."""
    ctime_s, ctime_ns = divmod(found.st_ctime_ns, 1_000_000_000)
    mtime_s, mtime_ns = divmod(found.st_mtime_ns, 1_000_000_000)
    return ctime_s & _LOW, ctime_ns, mtime_s & _LOW, mtime_ns, found.st_ino & _LOW, found.st_size & _LOW


def read_index(data: bytes, id_bytes: int) -> dict[bytes, Cached]:
    """The entries of an index of version 2. Raises ValueError or struct.error if it isn't one."""
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version != 2:
        raise ValueError("not an index of version 2")
    found = {}
    position, fixed = 12, _FIELDS.size + id_bytes + 2
    for _ in range(count):
        ctime_s, ctime_ns, mtime_s, mtime_ns, _, inode, mode, _, _, size = _FIELDS.unpack_from(data, position)
        start = position + fixed
        end = data.index(b"\0", start)
        oid = data[position + _FIELDS.size : start - 2].hex()
        found[data[start:end]] = Cached(mode, oid, (ctime_s, ctime_ns, mtime_s, mtime_ns, inode, size))
        # Padded with one to eight zero bytes.
        position += (end - position + 8) & ~7
    return found


def _delete_unused(folder: Path) -> None:
    """Delete the directories of working trees that are no longer used, and files that killed servers left. What has
    another name, such as the notes about open turns, is not a working tree's."""
    now = time.time()
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(folder)):
            if not _NAME.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
                continue
            if entry.stat().st_mtime < now - UNUSED_S:
                shutil.rmtree(entry.path, ignore_errors=True)
                continue
            for name in list(os.scandir(entry.path)):
                with contextlib.suppress(FileNotFoundError):
                    is_old = name.name.startswith("new.") and name.stat().st_mtime < now - ABANDONED_S
                    if is_old and stat.S_ISREG(name.stat().st_mode):
                        os.unlink(name.path)
