"""Working directories: those that are given, and those that are made for sessions which name none.

Above: the verbs. Below: the file system. A folder that was made for a session is empty until its agent writes into it,
and is erased with its session; one that was given is never touched.
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
        """Where a session will work. Nothing is made yet."""
        if given is None:
            return str(self._root / session_id)
        if "\x00" in given or not os.path.isabs(given):
            raise Refused("invalid", "workdir must be an absolute path.", fields=["workdir"])
        if not os.path.isdir(given):
            raise Refused("invalid", f"workdir {given!r} is not a directory. Make it first.", fields=["workdir"])
        if is_private(given, self._data):
            what_to_do = "Choose another, or leave it out to get a folder of its own."
            raise Refused("invalid", f"workdir {given!r} {PRIVATE}. {what_to_do}", fields=["workdir"])
        return os.path.realpath(given)

    def of_project(self, given: str | None, root: str) -> str:
        """Where a project's session works: in the project's directory, or in one below it."""
        if given is None:
            return root
        is_usable = "\x00" not in given and os.path.isabs(given)
        if is_usable and not is_within(os.path.realpath(given), os.path.realpath(root)):
            wrong = f"workdir must be in the project's directory, {root!r}. Leave out one of the two."
            raise Refused("invalid", wrong, fields=["workdir"])
        return given

    def describe(self, path: str) -> dict[str, Any]:
        """How this server sees a directory: enough for a client to know whether it sees the same one."""
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
        """The session's own folder; whether it was not there before."""
        folder = self._root / session_id
        try:
            self._root.mkdir(parents=True, mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700)
        except OSError as error:
            if isinstance(error, FileExistsError) and folder.is_dir():
                return False
            raise Refused(
                "unavailable", f"The session's folder {str(folder)!r} can't be made: {error.strerror}."
            ) from error
        return True

    def take_back(self, session_id: str, error: Exception) -> None:
        """Remove a folder that was just made, for a session that came to nothing. After a conflict it stays: another
        request has created the session meanwhile, and found the folder there."""
        if isinstance(error, Conflict) or (isinstance(error, Refused) and error.code == "conflict"):
            return
        with contextlib.suppress(OSError):
            (self._root / session_id).rmdir()

    async def erase(self, session_id: str, workdir: str) -> None:
        """Remove the folder that was made for a session, with all that is in it, unless others work there too."""
        folder = self._root / session_id
        if workdir != str(folder) or await self._is_used(workdir):
            return
        try:
            await asyncio.to_thread(shutil.rmtree, folder)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("the folder of an erased session stays: %s", error)

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
    """As it is called, and as it is called without links."""
    return {folder, os.path.realpath(folder)}
