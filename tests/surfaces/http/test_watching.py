"""Watching one session: every viewer sees every event once and in order, wherever it starts or is disconnected."""

import random
from typing import Any

import pytest

from tests.harness import eventually, no_holes
from tests.sizes import size
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.reading import Reading, all_frames, connect, cut_after, receive_until, whole_frames

CUTS = size("CUTS", 100, fast=20)


def events(session: str, query: str = "") -> str:
    return f"/api/sessions/{session}/events{query}"


def ended(server: LocalServer, text: str) -> str:
    """A session that was stopped after one turn."""
    session = server.create()
    server.turn(session, text)
    server.post(f"/api/sessions/{session}/stop", expect=200)
    return session


def allow(server: LocalServer, session: str, prompt: Any) -> None:
    server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", {"option_id": "allow_once"}, expect=200)


def settled(server: LocalServer, session: str) -> int:
    """Wait until the agent is gone, so no more events follow. Returns the number of the last event."""
    eventually(lambda: server.ask(lambda: session not in server.server.engine.runners), "the agent is gone")
    return int(server.session(session)["event_count"])


def test_a_viewer_that_joins_during_a_turn_gets_a_snapshot_and_then_each_later_event_once(both: LocalServer) -> None:
    session = both.create()
    both.send(session, "stream 100\npermit Deploy\nstream 200 4")
    prompt = both.prompt(session)
    reading = Reading()
    with both.watch(session) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        allow(both, session, prompt)
        for frame in stream.until("waiting_for_input"):
            reading.take(frame)
    assert reading.types[0] == "snapshot"
    assert reading.snapshots == 1
    assert "assistant_text" in reading.types
    assert reading.text == both.text(session, 1)
    assert reading.text.startswith("w0 w1 ") and reading.text.endswith("w198 w199 ")


def test_a_viewer_disconnected_many_times_ends_with_the_same_text(both: LocalServer) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    session = both.create()
    both.send(session, f"think first\nstream {8 * CUTS} 4\npermit Deploy\nstream 200 4\ntool Bash ls\nsay the end")
    reading, position, cuts = Reading(), None, 0
    while "waiting_for_input" not in reading.types:
        if cuts == CUTS:
            # The turn can't end before this.
            allow(both, session, both.prompt(session))
        # Most pieces are small; an occasional large one lets a snapshot through.
        count = chance.randint(1, 1_800) if chance.random() < 0.9 else 10**6
        received = cut_after(both, events(session), position, count, chance.uniform(0, 0.2))
        cuts += 1
        for frame in whole_frames(received):
            reading.take(frame)
            position = frame[0]
    assert reading.text == both.text(session, 1), f"seed {seed}"


def test_fifty_viewers_see_the_same_events_in_the_same_order(both: LocalServer) -> None:
    session = both.create()
    both.turn(session, "say warm")
    position = str(both.session(session)["event_count"])
    streams = [both.watch(session, position if n % 2 else None) for n in range(50)]
    both.send(session, "stream 200 2")
    sequences = []
    for stream in streams:
        reading = Reading(int(position))
        frames = stream.until("waiting_for_input")
        stream.close()
        for frame in frames:
            reading.take(frame)
        sequences.append([(frame[0], frame[1]) for frame in frames if frame[1] != "snapshot"])
        assert reading.text == both.text(session, 2)
    assert all(sequence == sequences[0] for sequence in sequences)


def test_a_viewer_at_offset_zero_gets_everything_from_the_first_event(both: LocalServer) -> None:
    session = ended(both, "say one\ntool Bash ls\nsay two")
    last = settled(both, session)
    assert [frame[1] for frame in all_frames(both, events(session))] == ["snapshot"]
    replayed = [data for _, _, data in all_frames(both, events(session, "?offset=0"))]
    no_holes(replayed)
    assert replayed[0]["type"] == "session_created"
    assert replayed[-1]["seq"] == last


@pytest.mark.parametrize("position", ["999999", "99999999999999999", "1-7", "0-999999999"])
def test_a_position_that_does_not_belong_to_this_log_gets_a_snapshot(both: LocalServer, position: str) -> None:
    session = both.create()
    for query, header in ("", position), (f"?offset={position}", None):
        with both.stream(events(session, query), header) as stream:
            assert next(stream.frames())[1] == "snapshot"


@pytest.mark.parametrize(
    "position",
    ["", "x", "-1", "1.5.", "1.2", "1-", "1-x", "-", "+3", "1 2", "1e3", "\u0661", "9" * 18, "1-" + "9" * 10],
)
def test_an_invalid_position_is_refused(server: LocalServer, position: str) -> None:
    session = server.create()
    by_query = server.http.get(events(session), params={"offset": position})
    assert (by_query.status_code, by_query.json()["code"]) == (400, "invalid")
    by_header = server.http.get(events(session), headers={b"last-event-id": position.encode()})
    assert by_header.status_code == 400


def test_the_header_wins_over_the_offset(server: LocalServer) -> None:
    session = ended(server, "say hello")
    settled(server, session)
    frames = all_frames(server, events(session, "?offset=0"), "3")
    assert frames[0][2]["seq"] == 4
    assert server.http.get(events(session, "?offset=0"), headers={"last-event-id": "x"}).status_code == 400


def test_the_stream_of_a_session_that_ends_closes_after_its_last_events(both: LocalServer) -> None:
    session = both.create()
    both.turn(session, "say hello")
    with both.watch(session) as stream:
        coming = stream.frames()
        assert next(coming)[1] == "snapshot"
        both.post(f"/api/sessions/{session}/stop")
        types = [frame[1] for frame in coming]
    assert types[-1] in ("session_end", "agent_detached")
    assert "session_end" in types


def test_a_reconnect_at_the_end_of_an_ended_session_gets_204(both: LocalServer) -> None:
    session = ended(both, "say hello")
    last = settled(both, session)
    answer = both.http.get(events(session), headers={"last-event-id": str(last)})
    assert (answer.status_code, answer.content) == (204, b"")
    assert both.http.get(events(session, f"?offset={last}")).status_code == 204
    before = all_frames(both, events(session), str(last - 1))
    assert [frame[2]["seq"] for frame in before] == [last]


def test_an_idle_stream_has_heartbeats(both: LocalServer) -> None:
    session = both.create()
    with connect(both, events(session)) as connection:
        # On a busy machine, a heartbeat may also arrive before the first frame.
        received = receive_until(connection, b"event: snapshot")
        received += receive_until(connection, b": \n\n")
    assert whole_frames(received)[0][1] == "snapshot"


def test_an_unknown_session_has_no_stream(server: LocalServer) -> None:
    answer = server.http.get(events("s_none"))
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_head_of_a_stream_does_not_open_it(both: LocalServer) -> None:
    session = both.create()
    answer = both.http.head(events(session))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert both.http.head("/api/events?all=true").status_code == 200
    assert both.viewers(session) == []


def test_viewers_that_disconnect_are_removed(both: LocalServer) -> None:
    session = both.create()
    streams = [both.watch(session) for _ in range(5)]

    def watching() -> int:
        return len(both.viewers(session))

    eventually(lambda: watching() == 5, "five viewers")
    for stream in streams:
        stream.close()
    eventually(lambda: watching() == 0, "no viewer")


@pytest.mark.one_server
def test_data_sent_by_a_viewer_is_ignored(server: LocalServer) -> None:
    session = server.create()
    with connect(server, events(session)) as connection:
        receive_until(connection, b"event: snapshot")
        connection.sendall(b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 10)
        server.send(session, "say hello")
        received = receive_until(connection, b"event: waiting_for_input")
    assert b"HTTP/1.1" not in received
