"""Slots: how many agents may run, per server and per project, and what happens when none is free. For messages that
wait, see test_waiting_to_begin.py."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness import eventually
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem

Make = Callable[..., LocalServer]
REFUSE = {"when_full": "refuse"}


@pytest.mark.smoke
def test_three_turns_run_concurrently_and_a_fourth_is_refused_on_request(make_server: Make) -> None:
    server = make_server(slots=3, project_slots=1)
    sessions = [server.create() for _ in range(4)]
    for session in sessions[:3]:
        server.send(session, "hang")
    refused = server.http.post(f"/api/sessions/{sessions[3]}/messages", json={"text": "say x", **REFUSE})
    assert is_problem(refused, 409, "slots_full")
    told = refused.json()
    assert told["detail"].startswith("All slots of the server are taken (slots = 3): ")
    assert all(f'"hang" ({session})' in told["detail"] for session in sessions[:3])
    assert set(told["taken_by"]) == set(sessions[:3])
    assert is_problem(server.http.post("/api/messages", json={"text": "say x", **REFUSE}), 409, "slots_full")
    assert server.session(sessions[3])["turn_count"] == 0, "what is refused leaves nothing behind"
    server.post(f"/api/sessions/{sessions[0]}/abort", expect=202)
    server.wait_idle(sessions[0])
    assert server.turn(sessions[3], "say x")["stop_reason"] == "end_turn"


def test_a_session_without_a_message_needs_no_slot(make_server: Make) -> None:
    server = make_server(slots=1, project_slots=1)
    server.send(server.create(), "hang")
    waiting = server.create(agent="rehearsal-stream")
    # There is no slot for a prewarmed process either.
    assert server.session(waiting)["attached"] == "suspended"
    assert is_problem(server.http.post("/api/sessions", json={"message": "say x", **REFUSE}), 409, "slots_full")


def test_sessions_without_a_project_can_share_a_directory_without_sharing_slots(
    make_server: Make, tmp_path: Path
) -> None:
    server = make_server(slots=0, project_slots=1)
    for _ in range(2):
        server.send(server.create(workdir=str(tmp_path)), "hang")


def test_a_turn_that_waits_for_a_person_holds_no_slot_and_continues_immediately_when_answered(
    make_server: Make,
) -> None:
    server = make_server(slots=1, project_slots=0)
    asks, works, late = server.create(), server.create(), server.create()
    server.send(asks, "permit Deploy\nhang")
    prompt = server.prompt(asks)
    server.send(works, "hang")
    path = f"/api/sessions/{asks}/prompts/{prompt['prompt_id']}"
    server.post(path, {"option_id": "allow_once"}, expect=200)
    eventually(lambda: "allowed" in server.text(asks, 1), "it goes on")

    def refused() -> list[str]:
        answer = server.http.post(f"/api/sessions/{late}/messages", json={"text": "say late", **REFUSE})
        assert is_problem(answer, 409, "slots_full")
        return sorted(answer.json()["taken_by"])

    assert refused() == sorted([asks, works])
    for session, left in ((works, [asks]), (asks, [])):
        server.post(f"/api/sessions/{session}/abort", expect=202)
        server.wait_idle(session)
        if left:
            assert refused() == left
    assert server.turn(late, "say late")["stop_reason"] == "end_turn"


def test_a_queued_message_waits_while_more_turns_run_than_slots_exist(make_server: Make) -> None:
    server = make_server(slots=1, project_slots=0)
    asks, works = server.create(), server.create()
    server.send(asks, "permit Deploy\nhang")
    prompt = server.prompt(asks)
    server.send(works, "hang")
    server.send(works, "say queued", when_busy="queue")
    server.post(f"/api/sessions/{asks}/prompts/{prompt['prompt_id']}", {"option_id": "allow_once"}, expect=200)
    eventually(lambda: "allowed" in server.text(asks, 1), "it goes on")
    server.post(f"/api/sessions/{works}/abort", expect=202)
    waiting = server.wait(works, lambda found: found["state"] == "accepted")
    assert (waiting["waits_for"]["code"], waiting["queue_length"], waiting["turn_count"]) == ("slots_full", 0, 2)
    server.post(f"/api/sessions/{asks}/abort", expect=202)
    done = server.wait(works, lambda found: found["turn_count"] == 2 and found["state"] == "idle")
    assert (done["waits_for"], done["queue_length"]) == (None, 0)
    assert server.text(works, 2) == "queued"


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
    refused = server.http.post(f"/api/sessions/{second}/messages", json={"text": "say x", **REFUSE})
    assert is_problem(refused, 409, "slots_full")
    assert refused.json()["detail"] == (
        f'All slots of the project site are taken (project_slots = 1): "hang" ({first}). '
        "Wait for a turn to end, abort one, or raise project_slots in perdure.toml."
    )
    assert server.turn(server.create(), "say elsewhere")["stop_reason"] == "end_turn"
    by_directory = server.create(workdir=str(tmp_path))
    assert server.turn(by_directory, "say own project")["stop_reason"] == "end_turn"


def test_idle_sessions_can_count_against_the_slots(make_server: Make) -> None:
    server = make_server(slots=2, project_slots=0, limits={"count_idle": True})
    first = server.create()
    server.create()
    assert is_problem(server.http.post("/api/sessions", json={}), 409, "slots_full")
    server.post(f"/api/sessions/{first}/stop")
    server.create()


def test_a_new_session_can_replace_the_old_one(make_server: Make) -> None:
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


def test_with_only_replace_set_a_new_session_ends_the_previous_one(make_server: Make) -> None:
    """As SDC-5 and SDC-6 require: whether it runs, waits for a person or is idle, and without other settings."""
    server = make_server(slots=None, project_slots=1, limits={"on_full": "replace"})
    idle = server.create()
    server.turn(idle, "say one")
    works = server.create(message="hang")
    asks = server.create(message="permit Deploy")
    server.prompt(asks)
    unused = server.create()
    assert [server.session(one)["status"] for one in (idle, works, asks, unused)] == [*["stopped"] * 3, "running"]
    assert {
        event["reason"] for one in (idle, works, asks) for event in server.log(one) if event["type"] == "session_end"
    } == {"replaced"}
    # Further turns of the session itself replace nothing.
    server.turn(unused, "say two")
    assert server.turn(unused, "say three")["stop_reason"] == "end_turn"


def test_a_project_that_replaces_ends_only_its_own_sessions(make_server: Make, tmp_path: Path) -> None:
    site = {"path": str(tmp_path), "limits": {"on_full": "replace"}}
    server = make_server(slots=3, project_slots=1, projects={"site": site})
    outside, first = server.create(), server.create(project="site")
    server.create(project="site")
    assert [server.session(one)["status"] for one in (outside, first)] == ["running", "stopped"]


def test_a_project_that_replaces_is_not_blocked_by_the_session_that_it_replaces(
    make_server: Make, tmp_path: Path
) -> None:
    site = {"path": str(tmp_path), "limits": {"on_full": "replace"}}
    server = make_server(slots=2, project_slots=1, projects={"site": site})
    old = server.create(project="site", message="hang")
    server.send(server.create(), "hang")
    new = server.create(project="site", message="hang")
    assert [server.session(one)["status"] for one in (old, new)] == ["stopped", "running"]


def test_a_new_session_that_is_refused_replaces_nothing(make_server: Make, tmp_path: Path) -> None:
    site = {"path": str(tmp_path), "limits": {"on_full": "replace"}}
    server = make_server(slots=1, project_slots=1, projects={"site": site})
    idle = server.create(project="site")
    server.send(server.create(), "hang")
    refused = server.http.post("/api/sessions", json={"project": "site", "message": "say x", **REFUSE})
    assert is_problem(refused, 409, "slots_full")
    assert server.session(idle)["status"] == "running"


def test_only_one_of_several_concurrently_created_sessions_remains_with_replace(make_server: Make) -> None:
    server = make_server(slots=None, project_slots=0, limits={"on_full": "replace"})
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda _: server.create(message="hang"), range(6)))
    statuses = [server.session(one)["status"] for one in made]
    assert sorted(statuses) == ["running", *["stopped"] * 5]


def test_only_as_many_concurrent_turns_start_as_there_are_slots(make_server: Make, tmp_path: Path) -> None:
    server = make_server(slots=0, project_slots=1, projects={"site": {"path": str(tmp_path)}})
    body = {"project": "site", "message": "hang", **REFUSE}
    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(lambda _: server.http.post("/api/sessions", json=body).status_code, range(4)))
    assert sorted(statuses) == [201, 409, 409, 409]


def test_a_suspended_session_that_counts_is_replaced_too(make_server: Make) -> None:
    server = make_server(slots=1, project_slots=0, limits={"on_full": "replace"})
    first = server.create()
    second = server.create()
    assert (server.session(first)["state"], server.session(second)["state"]) == ("ended", "idle")
