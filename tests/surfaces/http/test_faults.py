"""A bug in the server is reported as an internal error, affects only its request or stream, and stops nothing else."""

import pytest

from perdure.runtime.log.journal import Journal
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem


async def fails(*_: object) -> None:
    raise RuntimeError("a bug")


def test_a_bug_is_reported_as_an_internal_error_without_details(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = server.create()
    with monkeypatch.context() as patch:
        patch.setattr(server.server.sessions, "get", fails)
        answer = server.http.get(f"/api/sessions/{session}")
        assert is_problem(answer, 500, "internal")
        assert "a bug" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert server.http.get(f"/api/sessions/{session}").status_code == 200


def test_a_failed_stream_closes_and_can_be_reopened(both: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    session = both.create()
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "snapshot_frame", fails)
        with both.watch(session) as stream:
            assert list(stream.frames()) == []
    with both.watch(session) as stream:
        assert next(stream.frames())[1] == "snapshot"


def test_a_stopping_server_closes_its_streams(both: LocalServer) -> None:
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
