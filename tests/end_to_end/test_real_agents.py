"""Real agents behind the keeper: the handshake works and continues in a second server, and nothing is left afterwards.

One is a Node program. The other uses the protocol's Python SDK, which refuses a file as stdout.
"""

import asyncio
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.core.observations import SessionOpened
from perdure.drivers import DRIVERS
from perdure.drivers.base import StartSession
from perdure.runtime.keeping import processes
from perdure.runtime.keeping.launch import Launch, LaunchSpec
from perdure.runtime.running.agent_link import AgentLink
from tests.conftest import RealAgent
from tests.harness import LiveServer

HANDSHAKE_TIMEOUT_S = 90
AGENTS = ["claude-acp", "hermes"]
OFFLINE = {
    "claude-acp": {
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    },
    "hermes": {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
}


HERMES_CONFIG = "model:\n  default: none\n  provider: custom\n  base_url: http://127.0.0.1:9/v1\n"


def environment(name: str, agent: RealAgent, home: Path) -> dict[str, str]:
    """Enough settings to open a session; its model can't be reached."""
    own: dict[str, str] = {}
    if name == "hermes":
        own["HERMES_HOME"] = str(home / "hermes")
        (home / "hermes").mkdir(exist_ok=True)
        (home / "hermes" / "config.yaml").write_text(HERMES_CONFIG)
    return {"PATH": os.environ["PATH"], "HOME": str(home), **OFFLINE[name], **own, **agent.env}


class Reader:
    """What a runner does, without a log: read, answer, and store its progress."""

    def __init__(self, link: AgentLink) -> None:
        self.link = link
        self.seen: list[Any] = []
        self.progress = link.note_progress([])
        self._wake = asyncio.Event()

    async def until(self, found: Callable[[list[Any]], bool]) -> None:
        launch = self.link.launch
        assert launch is not None
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            await launch.connect(self._wake.set, self._wake.set, HANDSHAKE_TIMEOUT_S)
            while not found(self.seen):
                self._wake.clear()
                there, observations, lines = self.link.receive()
                self.seen += observations
                if lines:
                    self.progress = self.link.note_progress(lines)
                    launch.write(lines)
                if not there and not found(self.seen):
                    assert launch.exit() is None, launch.stderr_tail()
                    await self._wake.wait()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", AGENTS)
async def test_a_real_agent_opens_its_session_across_a_change_of_servers(
    name: str, real_agent: Callable[[str], RealAgent], tmp_path: Path
) -> None:
    agent = real_agent(name)
    work = tmp_path / "work"
    work.mkdir()
    link = begin(name, agent, tmp_path, work)
    launch = link.launch
    assert launch is not None
    try:
        first = Reader(link)
        await first.until(lambda _: first.progress.input_total >= 2)  # initialize was answered, session/new is sent
        launch.close()
        found = Launch.find(tmp_path / "launches", launch.launch_id)
        assert found is not None
        second = Reader(AgentLink.restore(first.progress, found))
        await second.until(lambda seen: any(isinstance(fact, SessionOpened) for fact in seen))
        opened = next(fact for fact in second.seen if isinstance(fact, SessionOpened))
        assert opened.native_session_id
        assert not opened.resumed
        found.end(5, 2)
        assert await found.wait_gone(20)
        exit_status = found.exit()
        assert exit_status is not None and exit_status.how == "ended"
        found.close()
    finally:
        await processes.end_marked([launch.launch_id], 0.2)
    assert processes.marked(launch.launch_id) == []


def begin(name: str, agent: RealAgent, home: Path, work: Path) -> AgentLink:
    driver = DRIVERS["acp"]
    launch_id = f"real-{name}-{uuid.uuid4().hex[:8]}"
    order = StartSession(workdir=str(work))
    conversation = driver.begin(launch_id)
    link = AgentLink(
        launch_id=launch_id, session_id="s", agent=name, driver=driver, conversation=conversation, performed_seq=0
    )
    _, lines = link.perform([order])
    link.note_progress(lines)
    spec = LaunchSpec(launch_id, agent.argv, environment(name, agent, home), str(work))
    link.launch = Launch.create(home / "launches", spec)
    link.launch.write(lines)
    return link


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", AGENTS)
def test_a_real_agent_without_a_model_fails_the_turn_and_not_the_session(
    name: str, real_agent: Callable[[str], RealAgent], make_server: Callable[..., LiveServer], tmp_path: Path
) -> None:
    agent = real_agent(name)
    env = ", ".join(f'{key} = "{value}"' for key, value in environment(name, agent, tmp_path).items())
    server = make_server(
        f'[server]\nslots = 0\nabort_grace_s = 5\n[agents.real]\ndriver = "acp"\n'
        f"command = {agent.argv}\nenv = {{ {env} }}\n".replace("'", '"')
    )
    session = server.create(agent="real")
    server.send(session, "hello")
    server.wait(session, lambda s: s["attached"] == "live" and s["native_session_id"], 120)
    if server.session(session)["state"] == "processing":
        server.http.post(f"/api/sessions/{session}/abort")
    ended = server.wait_idle(session, 60)
    assert ended["turns"][0]["stop_reason"] in ("cancelled", "failed", "end_turn")
    assert ended["status"] == "running"
