"""The bytes that files have in a working tree: what a checkout of a tree would write, and what is there unchanged.

Above: merge.py and replay.py. Below: command.py, with temporary working trees and indexes outside the repository. A
blob and its file can differ, by line endings, encoding or `$Id$`. apply.py compares and writes exact bytes, so its
steps name the files' contents, which are stored as blobs of their own if they differ. Filters such as Git LFS never
run: files that need one are named instead.
"""

import contextlib
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from perdure.runtime.git.command import Git
from perdure.runtime.git.difference import EXECUTABLE, LINK, Entry
from perdure.runtime.git.index import recorded, write, zero_terminated
from perdure.runtime.git.repository import Repository

CONVERSIONS = ("text", "crlf", "eol", "ident", "working-tree-encoding")
"""Attributes with which a checkout may write other bytes than the blob has."""
_UNCONVERTED = ("unspecified", "unset")
_ALL_ATTRIBUTES = ("ls-files", "-z", "--", ":(glob)**/.gitattributes")
_GLOBS = {"GIT_LITERAL_PATHSPECS": "0"}
_SPECIAL = re.compile(rb'[\\"\x00-\x1f\x7f]')


class Ground(NamedTuple):
    """A temporary working tree with its own index, in which git uses the repository's settings and objects."""

    git: Git
    folder: str
    object_format: str


class Found(NamedTuple):
    """Files on disk: their exact bytes if git sees them as unchanged, and the paths of the others."""

    unchanged: dict[str, Entry]
    changed: set[str]


@contextlib.contextmanager
def ground(repository: Repository, tree: str, deadline_s: float | None = None) -> Iterator[Ground]:
    """A temporary working tree that has a tree in its index, and on disk only the tree's `.gitattributes`."""
    with tempfile.TemporaryDirectory(prefix="perdure-git-", ignore_cleanup_errors=True) as temporary:
        place = os.path.realpath(temporary)
        folder = os.path.join(place, "files")
        os.mkdir(folder)
        env = {
            "GIT_DIR": repository.git_dir,
            "GIT_WORK_TREE": folder,
            "GIT_INDEX_FILE": os.path.join(place, "index"),
        }
        git = Git(folder, deadline_s=deadline_s, env=env)
        git.run("-c", "index.sparse=false", "read-tree", tree)
        attributes = git.run(*_ALL_ATTRIBUTES, env=_GLOBS)
        if attributes:
            git.run("checkout-index", "-z", "--stdin", input=attributes)
        yield Ground(git, folder, repository.object_format)


