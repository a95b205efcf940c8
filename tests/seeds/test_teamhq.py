"""A program made for TeamHQ, from its start button to its stop button, against the settings of docs/teamhq.md."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import LiveServer, eventually
from tests.seeds.teamhq_client import TeamHQ

Serve = Callable[..., LiveServer]
WORDS = 200


def page_of(server: LiveServer) -> TeamHQ:
    return TeamHQ(server.url, server.token, "site")


def idle(team: TeamHQ, session: str) -> None:
    eventually(lambda: team.session(session)["state"] == "idle", "the turn is over")


def between_turns(team: TeamHQ, session: str, mode: str) -> int | None:
    """The process of an idle session: it stays in one mode, and ends with its turn in the other."""
    idle(team, session)
    if mode == "resume":
        eventually(lambda: team.session(session)["pid"] is None, "the process of the turn has ended")
    found = team.session(session)
    assert found["currentTurnPid"] is None
    pid: int | None = found["pid"]
    return pid


@pytest.mark.smoke
@pytest.mark.parametrize("mode", ["streaming", "resume"])
def test_a_session_is_started_followed_over_a_lost_connection_continued_and_stopped(serve: Serve, mode: str) -> None:
    team = page_of(serve("teamhq.md", SESSION_RUNNER_MODE=mode))
    made = team.start()
    session = made["id"]
    assert (made["status"], made["turnCount"], made["projectId"]) == ("running", 1, "site")
    assert team.project()["activeSessionId"] == session
    log = team.log_of(session)
    log.until("waiting_for_input")
    assert log.events[0]["data"] == {"message": "Session started"}
    assert log.types() == ["turn_start", "turn_end", "waiting_for_input"]
    assert log.events[1]["data"]["message"].startswith("Work on site")
    pid = between_turns(team, session, mode)
    assert (pid is None) == (mode == "resume")

    assert team.message(session, "  ") == (400, team.message(session, "")[1])
    assert team.message(session, "")[1]["error"] == "Message is required"
    status, accepted = team.message(session, f"tool Bash ls\nstream {WORDS} 5\nsay the end")
    assert (status, accepted) == (202, {"turnNumber": 2, "status": "processing", "state": "processing"})
    status, refusal = team.message(session, "too early")
    assert (status, refusal["error"]) == (409, "Session is not idle")
    for count in (1, 3, 20):
        log.lose_connection()
        log.connect(as_browser=count == 3)
        log.take(count)
    turn_pid = team.session(session)["currentTurnPid"]
    assert turn_pid == pid if mode == "streaming" else turn_pid is not None
    log.lose_connection()
    log.until("waiting_for_input")
    words = "".join(f"w{number} " for number in range(WORDS))
    assert words in log.text() and log.text().endswith("the end")
    second = log.types()[3:]
    assert second == ["user_message", "turn_start", "tool_use", "tool_result", "turn_end", "waiting_for_input"]
    end = next(event for event in reversed(log.events) if event["type"] == "turn_end")["data"]
    assert (end["turnNumber"], end["exitCode"]) == (2, 0) and end["durationMs"] >= 0
    assert between_turns(team, session, mode) == pid

    status, _ = team.message(session, "recall")
    assert status == 202
    log.until("waiting_for_input")
    assert "Work on site" in log.text() and f"stream {WORDS} 5" in log.text()
    assert team.message(session, "hang")[0] == 202
    log.until("turn_start")
    status, stopped = team.stop(session)
    assert (status, stopped["status"], stopped["state"]) == (200, "stopped", "ended")
    assert log.until_done()["status"] == "stopped"
    assert team.stop(session)[0] == 409
    status, refusal = team.message(session, "too late")
    assert (status, refusal["error"]) == (409, "Session has been stopped")
    assert team.project()["activeSessionId"] is None
    assert log.status_for_a_browser() == 204
    again = team.log_of(session)
    assert again.until_done()["status"] == "stopped"
    ids = [event["id"] for event in log.events]
    assert [event["id"] for event in again.events] == ids and len(ids) == len(set(ids))


def test_a_tool_that_would_ask_runs_and_a_failed_turn_can_be_tried_again(serve: Serve) -> None:
    team = page_of(serve("teamhq.md"))
    session = team.start()["id"]
    idle(team, session)
    log = team.log_of(session)
    log.until("waiting_for_input")
    assert team.message(session, "permit Deploy")[0] == 202
    log.until("waiting_for_input")
    assert not any("Waiting for a person" in str(event["data"].get("message")) for event in log.events)
    assert team.message(session, "crash 3")[0] == 202
    assert log.until("error")["data"]["message"] == "Turn 3 failed (exit code 3)"
    log.until("waiting_for_input")
    better = "say " + "better " * 100
    assert team.message(session, better)[0] == 202
    assert log.until("user_message")["data"] == {"message": better[:500], "turnNumber": 4}
    log.until("waiting_for_input")
    assert log.text().endswith("better")


def test_stopping_an_idle_session_ends_it_immediately(serve: Serve) -> None:
    team = page_of(serve("teamhq.md"))
    session = team.start()["id"]
    log = team.log_of(session)
    log.until("waiting_for_input")
    idle(team, session)
    status, stopped = team.stop(session)
    assert (status, stopped["id"], stopped["status"], stopped["state"]) == (200, session, "stopped", "ended")
    assert (stopped["exitCode"], stopped["error"], stopped["pid"], stopped["currentTurnPid"]) == (0, None, None, None)
    assert stopped["endedAt"] and stopped["durationMs"] >= 0
    assert log.until_done() == {"status": "stopped", "durationMs": stopped["durationMs"]}


def test_a_message_to_a_missing_session_is_refused(serve: Serve, tmp_path: Path) -> None:
    team = page_of(serve("teamhq.md"))
    elsewhere = team.another("elsewhere", str(tmp_path)).start()["id"]
    for session in ("nobody", elsewhere):
        status, refusal = team.message(session, "say hello")
        assert (status, refusal["error"]) == (404, "Session not found or not active")


def test_a_session_over_the_servers_limit_is_refused_until_another_one_is_stopped(serve: Serve, tmp_path: Path) -> None:
    team = page_of(serve("teamhq.md"))
    pages = [team, *(team.another(name, str(tmp_path)) for name in ("two", "three", "four"))]
    first, *_ = [page.start()["id"] for page in pages[:3]]
    idle(team, first)
    assert pages[3].refused_start() == (429, "Maximum concurrent sessions (3) reached")
    team.stop(first)
    assert pages[3].start()["status"] == "running"


@pytest.mark.needs("linux")
def test_clocks_end_a_session_and_claude_works_with_agent_teams(serve: Serve) -> None:
    """TeamHQ has no request for these, so read the server's timers and the process's environment."""
    server = serve("teamhq.md")
    team = page_of(server)
    session = team.start()["id"]
    idle(team, session)

    def clocks() -> list[tuple[str, str, int]]:
        timers = server.get(f"/api/sessions/{session}/explain")["timers"]
        return [(timer["timer"], timer["then"], int(round(timer["in_s"], -2))) for timer in timers]

    assert clocks() == [("idle_timeout", "end", 1800), ("lifetime", "end", 14400)]
    environment = Path(f"/proc/{team.session(session)['pid']}/environ").read_bytes().split(b"\0")
    assert b"CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS=1" in environment
    team.message(session, "hang")
    assert {("turn_timeout", "abort", 1800), ("turn_limit", "abort", 1800)} <= set(clocks())


def test_a_project_has_one_session_at_a_time_and_its_list_the_newest_first(serve: Serve) -> None:
    team = page_of(serve("teamhq.md"))
    first = team.start()["id"]
    idle(team, first)
    assert team.refused_start() == (409, "A session is already running for this project")
    team.stop(first)
    second = team.start()["id"]
    idle(team, second)
    assert [session["id"] for session in team.sessions()] == [second, first]


def test_a_restart_ends_sessions_with_teamhqs_messages(serve: Serve) -> None:
    server = serve("teamhq.md")
    team = page_of(server)
    between = team.start()["id"]
    idle(team, between)
    server.stop()
    server.restart()
    team = page_of(server)
    ended = team.session(between)
    assert (ended["status"], ended["error"]) == ("stopped", "Server restarted between turns")
    working = team.start()["id"]
    log = team.log_of(working)
    log.until("waiting_for_input")
    assert team.message(working, "hang")[0] == 202
    log.until("turn_start")
    server.stop()
    server.restart()
    ended = page_of(server).session(working)
    assert (ended["status"], ended["error"]) == ("failed", "Server restarted while session was running")
