"""Projects: working directories with a name and defaults. Those in perdure.toml are fixed; others are documents.

Above: the verbs and the facts. Below: the store.
"""

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from perdure.config import Limits, ProjectOptions, ProjectSettings
from perdure.core.errors import UNREADABLE, Refused
from perdure.runtime.data.filesystem import PRIVATE, is_private, is_within
from perdure.stores.base import Store


def read(documents: dict[str, bytes]) -> tuple[dict[str, ProjectSettings], dict[str, str]]:
    """The stored projects, and the errors of those that can't be read."""
    found, damaged = {}, {}
    for key, body in documents.items():
        try:
            found[key] = msgspec.json.decode(body, type=ProjectSettings)
        except UNREADABLE as error:
            damaged[key] = str(error)
    return found, damaged


class Projects:
    def __init__(self, store: Store, configured: dict[str, ProjectSettings], data: Path) -> None:
        self._store = store
        self._configured = configured
        self._data = data
        # Unbounded: holds all stored projects, which only users with the token can create.
        self._made: dict[str, ProjectSettings] = {}
        # One change at a time: each checks the current projects and then awaits the store.
        self._changing = asyncio.Lock()
        self.on_change: Callable[[], None] = lambda: None
        """Called when this server has changed a project, so that other nodes reload."""

    async def load(self) -> dict[str, str]:
        """Load the projects created over the API. Skips those that can't be read, and returns their errors."""
        self._made, damaged = read(await self._store.documents("project"))
        return damaged

    async def reload(self) -> None:
        """Load again after another node has changed projects."""
        await self.load()

    def all(self) -> dict[str, ProjectSettings]:
        return {**self._made, **self._configured}

    def find(self, key: str) -> tuple[str, ProjectSettings]:
        """A project by its id, or by its name if that is unique."""
        projects = self.all()
        if key in projects:
            return key, projects[key]
        named = [(identity, project) for identity, project in projects.items() if project.name == key]
        if len(named) == 1:
            return named[0]
        raise Refused("not_found", f"There is no project {key!r}. `perdure projects` lists them.")

    async def create(self, settings: ProjectSettings) -> str:
        self._check(settings)
        base = re.sub(r"[^a-z0-9]+", "-", (settings.name or os.path.basename(settings.path)).lower()).strip("-")
        async with self._changing:
            identity = base or "project"
            number = 2
            body = msgspec.json.encode(settings)
            while identity in self.all() or not await self._store.add_document("project", identity, body):
                identity = f"{base or 'project'}-{number}"
                number += 1
            self._made[identity] = settings
        self.on_change()
        return identity

    async def change(self, key: str, changes: dict[str, Any]) -> str:
        async with self._changing:
            identity, settings = self.find(key)
            self._refuse_configured(identity)
            changed = msgspec.convert({**msgspec.to_builtins(settings), **changes}, ProjectSettings)
            self._check(changed)
            await self._put(identity, changed)
        return identity

    async def remove(self, key: str) -> None:
        async with self._changing:
            identity, _ = self.find(key)
            self._refuse_configured(identity)
            await self._store.put_document("project", identity, None)
            self._made.pop(identity, None)
        self.on_change()

    def around(self, path: str) -> list[str]:
        """The projects that contain a directory: the innermost, or several if they have the same path."""
        real = os.path.realpath(path)
        depths: dict[str, int] = {}
        for identity, settings in self.all().items():
            root = os.path.realpath(settings.path)
            if is_within(real, root):
                depths[identity] = len(root)
        return [identity for identity, depth in depths.items() if depth == max(depths.values())]

    def settings_of(self, project: str | None) -> ProjectSettings | None:
        """None if the session has no project, or its project was removed."""
        return self.all().get(project) if project else None

    def limits(self, project: str | None) -> Limits:
        settings = self.all().get(project) if project else None
        return settings.limits if settings else Limits()

    def instructions(self, project: str | None) -> str:
        settings = self.all().get(project) if project else None
        return (settings.instructions or "") if settings else ""

    def runner_mode(self, project: str | None) -> str | None:
        settings = self.all().get(project) if project else None
        return settings.runner_mode if settings else None

    def options(self, project: str | None) -> ProjectOptions:
        """The project's options for agents. Only projects in perdure.toml have them, not those created over the API."""
        settings = self._configured.get(project) if project else None
        return settings.options if settings else ProjectOptions()

    def public(self, identity: str, settings: ProjectSettings, active_session_id: str | None) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(settings)
        shown["name"] = settings.name or identity
        # The values may be secrets: show the names only.
        shown["options"].update(
            (key, sorted(shown["options"][key])) for key in ("env", "mcp_servers") if key in shown["options"]
        )
        shown["permissions"] = [msgspec.to_builtins(rule) for rule in settings.permissions]
        # Both spellings: TeamHQ's programs read the second.
        return {"id": identity, **shown, "active_session_id": active_session_id, "activeSessionId": active_session_id}

    async def _put(self, identity: str, settings: ProjectSettings) -> None:
        await self._store.put_document("project", identity, msgspec.json.encode(settings))
        self._made[identity] = settings
        self.on_change()

    def _refuse_configured(self, identity: str) -> None:
        if identity in self._configured:
            raise Refused("conflict", f"Project {identity!r} is set in perdure.toml; change it there.")

    def _check(self, settings: ProjectSettings) -> None:
        if "\x00" in settings.path or not os.path.isabs(settings.path):
            raise Refused("invalid", f"path must be absolute, not {settings.path!r}.", fields=["path"])
        if not os.path.isdir(settings.path):
            raise Refused("invalid", f"path {settings.path!r} is not a directory. Create it first.", fields=["path"])
        if is_private(settings.path, self._data):
            raise Refused("invalid", f"path {settings.path!r} {PRIVATE}. Choose another.", fields=["path"])
