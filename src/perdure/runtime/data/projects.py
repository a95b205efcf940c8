"""Projects: working directories with a name and defaults. Those of perdure.toml are fixed; others are documents.

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
    """Projects as they are stored; and what is wrong with each that can't be read."""
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
        # No bound: the projects that are stored, each made by somebody with the token.
        self._made: dict[str, ProjectSettings] = {}
        # One change at a time: each looks at what is there, and then waits for the store.
        self._changing = asyncio.Lock()
        self.on_change: Callable[[], None] = lambda: None
        """Called when this server has changed a project: other nodes read it again."""

    async def load(self) -> dict[str, str]:
        """Those that were made over the API; what is wrong with each that can't be read, and so is not there."""
        self._made, damaged = read(await self._store.documents("project"))
        return damaged

    async def reload(self) -> None:
        """Another node has changed some."""
        await self.load()

    def all(self) -> dict[str, ProjectSettings]:
        return {**self._made, **self._configured}

    def find(self, key: str) -> tuple[str, ProjectSettings]:
        """By id, or by name if that is unique."""
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
        """The projects that a directory lies in: of nested ones the innermost, all of them if they share a path."""
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
        """What the project says of how agents run. Only perdure.toml may: such a project can't be made over the API."""
        settings = self._configured.get(project) if project else None
        return settings.options if settings else ProjectOptions()

    def public(self, identity: str, settings: ProjectSettings, active_session_id: str | None) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(settings)
        shown["name"] = settings.name or identity
        # Keys may stand in these: their names are enough.
        shown["options"].update(
            (key, sorted(shown["options"][key])) for key in ("env", "mcp_servers") if key in shown["options"]
        )
        shown["permissions"] = [msgspec.to_builtins(rule) for rule in settings.permissions]
        # Under both names: TeamHQ's programs read the second.
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
            raise Refused("invalid", f"path {settings.path!r} is not a directory. Make it first.", fields=["path"])
        if is_private(settings.path, self._data):
            raise Refused("invalid", f"path {settings.path!r} {PRIVATE}. Choose another.", fields=["path"])
