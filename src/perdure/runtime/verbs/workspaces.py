"""Working directories: those given by users, and workspaces created for sessions without one.

Above: the verbs. Below: the file system. A workspace starts empty and is deleted when its session is erased. A given
directory is never touched.
"""

import asyncio
import contextlib
import logging
import os
import shutil
from pathlib import Path
from typing import Any

from perdure.core.errors import Conflict, Refused
from perdure.runtime.data.filesystem import PRIVATE, directory_identity, is_private, is_within
from perdure.runtime.data.projects import Projects
from perdure.stores.base import Query, Store

logger = logging.getLogger(__name__)


class Workspaces:
    def __init__(self, root: Path, data: Path, store: Store, projects: Projects) -> None:
        self._root = root
        self._data = data
        self._store = store
        self._projects = projects

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

    def describe(self, path: str) -> dict[str, Any]:
        """A directory as this server sees it, so that a client can tell whether it sees the same one."""
        if "\x00" in path or not os.path.isabs(path):
            raise Refused("invalid", "path must be absolute.", fields=["path"])
        identity = directory_identity(path)
        if identity is None:
            raise Refused("not_found", f"There is no directory {path!r} on the server.")
        return {
            "path": os.path.realpath(path),
            "identity": identity,
            "private": is_private(path, self._data),
            "projects": self._projects.around(path),
        }

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

    def take_back(self, session_id: str, error: Exception) -> None:
        """Delete the new workspace of a session that could not be created. After a conflict it stays, because another
        request has created the session and uses the workspace."""
        if isinstance(error, Conflict) or (isinstance(error, Refused) and error.code == "conflict"):
            return
        with contextlib.suppress(OSError):
            (self._root / session_id).rmdir()

    async def erase(self, session_id: str, workdir: str) -> None:
        """Delete a session's workspace with all its contents, unless a project or another session uses it too."""
        folder = self._root / session_id
        if workdir != str(folder) or await self._is_used(workdir):
            return
        try:
            await asyncio.to_thread(shutil.rmtree, folder)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("could not delete the workspace of an erased session: %s", error)

    async def _is_used(self, workdir: str) -> bool:
        if self._is_a_project(workdir):
            return True
        for name in _names(workdir):
            if (await self._store.list_sessions(Query(workdir=name, limit=1))).found:
                return True
        return False

    def _is_a_project(self, workdir: str) -> bool:
        return any(not _names(workdir).isdisjoint(_names(project.path)) for project in self._projects.all().values())


def _names(folder: str) -> set[str]:
    """The path as given, and with symbolic links resolved."""
    return {folder, os.path.realpath(folder)}
