"""A child that an agent started in a session of its own ends with its launch, whatever ended that."""

from collections.abc import Callable

import pytest

from tests.end_to_end.victims import agent_of, gone, keeper_of, kill, none_left, until_said
from tests.harness import LiveServer, eventually


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


def test_ten_agents_that_are_stopped_together_leave_nothing(server: LiveServer) -> None:
    sessions = [server.create() for _ in range(10)]
    for session in sessions:
        server.send(session, "spawn 300\nhang")
    children = [int(until_said(server, session, 1, r"spawned (\d+)$").group(1)) for session in sessions]
    for session in sessions:
        stop(server, session)
    eventually(lambda: all(gone(child) for child in children), "all children end")
    none_left(server)
