"""Directories on this machine, to choose where a session works: completion of a path, recently used directories and
projects, a description of each, and the state of its git repository.

Above: the surfaces. Below: the store, the projects, the file system and git. Nothing is known about the file systems: a
directory can have 100,000 entries, or be on a network that hangs. So everything has a deadline, and what is not known
by then is left out or null. Reads names and git's state, never contents.
"""

import asyncio
import functools
import heapq
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.core.errors import Refused
from perdure.runtime.data.filesystem import PRIVATE, directory_identity, is_private
from perdure.runtime.data.lookups import Lookups
from perdure.runtime.data.projects import Projects
from perdure.runtime.git import repository as git
from perdure.runtime.git.command import GitError, GitTimeout, shown
from perdure.stores.base import Store, Workdir

MOST_LOOKUPS = 16
"""Look-ups at the same time. Those that hang keep their place."""
LISTING_S = 0.4
"""Time to list a directory."""
EXISTENCE_S = 0.15
"""Time to find out which of the recent directories still exist."""
STATUS_S = 0.3
"""Time for git to report on all directories of an answer, and for each of them."""
DESCRIPTION_S = 2.0
"""Time to describe a single directory."""
ONE_STATUS_S = 1.0
"""Time for git to report on a single directory."""
RECENT = 8
RECENT_CANDIDATES = 32
"""Directories that are looked at to find the recent ones that still exist."""
COUNTED_SESSIONS = 5_000
"""The most recently active sessions, of which the number in each directory is counted."""
PATH_BYTES = 4096
SPARE = 2
"""Candidates for each entry of an answer: symbolic links to files are left out later."""
GRACE_S = 0.1
"""How much longer than its own deadline a look-up is waited for."""
GIT_FIELDS = ("root", "branch", "head", "detached", "dirty", "in_progress")
IN_TIME = "git did not answer in time."


class Entry(msgspec.Struct):
    name: str
    path: str
    repository: bool | None = None
    """Null: not known in time."""


class Listing(msgspec.Struct):
    """Entries found so far. A thread adds them, and the event loop reads them at its deadline."""

    entries: list[Entry] = []
    truncated: bool = True


