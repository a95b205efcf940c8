"""An agent's MCP server knows its session: the sessions it starts are children of that session."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import SOURCE, LiveServer, eventually


def opened(heard: Path) -> list[Any]:
    """What an agent received when its sessions were opened."""
    lines = heard.read_text().split("\n") if heard.exists() else []
    messages = [json.loads(line) for line in lines[:-1]]
    return [message["params"] for message in messages if message["method"] == "session/new"]


@pytest.mark.smoke
def test_an_mcp_server_of_an_agent_gets_the_id_of_its_session(
    make_server: Callable[..., LiveServer], tmp_path: Path
) -> None:
    heard = tmp_path / "heard"
    script = f"tee -a {heard} | exec {sys.executable} -m perdure.rehearsal --acp"
    server = make_server(
        f"""
        [agents.overheard]
        driver = "acp"
        command = ["/bin/sh", "-c", {json.dumps(script)}]
        env = {{ PYTHONPATH = "{SOURCE}", PERDURE_REHEARSAL_DIR = "{tmp_path}/rehearsal" }}
        [agents.overheard.options.mcp_servers.perdure]
        command = ["perdure", "mcp"]
        env = {{ KEY = "1" }}
        [agents.overheard.options.mcp_servers.other]
        command = ["other"]
        env = {{ PERDURE_SESSION = "as it says itself" }}
        """
    )
    session = server.create(agent="overheard")
    server.turn(session, "say one")
    (params,) = eventually(lambda: opened(heard), "a session is opened")
    told = {one["name"]: {pair["name"]: pair["value"] for pair in one["env"]} for one in params["mcpServers"]}
    assert told["perdure"] == {"PERDURE_SESSION": session, "KEY": "1"}
    assert told["other"] == {"PERDURE_SESSION": "as it says itself"}
