"""Processes that a stopped turn left running: the time range to look for, and the processes found in a fake /proc."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perdure.core import events as ev
from perdure.core.clock import stamp
from perdure.core.state import Attached, Session, Turn
from perdure.runtime.keeping import processes
from perdure.runtime.running import leftovers
from perdure.runtime.running.agent_link import AgentLink
from perdure.runtime.running.leftovers import EARLIER_S, THINKING_S, Leftovers

LAUNCH = "1a2b-3c"
BOOTED = 1_000_000.0
KERNEL_THREAD = 0x00200000
Put = Callable[..., None]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """`put(pid, parent, began)`: add a process of the launch that started `began` seconds after boot."""
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    monkeypatch.setattr(processes, "_booted_at", lambda: BOOTED)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "environ").touch()

    def made(pid: int, parent: int, began: float, *, session: int = 1, state: str = "S", flags: int = 0) -> None:
        folder = tmp_path / str(pid)
        folder.mkdir()
        ticks = round(began * os.sysconf("SC_CLK_TCK"))
        fields = [state, parent, 1, session, 0, 0, flags, *[0] * 12, ticks, 0, 0]
        (folder / "stat").write_text(f"{pid} (a (strange) name) {' '.join(map(str, fields))}")
        (folder / "environ").write_bytes(b"A=1\0PERDURE_LAUNCH=" + LAUNCH.encode() + b"\0")

    return made


def found(known: list[int] | None = None) -> list[int]:
    return processes.started_between(LAUNCH, BOOTED + 100, BOOTED + 200, known or [])


def test_processes_started_in_the_range_and_their_children_are_found_parents_first(put: Put) -> None:
    put(10, 1, 50)  # the agent
    put(11, 10, 60)  # its helper
    put(30, 10, 150)  # the command, with a larger pid than its child
    put(20, 30, 250)
    put(21, 20, 260)
    put(40, 10, 201)  # of the next turn
    put(50, 10, 120, state="Z")
    assert found() == [30, 20, 21]


def test_processes_that_a_command_started_while_it_was_ended_are_found_by_their_session(put: Put) -> None:
    put(10, 1, 50)
    put(33, 1, 203, session=30)
    put(34, 30, 204)
    assert found() == []
    assert found([30]) == [33, 34]


def test_nothing_is_found_if_the_clock_was_set_forward(put: Put) -> None:
    put(10, 1, 110)
    put(30, 10, 150)
    assert found() == []


def test_kernel_threads_belong_to_no_launch(put: Put) -> None:
    put(2, 0, 1, flags=KERNEL_THREAD)
    put(10, 1, 50)
    assert processes.marked_all() == {LAUNCH: [10]}


# The time range -------------------------------------------------------------------------------------------------------


def at_work(**commands: float) -> Session:
    """A session whose turn began at 1000, whose agent was ready at 1005, and whose commands began at these times."""
    state = Session(id="s", project=None, agent="a", workdir="/", created_at=stamp(1), last_active_at=stamp(1))
    state.turn = Turn(turn=3, run_id="s.3", message_id="m", agent="a", started_at=stamp(1000))
    state.attached = Attached(
        launch_id=LAUNCH, agent="a", driver="acp", workdir_id="", fingerprint="", since="", opened_at=stamp(1005)
    )
    for tool_id, at in commands.items():
        state.turn.begin_tool(tool_id, stamp(at))
    return state


async def looked_for(
    monkeypatch: pytest.MonkeyPatch, state: Session, *, ends: int = 3, shared: object = None
) -> list[tuple[str, float, float]]:
    """The calls of `end_started` when turn 3 is stopped and turn `ends` ends at 1100."""
    asked: list[tuple[str, float, float]] = []

    async def end_started(*given: Any) -> None:
        asked.append(given)

    monkeypatch.setattr(leftovers, "end_started", end_started)
    link = cast(AgentLink, SimpleNamespace(launch_id=LAUNCH, shared=shared))
    followed = Leftovers()
    followed.follow(ev.AbortRequested(turn=3, reason="person"), state, link)
    followed.follow(ev.TurnEnd(turn=ends, stop_reason="cancelled", at=stamp(1100)), state, link)
    await asyncio.sleep(0)
    return asked


async def test_the_range_begins_shortly_before_the_first_open_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await looked_for(monkeypatch, at_work(late=1060, first=1050)) == [(LAUNCH, 1050 - EARLIER_S, 1100)]
    assert await looked_for(monkeypatch, at_work(soon=1005.5)) == [(LAUNCH, 1005 + THINKING_S, 1100)]


async def test_a_command_that_has_ended_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    state = at_work(done=1050)
    assert state.turn is not None
    state.turn.end_tool("done")
    assert await looked_for(monkeypatch, state) == []


async def test_other_turns_and_shared_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await looked_for(monkeypatch, at_work(first=1050), ends=4) == []
    assert await looked_for(monkeypatch, at_work(first=1050), shared=object()) == []
