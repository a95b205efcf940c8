"""One stream over many sessions: no gaps or duplicates per session, even if it is cut anywhere and resumed."""

import random

import pytest

from perdure.runtime.log.feed import STREAMED
from tests.harness import eventually
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.reading import Reading, all_frames, cut_after, whole_frames
from tests.surfaces.http.test_watching import allow


def two(server: LocalServer) -> tuple[str, str]:
    return server.create(), server.create()


def test_each_named_session_gets_a_snapshot_first_and_then_its_events(both: LocalServer) -> None:
    first, second = two(both)
    readings = {first: Reading(), second: Reading()}
    with both.stream(f"/api/events?sessions={first},{second},{first}") as stream:
        both.send(first, "stream 100 2")
        both.send(second, "stream 100 2")
        for frame in stream.frames():
            readings[frame[2]["session_id"]].take(frame)
            if all("waiting_for_input" in reading.types for reading in readings.values()):
                break
    for session, reading in readings.items():
        assert reading.types[0] == "snapshot"
        assert reading.snapshots == 1
        assert reading.text == both.text(session, 1)


@pytest.mark.full
def test_a_stream_over_two_sessions_resumes_from_its_cursor_wherever_it_is_cut(both: LocalServer) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    first, second = two(both)
    readings = {first: Reading(), second: Reading()}
    for session in (first, second):
        both.send(session, "stream 200 3\npermit Deploy\nstream 200 3")
    position, cuts = None, 0
    path = f"/api/events?sessions={first},{second}"
    while not all("waiting_for_input" in reading.types for reading in readings.values()):
        if cuts == 20:
            # The turns can't end before this.
            for session in (first, second):
                allow(both, session, both.prompt(session))
        count = chance.randint(1, 2_500) if chance.random() < 0.9 else 10**6
        for frame in whole_frames(cut_after(both, path, position, count, chance.uniform(0, 0.2))):
            readings[frame[2]["session_id"]].take(frame)
            position = frame[0]
        cuts += 1
    for session, reading in readings.items():
        assert reading.text == both.text(session, 1), f"seed {seed}"


def test_a_cursor_for_other_sessions_is_not_mistaken_for_one_for_these(server: LocalServer) -> None:
    first, second = two(server)
    with server.stream(f"/api/events?sessions={first},{second}") as stream:
        frames = stream.frames()
        next(frames)
        position = next(frames)[0]
    for names in (f"{second},{first}", first, f"{first},{second},{server.create()}"):
        with server.stream(f"/api/events?sessions={names}", position) as stream:
            assert next(stream.frames())[1] == "snapshot"
    with server.stream(f"/api/events?sessions={first},{second}", position) as stream:
        server.post(f"/api/sessions/{second}/stop")
        assert next(stream.frames())[1] == "session_end"
    assert server.http.get(f"/api/sessions/{first}/events", headers={"last-event-id": position}).status_code == 400


def test_a_cursor_past_the_end_or_of_an_unknown_epoch_gets_snapshots(server: LocalServer) -> None:
    first, second = two(server)
    path = f"/api/events?sessions={first},{second}"
    with server.stream(path) as stream:
        frames = stream.frames()
        next(frames)
        name, _, _ = next(frames)[0].partition(".")
    for position in (f"{name}.999.1", f"{name}.1.1-8"):
        with server.stream(path, position) as stream:
            assert next(stream.frames())[1] == "snapshot"


def test_the_stream_closes_when_all_its_sessions_have_ended_and_a_reconnect_gets_204(both: LocalServer) -> None:
    sessions = two(both)
    path = f"/api/events?sessions={','.join(sessions)}"
    with both.stream(path) as stream:
        coming = stream.frames()
        assert {next(coming)[1], next(coming)[1]} == {"snapshot"}
        for session in sessions:
            both.post(f"/api/sessions/{session}/stop")
        frames = list(coming)
    assert [frame[1] for frame in frames].count("session_end") == 2
    answer = both.http.get(path, headers={"last-event-id": frames[-1][0]})
    assert (answer.status_code, answer.content) == (204, b"")
    assert [frame[1] for frame in all_frames(both, path)] == ["snapshot", "snapshot"]


def test_the_stream_over_all_sessions_has_only_state_changes_each_exactly_once(both: LocalServer) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    with both.stream("/api/events?all=true") as stream:
        marker = both.create()
        position = next(
            place for place, kind, data in stream.frames() if (kind, data["session_id"]) == ("session_created", marker)
        )
    first, second = two(both)
    both.send(first, "stream 150 3")
    both.send(second, "tool Bash ls\nstream 150 3\npermit Deploy")
    both.post(f"/api/sessions/{second}/prompts/{both.prompt(second)['prompt_id']}", {"cancel": True}, expect=200)
    seen: dict[str, list[tuple[int, str]]] = {first: [], second: []}
    while not all(any(kind == "waiting_for_input" for _, kind in seen[session]) for session in (first, second)):
        received = cut_after(both, "/api/events?all=true", position, chance.randint(1, 3_000), chance.uniform(0, 0.2))
        for identity, kind, data in whole_frames(received):
            seen.setdefault(data["session_id"], []).append((data["seq"], kind))
            position = identity
    for session in (first, second):
        events = seen[session]
        expected = [(event["seq"], event["type"]) for event in both.log(session) if event["type"] in STREAMED]
        assert events == expected[: len(events)], f"seed {seed}"
        assert "assistant_text" not in {kind for _, kind in events}


@pytest.mark.one_server
def test_a_position_past_the_end_of_the_stream_over_all_sessions_continues_from_the_end(server: LocalServer) -> None:
    with server.stream("/api/events?all=true", "99999999") as stream:
        session = server.create()
        assert next(stream.frames())[2]["session_id"] == session


def test_a_viewer_of_all_sessions_receives_the_erasure_of_a_session(both: LocalServer) -> None:
    running, ended = two(both)
    both.post(f"/api/sessions/{ended}/stop")
    with both.stream("/api/events?all=true") as stream:
        for session in (ended, running):
            assert both.http.delete(f"/api/sessions/{session}?purge=true").status_code == 200
            told = next(data for _, kind, data in stream.frames() if kind == "session_erased")
            assert (told["session_id"], set(told)) == (session, {"type", "session_id", "at"})


def test_an_idle_viewer_of_all_sessions_is_removed_when_it_disconnects(both: LocalServer) -> None:
    def watchers() -> int:
        return int(both.ask(lambda: len(both.server.engine.feed.followers)))

    # The server may not have noticed yet that the viewer of the previous test has left.
    eventually(lambda: watchers() == 0, "nobody watches")
    with both.stream("/api/events?all=true"):
        eventually(lambda: watchers() == 1, "one watches")
    eventually(lambda: watchers() == 0, "it is gone")


def test_a_stream_over_no_or_too_many_sessions_is_refused(server: LocalServer) -> None:
    many = ",".join(f"s_{n}" for n in range(201))
    for query, status in (
        ("", 400),
        ("?sessions=", 400),
        ("?sessions=,,", 400),
        (f"?sessions={many}", 400),
        ("?all=perhaps", 400),
        ("?sessions=s_none", 404),
        ("?all=true&offset=1.2", 400),
        ("?all=true&offset=x", 400),
    ):
        answer = server.http.get(f"/api/events{query}")
        assert answer.status_code == status, query
        assert answer.headers["content-type"] == "application/problem+json"
