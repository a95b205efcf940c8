"""Refused with a hint: unknown filter values, and known fields that the request can't set. Unknown fields are ignored,
so new clients work with old servers."""

from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.teamhq_client import TeamHQ
from tests.surfaces.http.test_access import is_problem

Json = dict[str, Any]


# Filters --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "query", "words"),
    [
        ("/api/sessions", {"status": "nonsense"}, "running, completed, stopped, timed-out, failed"),
        ("/api/sessions", {"state": "running"}, "processing, idle, ended"),
        ("/api/sessions", {"archived": "maybe"}, "true or false"),
        ("/api/sessions", {"workdir": "here"}, "absolute"),
        ("/api/sessions", {"limit": "0"}, "from 1 to 1000"),
        ("TEAM", {"status": "nonsense"}, "running, completed, stopped, timed-out, failed"),
        ("TEAM", {"state": "nonsense"}, "processing, idle, ended"),
        ("TEAM", {"limit": "none"}, "from 1 to 1000"),
        ("/sessions", {"status": "running"}, "active, idle, disconnected, closed"),
        ("/agents/rehearsal/sessions", {"status": "nonsense"}, "active, idle, disconnected, closed"),
        ("/agents/rehearsal/sessions", {"workdir": "here"}, "absolute"),
        ("/api/usage", {"group_by": "nonsense"}, "day, agent"),
        ("/api/usage", {"since": "yesterday"}, "2026-01-31"),
        ("SESSION/transcript", {"format": "nonsense"}, "json or markdown"),
        ("SESSION/transcript", {"rewound": "nonsense"}, "true or false"),
        ("/api/events", {"all": "nonsense"}, "true or false"),
    ],
)
def test_a_filter_value_that_does_not_exist_is_refused(
    server: LocalServer, tmp_path: Path, path: str, query: dict[str, str], words: str
) -> None:
    if path == "TEAM":
        path = TeamHQ(server, tmp_path / "site").sessions
    elif path.startswith("SESSION"):
        path = path.replace("SESSION", f"/api/sessions/{server.create()}")
    answer = server.http.get(path, params=query)
    assert is_problem(answer, 400, "invalid")
    assert words in answer.json()["error"]


def test_teamhqs_list_is_filtered_by_status_and_state(server: LocalServer, tmp_path: Path) -> None:
    team = TeamHQ(server, tmp_path / "site")
    stopped, idle = team.started("say one"), team.started("say two")
    team.stop(stopped)

    def found(**query: str) -> list[str]:
        answer = server.http.get(team.sessions, params=query)
        return [entry["id"] for entry in answer.json()["sessions"]]

    assert found(status="stopped") == found(state="ended") == [stopped]
    assert found(status="running") == found(state="idle") == [idle]
    assert found(status="failed") == []


# Fields ---------------------------------------------------------------------------------------------------------------

IN_THE_FILE = "perdure.toml"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("resume", "never", IN_THE_FILE),
        ("runner_mode", "resume", IN_THE_FILE),
        ("options", {"skip_permissions": True}, IN_THE_FILE),
        ("id", "another", "derived from the name"),
        ("active_session_id", "another", "most recently active"),
        ("activeSessionId", "another", "most recently active"),
    ],
)
def test_fields_of_a_project_that_cannot_be_set_are_refused(
    server: LocalServer, tmp_path: Path, field: str, value: Any, words: str
) -> None:
    team = TeamHQ(server, tmp_path / "site")
    path = f"/api/projects/{team.project}"
    before = server.get(path)
    given = {"name": "new", "path": str(tmp_path), field: value}
    known = len(server.get("/api/projects")["projects"])
    for answer in (
        server.http.patch(path, json={"name": "x", field: value}),
        server.http.post("/api/projects", json=given),
    ):
        assert is_problem(answer, 400, "invalid")
        assert field in answer.json()["error"] and words in answer.json()["error"]
    assert server.get(path) == before
    assert len(server.get("/api/projects")["projects"]) == known


