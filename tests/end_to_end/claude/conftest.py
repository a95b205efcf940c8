"""The stage of each scenario: a column with a server of its own, ended with everything that it started."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import RealAgent
from tests.end_to_end.claude.columns import COLUMNS, Column, Stage
from tests.harness import LiveServer
from tests.model.server import running


@pytest.fixture(params=COLUMNS, ids=lambda column: column.name)
def column(request: pytest.FixtureRequest) -> Column:
    found: Column = request.param
    return found


@pytest.fixture
def stage(
    column: Column,
    tmp_path: Path,
    make_server: Callable[..., LiveServer],
    real_agent: Callable[[str], RealAgent],
) -> Iterator[Stage]:
    if not column.real:
        yield Stage(column, tmp_path, make_server, None, None)
        return
    agent = real_agent("claude")
    with running() as model:
        yield Stage(column, tmp_path, make_server, agent, model)
