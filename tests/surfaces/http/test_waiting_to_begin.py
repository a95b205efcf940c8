"""A message without a free slot waits in the state `accepted`. Waiting messages start in order of arrival. Meanwhile
they can be aborted, edited or stopped, and other messages can queue behind them. They survive restarts."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.surfaces.http.messages import Accepted
from perdure.surfaces.http.sessions import Explanation, Session, SessionList
from tests.harness import NO_LIMITS, LiveServer, eventually, no_holes
from tests.surfaces.http.diane_client import Diane
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem

Make = Callable[..., LocalServer]
SENTENCE = "Waiting for a free slot: the server runs 1 turn at a time (slots = 1)."


@pytest.fixture
def full(make_server: Make) -> LocalServer:
    """A server whose only slot is taken."""
    server = make_server(slots=1)
    server.send(server.create(title="holder"), "hang")
    return server


def holder(server: LiveServer) -> str:
    """The session whose turn is running."""
    [found] = server.get("/api/sessions?state=processing")["sessions"]
    return str(found["id"])


def abort(server: LiveServer, session: str) -> Any:
    return server.post(f"/api/sessions/{session}/abort", expect=202)


def waiting(server: LiveServer, text: str = "say waited", **fields: Any) -> str:
    """A new session with a waiting message."""
    session = server.create()
    assert server.send(session, text, **fields)["state"] == "accepted"
    return session


def types(server: LiveServer, session: str, turn: int) -> list[str]:
    return [event["type"] for event in server.log(session) if event["turn"] == turn]


# Waiting and starting -------------------------------------------------------------------------------------------------


def test_a_message_without_a_free_slot_is_accepted_and_shows_what_it_waits_for(full: LocalServer) -> None:
    session = full.create()
    answer = full.http.post(f"/api/sessions/{session}/messages", json={"text": "say waited", "message_id": "m"})
    assert answer.status_code == 202
    accepted = msgspec.convert(answer.json(), Accepted)
    assert (accepted.state, accepted.turn, accepted.run_id) == ("accepted", 1, f"{session}.1")
    assert accepted.waits_for is not None
    assert (accepted.waits_for.code, accepted.waits_for.message) == ("slots_full", SENTENCE)
    shown = msgspec.convert(full.session(session), Session)
    assert (shown.state, shown.status, shown.waits_for) == ("accepted", "running", accepted.waits_for)
    assert (shown.turns[0].context, shown.turns[0].stop_reason) == (None, None)
    [said, waits] = [event for event in full.log(session) if event["type"] in ("user_message", "waiting_to_begin")]
    assert (said["turn"], said["text"], said["fresh"], said["seq"]) == (1, "say waited", False, accepted.seq)
    assert (waits["turn"], waits["code"], waits["message"]) == (1, "slots_full", SENTENCE)
    again = full.http.post(f"/api/sessions/{session}/messages", json={"text": "say waited", "message_id": "m"})
    assert again.json() == answer.json(), "the same message again gets the first answer"


def test_a_waiting_message_starts_when_a_slot_becomes_free(full: LocalServer) -> None:
    session = waiting(full)
    abort(full, holder(full))
    done = full.wait(session, lambda found: found["state"] == "idle")
    assert (done["waits_for"], done["turn_count"], done["turns"][0]["context"]) == (None, 1, "fresh")
    assert full.text(session, 1) == "waited"
    seen = types(full, session, 1)
    assert seen[:3] == ["user_message", "waiting_to_begin", "turn_start"]
    assert seen[-2:] == ["turn_end", "waiting_for_input"]
    no_holes(full.log(session))


def test_waiting_messages_start_in_order_of_arrival_and_exactly_once(full: LocalServer) -> None:
    sessions = [waiting(full, f"say number {number}") for number in range(5)]
    abort(full, holder(full))
    for session in sessions:
        full.wait_idle(session)
    begun = [next(event for event in full.log(one) if event["type"] == "turn_start") for one in sessions]
    ended = [next(event for event in full.log(one) if event["type"] == "turn_end") for one in sessions]
    for end, start in zip(ended, begun[1:], strict=False):
        assert end["at"] <= start["at"], "one at a time, first come, first served"
    assert [types(full, one, 1).count("turn_start") for one in sessions] == [1] * 5


def test_a_later_message_does_not_overtake_a_waiting_one(full: LocalServer) -> None:
    first = waiting(full, "hang")
    abort(full, holder(full))
    second = waiting(full, "say second")
    full.wait(first, lambda found: found["state"] == "processing")
    assert full.session(second)["state"] == "accepted"
    abort(full, first)
    assert full.wait_idle(second)["turns"][0]["stop_reason"] == "end_turn"


def test_the_first_message_of_a_new_session_can_wait(full: LocalServer) -> None:
    by_session = full.post("/api/sessions", {"message": "say one"}, expect=201)
    assert (by_session["state"], by_session["waits_for"]["code"]) == ("accepted", "slots_full")
    body = {"text": "say two", "message_id": "once"}
    by_message = full.post("/api/messages", body, expect=202)
    assert (by_message["state"], by_message["turn"]) == ("accepted", 1)
    assert full.post("/api/messages", body, expect=202) == by_message
    abort(full, holder(full))
    for session, text in ((by_session["id"], "one"), (by_message["session_id"], "two")):
        full.wait_idle(session)
        assert full.text(session, 1) == text


def test_a_retry_may_wait_or_be_refused(full: LocalServer) -> None:
    session = full.create()
    abort(full, holder(full))
    full.turn(session, "say first")
    full.send(full.create(), "hang")
    path = f"/api/sessions/{session}/retry"
    assert is_problem(full.http.post(path, json={"turn": 1, "when_full": "refuse"}), 409, "slots_full")
    assert full.session(session)["turn_count"] == 1
    accepted = full.post(path, {"turn": 1}, expect=202)
    assert (accepted["state"], accepted["turn"]) == ("accepted", 2)
    abort(full, holder(full))
    done = full.wait_idle(session)
    assert ([turn["turn"] for turn in done["turns"]], done["turns"][0]["context"]) == ([2], "fresh")


def test_a_waiting_session_of_a_full_project_does_not_hold_up_other_projects(make_server: Make, tmp_path: Path) -> None:
    folders = {name: {"path": str(tmp_path / name)} for name in ("site", "shop")}
    for name in folders:
        (tmp_path / name).mkdir()
    server = make_server(slots=2, project_slots=1, projects=folders)
    server.send(server.create(project="site"), "hang")
    waits = server.create(project="site")
    accepted = server.send(waits, "say waited")
    assert accepted["waits_for"]["message"] == (
        "Waiting for a free slot: the project site runs 1 turn at a time (project_slots = 1)."
    )
    assert server.turn(server.create(project="shop"), "say elsewhere")["stop_reason"] == "end_turn"
    assert server.turn(server.create(), "say without a project")["stop_reason"] == "end_turn"
    assert server.session(waits)["state"] == "accepted"


def test_concurrent_messages_fill_the_slots_and_each_runs_once(make_server: Make) -> None:
    server = make_server(slots=2)
    sessions = [server.create() for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda one: server.send(one, "say hello"), sessions))
    assert sum(answer["state"] == "processing" for answer in answers) >= 2
    for session in sessions:
        assert server.wait_idle(session)["turns"][0]["stop_reason"] == "end_turn"
        assert types(server, session, 1).count("turn_start") == 1


def test_a_waiting_session_replaces_no_other_until_it_starts(make_server: Make, tmp_path: Path) -> None:
    site = {"path": str(tmp_path), "limits": {"on_full": "replace"}}
    server = make_server(slots=1, project_slots=1, projects={"site": site})
    idle = server.create(project="site")
    server.send(server.create(), "hang")
    waits = server.create(project="site", message="say new")
    assert [server.session(one)["state"] for one in (idle, waits)] == ["idle", "accepted"]
    abort(server, holder(server))
    server.wait_idle(waits)
    assert server.session(idle)["status"] == "stopped"


def test_if_idle_sessions_count_a_message_waits_until_one_ends(make_server: Make) -> None:
    server = make_server(slots=1, limits={"count_idle": True})
    idle = server.create()
    made = server.post("/api/sessions", {"message": "say new"}, expect=201)
    assert (made["state"], made["waits_for"]["message"]) == (
        "accepted",
        "Waiting for a free slot: the server has 1 session, idle ones included (slots = 1).",
    )
    assert server.turn(idle, "say old")["stop_reason"] == "end_turn", "it has its slot until it ends"
    assert server.session(made["id"])["state"] == "accepted"
    server.post(f"/api/sessions/{idle}/stop", expect=200)
    server.wait_idle(made["id"])
    assert server.text(made["id"], 1) == "new"


def test_a_session_with_a_waiting_message_can_be_erased(full: LocalServer) -> None:
    session = waiting(full)
    later = waiting(full, "say later")
    assert full.http.delete(f"/api/sessions/{session}?purge=true").status_code == 200
    assert full.http.get(f"/api/sessions/{session}").status_code == 404
    abort(full, holder(full))
    full.wait_idle(later)
    assert full.text(later, 1) == "later"


# Actions on a waiting message -----------------------------------------------------------------------------------------


def test_an_abort_cancels_a_waiting_message_and_its_turn_never_starts(full: LocalServer) -> None:
    session = waiting(full)
    told = abort(full, session)
    assert (told["turn"], told["state"]) == (1, "idle")
    shown = full.session(session)
    assert (shown["state"], shown["status"], shown["waits_for"]) == ("idle", "running", None)
    [turn] = shown["turns"]
    assert (turn["stop_reason"], turn["context"], turn["duration_ms"]) == ("cancelled", None, 0)
    assert types(full, session, 1) == ["user_message", "waiting_to_begin", "turn_end", "waiting_for_input"]
    abort(full, holder(full))
    assert full.turn(session, "recall")["stop_reason"] == "end_turn"
    assert "turn_start" not in types(full, session, 1)


def test_the_agent_gets_the_edited_text_of_a_waiting_message(full: LocalServer) -> None:
    session = waiting(full, "say before", message_id="m")
    path = f"/api/sessions/{session}/messages/m"
    changed = full.http.patch(path, json={"text": "say after"})
    assert (changed.status_code, changed.json()["state"], changed.json()["revision"]) == (200, "accepted", 1)
    stale = full.http.patch(path, json={"text": "say late", "revision": 0})
    assert is_problem(stale, 409, "conflict")
    abort(full, holder(full))
    full.wait_idle(session)
    assert full.text(session, 1) == "after"
    assert full.recalled(session) == ["say after"]


def test_a_stop_ends_a_session_with_a_waiting_message(full: LocalServer) -> None:
    session = waiting(full)
    ended = full.post(f"/api/sessions/{session}/stop", expect=200)
    assert (ended["state"], ended["status"], ended["waits_for"]) == ("ended", "stopped", None)
    assert ended["turns"][0]["stop_reason"] == "cancelled"
    abort(full, holder(full))
    other = full.create()
    assert full.turn(other, "say free")["stop_reason"] == "end_turn"
    assert "turn_start" not in types(full, session, 1)


def test_a_second_message_is_refused_or_queued_behind_the_waiting_one(full: LocalServer) -> None:
    session = waiting(full, "say first")
    refused = full.http.post(f"/api/sessions/{session}/messages", json={"text": "say second"})
    assert is_problem(refused, 409, "turn_active")
    assert (refused.json()["state"], refused.json()["turn"]) == ("accepted", 1)
    queued = full.send(session, "say second", when_busy="queue")
    assert (queued["turn"], queued["run_id"], queued["waits_for"]) == (None, None, None)
    assert full.session(session)["queue_length"] == 1
    abort(full, holder(full))
    full.wait(session, lambda found: found["turn_count"] == 2 and found["state"] == "idle")
    assert [full.text(session, turn) for turn in (1, 2)] == ["first", "second"]


def test_an_interrupting_message_replaces_the_waiting_one(full: LocalServer) -> None:
    session = waiting(full, "say first")
    answer = full.send(session, "say instead", when_busy="interrupt")
    assert answer["state"] == "accepted"
    shown = full.session(session)
    assert [turn["stop_reason"] for turn in shown["turns"]] == ["cancelled", None]
    assert shown["queue_length"] == 0
    abort(full, holder(full))
    full.wait_idle(session)
    assert full.text(session, 2) == "instead"


def test_a_rewind_a_fork_of_its_turn_and_a_plan_are_refused_while_a_message_waits(full: LocalServer) -> None:
    session = waiting(full)
    for path, body in (("rewind", {"turn": 1}), ("retry", {"turn": 1}), ("fork", {"turn": 1}), ("plan", {})):
        assert is_problem(full.http.post(f"/api/sessions/{session}/{path}", json=body), 409, "turn_active"), path
    assert full.post(f"/api/sessions/{session}/fork", {}, expect=201)["turn_count"] == 0


# What users see -------------------------------------------------------------------------------------------------------


def test_explain_names_the_sessions_that_hold_the_slots(full: LocalServer) -> None:
    session = waiting(full)
    takes = holder(full)
    explained = msgspec.convert(full.get(f"/api/sessions/{session}/explain"), Explanation)
    assert (explained.state, explained.waits_for and explained.waits_for.code) == ("accepted", "slots_full")
    assert f'"holder" ({takes})' in explained.why
    assert "slots = 1" in explained.why


def test_lists_find_sessions_with_waiting_messages_and_their_event_counts(full: LocalServer) -> None:
    sessions = {waiting(full, f"say {number}") for number in range(3)}
    listed = msgspec.convert(full.get("/api/sessions?state=accepted"), SessionList).sessions
    assert {one.id for one in listed} == sessions
    assert all(one.waits_for is not None and one.waits_for.message == SENTENCE for one in listed)
    for one in full.get("/api/sessions")["sessions"]:
        assert one["event_count"] == len(full.log(one["id"])) == full.session(one["id"])["event_count"]
    assert full.get("/api/server")["sessions"]["accepted"] == 3
    abort(full, holder(full))
    for session in sessions:
        full.wait_idle(session)
    assert full.get("/api/sessions?state=accepted")["sessions"] == []
    for one in full.get("/api/sessions")["sessions"]:
        assert one["event_count"] == len(full.log(one["id"]))


def test_a_viewer_sees_the_wait_and_its_end(full: LocalServer) -> None:
    session = full.create()
    with full.watch(session) as stream, full.stream("/api/events?all=true") as all_sessions:
        full.send(session, "say waited")
        assert stream.until("waiting_to_begin")[-1][2]["code"] == "slots_full"
        assert all_sessions.until("waiting_to_begin")[-1][2]["session_id"] == session
        with full.watch(session) as late:
            snapshot = next(iter(late.frames()))[2]
        assert (snapshot["session"]["state"], snapshot["turn"]) == ("accepted", 1)
        assert snapshot["session"]["waits_for"] == {"code": "slots_full", "message": SENTENCE}
        assert snapshot["message"]["text"] == "say waited"
        abort(full, holder(full))
        assert next(kind for _, kind, _ in stream.until("waiting_for_input")) == "turn_start"
        all_sessions.until("turn_start")


def test_when_full_accepts_only_wait_and_refuse(full: LocalServer) -> None:
    session = full.create()
    for path, body in (
        (f"/api/sessions/{session}/messages", {"text": "say x"}),
        (f"/api/sessions/{session}/retry", {"turn": 1}),
        ("/api/messages", {"text": "say x"}),
        ("/api/sessions", {"message": "say x"}),
        ("/api/run", {"text": "say x"}),
    ):
        answer = full.http.post(path, json={**body, "when_full": "perhaps"})
        assert is_problem(answer, 400, "invalid")
        assert "when_full" in answer.json()["detail"]


# Compatible surfaces: Diane, TeamHQ and others ------------------------------------------------------------------------


def test_dianes_prompts_never_wait_and_a_waiting_session_is_active(full: LocalServer) -> None:
    diane = Diane(full)
    session = full.create()
    path = f"/agents/rehearsal/sessions/{session}"
    assert is_problem(full.http.post(f"{path}/prompt", json={"prompt": "say x"}), 409, "slots_full")
    full.send(session, "say waited")
    shown = full.get(path)
    assert (shown["status"], shown["turn_count"]) == ("active", 0)
    listed = {one["session_id"]: one for one in full.get("/sessions?status=active")}
    assert listed[session]["turn_count"] == 0
    assert is_problem(full.http.post(f"{path}/prompt", json={"prompt": "say x"}), 409, "turn_active")
    assert full.post(f"{path}/cancel")["status"] == "cancelled"
    assert diane.server.session(session)["state"] == "idle"


def test_teamhqs_messages_never_wait_and_a_waiting_session_is_processing(make_server: Make, tmp_path: Path) -> None:
    server = make_server(slots=0, project_slots=1, projects={"site": {"path": str(tmp_path)}})
    holds, waits = server.create(project="site"), server.create(project="site")
    server.send(holds, "hang")
    path = "/api/projects/site/sessions"
    assert server.http.post(f"{path}/{waits}/message", json={"message": "say x"}).status_code == 409
    assert server.http.post(path, json={"message": "say x"}).status_code == 409
    server.send(waits, "say waited")
    shown = server.get(f"{path}/{waits}")
    assert (shown["state"], shown["status"], shown["currentTurnPid"]) == ("processing", "running", None)
    processing = server.get(f"{path}?state=processing")["sessions"]
    assert {one["id"] for one in processing} == {holds, waits}
    assert server.http.get(f"{path}?state=accepted").status_code == 400
    refused = server.http.post(f"{path}/{waits}/message", json={"message": "say more"})
    assert (refused.status_code, refused.json()["error"]) == (409, "Session is not idle")
    with server.stream(f"{path}/{waits}/events", "0") as stream:
        told = [next(frames) for frames in [stream.frames()] for _ in range(2)]
    assert [frame[2]["type"] for frame in told] == ["turn_start", "system"]
    assert told[1][2]["data"]["message"].startswith("Waiting for a free slot")


def test_open_design_does_not_show_a_waiting_run_as_resumed(full: LocalServer) -> None:
    session = waiting(full)
    run = full.get(f"/api/runs/{session}.1")
    assert (run["status"], run["sessionResumed"], run["context"]) == ("running", False, None)


# Restarts -------------------------------------------------------------------------------------------------------------


def test_waiting_messages_start_exactly_once_after_a_server_restart(make_server: Make) -> None:
    server = make_server(slots=1)
    holds = server.create(title="holder")
    server.send(holds, "hang")
    sessions = [waiting(server, f"say number {number}") for number in range(3)]
    server.stop()
    server.start()
    assert {one["id"] for one in server.get("/api/sessions?state=accepted")["sessions"]} == set(sessions)
    assert server.session(holds)["state"] == "processing", "its turn goes on"
    abort(server, holds)
    for number, session in enumerate(sessions):
        server.wait_idle(session)
        assert server.text(session, 1) == f"number {number}"
        assert types(server, session, 1).count("turn_start") == 1


@pytest.mark.long
def test_waiting_messages_start_exactly_once_after_the_server_was_killed(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "data", NO_LIMITS.replace("\nslots = 0", "\nslots = 1")).start()
    try:
        holds = server.create(title="holder")
        server.send(holds, "hang")
        sessions = [waiting(server, f"say number {number}") for number in range(3)]
        server.kill()
        server.start()
        eventually(lambda: server.session(holds)["state"] == "processing", "its turn goes on")
        abort(server, holds)
        for number, session in enumerate(sessions):
            server.wait_idle(session)
            assert server.text(session, 1) == f"number {number}"
            assert types(server, session, 1).count("turn_start") == 1
            no_holes(server.log(session))
    finally:
        server.finish()
