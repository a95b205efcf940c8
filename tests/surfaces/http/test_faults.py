"""A failure of ours is said to be one, is contained in its own request or stream, and leaves the server working."""

import pytest

from perdure.runtime.log.journal import Journal
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem


async def fails(*_: object) -> None:
    raise RuntimeError("a bug")


def test_a_bug_is_answered_as_one_without_its_details(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    session = server.create()
    with monkeypatch.context() as patch:
        patch.setattr(server.server.sessions, "get", fails)
        answer = server.http.get(f"/api/sessions/{session}")
        assert is_problem(answer, 500, "internal")
        assert "a bug" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert server.http.get(f"/api/sessions/{session}").status_code == 200


def test_a_stream_that_fails_closes_and_can_be_opened_again(both: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    session = both.create()
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "snapshot_frame", fails)
        with both.watch(session) as stream:
            assert list(stream.frames()) == []
    with both.watch(session) as stream:
        assert next(stream.frames())[1] == "snapshot"


def test_a_stream_whose_server_stops_is_closed(both: LocalServer) -> None:
    session = both.create()
    port = both.port
    with both.watch(session) as stream, both.stream("/api/events?all=true") as everything:
        frames = stream.frames()
        assert next(frames)[1] == "snapshot"
        both.stop()
        assert list(frames) == []
        assert list(everything.frames()) == []
    both.start(port)
    with both.watch(session, "1") as stream:
        both.post(f"/api/sessions/{session}/stop")
        assert next(stream.frames())[1] == "session_end"
