"""Recovering a shared process when some of its sessions can't be recovered."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import StoreDamaged
from perdure.runtime.running.agent_link import AgentLink
from perdure.runtime.running.runner import Runner
from tests.end_to_end.victims import gone, until_said
from tests.harness import SOURCE, eventually, none_left
from tests.surfaces.http.local import LocalServer, settings

pytestmark = pytest.mark.needs("linux")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    agent = {
        "driver": "acp",
        "shared": True,
        "command": [sys.executable, "-m", "perdure.rehearsal", "--acp"],
        "env": {"PERDURE_REHEARSAL_DIR": str(tmp_path / "memory"), "PYTHONPATH": str(SOURCE)},
    }
    (tmp_path / "work").mkdir()
    made = LocalServer(tmp_path / "data", settings(agents={"together": agent})).start()
    yield made
    made.destroy()


@pytest.fixture
def both(server: LocalServer, tmp_path: Path) -> tuple[str, str]:
    """Two sessions with running turns in a shared process. They are not idle, as a stopping server ends idle agents."""
    first, second = [server.create(agent="together", workdir=str(tmp_path / "work")) for _ in range(2)]
    for session in (first, second):
        server.send(session, "say half\nhang")
        until_said(server, session, 1, "^half$")
    assert server.session(first)["pid"] == server.session(second)["pid"]
    return first, second


def restarted(server: LocalServer, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, damaged: Any) -> None:
    server.kill()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, damaged)
        server.restart()


def unrecovered(*sessions: str) -> Callable[..., Any]:
    """Runner.recover, failing for these sessions as if their events could not be read."""
    recover = Runner.recover

    async def damaged(runner: Runner, link: AgentLink) -> None:
        if link.session_id in sessions:
            raise StoreDamaged("an event can't be read")
        await recover(runner, link)

    return damaged


@pytest.mark.parametrize("number", [0, 1])
def test_an_unrecoverable_session_leaves_the_shared_process_to_the_other(
    server: LocalServer, both: tuple[str, str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    given_up, other = both[number], both[1 - number]
    pid = server.session(other)["pid"]
    restarted(server, monkeypatch, Runner, "recover", unrecovered(given_up))
    [shared] = server.ask(lambda: list(server.server.engine.launcher.sharing._open.values()))
    assert list(shared.members) == [other]
    assert shared.members[other].conversation.speaks
    assert server.wait_idle(given_up)["turns"][0]["stop_reason"] == "failed"
    server.post(f"/api/sessions/{other}/abort", expect=202)
    assert server.wait_idle(other)["turns"][0]["stop_reason"] == "cancelled"
    assert server.turn(other, "say two")["stop_reason"] == "end_turn"
    assert server.session(other)["pid"] == pid
    for session in both:
        assert server.http.delete(f"/api/sessions/{session}?purge=true").is_success
    none_left(server.data)
    eventually(lambda: not list((server.data / "launches").iterdir()), "its folder is removed")


def unrestored(*_: Any) -> AgentLink:
    raise StoreDamaged("the row of a launch can't be read")


@pytest.mark.parametrize("step", ["restore", "recover"])
def test_a_process_without_a_recoverable_session_is_ended_and_each_gets_another(
    server: LocalServer, both: tuple[str, str], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    pid = int(server.session(both[0])["pid"])
    if step == "restore":
        restarted(server, monkeypatch, AgentLink, "restore", unrestored)
    else:
        restarted(server, monkeypatch, Runner, "recover", unrecovered(*both))
    eventually(lambda: gone(pid), "the process that no session uses is ended")
    assert server.ask(lambda: list(server.server.engine.launcher.sharing._open)) == []
    for session in both:
        assert server.wait_idle(session)["turns"][0]["stop_reason"] == "failed"
        assert server.turn(session, "say two")["stop_reason"] == "end_turn"
