"""Nodes over HTTP, on a single node: what it shows and refuses, and readiness for load balancers."""

from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import pytest

from perdure import __version__
from perdure.core.errors import STATUS_OF_CODE
from perdure.runtime.verbs.nodes import Readiness
from perdure.surfaces.client import Address, Client, Problem
from perdure.surfaces.http import nodes as shapes
from perdure.surfaces.http.app import make_app
from tests.surfaces.http.local import TOKEN, LocalServer
from tests.surfaces.http.test_access import is_problem

Json = dict[str, Any]


def own_node(server: LocalServer) -> Json:
    found = server.get("/api/nodes")
    msgspec.convert(found, shapes.NodeList)
    (node,) = found["nodes"]
    return dict(node)


def test_the_only_node_shows_itself_and_counts_its_sessions(make_server: Callable[..., LocalServer]) -> None:
    server = make_server(slots=3)
    node = own_node(server)
    assert (node["this"], node["state"], node["draining"], node["last_seen_s"]) == (True, "alive", False, None)
    assert (node["version"], node["slots"], node["sessions"], node["running"]) == (__version__, 3, 0, 0)
    assert "rehearsal" in node["agents"] and node["url"] == server.url
    idle, busy, ended = server.create(), server.create(), server.create()
    server.send(busy, "hang")
    server.post(f"/api/sessions/{ended}/stop")
    assert (own_node(server)["sessions"], own_node(server)["running"]) == (2, 1)
    server.post(f"/api/sessions/{idle}/stop")
    assert own_node(server)["sessions"] == 1


def test_a_session_names_its_node_alone_and_in_lists(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say hello")
    node = own_node(server)["id"]
    alone = server.get(f"/api/sessions/{session}")
    listed = next(each for each in server.get("/api/sessions")["sessions"] if each["id"] == session)
    assert alone["node"] == listed["node"] == node
    assert alone["node_name"] == listed["node_name"] and alone["node_name"]


@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [
        ("POST", "/drain", None),
        ("POST", "/resume", None),
        ("DELETE", "", None),
        ("POST", "/move", {"session_ids": ["s_1"]}),
        ("POST", "/move", {"from": "other"}),
    ],
)
def test_node_verbs_on_a_single_node_say_what_several_nodes_need(
    server: LocalServer, method: str, rest: str, body: Json | None
) -> None:
    for node in (own_node(server)["id"], "other"):
        answer = server.http.request(method, f"/api/nodes/{node}{rest}", json=body)
        assert is_problem(answer, 409, "conflict")
        assert "PostgreSQL" in answer.json()["detail"]


def test_a_move_requires_a_list_of_session_ids(server: LocalServer) -> None:
    for body in ({"session_ids": "s_1"}, {"session_ids": [7]}, {"session_ids": ["s"] * 1001}, {"from": ""}):
        assert is_problem(server.http.post("/api/nodes/here/move", json=body), 400, "invalid")


def test_readiness_needs_no_token(server: LocalServer) -> None:
    with server.client() as stranger:
        answer = stranger.get("/api/ready")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ready", "node": own_node(server)["id"]}


def test_a_stopping_server_is_alive_but_not_ready(server: LocalServer) -> None:
    readiness, parts = Readiness(), server.server
    given = (parts.sessions, parts.engine.jobs, parts.hub, parts.access)
    made = make_app(*given, set(), nodes=parts.engine.nodes, readiness=readiness)

    async def asked(path: str) -> httpx2.Response:
        transport = httpx2.ASGITransport(app=made)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as stranger:
            return await stranger.get(path)

    assert server.run(asked("/api/ready")).status_code == 200
    readiness.is_stopping = True
    answer = server.run(asked("/api/ready"))
    assert is_problem(answer, STATUS_OF_CODE["unavailable"], "unavailable")
    assert "stopping" in answer.json()["detail"]
    assert server.run(asked("/api/health")).json()["status"] == "ok"


def test_the_client_has_a_method_for_each_node_verb(server: LocalServer) -> None:
    with Client(Address(server.url, TOKEN)) as client:
        (node,) = client.nodes()
        assert client.ready() == {"status": "ready", "node": node["id"]}
        asked: list[Callable[[], Json]] = [
            lambda: client.drain_node("a name"),
            lambda: client.resume_node("ä"),
            lambda: client.remove_node(node["id"]),
            lambda: client.move_sessions("other", ["s_1"]),
            lambda: client.move_sessions("other", from_node="here"),
        ]
        for ask in asked:
            with pytest.raises(Problem) as caught:
                ask()
            assert caught.value.code == "conflict"
