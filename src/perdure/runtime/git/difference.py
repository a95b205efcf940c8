"""What differs between two trees, and what is in one: lists of changed files, patches, and contents.

Above: the verbs that show changes; apply.py and discard.py. Below: command.py. Trees are named by their id; `before`
and `after` may also be commits. Paths are relative to the top of the working tree, and a path that is a directory means
everything below it. Contents are the raw bytes that a snapshot recorded. Nothing here reads the working tree, except
git itself for `.gitattributes`, which say what is binary and name a hunk's function.

A patch equals what `git diff` prints with its default settings: diff-tree prints the same and reads fewer settings, and
those that it reads are overridden.
"""

import contextlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Literal

import msgspec

from perdure.runtime.git.command import Git, GitError, GitOutputTooLarge, shown
from perdure.runtime.git.repository import Repository

PATHS_PER_COMMAND = 500
"""With more paths, a command lists everything, and the paths are selected from its output."""
PART_BYTES = 1024 * 1024
"""How much of an object is in memory at once."""
BATCH_BYTES = 256 * 1024 * 1024
"""How much content is read with one command, if one object isn't larger: each command has a deadline of its own."""
PATCH_BYTES = 16 * 1024 * 1024

LINK = "120000"
SUBMODULE = "160000"
EXECUTABLE = "100755"

