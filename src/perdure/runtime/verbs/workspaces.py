"""Working directories: those given by users, and workspaces created for sessions without one.

Above: the verbs. Below: the file system. A workspace starts empty and is deleted when its session is erased. A given
directory is never touched.
"""

import asyncio
import contextlib
import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec

from perdure.core.errors import Conflict, Refused
from perdure.runtime.data.filesystem import PRIVATE, is_private, is_within
from perdure.runtime.data.projects import Projects
from perdure.runtime.git.command import GitError, shown
from perdure.runtime.git.repository import Repository, find, head
from perdure.runtime.git.worktree import Worktree, create, removable, remove
from perdure.runtime.review.recorder import ref_name
from perdure.runtime.review.working_trees import WorkingTrees
from perdure.stores.base import Query, Store

logger = logging.getLogger(__name__)

BRANCH_WORDS = 5
BRANCH_CHARS = 40
WORKTREES_MAX = 1000
"""How many of the newest worktrees to remember for repeated requests."""
FORGET_TRIES = 3
FORGET_RETRY_S = 1.0
"""Another git command may hold a lock for a moment."""


class Workspaces:
    def __init__(self, root: Path, data: Path, store: Store, projects: Projects, trees: WorkingTrees) -> None:
        self._root = root
        self._trees = trees
        self._data = data
        self._store = store
        self._projects = projects
        self._worktrees: dict[str, tuple[str, asyncio.Task[Worktree]]] = {}
        """By session: the directory and the creation of its worktree. A repeated request gets the same worktree."""

    def of(self, session_id: str) -> Path:
        return self._root / session_id

    def path(self, given: str | None, session_id: str) -> str:
        """A session's working directory. Creates nothing."""
        if given is None:
            return str(self._root / session_id)
        if "\x00" in given or not os.path.isabs(given):
            raise Refused("invalid", "workdir must be an absolute path.", fields=["workdir"])
        if not os.path.isdir(given):
            raise Refused("invalid", f"workdir {given!r} is not a directory. Create it first.", fields=["workdir"])
        if is_private(given, self._data):
            what_to_do = "Choose another, or leave it out to get a new workspace."
            raise Refused("invalid", f"workdir {given!r} {PRIVATE}. {what_to_do}", fields=["workdir"])
        return os.path.realpath(given)

    def of_project(self, given: str | None, root: str) -> str:
        """The working directory of a project's session: the project's directory or one below it."""
        if given is None:
            return root
        is_usable = "\x00" not in given and os.path.isabs(given)
        if is_usable and not is_within(os.path.realpath(given), os.path.realpath(root)):
            wrong = f"workdir must be in the project's directory, {root!r}. Give only the directory or the project."
            raise Refused("invalid", wrong, fields=["workdir"])
        return given

    def make(self, session_id: str) -> bool:
        """Create the session's workspace. Returns False if it already exists."""
        folder = self._root / session_id
        try:
            self._root.mkdir(parents=True, mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700)
        except OSError as error:
            if isinstance(error, FileExistsError) and folder.is_dir():
                return False
            raise Refused(
                "unavailable", f"Can't create the session's workspace {str(folder)!r}: {error.strerror}."
            ) from error
        return True

    async def make_worktree(self, given: str | None, session_id: str, about: str) -> Worktree:
        """Create a git worktree for a session, from the repository of a directory. `about` names its branch."""
        if given is None:
            what = "A worktree needs a project, or a workdir in a git repository."
            raise Refused("invalid", what, fields=["workspace"])
        source, folder = self.path(given, session_id), self._root / session_id
        name = "-".join(re.findall(r"[a-z0-9]+", about.lower())[:BRANCH_WORDS]) or session_id[-8:]
        try:
            self._root.mkdir(parents=True, mode=0o700, exist_ok=True)
            known, task = self._worktrees.get(session_id, (None, None))
            if task is None or known != source:
                work = self._trees.operate(_create, source, str(folder), f"perdure/{name[:BRANCH_CHARS]}")
                task = asyncio.create_task(work, name=f"worktree of {session_id}")
                self._worktrees[session_id] = source, task
                task.add_done_callback(lambda ended: self._created(session_id, ended))
            # A request that is given up must not leave a part of a worktree.
            return await asyncio.shield(task)
        except GitError as error:
            raise Refused("invalid", f"No worktree for this session: {error.message}", fields=["workspace"]) from error
        except OSError as error:
            raise Refused("unavailable", f"Can't create the worktree {str(folder)!r}: {error.strerror}.") from error

    def _created(self, session_id: str, task: "asyncio.Task[Worktree]") -> None:
        if task.cancelled() or task.exception() is not None:
            self._worktrees.pop(session_id, None)
        if len(self._worktrees) > WORKTREES_MAX:
            oldest = next((one for one, (_, creation) in self._worktrees.items() if creation.done()), session_id)
            self._worktrees.pop(oldest, None)

    async def take_back(self, session_id: str, error: Exception, own: Worktree | None = None) -> None:
        """Delete the new workspace of a session that could not be created. After a conflict it stays, because another
        request has created the session and uses the workspace."""
        if isinstance(error, Conflict) or (isinstance(error, Refused) and error.code == "conflict"):
            return
        if own is not None:
            self._worktrees.pop(session_id, None)
            try:
                await self._trees.operate(remove, own)
            except (GitError, OSError) as failure:
                logger.warning("could not remove the worktree of a session that was not created: %s", failure)
            return
        with contextlib.suppress(OSError):
            (self._root / session_id).rmdir()

    async def erase(self, session_id: str, workdir: str, worktree: dict[str, Any] | None = None) -> None:
        """Delete a session's workspace with all its contents, unless a project or another session uses it too. A
        worktree is deleted only if all its work is in another branch. Snapshots in the repository are deleted too."""
        self._worktrees.pop(session_id, None)
        for place in dict.fromkeys([workdir, *([worktree["repository"]] if worktree is not None else [])]):
            await self._forget_snapshots(session_id, place)
        if worktree is not None:
            await self._erase_worktree(session_id, worktree, workdir)
            return
        folder = self._root / session_id
        # A worktree of a session that can't be read may hold work that is nowhere else.
        if workdir != str(folder) or await self.is_used(workdir) or await asyncio.to_thread((folder / ".git").is_file):
            return
        try:
            await asyncio.to_thread(shutil.rmtree, folder)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("could not delete the workspace of an erased session: %s", error)

    async def _forget_snapshots(self, session_id: str, place: str) -> None:
        found = await self._trees.find(place)
        why = found if isinstance(found, str) else ""
        if isinstance(found, Repository):
            for tried in range(FORGET_TRIES):
                if tried:
                    await asyncio.sleep(FORGET_RETRY_S)
                try:
                    await self._trees.forget(found, ref_name(session_id))
                except GitError as error:
                    why = error.message
                else:
                    return
        if why:
            what = "could not delete the snapshots of erased session %s; they stay in the repository of %s: %s"
            logger.warning(what, session_id, place, why)

    async def _erase_worktree(self, session_id: str, worktree: dict[str, Any], workdir: str) -> None:
        try:
            own = msgspec.convert(worktree, Worktree)
            if await self.is_used(own.path) or await self.is_used(workdir):
                return
            if (reason := await self._trees.read(removable, own)) is not None:
                logger.warning("kept the worktree %s of erased session %s: %s", own.path, session_id, reason)
                return
            await self._trees.operate(remove, own)
        except (GitError, OSError, Refused, msgspec.ValidationError) as error:
            logger.warning("could not remove the worktree of erased session %s: %s", session_id, error)

    async def is_used(self, workdir: str) -> bool:
        """Whether a project is this directory, or a session works in it or below."""
        if self._is_a_project(workdir):
            return True
        for name in _names(workdir):
            if (await self._store.list_sessions(Query(below=name, limit=1))).found:
                return True
        return False

    async def is_used_by_others(self, session_id: str, workdir: str) -> bool:
        """Whether another session that has not ended works in the directory or below."""
        for name in _names(workdir):
            found = (await self._store.list_sessions(Query(below=name, status="running", limit=2))).found
            if any(one.session_id != session_id for one in found):
                return True
        return False

    def _is_a_project(self, workdir: str) -> bool:
        return any(not _names(workdir).isdisjoint(_names(project.path)) for project in self._projects.all().values())


def _create(source: str, folder: str, branch: str) -> Worktree:
    repository = find(source)
    base = head(repository).branch if repository is not None else None
    for what, name in (("branch", base), ("directory", repository.root if repository is not None else None)):
        if name is not None and name != shown(name):
            raise GitError(f"The name of its {what} {shown(name)} is not UTF-8, or has control characters. Rename it.")
    return create(source, folder, branch)


def _names(folder: str) -> set[str]:
    """The path as given, and with symbolic links resolved."""
    return {folder, os.path.realpath(folder)}