def test_a_project_can_be_sent_back_as_received(server: LocalServer, tmp_path: Path) -> None:
    team = TeamHQ(server, tmp_path / "site")
    session = team.started("say one")
    path = f"/api/projects/{team.project}"
    shown = server.get(path)
    assert shown["active_session_id"] == session
    answer = server.http.patch(path, json={**shown, "instructions": "be kind"})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {**shown, "instructions": "be kind"}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("model", "rehearsal-2", "/config"),
        ("mode", "auto", "/config"),
        ("config", {"effort": "high"}, "/config"),
        ("agent", "rehearsal-stream", "next message"),
        ("project", "site", "when the session is created"),
        ("workdir", "/", "when the session is created"),
        ("parent", "s_1", "when the session is created"),
        ("limits", {"idle_timeout_s": 5}, "when the session is created"),
        ("permissions", [{"tool": "*", "action": "allow"}], "project"),
    ],
)
def test_fields_of_a_session_that_cannot_be_changed_are_refused(
    server: LocalServer, field: str, value: Any, words: str
) -> None:
    session = server.create()
    path = f"/api/sessions/{session}"
    answer = server.http.patch(path, json={"title": "new", field: value})
    assert is_problem(answer, 400, "invalid")
    assert field in answer.json()["error"] and words in answer.json()["error"]
    assert server.session(session)["title"] == ""


def test_a_session_can_be_sent_back_as_received(server: LocalServer) -> None:
    session = server.create(title="old", labels=["one"])
    path = f"/api/sessions/{session}"
    answer = server.http.patch(path, json={**server.session(session), "title": "new"})
    assert answer.status_code == 200 and answer.json()["title"] == "new"


@pytest.mark.parametrize("path", ["/api/sessions", "/api/messages"])
@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("permissions", [{"tool": "*", "action": "deny"}], "project"),
        ("config", {"effort": "high"}, "/config"),
        ("summary", "short", "PATCH"),
        ("archived", True, "PATCH"),
    ],
)
def test_fields_that_a_new_session_cannot_have_are_refused(
    server: LocalServer, path: str, field: str, value: Any, words: str
) -> None:
    known = len(server.get("/api/sessions?limit=1000")["sessions"])
    answer = server.http.post(path, json={"text": "say x", field: value})
    assert is_problem(answer, 400, "invalid")
    assert field in answer.json()["error"] and words in answer.json()["error"]
    assert len(server.get("/api/sessions?limit=1000")["sessions"]) == known


def test_a_session_can_be_sent_back_after_its_turn_has_ended(server: LocalServer) -> None:
    session = server.create()
    before = {**server.session(session), "state": "processing", "title": "Changed"}
    assert server.http.patch(f"/api/sessions/{session}", json=before).json()["title"] == "Changed"


@pytest.mark.parametrize("value", [b'"\xff"', b"1e999", b'{"a": "\xff"}'])
def test_a_malformed_value_in_an_unknown_field_is_never_an_internal_error(server: LocalServer, value: bytes) -> None:
    body = b'{"title": "a", "note": ' + value + b"}"
    answer = server.http.post("/api/sessions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (201, 400), answer.text


def test_an_unknown_field_is_ignored(server: LocalServer, tmp_path: Path) -> None:
    project = server.post("/api/projects", {"name": "new", "path": str(tmp_path), "unknown": 1}, expect=201)
    assert server.http.patch(f"/api/projects/{project['id']}", json={"unknown": 1}).status_code == 200
    session = server.create(unknown=1)
    assert server.http.patch(f"/api/sessions/{session}", json={"unknown": 1}).status_code == 200


def test_an_unknown_limit_is_refused(server: LocalServer, tmp_path: Path) -> None:
    """Otherwise the sender of a misspelt limit would believe that it applies."""
    project = server.post("/api/projects", {"name": "new", "path": str(tmp_path)}, expect=201)
    limits = {"turn_timeout_s": 9, "turn_timeout": 9}
    for method, path, body in (
        ("PATCH", f"/api/projects/{project['id']}", {}),
        ("POST", "/api/projects", {"name": "x", "path": str(tmp_path)}),
        ("POST", "/api/sessions", {}),
        ("POST", "/api/messages", {"text": "say x"}),
    ):
        answer = server.http.request(method, path, json={**body, "limits": limits})
        assert is_problem(answer, 400, "invalid"), path
        assert "unknown field limits.turn_timeout." in answer.json()["error"]
    assert server.get(f"/api/projects/{project['id']}") == project


@pytest.mark.parametrize(
    ("body", "fields"),
    [({"title": 7}, ["title"]), ({"limits": {"silence_s": "x"}}, ["limits.silence_s"]), ([], None), (7, None)],
    ids=str,
)
def test_a_refusal_names_the_affected_fields(server: LocalServer, body: Any, fields: Any) -> None:
    answer = server.http.post("/api/sessions", json=body)
    assert is_problem(answer, 400, "invalid") and answer.json().get("fields") == fields
