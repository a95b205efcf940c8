"""After compaction, every position still works: a position inside a joined range gets the rest of that range."""

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness import eventually, no_holes
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.reading import all_frames

EXAMPLES = 60


class Ended(NamedTuple):
    """A compacted session, and its events as a viewer saw them live."""

    id: str
    live: list[Any]
    last: int


@pytest.fixture(scope="module")
def joined(server: LocalServer) -> Ended:
    session = server.create()
    with server.stream(f"/api/sessions/{session}/events?offset=0") as stream:
        server.turn(
            session, "think hm\nstream 60 20\ntool Bash ls\nstream 60 1\nsay f\u00fcr \U0001f600 alle\nstream 20 1"
        )
        server.turn(session, "stream 30 1")
        server.post(f"/api/sessions/{session}/stop", expect=200)
        live = [data for _, _, data in stream.frames()]
    eventually(lambda: server.ask(lambda: session not in server.server.engine.runners), "the agent is gone")
    server.compacted()
    # Events in memory would be served uncompacted, so evict them.
    server.evict(session)
    return Ended(session, live, live[-1]["seq"])


def said(events: list[Any]) -> list[tuple[str, int | None, str]]:
    """Text by type and block, with adjacent deltas joined; other events by their type."""
    found: list[tuple[str, int | None, str]] = []
    for event in events:
        if "delta" not in event:
            found.append((event["type"], None, ""))
        elif found and found[-1][:2] == (event["type"], event["block"]):
            found[-1] = (*found[-1][:2], found[-1][2] + event["delta"])
        else:
            found.append((event["type"], event["block"], event["delta"]))
    return found


@pytest.mark.full
def test_a_compacted_turn_is_smaller_and_has_the_same_content(server: LocalServer, joined: Ended) -> None:
    events = server.log(joined.id)
    no_holes(joined.live)
    no_holes(events)
    assert len(events) < len(joined.live)
    assert any(event.get("first_seq", event["seq"]) < event["seq"] for event in events)
    assert said(events)[: len(said(joined.live))] == said(joined.live)


@pytest.mark.one_server
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_position_gets_exactly_the_rest(server: LocalServer, joined: Ended, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, joined.last - 1))
    expected = said([event for event in joined.live if event["seq"] > position])
    server.evict(joined.id)
    frames = [event for _, _, event in all_frames(server, f"/api/sessions/{joined.id}/events", str(position))]
    if frames[0]["type"] == "snapshot":
        # Allowed only if the rest is larger than a snapshot, which is never the case for this short session.
        raise AssertionError("a snapshot was not needed")
    assert frames[0].get("first_seq", frames[0]["seq"]) == position + 1
    assert said(frames)[: len(expected)] == expected
    lines = server.log(joined.id, after=position)
    assert [line["seq"] for line in lines] == [frame["seq"] for frame in frames]
    assert said(lines) == said(frames)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(offset=st.integers(0, 300), limit=st.integers(1, 300))
def test_the_log_can_be_read_in_pieces_without_gaps(
    server: LocalServer, joined: Ended, offset: int, limit: int
) -> None:
    answer = server.http.get(f"/api/sessions/{joined.id}/log", params={"offset": offset, "limit": limit})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in answer.text.split("\n") if line] == server.log(joined.id, after=offset)[:limit]


@pytest.mark.one_server
def test_a_viewer_that_missed_more_than_the_limit_gets_a_snapshot(server: LocalServer, joined: Ended) -> None:
    server.evict(joined.id)
    limit, server.server.hub.replay_limit = server.server.hub.replay_limit, 10
    try:
        frames = all_frames(server, f"/api/sessions/{joined.id}/events", "1")
    finally:
        server.server.hub.replay_limit = limit
    assert [kind for _, kind, _ in frames] == ["snapshot"]


def test_a_rest_larger_than_a_snapshot_is_replaced_by_a_snapshot(server: LocalServer) -> None:
    session = server.create()
    for _ in range(3):
        server.turn(session, "big 60000\nbig 60000\nbig 60000")
    server.turn(session, "say short")
    server.post(f"/api/sessions/{session}/stop")
    eventually(lambda: server.ask(lambda: session not in server.server.engine.runners), "the agent is gone")
    server.evict(session)
    assert [kind for _, kind, _ in all_frames(server, f"/api/sessions/{session}/events", "1")] == ["snapshot"]
