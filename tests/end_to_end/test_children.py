"""A child process that an agent started in a separate process session ends with its launch, however the launch ends."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.runtime.keeping import cgroups
from tests.end_to_end.victims import agent_of, gone, groups_of, keeper_of, kill, none_left, until_said
from tests.harness import SOURCE, LiveServer, eventually


def stop(server: LiveServer, session: str) -> None:
    server.post(f"/api/sessions/{session}/stop", expect=200)


def abort_then_stop(server: LiveServer, session: str) -> None:
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait_idle(session)
    stop(server, session)


def restart_then_stop(server: LiveServer, session: str) -> None:
    server.kill()
    server.restart()
    stop(server, session)


def kill_the_keeper(server: LiveServer, session: str) -> None:
    kill(keeper_of(server, session))


def kill_the_agent(server: LiveServer, session: str) -> None:
    kill(agent_of(server, session))


def kill_all_and_restart(server: LiveServer, session: str) -> None:
    pids = [keeper_of(server, session), agent_of(server, session)]
    server.kill()
    kill(*pids)
    server.restart()


ENDS = [stop, abort_then_stop, restart_then_stop, kill_the_keeper, kill_the_agent, kill_all_and_restart]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_no_child_of_an_agent_outlives_it(server: LiveServer, end: Callable[[LiveServer, str], None]) -> None:
    session = server.create()
    server.send(session, "spawn 300\nhang")
    child = int(until_said(server, session, 1, r"spawned (\d+)$").group(1))
    assert not gone(child)
    end(server, session)
    server.wait_idle(session)
    eventually(lambda: gone(child), f"child {child} ends")
    none_left(server)


@pytest.mark.smoke
def test_no_child_outlives_an_agent_that_crashed(server: LiveServer) -> None:
    session = server.create()
    server.turn(session, "spawn 300\ncrash")
    child = int(until_said(server, session, 1, r"spawned (\d+)$").group(1))
    eventually(lambda: gone(child), f"child {child} ends")
    none_left(server)


def test_ten_agents_stopped_together_leave_no_process(server: LiveServer) -> None:
    sessions = [server.create() for _ in range(10)]
    for session in sessions:
        server.send(session, "spawn 300\nhang")
    children = [int(until_said(server, session, 1, r"spawned (\d+)$").group(1)) for session in sessions]
    for session in sessions:
        stop(server, session)
    eventually(lambda: all(gone(child) for child in children), "all children end")
    none_left(server)


# Control groups -------------------------------------------------------------------------------------------------------


def with_daemon(server: LiveServer, tmp_path: Path) -> tuple[str, int]:
    """A session whose agent has started a daemon: no parent, a separate process session, an empty environment."""
    if cgroups.find()[0] is None:
        pytest.skip(f"control groups can't be made here: {cgroups.find()[1]}")
    note = tmp_path / "daemon"
    rehearsal = f"exec {sys.executable} -m perdure.rehearsal --acp"
    daemon = f"(env -i setsid sleep 300 < /dev/null > /dev/null 2>&1 & echo $! > {note})"
    command = json.dumps(["sh", "-c", f"{daemon}; {rehearsal}"])
    env = f'{{ PYTHONPATH = "{SOURCE}" }}'
    server.add_agents(f'[agents.daemonic]\ndriver = "acp"\ncommand = {command}\nenv = {env}\n')
    session = server.create(agent="daemonic")
    server.send(session, "say half\nhang")
    until_said(server, session, 1, "^half$")
    pid = int(note.read_text())
    assert not gone(pid)
    return session, pid


DAEMON_ENDS = [stop, kill_the_keeper, kill_all_and_restart]


@pytest.mark.needs("linux")
@pytest.mark.parametrize("end", DAEMON_ENDS, ids=lambda end: end.__name__)
def test_no_daemon_outlives_its_launch_even_without_its_marker(
    server: LiveServer, tmp_path: Path, end: Callable[[LiveServer, str], None]
) -> None:
    session, daemon = with_daemon(server, tmp_path)
    assert len(groups_of(server)) == 1
    end(server, session)
    server.wait_idle(session)
    eventually(lambda: gone(daemon), f"daemon {daemon} ends")
    eventually(lambda: not groups_of(server), lambda: f"no group is left: {groups_of(server)}")


@pytest.mark.needs("linux")
def test_control_groups_left_by_a_crash_are_removed_at_the_next_start(server: LiveServer) -> None:
    base, reason = cgroups.find()
    if base is None:
        pytest.skip(f"control groups can't be made here: {reason}")
    install = (server.data / "install").read_text().split()[0]
    server.kill()
    left, others = base.folder / f"perdure-{install}-dead", base.folder / f"perdure-not{install}-dead"
    (left / "inner").mkdir(parents=True)
    others.mkdir()
    try:
        server.restart()
        assert (left.exists(), others.exists()) == (False, True)
    finally:
        cgroups.remove(others)