class Directories:
    def __init__(self, data: Path, workspaces: Path, store: Store, projects: Projects) -> None:
        self._data = data
        self._workspaces = workspaces
        self._store = store
        self._projects = projects
        self.lookups = Lookups(MOST_LOOKUPS)

    async def complete(self, given: str | None, limit: int, *, recent: bool = True) -> dict[str, Any]:
        """Directories whose path starts with `given` (default: those in the home directory); hidden ones only if its
        last part starts with a dot. With `recent`: also recently used directories, and the projects."""
        folder, prefix = _split(given)
        listing = await self._list(folder, prefix, limit)
        used, projects = await self._places() if recent else ([], [])
        return {
            "path": folder,
            "parent": None if folder == "/" else os.path.dirname(folder),
            "entries": [msgspec.to_builtins(entry) for entry in listing.entries],
            "truncated": listing.truncated,
            "recent": used,
            "projects": projects,
        }

    async def complete_for_node(self, given: dict[str, Any]) -> dict[str, Any]:
        """The same for another node, which asks for the directories of this one."""
        return await self.complete(given["path"], given["limit"], recent=given["recent"])

    async def describe(self, path: str) -> dict[str, Any]:
        """A directory as this server sees it, so that a client can tell whether it sees the same one."""
        _check_absolute(path)
        try:
            seen = await self.lookups.run(lambda: self._describe(path), DESCRIPTION_S)
        except TimeoutError:
            raise Refused("unavailable", f"The file system of {path!r} did not answer in time. Try again.") from None
        if seen is None:
            raise Refused("not_found", f"There is no directory {path!r} on the server.")
        return {**seen, "git": await self.git(path)}

    def _describe(self, path: str) -> dict[str, Any] | None:
        identity = directory_identity(path)
        if identity is None:
            return None
        return {
            "path": os.path.realpath(path),
            "identity": identity,
            "private": is_private(path, self._data),
            "projects": self._projects.around(path),
        }

    async def git(self, path: str) -> dict[str, Any] | None:
        """The state of the git repository that contains a directory; None if there is none. If it can't be read,
        `reason` says why."""
        try:
            found = await self._look(path, ONE_STATUS_S)
        except (GitError, TimeoutError) as error:
            reason = error.message if isinstance(error, GitError) else IN_TIME
            return {**dict.fromkeys(GIT_FIELDS), "reason": reason}
        if found is None:
            return None
        return {**{name: getattr(found, name) for name in GIT_FIELDS}, "reason": IN_TIME if found.is_partial else None}

    # Completion ----------------------------------------------------------------------------------------------------

    async def _list(self, folder: str, prefix: str, limit: int) -> Listing:
        listing, deadline = Listing(), time.monotonic() + LISTING_S
        try:
            fill = functools.partial(_fill, listing, folder, prefix, limit, self._data, deadline)
            await self.lookups.run(fill, LISTING_S + GRACE_S)
        except TimeoutError:
            return Listing(list(listing.entries), truncated=True)
        except (FileNotFoundError, NotADirectoryError):
            raise Refused("not_found", f"There is no directory {folder!r} on the server.", fields=["path"]) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise Refused("invalid", f"Can't list {folder!r}: {why}.", fields=["path"]) from None
        return listing

    # Recent directories and projects -------------------------------------------------------------------------------

    async def _places(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        used, is_complete = await self._used()
        projects = sorted(self._projects.all().items())
        roots = dict.fromkeys([*(one.path for one in used), *(settings.path for _, settings in projects)])
        states = dict(zip(roots, await asyncio.gather(*(self._state(path) for path in roots)), strict=True))
        recent = [
            {
                "path": one.path,
                "last_active_at": one.last_active_at,
                "sessions": one.sessions if is_complete else None,
                **states[one.path],
            }
            for one in used
        ]
        shown = [
            {"id": identity, "name": settings.name or identity, "path": settings.path, **states[settings.path]}
            for identity, settings in projects
        ]
        return recent, shown

    async def _used(self) -> tuple[list[Workdir], bool]:
        """The most recently used directories that exist, and whether all sessions were counted. Not the ones that were
        made for sessions; a worktree counts for the directory that it was made from."""
        known = await self._store.workdirs(COUNTED_SESSIONS)
        is_complete = sum(one.sessions for one in known) < COUNTED_SESSIONS
        try:
            given = await self.lookups.run(lambda: _sources(known, self._workspaces, self._data), EXISTENCE_S)
        except TimeoutError:
            return [], is_complete
        exist = await asyncio.gather(*(self._exists(one.path) for one in given))
        return [one for one, exists in zip(given, exist, strict=True) if exists][:RECENT], is_complete

    async def _exists(self, path: str) -> bool:
        def look() -> bool:
            return os.path.isdir(path) and not is_private(path, self._data)

        try:
            return await self.lookups.run(look, EXISTENCE_S)
        except TimeoutError:
            return False

    async def _state(self, path: str) -> dict[str, Any]:
        try:
            found = await self._look(path, STATUS_S)
        except (GitError, TimeoutError):
            return {"branch": None, "head": None, "dirty": None, "repository": None}
        if found is None:
            return {"branch": None, "head": None, "dirty": None, "repository": False}
        return {"branch": found.branch, "head": found.head, "dirty": found.dirty, "repository": True}

    async def _look(self, path: str, timeout_s: float) -> "GitState | None":
        return await self.lookups.run(lambda: _git_state(path, time.monotonic() + timeout_s), timeout_s + GRACE_S)


class GitState(msgspec.Struct, frozen=True):
    root: str
    branch: str | None
    head: str | None
    detached: bool
    dirty: int | None
    """None: git did not report it in time, or there are too many changes to count."""
    in_progress: str | None
    is_partial: bool


def _git_state(path: str, deadline: float) -> GitState | None:
    repository = git.find(path, deadline)
    if repository is None:
        return None
    head = git.head(repository, deadline)
    try:
        status = git.status(repository, deadline)
    except GitTimeout:
        status = None
    return GitState(
        shown(repository.root),
        None if head.branch is None else shown(head.branch),
        head.commit,
        head.branch is None,
        None if status is None or status.dirty_is_minimum else status.dirty,
        git.in_progress(repository),
        status is None,
    )


def _sources(known: list[Workdir], workspaces: Path, data: Path) -> list[Workdir]:
    """The directories that people chose, in the given order."""
    # As written in sessions: workspaces as configured, other directories with links resolved.
    own = tuple(f"{place}/" for place in (data, os.path.realpath(data)))
    found: dict[str, Workdir] = {}
    for one in known:
        path: str | None = one.path
        if one.path.startswith(f"{workspaces}/"):
            path = _source_of_worktree(one.path, workspaces)
        elif one.path.startswith(own):
            path = None
        if path is None:
            continue
        if path in found:
            found[path] = replace(found[path], sessions=found[path].sessions + one.sessions)
        elif len(found) < RECENT_CANDIDATES:
            found[path] = Workdir(path, one.sessions, one.last_active_at)
    return list(found.values())


def _source_of_worktree(workdir: str, workspaces: Path) -> str | None:
    """The directory that a session's worktree was made from; None if it has none, or no longer."""
    name, _, inside = os.path.relpath(workdir, workspaces).partition("/")
    try:
        with open(os.path.join(workspaces, name, ".git"), encoding="utf-8") as file:
            said = file.read(PATH_BYTES)
    except (OSError, UnicodeDecodeError):
        return None
    repository, mark, _ = said.removeprefix("gitdir: ").partition("/.git/worktrees/")
    return os.path.normpath(os.path.join(repository, inside)) if mark else None


def _check_absolute(path: str) -> None:
    if "\x00" in path or not os.path.isabs(path):
        raise Refused("invalid", "path must be absolute.", fields=["path"])


def _split(given: str | None) -> tuple[str, str]:
    """The directory to list, and what names in it must start with."""
    given = "~/" if given is None else given
    path = os.path.expanduser(given) if given == "~" or given.startswith("~/") else given
    _check_absolute(path)
    folder, _, prefix = path.rpartition("/")
    return os.path.normpath("/" + folder.lstrip("/")), prefix


def _fill(listing: Listing, folder: str, prefix: str, limit: int, data: Path, deadline: float) -> None:
    """Find the first directories with this prefix, by name. What counts is the directory itself, not where a link in
    the path leads, except for private data."""
    if is_private(folder, data):
        raise Refused("invalid", f"{folder!r} {PRIVATE}. Choose another.", fields=["path"])
    with os.scandir(folder) as scanned:
        # Not sorted as a whole, because that would stop all other threads for the time that it takes.
        found = heapq.nsmallest(SPARE * limit + 1, _candidates(scanned, prefix, deadline))
    for _, _, name, is_link in found:
        path = os.path.join(folder, name)
        if len(listing.entries) == limit:
            break
        if (not is_link or os.path.isdir(path)) and not is_private(path, data):
            listing.entries.append(Entry(name, path))
    else:
        listing.truncated = len(found) > SPARE * limit or time.monotonic() > deadline
    for entry in listing.entries:
        entry.repository = os.path.lexists(os.path.join(entry.path, ".git"))


def _candidates(
    scanned: Iterable["os.DirEntry[str]"], prefix: str, deadline: float
) -> Iterator[tuple[bool, str, str, bool]]:
    """Names with this prefix, in the same case first, that are directories or links."""
    folded = prefix.casefold()
    for entry in scanned:
        if time.monotonic() > deadline:
            return
        name = entry.name
        is_shown = prefix.startswith(".") or not name.startswith(".")
        if not is_shown or not name.casefold().startswith(folded) or not _is_text(name):
            continue
        try:
            is_link = entry.is_symlink()
            is_candidate = is_link or entry.is_dir(follow_symlinks=False)
        except OSError:  # some file systems don't tell the type with the name, and the directory may be closed to us
            continue
        if is_candidate:
            yield not name.startswith(prefix), name.casefold(), name, is_link


def _is_text(name: str) -> bool:
    """Whether the name can be encoded as JSON: one that is not UTF-8 can't."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
