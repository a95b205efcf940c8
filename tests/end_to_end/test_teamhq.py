"""TeamHQ's stream across disconnects, crashes and compaction: every event once, each with its own number."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import LiveServer, eventually
from tests.sizes import size
from tests.surfaces.http.teamhq_client import TeamHQ, text_of

Json = dict[str, Any]
WORDS = size("TEAMHQ_WORDS", 400, fast=150)


def without_times(events: list[Json]) -> list[Json]:
    return [{key: value for key, value in event.items() if key != "timestamp"} for event in events]


def take(team: TeamHQ, session: str, seen: list[Json], count: int) -> None:
    """`count` more events of the turn, as a browser gets them after it was disconnected."""
    if seen and seen[-1]["type"] == "waiting_for_input":
        return
    with team.watch(session, last_event_id=str(seen[-1]["id"]) if seen else None) as stream:
        for _, name, data in stream.frames():
            assert name == "session_event"
            seen.append(data)
            count -= 1
            if count == 0 or data["type"] == "waiting_for_input":
                return


@pytest.mark.smoke
@pytest.mark.timeout(300)
def test_a_viewer_sees_every_event_once_despite_disconnects_and_a_killed_server(
    server: LiveServer, tmp_path: Path
) -> None:
    team = TeamHQ(server, tmp_path / "site")
    session = str(team.start(f"tool Bash ls\nstream {WORDS} 10\ntool Read a\nsay end")["id"])
    seen: list[Json] = []
    for count in (1, 5, 20):
        take(team, session, seen, count)
    server.kill()
    server.restart()
    take(team, session, seen, 20)
    # In the middle of the turn: the rest is read after compaction.
    server.wait_idle(session)
    eventually(lambda: any("first_seq" in event for event in server.log(session)), "the turn is compacted")
    server.kill()
    server.restart()
    take(team, session, seen, 10)
    team.turn(session, "say more")
    team.stop(session)
    with team.watch(session, last_event_id=str(seen[-1]["id"])) as stream:
        frames = list(stream.frames())
    assert frames[-1][1] == "session_done" and frames[-1][2]["status"] == "stopped"
    seen += [data for _, name, data in frames if name == "session_event"]
    ids = [event["id"] for event in seen]
    assert ids == sorted(set(ids))
    words = "".join(f"w{number} " for number in range(WORDS))
    assert text_of(seen) == words + "\nendmore"
    assert [event["data"]["tool"] for event in seen if event["type"] == "tool_result"] == ["Bash", "Read"]
    assert without_times(team.events(session)) == without_times(seen)
    server.kill()
    server.restart()
    assert without_times(team.events(session)) == without_times(seen)


AGENTS = ["rehearsal", "rehearsal-stream", "rehearsal-resume"]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_is_started_continued_and_stopped_with_every_driver(
    server: LiveServer, tmp_path: Path, agent: str
) -> None:
    team = TeamHQ(server, tmp_path / "site", agent=agent, kickoff="tool Bash ls\nsay kicked off {project}")
    session = str(team.start()["id"])
    with team.watch(session) as stream:
        frames = stream.frames()
        first = until(frames, "waiting_for_input")
        assert team.message(session, "recall")["turnNumber"] == 2
        second = until(frames, "waiting_for_input")
        team.message(session, "say partly\nhang")
        third = until(frames, "assistant_text")
        stopped = team.stop(session)
        rest = list(frames)
    assert text_of(first) == "kicked off site"
    assert [event["type"] for event in first][:2] == ["system", "turn_start"]
    assert [event["data"]["tool"] for event in first if event["type"] in ("tool_use", "tool_result")] == ["Bash"] * 2
    assert first[-2]["type"] == "turn_end" and first[-2]["data"]["exitCode"] == 0
    assert "kicked off site" in text_of(second) and '- "recall"' in text_of(second)
    # With several nodes, an event may say that the message waits for the session's owner.
    assert [event["type"] for event in second if event["type"] != "system"][:2] == ["user_message", "turn_start"], (
        second
    )
    assert third[-1]["data"]["text"] and rest[-1][1:] == (
        "session_done",
        {"status": "stopped", "durationMs": stopped["durationMs"]},
    )
    assert (stopped["status"], stopped["state"], stopped["turnCount"]) == ("stopped", "ended", 3)
    assert stopped["conversationId"] == stopped["cliSessionId"] and stopped["conversationId"]
    assert [turn["exitCode"] for turn in stopped["turns"]] == [0, 0, None]
    # An idle session ends immediately too.
    other = team.started("say idle")
    assert (team.stop(other)["state"], team.events(other)[-1]["data"]) == (
        "ended",
        {"message": "Session stopped by user"},
    )


def until(frames: Iterator[tuple[str, str, Json]], kind: str) -> list[Json]:
    """Events up to and including the first of this type."""
    found = []
    for _, _, data in frames:
        found.append(data)
        if data["type"] == kind:
            return found
    raise AssertionError(f"the stream ended before {kind}: {found}")


@pytest.mark.parametrize("agent", AGENTS)
def test_a_failed_turn_can_be_retried(server: LiveServer, tmp_path: Path, agent: str) -> None:
    team = TeamHQ(server, tmp_path / "site", agent=agent)
    session = team.started("say before\ncrash 3")
    shown = team.get(session)
    assert (shown["status"], shown["state"], shown["turns"][0]["exitCode"]) == ("running", "idle", 3)
    assert team.turn(session, "recall") == 2
    team.stop(session)
    events = team.events(session)
    assert [event["data"]["message"] for event in events if event["type"] == "error"] == ["Turn 1 failed (exit code 3)"]
    assert "crash 3" in text_of(events)
