"""Attachments of messages: stored once, named to the agent, shown to people, erased with the session."""

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.http.local import LocalServer

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def inside(name: str, data: bytes = PIXEL, **more: Any) -> dict[str, Any]:
    return {"name": name, "data": base64.b64encode(data).decode(), **more}


def files(server: LocalServer, session: str) -> list[Path]:
    return sorted((server.data / "attachments" / session).glob("*"))


@pytest.mark.one_server
def test_a_file_inside_a_message_is_stored_beside_the_log_and_named_in_it(server: LocalServer) -> None:
    session = server.create()
    given = [inside("shot.png", mime_type="image/png"), {"path": "/srv/notes.txt"}]
    server.turn(session, "say seen", attachments=given)
    picture, notes = server.transcript(session)[0]["message"]["attachments"]
    assert (picture["name"], picture["mime_type"], picture["size"]) == ("shot.png", "image/png", len(PIXEL))
    assert "data" not in picture and notes == {"path": "/srv/notes.txt"}
    [kept] = files(server, session)
    assert (kept.read_bytes(), kept.stat().st_mode & 0o777, str(kept)) == (PIXEL, 0o600, picture["path"])
    shown = server.http.get(f"/api/sessions/{session}/attachments/{picture['file']}")
    assert (shown.status_code, shown.content, shown.headers["content-type"]) == (200, PIXEL, "image/png")
    assert shown.headers["x-content-type-options"] == "nosniff"


def test_a_file_that_a_browser_could_execute_is_always_sent_as_a_download(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say seen", attachments=[inside("a.html", b"<script>", mime_type="text/html")])
    [kept] = server.transcript(session)[0]["message"]["attachments"]
    saved = server.http.get(f"/api/sessions/{session}/attachments/{kept['file']}")
    assert saved.headers["content-type"] == "application/octet-stream"
    assert 'attachment; filename="a.html"' in saved.headers["content-disposition"]


@pytest.mark.parametrize("agent", ["rehearsal", "rehearsal-stream", "rehearsal-resume"])
def test_the_agent_gets_the_path_of_a_file_or_the_image_itself(server: LocalServer, agent: str) -> None:
    session = server.create(agent=agent)
    server.turn(session, "say seen", attachments=[inside("notes.txt", b"hello")])
    assert server.turn(session, "say on", attachments=[inside("shot.png")])["stop_reason"] == "end_turn"
    fresh = server.turn(session, "say fresh", fresh=True)
    assert fresh["stop_reason"] == "end_turn" and fresh["input_bytes"] > 0


@pytest.mark.parametrize(
    ("attachment", "said"),
    [
        ({"name": "a"}, "needs data (base64), a path or a uri"),
        ({"name": "a", "data": "not base64!"}, "must be base64"),
        ({"name": "a", "data": 7}, "must be base64"),
        ({"path": "/a", "data": None}, "must be base64"),
        ({"path": "/a", "mime_type": "image/png", "media_type": {}}, "The media_type of an attachment must be text"),
        ({"name": 7, "path": "/x"}, "must be text"),
        ({"uri": 7}, "needs data (base64), a path or a uri"),
    ],
)
def test_a_malformed_attachment_is_refused_and_nothing_is_stored(
    server: LocalServer, attachment: dict[str, Any], said: str
) -> None:
    session = server.create()
    before = server.log(session)
    body = {"text": "say it", "attachments": [inside("good.png"), attachment]}
    refused = server.post(f"/api/sessions/{session}/messages", body, expect=400)
    assert refused["code"] == "invalid" and said in refused["error"]
    assert (server.log(session), files(server, session)) == (before, [])


def test_a_refused_message_leaves_no_file(server: LocalServer) -> None:
    session = server.create()
    server.send(session, "hang")
    body = {"text": "say it", "attachments": [inside("a.png")]}
    server.post(f"/api/sessions/{session}/messages", body, expect=409)
    assert files(server, session) == []
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait_idle(session)


@pytest.mark.one_server
def test_a_repeated_message_stores_its_file_once(server: LocalServer) -> None:
    session = server.create()
    body = {"text": "say it", "message_id": "once", "attachments": [inside("a.png")]}
    first = server.post(f"/api/sessions/{session}/messages", body, expect=202)
    assert server.post(f"/api/sessions/{session}/messages", body, expect=202) == first
    assert len(files(server, session)) == 1
    server.wait_idle(session)


@pytest.mark.one_server
@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "..", "a\x00b", "é" * 300, "漢" * 100 + ".txt", ""]
)
def test_no_attachment_name_escapes_the_folder(server: LocalServer, name: str) -> None:
    session = server.create()
    server.turn(session, "say it", attachments=[inside(name, b"x")])
    [kept] = files(server, session)
    assert kept.parent == server.data / "attachments" / session
    for file in ("..%2f..%2ftoken", "%2e%2e", "nothing"):
        assert server.http.get(f"/api/sessions/{session}/attachments/{file}").status_code == 404
    for place in ("%2e%2e", "%2e", "nobody"):
        for file in ("token", "perdure.db", "install"):
            assert server.http.get(f"/api/sessions/{place}/attachments/{file}").status_code == 404


def test_a_retry_and_a_fork_have_the_file_and_a_purge_erases_only_its_own(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say it", attachments=[inside("a.png")])
    server.post(f"/api/sessions/{session}/retry", {"turn": 1}, expect=202)
    server.wait_idle(session)
    [again] = server.transcript(session)[0]["message"]["attachments"]
    assert Path(again["path"]).read_bytes() == PIXEL
    forked = server.post(f"/api/sessions/{session}/fork", expect=201)["id"]
    server.http.delete(f"/api/sessions/{session}?purge=true")
    assert files(server, session) == []
    [own] = server.transcript(forked)[0]["message"]["attachments"]
    assert Path(own["path"]).parent.name == forked and Path(own["path"]).read_bytes() == PIXEL


def test_a_size_that_a_client_claims_is_ignored(server: LocalServer) -> None:
    session = server.create()
    given = [
        {"path": "/x.png", "mime_type": "image/png", "size": None},
        {"uri": "x:y", "size": "1", "file": "../token"},
    ]
    assert server.turn(session, "say it", attachments=given)["stop_reason"] == "end_turn"
    assert server.transcript(session)[0]["message"]["attachments"] == [
        {"mime_type": "image/png", "path": "/x.png"},
        {"uri": "x:y"},
    ]


@pytest.mark.one_server
def test_withdrawing_a_message_deletes_its_files(server: LocalServer) -> None:
    session = server.create()
    server.send(session, "hang")
    queued = server.send(session, "say it", when_busy="queue", attachments=[inside("a.png")])
    assert len(files(server, session)) == 1
    server.http.delete(f"/api/sessions/{session}/queue/{queued['message_id']}")
    assert files(server, session) == []
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait_idle(session)
