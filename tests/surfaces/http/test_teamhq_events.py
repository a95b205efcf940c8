"""TeamHQ's event stream: everything is replayed with stable event numbers, without gaps or duplicates."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.surfaces.teamhq import FOR_FILES, Teller, told
from tests.harness import eventually
from tests.seeds.teamhq_client import EVENT_DATA
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.reading import connect, receive_until
from tests.surfaces.http.teamhq_client import TeamHQ, text_of

Json = dict[str, Any]


@pytest.fixture
def team(both: LocalServer, tmp_path: Path) -> TeamHQ:
    return TeamHQ(both, tmp_path / "site")


def without_times(events: list[Json]) -> list[Json]:
    """Timestamps differ after compaction: a joined event has the time of its last part."""
    return [{key: value for key, value in event.items() if key != "timestamp"} for event in events]


# Events and their data ------------------------------------------------------------------------------------------------


def test_two_turns_have_teamhqs_event_types(team: TeamHQ) -> None:
    session = team.started("say one")
    team.turn(session, "say " + "x" * 600)
    team.stop(session)
    events = team.events(session)
    assert all(set(event) == {"id", "timestamp", "type", "data"} for event in events)
    assert {event["type"] for event in events} <= set(EVENT_DATA)
    assert (events[0]["type"], events[0]["data"]) == ("system", {"message": "Session started"})
    assert (events[1]["type"], events[1]["data"]) == ("turn_start", {"turnNumber": 1, "message": "say one"})
    told_in_order = [event for event in events if event["type"] not in ("assistant_text", "system")]
    assert [event["type"] for event in told_in_order] == [
        "turn_start",
        "turn_end",
        "waiting_for_input",
        "user_message",
        "turn_start",
        "turn_end",
        "waiting_for_input",
    ]
    _, end, waiting, message, start, _, _ = (event["data"] for event in told_in_order)
    assert (end["turnNumber"], end["exitCode"]) == (1, 0) and end["durationMs"] >= 0
    assert waiting == {"turnNumber": 1}
    assert message == {"message": ("say " + "x" * 600)[:500], "turnNumber": 2}
    assert start == {"turnNumber": 2}
    assert text_of(events) == "one" + "x" * 600
    assert all(event["data"]["delta"] is True for event in events if event["type"] == "assistant_text")
    assert events[-1]["data"] == {"message": "Session stopped by user"}


def test_tool_events_have_the_tools_name_and_output(team: TeamHQ) -> None:
    session = team.started("tool Bash ls -l")
    team.stop(session)
    events = team.events(session)
    use = next(event["data"] for event in events if event["type"] == "tool_use")
    result = next(event["data"] for event in events if event["type"] == "tool_result")
    assert set(use) == {"tool", "input"} and use["tool"] == "Bash"
    assert set(result) == {"tool", "output", "truncated"}
    assert result["tool"] == "Bash" and "ls -l" in result["output"] and result["truncated"] is False


def test_a_turn_whose_agent_dies_is_reported_as_failed(team: TeamHQ) -> None:
    session = team.started("crash 3")
    team.stop(session)
    events = team.events(session)
    error = next(event["data"] for event in events if event["type"] == "error")
    end = next(event["data"] for event in events if event["type"] == "turn_end")
    assert error["message"] == "Turn 1 failed (exit code 3)"
    assert (end["turnNumber"], end["exitCode"]) == (1, 3)


def test_the_cost_of_a_turn_is_included_if_known() -> None:
    event = {"type": "turn_end", "turn": 2, "exit_code": None, "stop_reason": "end_turn", "duration_ms": 5}
    assert told({**event, "cost_usd": 0.25}, "") == (
        "turn_end",
        {"turnNumber": 2, "exitCode": 0, "durationMs": 5, "costUsd": 0.25},
    )
    assert told({**event, "cost_usd": None}, "") == ("turn_end", {"turnNumber": 2, "exitCode": 0, "durationMs": 5})


def test_a_long_output_is_truncated_for_viewers_but_not_in_files() -> None:
    output = "\n".join(str(number) for number in range(250))
    event = {"type": "tool_result", "tool_id": "t", "content": output}
    found = told(event, "Bash")
    assert found is not None and found[1]["truncated"] is True
    assert found[1]["output"].split("\n")[-2:] == ["199", "[... truncated, 250 total lines]"]
    assert told(event, "Bash", FOR_FILES) == ("tool_result", {"tool": "Bash", "output": output, "truncated": False})


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        ("stopped", "system", "Session stopped by user"),
        ("completed", "system", "Session completed"),
        ("timed-out", "error", "Session timed out"),
        ("failed", "error", "Session failed"),
    ],
)
def test_the_end_of_a_session_is_reported(status: str, kind: str, message: str) -> None:
    assert told({"type": "session_end", "status": status, "reason": "stopped"}, "") == (kind, {"message": message})


def test_a_change_of_the_history_is_reported(team: TeamHQ) -> None:
    session = team.started("say one")
    team.turn(session, "say two")
    team.server.post(f"/api/sessions/{session}/rewind", {"turn": 2}, expect=200)
    assert team.get(session)["turnCount"] == 1
    team.stop(session)
    assert {"message": "Turn 2 was rewound"} in [event["data"] for event in team.events(session)]


def test_a_permission_request_is_reported(team: TeamHQ) -> None:
    session = str(team.start("permit Deploy")["id"])
    team.server.prompt(session)
    team.stop(session)
    messages = [event["data"].get("message", "") for event in team.events(session)]
    assert any(message.startswith("Waiting for a person to answer: ") and "Deploy" in message for message in messages)


# Following ------------------------------------------------------------------------------------------------------------


def test_a_viewer_without_a_position_gets_everything_and_then_live_events(team: TeamHQ) -> None:
    session = team.started("say before")
    with team.watch(session) as stream:
        team.turn(session, "say after")
        team.stop(session)
        frames = list(stream.frames())
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert [name for _, name, _ in frames] == ["session_event"] * (len(frames) - 1) + ["session_done"]
    live = [data for _, _, data in frames[:-1]]
    assert text_of(live) == "beforeafter"
    assert without_times(live) == without_times(team.events(session))
    ids = [event["id"] for event in live]
    assert ids == sorted(set(ids)) and [frame[0] for frame in frames[:-1]] == [str(number) for number in ids]
    shown = team.get(session)
    assert frames[-1][2] == {"status": "stopped", "durationMs": shown["durationMs"]}


def test_each_offset_gets_exactly_the_events_from_that_number_on(team: TeamHQ) -> None:
    session = team.started("tool Bash ls\nsay one")
    team.turn(session, "say two")
    team.stop(session)
    events = team.events(session)
    assert events[0]["id"] == 0
    for offset in range(team.get(session)["eventCount"] + 2):
        rest = [event for event in events if event["id"] >= offset]
        assert without_times(team.events(session, offset=offset)) == without_times(rest)


def test_a_client_that_continues_after_its_last_event_misses_nothing(team: TeamHQ) -> None:
    """Like TeamHQ's page: its next offset is the id of its last event plus one."""
    session = team.started("tool Bash ls\nsay one")
    team.stop(session)
    events = team.events(session)
    for seen in range(1, len(events) + 1):
        following = team.events(session, offset=events[seen - 1]["id"] + 1)
        assert without_times(events[:seen] + following) == without_times(events)


