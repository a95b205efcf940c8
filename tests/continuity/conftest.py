"""The stage of each test: a real agent, its model and an empty server. Agents other than CI's are marked slow."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import RealAgent
from tests.continuity.agents import AGENTS, Agent
from tests.continuity.stage import Stage, stage
from tests.harness import SharedServers


@pytest.fixture(
    params=[pytest.param(name, marks=[] if one.in_ci else pytest.mark.slow) for name, one in AGENTS.items()]
)
def agent(request: pytest.FixtureRequest) -> Agent:
    return AGENTS[request.param]


@pytest.fixture(name="stage")
def set_up(
    agent: Agent, real_agent: Callable[[str], RealAgent], servers: SharedServers, tmp_path: Path
) -> Iterator[Stage]:
    with stage(agent, real_agent(agent.name), servers, tmp_path) as made:
        yield made