def written(ground: Ground, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """What a checkout of the ground's tree would write for some of its entries."""
    converted = _converted(ground.git, entries)
    if converted:
        ground.git.run("checkout-index", "--force", "-z", "--stdin", input=zero_terminated(converted))
    stored = _contents(ground.git, ground.folder, ground.object_format, converted, store=True)
    return {**entries, **stored}


def _converted(git: Git, paths: Collection[str]) -> list[str]:
    """The paths whose bytes may differ from their blob."""
    status, says_crlf = git.returns("config", "--type=bool", "core.autocrlf")
    if (status == 0 and says_crlf == b"true\n") or git.run("config", "core.eol", ok=(0, 1)).lower() == b"crlf\n":
        return list(paths)
    if git.returns("config", "--type=bool", "core.symlinks")[1] == b"false\n":
        return list(paths)
    return list(dict.fromkeys(path for path, _, value in _attributes(git, paths, *CONVERSIONS) if value))


def found(repository: Repository, entries: Mapping[str, Entry], deadline_s: float | None = None) -> Found:
    """What is on disk at paths that should have these entries. Staged changes don't count."""
    root, git = repository.root, repository.git(deadline_s)
    present = [path for path in entries if _is_file(os.path.join(root, path))]
    # The content before the comparison: a file that somebody changes in between can then not pass for unchanged.
    on_disk = _contents(git, root, repository.object_format, present, store=False)
    changed = _changed(repository, entries, deadline_s)
    unchanged = {path: entry for path, entry in on_disk.items() if path not in changed}
    converted = [path for path, entry in unchanged.items() if entry.oid != entries[path].oid]
    stored = _contents(git, root, repository.object_format, converted, store=True)
    changed |= {path for path, entry in stored.items() if entry != unchanged[path]}
    changed |= set(entries) - set(on_disk)
    return Found({path: entry for path, entry in unchanged.items() if path not in changed}, changed)


def _changed(repository: Repository, entries: Mapping[str, Entry], deadline_s: float | None) -> set[str]:
    """The paths at which git, with these entries in its index, sees a changed or deleted file."""
    if not entries:
        return set()
    git = repository.git(deadline_s)
    with tempfile.TemporaryDirectory(prefix="perdure-git-") as place:
        index = {"GIT_INDEX_FILE": os.path.join(place, "index")}
        # For a `.gitattributes` that isn't on disk, git reads the index.
        attributes = git.run(*_ALL_ATTRIBUTES, env=_GLOBS).split(b"\0")[:-1]
        rows = recorded(git, [os.fsdecode(path) for path in attributes])
        known = {path: listed[0].entry for path, listed in rows.items()}
        write(repository, known | dict(entries), index, deadline_s)
        git.returns("update-index", "-q", "--refresh", env=index)
        listed = git.run("diff-files", "--name-only", "--no-renames", "--ignore-submodules", "-z", env=index)
    return {os.fsdecode(path) for path in listed.split(b"\0")[:-1]} & set(entries)


def filtered(git: Git, paths: Collection[str], *, cached: bool = False) -> dict[str, str]:
    """The filter of each path that has one according to the attributes; those of the index if `cached`."""
    return {path: value for path, _, value in _attributes(git, paths, "filter", cached=cached) if value != "set"}


def configured_filters(git: Git) -> set[str]:
    """The names of the filters that change files when they are checked out."""
    output = git.run("config", "-z", "--get-regexp", r"^filter\..*\.(smudge|process)$", ok=(0, 1))
    rows = (os.fsdecode(row).partition("\n") for row in output.split(b"\0")[:-1])
    return {name.partition(".")[2].rpartition(".")[0] for name, _, value in rows if value}


def _attributes(git: Git, paths: Collection[str], *names: str, cached: bool = False) -> Iterator[tuple[str, str, str]]:
    """Path, attribute and value, where an attribute has one."""
    if not paths:
        return
    options = ("--cached",) if cached else ()
    output = git.run("check-attr", *options, "-z", "--stdin", *names, input=zero_terminated(paths))
    fields = [os.fsdecode(field) for field in output.split(b"\0")[:-1]]
    for path, name, value in zip(fields[0::3], fields[1::3], fields[2::3], strict=True):
        if value not in _UNCONVERTED:
            yield path, name, value


def _contents(git: Git, folder: str, object_format: str, paths: Collection[str], *, store: bool) -> dict[str, Entry]:
    """The exact content and the mode of files and links. A link needs no storing, as it is never converted."""
    entries: dict[str, Entry] = {}
    modes: dict[str, str] = {}
    for path in paths:
        place = os.path.join(folder, path)
        mode = os.lstat(place).st_mode
        if stat.S_ISLNK(mode):
            target = os.fsencode(os.readlink(place))
            digest = hashlib.new(object_format, b"blob %d\0%b" % (len(target), target), usedforsecurity=False)
            entries[path] = Entry(LINK, digest.hexdigest())
        else:
            modes[path] = EXECUTABLE if mode & stat.S_IXUSR else "100644"
    oids: Sequence[str] = ()
    if modes:
        names = b"".join(_quoted(path) + b"\n" for path in modes)
        options = ("-w",) if store else ()
        oids = git.run("hash-object", *options, "--no-filters", "--stdin-paths", input=names).decode().split()
    return entries | {path: Entry(mode, oid) for (path, mode), oid in zip(modes.items(), oids, strict=True)}


def _is_file(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _quoted(path: str) -> bytes:
    """A path as git reads it from a list of lines."""
    return b'"' + _SPECIAL.sub(lambda match: b"\\%03o" % match[0][0], os.fsencode(path)) + b'"'