def test_an_offset_after_all_events_so_far_gets_only_future_events(team: TeamHQ) -> None:
    session = team.started("say one")
    count = team.get(session)["eventCount"]
    with team.watch(session, offset=count) as stream:
        team.turn(session, "say two")
        team.stop(session)
        found = [data for _, name, data in stream.frames() if name == "session_event"]
    assert text_of(found) == "two"
    assert without_times(found) == without_times([event for event in team.events(session) if event["id"] >= count])


def test_the_header_of_a_reconnecting_browser_wins_over_the_offset_in_the_url(team: TeamHQ) -> None:
    session = team.started("say one")
    with team.watch(session) as stream:
        position = stream.until("session_event")[0][2]["id"]
    team.stop(session)
    with team.watch(session, offset=0, last_event_id=str(position)) as stream:
        found = [data["id"] for _, name, data in stream.frames() if name == "session_event"]
    assert found == [event["id"] for event in team.events(session) if event["id"] > position]


def test_a_browser_that_has_seen_the_end_gets_204_and_others_get_session_done(team: TeamHQ) -> None:
    session = team.started("say one")
    team.stop(session)
    with team.watch(session) as stream:
        last = list(stream.frames())[-1]
    assert last[1] == "session_done"
    with team.watch(session, last_event_id=last[0]) as again:
        assert again.status == 204
    assert team.events(session, offset=int(last[0]) + 1) == []


@pytest.mark.parametrize("position", ["abc", "-1", "1.2"])
def test_an_invalid_position_is_refused(team: TeamHQ, position: str) -> None:
    session = team.started("say one")
    answer = team.server.http.get(f"{team.sessions}/{session}/events", params={"offset": position})
    assert answer.status_code == 400


def test_a_position_from_another_epoch_gets_everything(team: TeamHQ) -> None:
    session = team.started("say one")
    team.stop(session)
    with team.watch(session, last_event_id="3-7") as stream:
        found = [data for _, name, data in stream.frames() if name == "session_event"]
    assert found == team.events(session)


