"""The stage of each scenario: a column and its server. No process outlives the test."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.claude.columns import COLUMNS, Column, Stage
from tests.harness import NO_LIMITS, LiveServer, SharedServers
from tests.model.server import running


@pytest.fixture(params=COLUMNS, ids=lambda column: column.name)
def column(request: pytest.FixtureRequest) -> Column:
    found: Column = request.param
    return found


@pytest.fixture
def stage(
    column: Column,
    tmp_path: Path,
    servers: SharedServers,
    make_server: Callable[..., LiveServer],
    request: pytest.FixtureRequest,
) -> Iterator[Stage]:
    agent = request.getfixturevalue("real_agent")("claude") if column.real else None
    with contextlib.ExitStack() as ended:
        model = ended.enter_context(running()) if agent else None

        def borrow() -> LiveServer:
            return ended.enter_context(servers.borrowed(LiveServer, NO_LIMITS))

        yield Stage(column, tmp_path, borrow, make_server, agent, model)
