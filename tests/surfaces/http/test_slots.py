"""Slots: how many agents may run, for the server and for a project, and what happens when none is free."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem

Make = Callable[..., LocalServer]


def test_three_turns_run_at_once_and_a_fourth_is_refused(make_server: Make) -> None:
    server = make_server(slots=3, project_slots=1)
    sessions = [server.create() for _ in range(4)]
    for session in sessions[:3]:
        server.send(session, "hang")
    refused = server.http.post(f"/api/sessions/{sessions[3]}/messages", json={"text": "say x"})
    assert is_problem(refused, 409, "slots_full")
    assert is_problem(server.http.post("/api/sessions", json={}), 409, "slots_full")
    assert is_problem(server.http.post("/api/messages", json={"text": "say x"}), 409, "slots_full")
    server.post(f"/api/sessions/{sessions[0]}/abort", expect=202)
    server.wait_idle(sessions[0])
    assert server.turn(sessions[3], "say x")["stop_reason"] == "end_turn"


def test_an_idle_agent_makes_room_and_its_session_stays_usable(make_server: Make) -> None:
    server = make_server(slots=1, project_slots=0)
    first, second = server.create(), server.create()
    server.turn(first, "say one")
    server.turn(second, "say two")
    server.wait(first, lambda found: found["attached"] == "suspended")
    assert server.recalled(first) == ["say one"]


def test_a_project_runs_one_turn_at_a_time(make_server: Make, tmp_path: Path) -> None:
    server = make_server(slots=3, project_slots=1, projects={"site": {"path": str(tmp_path)}})
    first = server.create(project="site")
    second = server.create(project="site")
    server.send(first, "hang")
    refused = server.http.post(f"/api/sessions/{second}/messages", json={"text": "say x"})
    assert is_problem(refused, 409, "slots_full")
    assert "project_slots" in refused.json()["detail"]
    assert server.turn(server.create(), "say elsewhere")["stop_reason"] == "end_turn"
    by_directory = server.create(workdir=str(tmp_path))
    assert server.turn(by_directory, "say own project")["stop_reason"] == "end_turn"


def test_idle_sessions_may_count(make_server: Make) -> None:
    server = make_server(slots=2, project_slots=0, limits={"count_idle": True})
    first = server.create()
    server.create()
    assert is_problem(server.http.post("/api/sessions", json={}), 409, "slots_full")
    server.post(f"/api/sessions/{first}/stop")
    server.create()


def test_a_new_session_may_replace_the_old_one(make_server: Make) -> None:
    server = make_server(slots=1, project_slots=0, limits={"on_full": "replace"})
    first = server.create()
    server.send(first, "say partial\npermit Deploy")
    server.prompt(first)
    second = server.create(message="say new")
    server.wait_idle(second)
    ended = server.session(first)
    assert (ended["state"], ended["status"], ended["pending_prompts"]) == ("ended", "stopped", 0)
    end = next(event for event in server.log(first) if event["type"] == "session_end")
    assert end["reason"] == "replaced"
    closed = next(event for event in server.log(first) if event["type"] == "prompt_resolved")
    assert closed["outcome"] == "discarded"
    assert server.text(second, 1) == "new"


def test_of_turns_that_are_asked_for_at_once_only_as_many_begin_as_there_are_slots(
    make_server: Make, tmp_path: Path
) -> None:
    server = make_server(slots=0, project_slots=1)
    body = {"workdir": str(tmp_path), "message": "hang"}
    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(lambda _: server.http.post("/api/sessions", json=body).status_code, range(4)))
    assert sorted(statuses) == [201, 409, 409, 409]


def test_a_suspended_session_that_counts_is_replaced_too(make_server: Make) -> None:
    server = make_server(slots=1, project_slots=0, limits={"on_full": "replace", "count_idle": True})
    first = server.create()
    second = server.create()
    assert (server.session(first)["state"], server.session(second)["state"]) == ("ended", "idle")
