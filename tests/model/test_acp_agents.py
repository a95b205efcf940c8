"""Real ACP agents against the scripted model: one that speaks Anthropic's API, one that speaks OpenAI's."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import RealAgent
from tests.model import claude_process
from tests.model.acp_process import AcpProcess
from tests.model.server import ModelServer

pytestmark = pytest.mark.timeout(240)

AGENTS = {"claude-acp": "anthropic", "hermes": "openai-chat"}


def environment(name: str, model: ModelServer, home: Path) -> dict[str, str]:
    if name == "claude-acp":
        return claude_process.environment(model, home)
    folder = home / "hermes"
    folder.mkdir()
    config = f"model:\n  default: scripted\n  provider: custom\n  base_url: {model.url}/v1\n"
    (folder / "config.yaml").write_text(config)
    own = {"HERMES_HOME": str(folder), "OPENAI_API_KEY": "dummy", "OPENAI_BASE_URL": f"{model.url}/v1"}
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **own}


@pytest.fixture(params=AGENTS)
def agent(
    request: pytest.FixtureRequest, model: ModelServer, real_agent: Callable[[str], RealAgent], tmp_path: Path
) -> Iterator[AcpProcess]:
    found = real_agent(request.param)
    workdir = tmp_path / "work"
    workdir.mkdir()
    process = AcpProcess(found, environment(request.param, model, tmp_path), workdir)
    try:
        process.open()
        yield process
    finally:
        process.close()


def test_a_real_agent_remembers_and_runs_what_the_model_says(
    agent: AcpProcess, model: ModelServer, request: pytest.FixtureRequest
) -> None:
    assert agent.say("say one") == "one"
    said = agent.say("bash echo made-it\nresult\nsay done")
    assert "made-it" in said and said.endswith("\ndone")
    recalled = [json.loads(line[2:]) for line in agent.say("recall").split("\n") if line.startswith("- ")]
    assert recalled == ["say one", "bash echo made-it\nresult\nsay done", "recall"]
    spoken = {asked.dialect.name for asked in model.log.asked if asked.dialect}
    assert spoken == {AGENTS[request.node.callspec.params["agent"]]}
