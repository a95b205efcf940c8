"""Real agents, as `./run agents` installs them, start and answer; and a missing one is skipped with its reason."""

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import RealAgent, find_agent

HANDSHAKE_TIMEOUT_S = 60
INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}\n'


@pytest.mark.parametrize("name", ["claude-acp", "hermes"])
async def test_an_installed_agent_answers_the_handshake(
    name: str, real_agent: Callable[[str], RealAgent], tmp_path: Path
) -> None:
    agent = real_agent(name)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **agent.env}
    process = await asyncio.create_subprocess_exec(
        *agent.argv, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, cwd=tmp_path, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            # Stdin stays open until the answer is there: an agent may leave at its end without answering.
            process.stdin.write(INITIALIZE)
            answer = json.loads(await process.stdout.readline())
            process.stdin.close()
            await process.stdout.read()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert answer["id"] == 0
    assert answer["result"]["protocolVersion"] == 1


def test_an_agent_that_was_never_installed_has_a_reason(tmp_path: Path) -> None:
    assert find_agent("nobody", tmp_path) == "the agent nobody is not installed (./run agents)"


def test_an_agent_that_failed_to_install_passes_its_reason_on(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"reason": "no network"}')
    assert find_agent("broken", tmp_path) == "the agent broken could not be installed: no network"


def test_an_agent_whose_files_are_gone_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "gone.json").write_text(json.dumps({"argv": [str(tmp_path / "agent")], "env": {}}))
    assert find_agent("gone", tmp_path) == "the agent gone is no longer there (./run agents)"
    (tmp_path / "agent").touch()
    assert find_agent("gone", tmp_path) == RealAgent([str(tmp_path / "agent")], {})
