"""TeamHQ's sessions: every example, shape and message that a TeamHQ client relies on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.surfaces.http import teamhq_shapes as shapes
from tests.harness import LiveServer
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.teamhq_client import TeamHQ
from tests.surfaces.http.test_access import is_problem

FIELDS = {
    "id",
    "projectId",
    "status",
    "startedAt",
    "endedAt",
    "durationMs",
    "eventCount",
    "exitCode",
    "error",
    "pid",
    "conversationId",
    "cliSessionId",
    "currentTurnPid",
    "turnCount",
    "state",
    "turns",
}
Make = Callable[..., LocalServer]


@pytest.fixture
def team(server: LocalServer, tmp_path: Path) -> TeamHQ:
    return TeamHQ(server, tmp_path / "site", kickoff="say Kickoff of {project} in {path}: {message}")


@pytest.fixture
def plain(server: LocalServer, tmp_path: Path) -> TeamHQ:
    """A project without a kickoff."""
    return TeamHQ(server, tmp_path / "plain")


def first_message(server: LiveServer, session: str) -> str:
    return str(server.transcript(session)[0]["message"]["text"])


# Starting a session ---------------------------------------------------------------------------------------------------


def test_a_session_started_without_a_body_begins_with_the_kickoff(team: TeamHQ) -> None:
    answer = team.server.http.post(team.sessions)
    assert answer.status_code == 201
    made = answer.json()
    assert set(made) == FIELDS
    assert (made["projectId"], made["status"], made["state"]) == (team.project, "running", "processing")
    assert (made["turnCount"], made["endedAt"], made["durationMs"], made["exitCode"]) == (1, None, None, None)
    assert [turn["turnNumber"] for turn in made["turns"]] == [1]
    msgspec.convert(made, shapes.TeamSession)
    path = team.server.session(made["id"])["workdir"]
    assert first_message(team.server, made["id"]) == f"say Kickoff of site in {path}: "


def test_a_message_is_inserted_into_the_kickoff(team: TeamHQ) -> None:
    session = team.start("  look at {path}  ")["id"]
    assert first_message(team.server, session).endswith(": look at {path}")


def test_a_message_replaces_a_kickoff_without_a_placeholder(server: LocalServer, tmp_path: Path) -> None:
    team = TeamHQ(server, tmp_path / "fixed", kickoff="say always the same")
    assert first_message(server, team.start("say mine")["id"]) == "say mine"
    assert first_message(server, team.start()["id"]) == "say always the same"


def test_the_title_is_inserted_into_the_kickoff(server: LocalServer, tmp_path: Path) -> None:
    team = TeamHQ(server, tmp_path / "titled", kickoff="say {title} {team}")
    session = team.start(title="Login page")["id"]
    assert first_message(server, session) == "say Login page {team}"
    assert server.session(session)["title"] == "Login page"


def test_a_session_of_a_project_without_a_kickoff_begins_with_a_message(plain: TeamHQ) -> None:
    session = plain.start("say hello")["id"]
    plain.server.wait_idle(session)
    assert plain.server.text(session, 1) == "hello"


@pytest.mark.parametrize("body", [{}, {"message": ""}, {"message": "  \n"}, {"message": 5}, {"message": "x" * 100_001}])
def test_a_session_without_a_valid_first_message_is_refused(plain: TeamHQ, body: dict[str, Any]) -> None:
    assert is_problem(plain.server.http.post(plain.sessions, json=body), 400, "invalid")
    assert plain.all() == []


def test_a_project_with_a_running_turn_is_busy(make_server: Make, tmp_path: Path) -> None:
    server = make_server(slots=3, project_slots=1)
    team = TeamHQ(server, tmp_path / "busy")
    idle = team.started("say first")
    team.start("hang")
    answer = server.http.post(team.sessions, json={"message": "say x"})
    assert is_problem(answer, 409, "slots_full")
    assert answer.json()["error"] == "A session is already running for this project"
    assert team.refused(idle, "message", {"message": "say x"}) == (
        409,
        "A session is already running for this project",
    )


def test_a_full_server_says_so(make_server: Make, tmp_path: Path) -> None:
    server = make_server(slots=1, project_slots=0)
    team = TeamHQ(server, tmp_path / "full")
    idle = team.started("say first")
    team.start("hang")
    answer = server.http.post(team.sessions, json={"message": "say x"})
    assert is_problem(answer, 429, "rate_limited")
    assert answer.json()["error"] == "Maximum concurrent sessions (1) reached"
    assert team.refused(idle, "message", {"message": "x"}) == (429, "Maximum concurrent sessions (1) reached")


def test_idle_sessions_count_if_configured(make_server: Make, tmp_path: Path) -> None:
    server = make_server(slots=3, project_slots=1, limits={"count_idle": True})
    team = TeamHQ(server, tmp_path / "counted")
    first = team.started("say one")
    assert server.http.post(team.sessions, json={"message": "say two"}).status_code == 409
    team.stop(first)
    team.started("say two")


# Looking at sessions --------------------------------------------------------------------------------------------------


def test_a_session_is_idle_between_turns_and_still_running(plain: TeamHQ) -> None:
    session = plain.started("say hello")
    shown = plain.get(session)
    assert set(shown) == FIELDS
    assert (shown["status"], shown["state"], shown["turnCount"]) == ("running", "idle", 1)
    assert (shown["endedAt"], shown["error"], shown["exitCode"], shown["currentTurnPid"]) == (None, None, None, None)
    assert shown["pid"] is not None
    assert shown["conversationId"] == shown["cliSessionId"] == plain.server.session(session)["native_session_id"]
    assert shown["conversationId"]
    assert shown["eventCount"] == plain.server.log(session)[-1]["seq"]
    [turn] = shown["turns"]
    assert turn["turnNumber"] == 1 and turn["exitCode"] == 0 and turn["startedAt"] <= turn["endedAt"]


@pytest.mark.one_server
def test_a_running_turn_shows_its_process_id(plain: TeamHQ) -> None:
    session = plain.started("say hello")
    plain.message(session, "hang")
    shown = plain.get(session)
    assert (shown["state"], shown["turnCount"]) == ("processing", 2)
    assert shown["currentTurnPid"] == shown["pid"] is not None
    assert shown["turns"][-1]["endedAt"] is None


def test_sessions_are_listed_newest_first_and_only_those_of_the_project(plain: TeamHQ, team: TeamHQ) -> None:
    first, second = plain.started("say one"), plain.started("say two")
    team.started("say elsewhere")
    plain.turn(first, "say used again")
    assert [entry["id"] for entry in plain.all()] == [second, first]
    assert plain.all() == [plain.get(second), plain.get(first)]


def test_a_limit_omits_the_oldest_sessions_however_recently_they_were_used(plain: TeamHQ) -> None:
    oldest, second, newest = (plain.started(f"say {number}") for number in range(3))
    plain.turn(oldest, "say used again")
    for limit, expected in ((1, [newest]), (2, [newest, second]), (5, [newest, second, oldest])):
        found = plain.server.get(f"{plain.sessions}?limit={limit}")["sessions"]
        assert [entry["id"] for entry in found] == expected


@pytest.mark.parametrize(
    ("method", "rest", "sentence"),
    [
        ("GET", "", "Session not found"),
        ("GET", "/events", "Session not found"),
        ("POST", "/stop", "Session not found"),
        ("POST", "/message", "Session not found or not active"),
    ],
)
def test_a_session_of_another_project_is_not_found(
    plain: TeamHQ, team: TeamHQ, method: str, rest: str, sentence: str
) -> None:
    session = plain.started("say mine")
    body = {"message": "say x"} if method == "POST" else None
    for path in (f"{team.sessions}/{session}{rest}", f"{team.sessions}/s_nothing{rest}"):
        answer = plain.server.http.request(method, path, json=body)
        assert is_problem(answer, 404, "not_found") and answer.json()["error"] == sentence


def test_an_unknown_project_is_not_found(server: LocalServer) -> None:
    for method in ("GET", "POST"):
        answer = server.http.request(method, "/api/projects/nothing/sessions")
        assert is_problem(answer, 404, "not_found") and answer.json()["error"] == "Project not found"


def test_the_project_shows_its_active_session(plain: TeamHQ) -> None:
    session = plain.started("say hello")
    server = plain.server

    def shown() -> list[dict[str, Any]]:
        listed = next(entry for entry in server.get("/api/projects")["projects"] if entry["id"] == plain.project)
        return [server.get(f"/api/projects/{plain.project}"), listed]

    assert [(entry["active_session_id"], entry["activeSessionId"]) for entry in shown()] == [(session, session)] * 2
    plain.stop(session)
    assert [(entry["active_session_id"], entry["activeSessionId"]) for entry in shown()] == [(None, None)] * 2


# Messages -------------------------------------------------------------------------------------------------------------


def test_a_further_message_is_accepted_immediately_and_its_text_is_trimmed(plain: TeamHQ) -> None:
    session = plain.started("say one")
    answer = plain.message(session, "  say two \n")
    assert answer == {"turnNumber": 2, "status": "processing", "state": "processing"}
    plain.server.wait_idle(session)
    assert plain.server.transcript(session)[1]["message"]["text"] == "say two"
    assert plain.server.text(session, 2) == "two"


@pytest.mark.parametrize("body", [{}, {"message": ""}, {"message": " "}, {"message": 5}, {"message": None}])
def test_a_message_is_required(plain: TeamHQ, body: dict[str, Any]) -> None:
    session = plain.started("say one")
    assert plain.refused(session, "message", body) == (400, "Message is required")
    assert plain.refused("s_nothing", "message", body) == (400, "Message is required")


def test_a_message_may_have_a_hundred_thousand_characters(plain: TeamHQ) -> None:
    session = plain.started("say one")
    answer = (400, "Message too long (max 100,000 characters)")
    assert plain.refused(session, "message", {"message": "x" * 100_001}) == answer
    assert plain.message(session, "say " + "x" * 99_996)["turnNumber"] == 2


def test_a_session_with_a_running_turn_is_not_idle(plain: TeamHQ) -> None:
    session = plain.start("hang")["id"]
    assert plain.refused(session, "message", {"message": "say x"}) == (409, "Session is not idle")
    assert is_problem(
        plain.server.http.post(f"{plain.sessions}/{session}/message", json={"message": "x"}), 409, "turn_active"
    )


def test_a_failed_turn_leaves_the_session_idle_for_a_retry(plain: TeamHQ) -> None:
    session = plain.started("crash 3")
    shown = plain.get(session)
    assert (shown["state"], shown["status"], shown["turns"][0]["exitCode"]) == ("idle", "running", 3)
    assert plain.turn(session, "say again") == 2


# Stopping -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", ["say done", "hang"], ids=["idle", "in the middle of a turn"])
def test_a_session_is_stopped(plain: TeamHQ, message: str) -> None:
    session = plain.start(message)["id"]
    if message != "hang":
        plain.server.wait_idle(session)
    shown = plain.stop(session)
    assert (shown["status"], shown["state"], shown["pid"]) == ("stopped", "ended", None)
    assert shown["endedAt"] and shown["durationMs"] >= 0
    assert shown["exitCode"] == (None if message == "hang" else 0)
    assert plain.refused(session, "stop") == (409, "Session is not running")
    assert plain.refused(session, "message", {"message": "say x"}) == (409, "Session has been stopped")


# The kickoff in Perdure's own API -------------------------------------------------------------------------------------


def test_perdures_own_api_can_create_a_session_with_its_projects_kickoff(team: TeamHQ) -> None:
    server = team.server
    made = server.create(project=team.project, kickoff=True, message="now")
    assert first_message(server, made).startswith("say Kickoff of site") and first_message(server, made).endswith("now")
    assert server.session(server.create(project=team.project))["turn_count"] == 0


def test_a_message_to_a_new_session_can_use_the_projects_kickoff_and_is_accepted_once(team: TeamHQ) -> None:
    server, body = team.server, {"project": team.project, "kickoff": True, "text": "now", "message_id": "kick-1"}
    sent = server.post("/api/messages", body, expect=202)
    assert first_message(server, sent["session_id"]).endswith(": now")
    changed = server.http.patch(f"/api/projects/{team.project}", json={"kickoff": "say another {message}"})
    assert changed.status_code == 200
    assert server.post("/api/messages", body, expect=202) == sent
    empty = server.post("/api/messages", {**body, "text": "", "message_id": "kick-2"}, expect=202)
    assert first_message(server, empty["session_id"]) == "say another "
    answer = server.http.post("/api/messages", json={**body, "session_id": sent["session_id"]})
    assert is_problem(answer, 400, "invalid")


@pytest.mark.parametrize(
    ("kickoff", "body", "words"),
    [
        (None, {"project": "?"}, "has no kickoff"),
        ("say fixed", {"project": "?", "message": "say x"}, "no {message}"),
        ("say fixed", {}, "needs a project"),
    ],
)
def test_an_impossible_kickoff_is_refused(
    server: LocalServer, tmp_path: Path, kickoff: str | None, body: dict[str, Any], words: str
) -> None:
    team = TeamHQ(server, tmp_path / "asked", kickoff=kickoff)
    given = {key: team.project if value == "?" else value for key, value in body.items()}
    answer = server.http.post("/api/sessions", json={**given, "kickoff": True})
    assert is_problem(answer, 400, "invalid") and words in answer.json()["error"]
