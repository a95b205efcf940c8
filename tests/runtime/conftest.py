"""Fixtures for several runtime tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runtime.job_stage import Stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path / "data")
    made.folder.mkdir()
    await made.start()
    yield made
    await made.stop()
