"""Fixtures for the tests of git: a repository with one commit, and snapshots."""

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.runtime.git.snapshot import Snapshot, Snapshots
from tests.runtime.git.project import Project

pytestmark = pytest.mark.needs("git")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    made.write("a.txt", "one\ntwo\nthree\n")
    made.write("folder/b.txt", "b\n")
    made.write("run.sh", "#!/bin/sh\n", mode=0o755)
    made.commit("first")
    return made


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path / "data" / "snapshots")


@pytest.fixture
def take(project: Project, snapshots: Snapshots) -> Callable[[], Snapshot]:
    return lambda: snapshots.take(project.repository)