Change = Literal["added", "deleted", "modified", "renamed", "type_changed"]
_CHANGES: dict[str, Change] = {
    "A": "added",
    "D": "deleted",
    "M": "modified",
    "R": "renamed",
    "T": "type_changed",
}
_SETTINGS = (
    "core.abbrev=auto",
    "core.quotePath=true",
    "diff.renameLimit=1000",
    "diff.suppressBlankEmpty=false",
    "diff.indentHeuristic=true",
)
"""The defaults of what `git diff-tree` reads of the user's configuration."""
_OPTIONS = ("-r", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")


class Entry(msgspec.Struct, frozen=True):
    """A file in a tree. `mode` is "100644", "100755", "120000" for a link or "160000" for a submodule."""

    mode: str
    oid: str


class FileChange(msgspec.Struct, frozen=True):
    path: str
    old_path: str | None
    """Only of renamed files."""
    status: Change
    old_mode: str | None
    new_mode: str | None
    old_id: str | None
    new_id: str | None
    binary: bool
    added: int | None
    """Lines; None if the file is binary."""
    removed: int | None
    old_size: int | None
    """Bytes; None if there is no file on this side, or if it is a submodule."""
    new_size: int | None


class TooLarge(GitError):
    """The content is larger than the caller wants it."""


def changes(
    repository: Repository,
    before: str,
    after: str,
    *,
    paths: Collection[str] | None = None,
    ignore_whitespace: bool = False,
    deadline_s: float | None = None,
) -> list[FileChange]:
    """The files that differ, in the order of `git diff`. To find the rename of a file, `paths` must have both names.
    With `ignore_whitespace`, files without other changes are left out."""
    git = repository.git(deadline_s)
    chosen = _Chosen(paths)
    if chosen.nothing:
        return []
    arguments = _arguments(
        before, after, chosen.listed, "-M", "--raw", "--numstat", "-z", *_whitespace(ignore_whitespace)
    )
    tokens = iter(_tokens(git.run(*arguments)))
    raw, counts = [], {}
    for token in tokens:
        if token.startswith(":"):
            fields = token[1:].split(" ")
            old = next(tokens) if fields[4][0] == "R" else None
            raw.append((fields, old, next(tokens)))
        else:
            added, removed, path = token.split("\t", 2)
            if not path:
                next(tokens)
                path = next(tokens)
            counts[path] = (added, removed)
    known = sizes(git, {oid for fields, _, _ in raw for oid in _blobs_of(fields)})
    return [
        _file_change(fields, old, path, counts.get(path, ("0", "0")), known)
        for fields, old, path in raw
        if chosen(path) or (old is not None and chosen(old))
        if path in counts or not ignore_whitespace or fields[0] != fields[1]
    ]


def _file_change(
    fields: Sequence[str], old_path: str | None, path: str, counts: tuple[str, str], known: dict[str, int]
) -> FileChange:
    old_mode, new_mode, old_id, new_id, letter = fields
    binary = counts[0] == "-"
    return FileChange(
        path=path,
        old_path=old_path,
        status=_CHANGES[letter[0]],
        old_mode=_unless_zero(old_mode),
        new_mode=_unless_zero(new_mode),
        old_id=_unless_zero(old_id),
        new_id=_unless_zero(new_id),
        binary=binary,
        added=None if binary else int(counts[0]),
        removed=None if binary else int(counts[1]),
        old_size=known.get(old_id),
        new_size=known.get(new_id),
    )


def patch(
    repository: Repository,
    before: str,
    after: str,
    *,
    paths: Collection[str] | None = None,
    ignore_whitespace: bool = False,
    binary: bool = False,
    context: int = 3,
    max_bytes: int = PATCH_BYTES,
    deadline_s: float | None = None,
) -> tuple[bytes, bool]:
    """The bytes that `git diff BEFORE AFTER -- PATHS` prints, and whether they were truncated, which happens between
    two files. For a renamed file, `paths` must have both names. With `binary`, as by `git diff --binary`: only then
    `git apply` can read the changes of binary files."""
    chosen = _Chosen(paths)
    if chosen.nothing:
        return b"", False
    options = ("-p", "-M", f"-U{context}", *_whitespace(ignore_whitespace), *(("--binary",) if binary else ()))
    arguments = _arguments(before, after, sorted(paths or ()), *options)
    text, truncated = repository.git(deadline_s).head(*arguments, max_bytes=max_bytes)
    # Each line of a file starts with a space, a sign or a backslash, so this is always the first line of a file's part.
    return (text[: text.rfind(b"\ndiff --git ") + 1] if truncated else text), truncated


def differing(
    repository: Repository,
    before: str,
    after: str,
    *,
    paths: Collection[str] | None = None,
    deadline_s: float | None = None,
) -> dict[str, tuple[Entry | None, Entry | None]]:
    """What is at each path that differs, before and after. A rename is two paths."""
    chosen = _Chosen(paths)
    if chosen.nothing:
        return {}
    output = repository.git(deadline_s).run(*_arguments(before, after, chosen.listed, "--no-renames", "--raw", "-z"))
    tokens = iter(_tokens(output))
    found = {}
    for token in tokens:
        old_mode, new_mode, old_id, new_id, _ = token[1:].split(" ")
        path = next(tokens)
        if chosen(path):
            found[path] = _entry(old_mode, old_id), _entry(new_mode, new_id)
    return found


def entries(
    repository: Repository, tree: str, paths: Collection[str] | None = None, *, deadline_s: float | None = None
) -> dict[str, Entry]:
    """The files in a tree, by path."""
    chosen = _Chosen(paths)
    if chosen.nothing:
        return {}
    listing = ("ls-tree", "-r", "-z", "--full-tree", tree, "--", *chosen.listed)
    found = {}
    for token in _tokens(repository.git(deadline_s).run(*listing)):
        facts, _, path = token.partition("\t")
        mode, _, oid = facts.split(" ")
        if chosen(path):
            found[path] = Entry(mode, oid)
    return found


def content(
    repository: Repository, tree: str, path: str, max_bytes: int, *, deadline_s: float | None = None
) -> bytes | None:
    """A file's bytes, or a link's target; None if the tree has no such file. Raises TooLarge."""
    entry = entries(repository, tree, (path,), deadline_s=deadline_s).get(path)
    if entry is None or entry.mode == SUBMODULE:
        return None
    return blob(repository, entry.oid, max_bytes, deadline_s=deadline_s)


def blob(repository: Repository, oid: str, max_bytes: int, *, deadline_s: float | None = None) -> bytes:
    """The bytes of an object. Raises TooLarge."""
    try:
        return repository.git(deadline_s).run("cat-file", "blob", oid, max_bytes=max_bytes)
    except GitOutputTooLarge:
        raise TooLarge(f"The file is larger than {max_bytes} bytes.") from None


class Contents:
    """The bytes of several objects, in a file."""

    def __init__(self, file: IO[bytes], places: Mapping[str, tuple[int, int]]) -> None:
        self._file = file
        self._places = places

    def parts(self, oid: str) -> Iterator[bytes]:
        position, left = self._places[oid]
        self._file.seek(position)
        while left:
            part = self._file.read(min(left, PART_BYTES))
            if not part:
                raise GitError("git printed contents of unexpected sizes.")
            left -= len(part)
            yield part


@contextlib.contextmanager
def contents(repository: Repository, oids: Collection[str], *, deadline_s: float | None = None) -> Iterator[Contents]:
    """The bytes of several objects, with few processes and bounded memory: git writes them to a file without a name,
    so none is left after a kill. Raises GitError if one is missing or damaged, or if the disk has no room for them."""
    git = repository.git(deadline_s)
    wanted = list(dict.fromkeys(oids))
    known = sizes(git, wanted)
    places: dict[str, tuple[int, int]] = {}
    position = 0
    batches: list[list[str]] = []
    for oid in wanted:
        if oid not in known:
            raise GitError(f"The object {oid} is missing from the repository.")
        if not batches or position - places[batches[-1][0]][0] + known[oid] > BATCH_BYTES:
            batches.append([])
        batches[-1].append(oid)
        # An empty header line, the content, and a newline.
        places[oid] = position + 1, known[oid]
        position += known[oid] + 2
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.TemporaryFile(dir=repository.git_dir))
        except OSError as error:
            raise GitError(f"No file can be created in {shown(repository.git_dir)}: {error.strerror}.") from None
        for batch in batches:
            git.write(file, "cat-file", "--buffer", "--batch=", input=_lines(batch))
        if os.fstat(file.fileno()).st_size != position:
            raise GitError("git printed contents of unexpected sizes.")
        yield Contents(file, places)


