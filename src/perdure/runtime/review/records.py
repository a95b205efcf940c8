"""What is stored about a session's changes: a record for each turn, their patches, file operations and comments.

Above: the recorder, the file operations and the verbs for changes. Below: the session's folder of files, or the shared
store with several nodes, so that any node can show a change whose repository is on another one. A record is written
before the event that announces it, and is erased with its session.
"""

import asyncio
import contextlib
import json
import os
import secrets
import zlib
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from perdure.core.errors import UNREADABLE, Refused, StoreFull
from perdure.core.events import FileAction
from perdure.runtime.data.filesystem import make_private
from perdure.runtime.git.difference import FileChange
from perdure.runtime.git.snapshot import LeftAlone
from perdure.runtime.log.log import Log

T = TypeVar("T")

PREFIX = "changes-"
FILES_MAX = 2_000
"""How many files of a change are stored. The counts include all of them."""
PATCH_MAX_BYTES = 2 * 1024 * 1024
COMPRESSION_LEVEL = 1
LARGE_BYTES = 64 * 1024
"""Larger records are decoded in a thread."""
SESSION = "session"
GONE = "The session was erased."


class Elsewhere(Struct, frozen=True):
    """Files that the agent changed outside the session's repository, as its edit tools reported."""

    directory: str
    files: list[str]
    reason: str


class Sharing(Struct, frozen=True):
    """Another session whose turn ran in the same working tree at the same time."""

    session_id: str
    turn: int


class Change(Struct, kw_only=True):
    """What changed between two snapshots: in one turn, or in the whole session. `state` is `running` while the turn
    runs."""

    turn: int | None
    state: str
    reason: str | None = None
    root: str = ""
    directory: str = ""
    before: str | None = None
    after: str | None = None
    head_before: str | None = None
    head_after: str | None = None
    began_ms: int = 0
    ended_ms: int = 0
    files: list[FileChange] = []
    file_count: int = 0
    added: int = 0
    removed: int = 0
    truncated: bool = False
    """Whether `files` or the patch lacks some files."""
    left_alone: list[LeftAlone] = []
    """Files that either snapshot lacks: large ones, submodules and the like."""
    changed_alone: list[str] = []
    """Those that have changed all the same."""
    marks: dict[str, str] = {}
    """While the turn runs: size and time of each of them, as they were before it."""
    outside: list[tuple[str, str]] = []
    """(path, status) of files that somebody else changed between the session's previous turn and this one; of very
    many, the first."""
    outside_is_complete: bool = True
    """Whether `outside` lists all of them."""
    previous: str | None = None
    """The tree with which `before` was compared for that."""
    shared_with: list[Sharing] = []
    elsewhere: list[Elsewhere] = []
    tools: dict[str, list[str]] = {}
    """The ids of the edit tools that changed a file, by path."""


class ChangedPath(Struct, frozen=True):
    path: str
    change: str
    """`create`, `write` or `delete`."""


class Skipped(Struct, frozen=True):
    path: str
    reason: str


class Operation(Struct, kw_only=True):
    """A finished file operation, with what is needed to undo it."""

    operation_id: str
    action: FileAction
    outcome: Literal["done", "conflict", "failed"]
    message: str
    code: str = ""
    turn: int | None = None
    at: str = ""
    files: list[ChangedPath] = []
    file_count: int = 0
    skipped: list[Skipped] = []
    conflicts: list[Skipped] = []
    outside: list[str] = []
    """Files with changes of somebody else that it kept, and those whose changes it overwrote."""
    overwritten: list[str] = []
    choice: bool = False
    """Whether a refused operation would succeed with `outside`."""
    commit: str | None = None
    undoable: bool = False
    undone: bool = False
    root: str = ""
    before: str | None = None
    """The tree before it, and after it."""
    after: str | None = None


class Comment(Struct, kw_only=True):
    """A comment on lines, sent to the agent in a message. `tree` is what the person was looking at."""

    comment_id: str
    path: str
    side: str
    line: int
    end_line: int
    turn: int | None
    quote: str
    text: str
    message_id: str
    sent_turn: int | None = None
    tree: str | None = None
    state: str = "sent"
    at: str = ""


def turn_name(turn: int) -> str:
    return f"turn-{turn:09}"


