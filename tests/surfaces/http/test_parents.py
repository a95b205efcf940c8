"""Sessions started by another session: the parent is given at creation, never changes, and has no other effect."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem
from tests.surfaces.http.test_import import body, take_in

CREATING: list[tuple[str, dict[str, Any]]] = [
    ("/api/sessions", {}),
    ("/api/sessions", {"message": "say one"}),
    ("/api/messages", {"text": "say one"}),
    ("/api/messages", {"text": "say one", "message_id": "once"}),
    ("/api/run", {"text": "say one"}),
    ("/agents/rehearsal/sessions", {"title": "Diane's"}),
]


def children(server: LocalServer, parent: str) -> list[str]:
    return [found["id"] for found in server.get(f"/api/sessions?parent={parent}")["sessions"]]


@pytest.mark.parametrize(("path", "fields"), CREATING)
def test_every_way_to_create_a_session_accepts_a_parent(server: LocalServer, path: str, fields: dict[str, Any]) -> None:
    parent = server.create()
    answer = server.http.post(path, json={**fields, "parent": parent})
    assert answer.status_code in (200, 201, 202), answer.text
    made = answer.json().get("id") or answer.json()["session_id"]
    assert server.session(made)["parent"] == parent
    assert server.log(made)[0]["session"]["parent"] == parent
    assert children(server, parent) == [made] and children(server, made) == []
    assert server.session(parent)["parent"] is None


@pytest.mark.parametrize(("path", "fields"), CREATING)
def test_an_unknown_parent_is_refused_and_nothing_is_created(
    server: LocalServer, path: str, fields: dict[str, Any]
) -> None:
    before = len(server.get("/api/sessions?limit=1000")["sessions"])
    refused = server.http.post(path, json={**fields, "parent": "s_none", "message_id": "unknown-parent"})
    assert is_problem(refused, 404, "not_found")
    assert refused.json()["detail"] == "There is no session s_none to be the parent. Leave parent out."
    assert len(server.get("/api/sessions?limit=1000")["sessions"]) == before


def test_a_message_to_an_existing_session_does_not_change_its_parent(server: LocalServer) -> None:
    session, parent = server.create(), server.create()
    server.post("/api/messages", {"text": "say one", "session_id": session, "parent": parent}, expect=202)
    server.wait_idle(session)
    assert server.session(session)["parent"] is None


def test_a_repeated_message_finds_its_session_even_if_the_parent_is_gone(server: LocalServer) -> None:
    parent = server.create()
    sent = {"text": "say one", "message_id": "child-of-a-gone-one", "parent": parent}
    first = server.post("/api/messages", sent, expect=202)
    server.http.delete(f"/api/sessions/{parent}?purge=true")
    assert server.post("/api/messages", sent, expect=202) == first


def test_children_stay_when_their_parent_ends_or_is_erased(server: LocalServer) -> None:
    parent = server.create()
    child = server.create(parent=parent)
    grandchild = server.create(parent=child)
    server.post(f"/api/sessions/{parent}/stop", expect=200)
    assert server.turn(child, "say on")["stop_reason"] == "end_turn"
    late = server.create(parent=parent)
    assert server.http.delete(f"/api/sessions/{parent}?purge=true").status_code == 200
    assert server.turn(child, "say still on")["stop_reason"] == "end_turn"
    assert server.session(child)["parent"] == parent
    assert set(children(server, parent)) == {child, late}
    assert children(server, child) == [grandchild]
    assert is_problem(server.http.post("/api/sessions", json={"parent": parent}), 404, "not_found")


def test_a_fork_has_no_parent(server: LocalServer) -> None:
    child = server.create(parent=server.create())
    server.turn(child, "say one")
    assert server.post(f"/api/sessions/{child}/fork", expect=201)["parent"] is None


@pytest.mark.smoke
def test_the_parent_survives_a_restart(make_server: Callable[..., LocalServer]) -> None:
    server = make_server()
    parent = server.create()
    child = server.create(parent=parent)
    server.stop()
    server.start()
    assert server.session(child)["parent"] == parent
    assert children(server, parent) == [child]


def test_a_session_can_be_imported_before_its_parent(server: LocalServer) -> None:
    assert take_in(server, body("young", parent="old"))["parent"] == "old"
    assert take_in(server, body("old"))["parent"] is None
    assert children(server, "old") == ["young"]
    assert take_in(server, body("own", parent="own"))["parent"] is None


@pytest.mark.parametrize("parent", ["\ud800", "s\x00", "../s", "", 7])
def test_an_invalid_parent_id_is_refused(server: LocalServer, parent: Any) -> None:
    refused = server.http.post("/api/sessions", content=json.dumps({"parent": parent}))
    assert refused.status_code in (400, 404), refused.text
    refused = server.http.post("/api/import", content=json.dumps(body("stranger", parent=parent)))
    assert is_problem(refused, 400, "invalid")