def sizes(git: Git, oids: Collection[str]) -> dict[str, int]:
    """The size of each object that exists."""
    if not oids:
        return {}
    output = git.run("cat-file", "--buffer", "--batch-check=%(objectname) %(objectsize)", input=_lines(oids))
    rows = (line.split(" ") for line in output.decode().split("\n") if line)
    # An object that is missing has the word "missing" instead of a size.
    return {oid: int(size) for oid, size in rows if size.isdigit()}


def _lines(oids: Collection[str]) -> bytes:
    return "".join(f"{oid}\n" for oid in oids).encode()


def _arguments(before: str, after: str, paths: Sequence[str], *options: str) -> list[str]:
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    return [*settings, "diff-tree", *_OPTIONS, *options, before, after, "--", *paths]


def _whitespace(ignore: bool) -> tuple[str, ...]:
    return ("-w",) if ignore else ()


class _Chosen:
    """Whether a path is one of some paths, or below one of them. `listed` is what to pass to a command: with very many
    paths, nothing, so that it lists all files."""

    def __init__(self, paths: Collection[str] | None) -> None:
        self._paths = None if paths is None else {path.rstrip("/") for path in paths}
        self.nothing = self._paths is not None and not self._paths
        self.listed = sorted(self._paths or ()) if len(self._paths or ()) <= PATHS_PER_COMMAND else []

    def __call__(self, path: str) -> bool:
        return self._paths is None or is_below(path, self._paths)


def is_below(path: str, places: Collection[str]) -> bool:
    """Whether a path is one of these files or folders, or in one of the folders. `places` should be a set."""
    while path not in places:
        path, slash, _ = path.rpartition("/")
        if not slash:
            return False
    return True


def _tokens(output: bytes) -> list[str]:
    return [os.fsdecode(token) for token in output.split(b"\0")[:-1]]


def _blobs_of(fields: Sequence[str]) -> Iterator[str]:
    for mode, oid in zip(fields[:2], fields[2:4], strict=True):
        if mode not in ("000000", SUBMODULE):
            yield oid


def _entry(mode: str, oid: str) -> Entry | None:
    return None if mode == "000000" else Entry(mode, oid)


def _unless_zero(text: str) -> str | None:
    return text if text.strip("0") else None
