"""Projects: concurrent changes don't overwrite each other."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from perdure.config import ProjectSettings
from perdure.core.errors import Refused
from perdure.runtime.data.projects import Projects
from perdure.stores.sqlite import SqliteStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "perdure.db")
    await made.open()
    yield made
    await made.close()


async def test_projects_with_one_name_created_concurrently_are_all_stored(store: SqliteStore, tmp_path: Path) -> None:
    projects = Projects(store, {}, tmp_path / "data")
    path = str(tmp_path)
    made = await asyncio.gather(*(projects.create(ProjectSettings(path=path, name="Site")) for _ in range(5)))
    assert sorted(made) == ["site", "site-2", "site-3", "site-4", "site-5"]
    assert sorted(await store.documents("project")) == sorted(made)


async def test_concurrent_changes_are_all_stored(store: SqliteStore, tmp_path: Path) -> None:
    projects = Projects(store, {}, tmp_path / "data")
    key = await projects.create(ProjectSettings(path=str(tmp_path), name="Site"))
    await asyncio.gather(
        projects.change(key, {"instructions": "be brief"}),
        projects.change(key, {"kickoff": "hello"}),
        projects.change(key, {"permissions": [{"tool": "Bash", "action": "deny"}]}),
    )
    again = Projects(store, {}, tmp_path / "data")
    await again.load()
    for known in (projects, again):
        found = known.find(key)[1]
        assert (found.instructions, found.kickoff) == ("be brief", "hello")
        assert found.permissions[0].action == "deny"


async def test_a_project_that_is_removed_while_it_is_changed_stays_removed(store: SqliteStore, tmp_path: Path) -> None:
    projects = Projects(store, {}, tmp_path / "data")
    key = await projects.create(ProjectSettings(path=str(tmp_path)))
    removed, changed = await asyncio.gather(
        projects.remove(key), projects.change(key, {"kickoff": "hello"}), return_exceptions=True
    )
    assert removed is None and isinstance(changed, Refused)
    assert await store.documents("project") == {}


def test_a_rule_with_a_misspelt_field_is_refused() -> None:
    rule = {"tool": "Bash", "patern": "git status*", "action": "allow"}
    with pytest.raises(msgspec.ValidationError, match="patern"):
        msgspec.convert({"path": "/srv", "permissions": [rule]}, ProjectSettings)