def test_an_idle_stream_has_heartbeats(team: TeamHQ) -> None:
    session = team.started("say one")
    with connect(team.server, f"{team.sessions}/{session}/events") as connection:  # type: ignore[arg-type]
        received = receive_until(connection, b"waiting_for_input")
        if not received.endswith(b": \n\n"):
            receive_until(connection, b": \n\n")


def test_two_viewers_see_the_same(team: TeamHQ) -> None:
    session = team.started("say one")
    with team.watch(session) as first, team.watch(session) as second:
        team.turn(session, "stream 50 1")
        team.stop(session)
        seen = [list(stream.frames()) for stream in (first, second)]
    assert seen[0] == seen[1]


def test_a_viewer_that_reads_slowly_misses_nothing(make_server: Callable[..., LocalServer], tmp_path: Path) -> None:
    team = TeamHQ(make_server(), tmp_path / "slow")
    session = team.started("say one")
    with connect(
        team.server,  # type: ignore[arg-type]
        f"{team.sessions}/{session}/events",
        receive_buffer=4096,
    ) as connection:
        for _ in range(4):
            team.turn(session, "big 200000\nbig 200000")
        team.stop(session)
        received = receive_until(connection, b"event: session_done")
    ids = [int(line[4:]) for line in received.split(b"\n") if line.startswith(b"id: ")]
    expected = [event["id"] for event in team.events(session)]
    assert ids[:-1] == expected


# After compaction -----------------------------------------------------------------------------------------------------


class Joined(NamedTuple):
    team: TeamHQ
    session: str
    live: list[Json]


@pytest.fixture(scope="module")
def joined(server: LocalServer, tmp_path_factory: pytest.TempPathFactory) -> Joined:
    """A session as it was seen live, and compacted since."""
    team = TeamHQ(server, tmp_path_factory.mktemp("joined") / "site")
    # Slowly, because words that arrive at the same time are one event from the start.
    session = str(team.start("think hm\nstream 40 20\ntool Bash ls\nstream 40 1\nsay f\u00fcr \U0001f600")["id"])
    with team.watch(session) as stream:
        server.wait_idle(session)
        team.turn(session, "tool Read a\nstream 20 1")
        team.stop(session)
        live = [data for _, name, data in stream.frames() if name == "session_event"]
    eventually(lambda: server.ask(lambda: session not in server.server.engine.runners), "the agent is gone")
    server.compacted()
    assert any("first_seq" in event for event in server.log(session))
    return Joined(team, session, live)


def test_a_compacted_turn_is_replayed_as_it_was_seen_live(server: LocalServer, joined: Joined) -> None:
    server.evict(joined.session)
    assert without_times(joined.team.events(joined.session)) == without_times(joined.live)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_position_inside_a_joined_run_gets_exactly_the_rest(
    server: LocalServer, joined: Joined, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, joined.live[-1]["id"]))
    server.evict(joined.session)
    found = joined.team.events(joined.session, offset=position)
    assert without_times(found) == without_times([event for event in joined.live if event["id"] >= position])


def test_event_numbers_stay_the_same_after_a_restart(make_server: Callable[..., LocalServer], tmp_path: Path) -> None:
    team = TeamHQ(make_server(), tmp_path / "restarted")
    session = team.started("tool Bash ls\nstream 30 1")
    first = [data for _, _, data in _until_waiting(team, session)]
    team.server.stop()
    team.server.start()
    team.turn(session, "say more")
    team.stop(session)
    events = team.events(session)
    assert without_times(events[: len(first)]) == without_times(first)
    assert text_of(events).endswith("more")


def _until_waiting(team: TeamHQ, session: str) -> list[Any]:
    found = []
    with team.watch(session) as stream:
        for frame in stream.frames():
            found.append(frame)
            if frame[2]["type"] == "waiting_for_input":
                break
    return found


# Without a server -----------------------------------------------------------------------------------------------------


def test_a_result_of_an_unknown_tool_is_still_reported() -> None:
    teller = Teller()
    event = {"type": "tool_result", "tool_id": "t", "content": None, "at": "2026-02-07T00:00:00.000Z"}
    told_event = teller.tell(9, event)
    assert told_event is not None
    assert told_event["data"] == {"tool": "unknown", "output": "", "truncated": False}


def test_events_without_a_teamhq_equivalent_are_omitted() -> None:
    for kind in ("assistant_thinking", "plan", "usage", "title", "agent_launched", "prompt_resolved", "a_new_one"):
        assert told({"type": kind}, "") is None