class Records:
    """Small files of a session. `put` is durable when it returns."""

    def __init__(self, root: Path, log: Log) -> None:
        self._root = root
        self._log = log
        self._shared = log.shared

    async def get(self, session_id: str, name: str, kind: type[T]) -> T | None:
        """A record; None if there is none, or if it can't be read."""
        data = await self.read(session_id, name)
        if data is None:
            return None
        try:
            if len(data) > LARGE_BYTES:
                return await asyncio.to_thread(_decoded, data, kind)
            return _decoded(data, kind)
        except (ValueError, *UNREADABLE):
            return None

    async def put(self, session_id: str, name: str, record: Any) -> None:
        # In a thread: the changes of a turn may have thousands of files.
        await self.write(session_id, name, await asyncio.to_thread(_encoded, record))

    async def patch(self, session_id: str, name: str) -> bytes | None:
        data = await self.read(session_id, f"patch-{name}")
        if data is None:
            return None
        try:
            return await asyncio.to_thread(zlib.decompress, data)
        except zlib.error:
            return None

    async def put_patch(self, session_id: str, name: str, patch: bytes) -> None:
        await self.write(session_id, f"patch-{name}", await asyncio.to_thread(zlib.compress, patch, COMPRESSION_LEVEL))

    async def read(self, session_id: str, name: str) -> bytes | None:
        if self._shared is not None:
            return await self._shared.file(session_id, PREFIX + name)
        return await asyncio.to_thread(_read, self._root / session_id / (PREFIX + name))

    async def write(self, session_id: str, name: str, data: bytes) -> None:
        """Raises Refused if the session was erased, whose folder must not come back."""
        if self._shared is not None:
            if not await self._shared.put_file(session_id, PREFIX + name, data, early=False):
                raise Refused("not_found", GONE)
            return
        if await self.is_erased(session_id):
            raise Refused("not_found", GONE)
        folder = self._root / session_id
        try:
            await asyncio.to_thread(_write, folder, PREFIX + name, data)
        except OSError as error:
            raise StoreFull(f"can't store a record of changes: {error.strerror}") from error
        if await self.is_erased(session_id):
            # Meanwhile.
            await asyncio.to_thread(_delete, folder, PREFIX + name)
            raise Refused("not_found", GONE)

    async def is_erased(self, session_id: str) -> bool:
        """Whether the session was erased, or is being erased. Its id may be in use again."""
        if session_id not in self._log.erased:
            return False
        is_under_way = session_id in self._log.erased.under_way
        return is_under_way or session_id not in await self._log.store.heads([session_id])

    async def drop(self, session_id: str, name: str) -> None:
        if self._shared is not None:
            await self._shared.drop_file(session_id, PREFIX + name)
            return
        await asyncio.to_thread((self._root / session_id / (PREFIX + name)).unlink, missing_ok=True)

    async def names(self, session_id: str, prefix: str = "") -> list[str]:
        """The names of a session's records that begin like this, in order."""
        if self._shared is not None:
            names = await self._shared.file_names(session_id, PREFIX + prefix)
        else:
            names = await asyncio.to_thread(_names, self._root / session_id, PREFIX + prefix)
        return [name.removeprefix(PREFIX) for name in names]

    async def all(self, session_id: str, prefix: str, kind: type[T]) -> list[T]:
        found = [await self.get(session_id, name, kind) for name in await self.names(session_id, prefix)]
        return [record for record in found if record is not None]

    async def copy(self, origin: str, session_id: str, turns: set[int]) -> None:
        """Copy the records of these turns to a session that was forked."""
        for turn in sorted(turns):
            for name in (turn_name(turn), f"patch-{turn_name(turn)}"):
                if (data := await self.read(origin, name)) is not None:
                    await self.write(session_id, name, data)


def _encoded(record: Any) -> bytes:
    # Not msgspec: file names may be no UTF-8, and it can't encode those.
    return json.dumps(msgspec.to_builtins(record)).encode()


def _decoded(data: bytes, kind: type[T]) -> T:
    return msgspec.convert(json.loads(data), kind)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused("unavailable", f"Can't read {path.name}: {error.strerror}. Try again.") from error


def _write(folder: Path, name: str, data: bytes) -> None:
    make_private(folder)
    part = folder / f".{name}.{secrets.token_hex(4)}"
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / name)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _delete(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    # It is empty unless the erase has not deleted it yet, or an attachment was stored meanwhile.
    with contextlib.suppress(OSError):
        folder.rmdir()


def _names(folder: Path, prefix: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.startswith(prefix))
    except FileNotFoundError:
        return []
