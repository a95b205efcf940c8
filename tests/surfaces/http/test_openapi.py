"""The OpenAPI document is correct: what it describes exists, and generated requests get only documented responses."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case as AnyCase
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from perdure.surfaces.http.openapi import document, shown_path
from perdure.surfaces.http.routes import ENDPOINTS
from tests.sizes import size
from tests.surfaces.http.local import TOKEN, LocalServer

EXAMPLES = size("REQUESTS", 20, fast=1)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ENDLESS = r"/events$"
Case = AnyCase[Any]

described = schemathesis.openapi.from_dict(document())
schema = described.exclude(path_regex=ENDLESS)


@pytest.fixture(scope="module")
def known(server: LocalServer) -> dict[str, str]:
    """Existing ids, so that not every generated request gets a 404."""
    session = server.create(title="known")
    server.turn(session, "say hello")
    job = server.post("/api/jobs", {"name": "known", "message": "say hello", "cron": "@yearly"}, expect=201)
    return {
        "session_id": session,
        "job_id": job["id"],
        "node_id": server.get("/api/nodes")["nodes"][0]["id"],
        "name": "rehearsal",
        "project_id": "none",
        "message_id": "m",
        "prompt_id": "p",
        "run_id": f"{session}.1",
        "file": "f",
    }


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_generated_requests_get_documented_answers(case: Case, server: LocalServer, known: dict[str, str]) -> None:
    send(case, server)
    if case.path_parameters and case.method != "DELETE" and not case.path.endswith("/stop"):
        case.path_parameters.update({name: known[name] for name in case.path_parameters})
        send(case, server)


def send(case: Case, server: LocalServer) -> None:
    response = case.call(base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30)
    case.validate_response(response, checks=CHECKS)


def test_every_endpoint_is_described_once(server: LocalServer) -> None:
    shown = server.get("/api/openapi.json")
    assert shown == document(server.server.access.cookie)
    operations = [(path, method) for path, item in shown["paths"].items() for method in item]
    assert len(operations) == len(ENDPOINTS)
    names = [shown["paths"][path][method]["operationId"] for path, method in operations]
    assert len(set(names)) == len(names)
    for path, method in operations:
        assert ":path" not in path
        operation = shown["paths"][path][method]
        named = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path))
        assert {"400", "403"} <= set(operation["responses"])


def test_streams_describe_their_last_event_id_header(server: LocalServer) -> None:
    paths = document()["paths"]
    for path in ("/api/events", "/api/sessions/{session_id}/events"):
        names = {parameter["name"] for parameter in paths[path]["get"]["parameters"]}
        assert {"Last-Event-ID", "offset"} <= names


def ways(server: LocalServer, known: dict[str, str]) -> list[tuple[str, str, dict[str, Any]]]:
    """Every documented query parameter: its path, name and schema."""
    known = {**known, "project_id": server.post("/api/projects", {"name": "p", "path": "/"}, expect=201)["id"]}
    found = []
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and not re.search(ENDLESS, endpoint.path):
            path = re.sub(r"\{(\w+)(:path)?\}", lambda place: known[place.group(1)], endpoint.path)
            described = document()["paths"][shown_path(endpoint)]["get"]["parameters"]
            found += [(path, one["name"], one["schema"]) for one in described if one["in"] == "query"]
    return found


def test_the_documented_bounds_and_values_of_query_parameters_match_the_server(
    server: LocalServer, known: dict[str, str]
) -> None:
    for path, name, schema in ways(server, known):

        def status(value: Any, path: str = path, name: str = name) -> int:
            return server.http.get(path, params={name: value}).status_code

        if schema["type"] == "integer":
            low, high = schema["minimum"], schema["maximum"]
            given = [status(value) for value in (low - 1, low, high, high + 1)]
            # There may be no such turn, but it is a valid number.
            assert [found in (200, 404) for found in given] == [False, True, True, False], (path, name, given)
            assert {given[0], given[-1]} == {400}, (path, name)
        elif "enum" in schema:
            assert {status(value) for value in schema["enum"]} <= {200, 404}, (path, name)
            assert status("nonsense") == 400, (path, name)
        elif schema["type"] == "boolean":
            assert [status(value) for value in ("true", "false", "perhaps")] == [200, 200, 400], (path, name)


def test_a_body_is_required_if_one_of_its_fields_is(server: LocalServer) -> None:
    paths = document()["paths"]
    session = server.create()
    for path, needed in (("/api/sessions", False), (f"/api/sessions/{session}/fork", False), ("/api/messages", True)):
        described = paths[path.replace(session, "{session_id}")]["post"]["requestBody"]
        assert described["required"] is needed
        assert (server.http.post(path).status_code == 400) is needed


def test_a_path_lists_only_its_own_methods_as_allowed(server: LocalServer) -> None:
    for path, allowed in (
        ("/api/projects/p/sessions", "GET, HEAD, POST"),
        ("/api/projects/p/sessions/s", "GET, HEAD"),
        ("/api/projects/p/sessions/s/stop", "POST"),
        ("/api/projects/p", "DELETE, GET, HEAD, PATCH"),
        ("/api/sessions/s/config", "POST"),
    ):
        answer = server.http.request("OPTIONS", path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


def test_every_path_allows_the_methods_that_are_described(server: LocalServer) -> None:
    for path, operations in document()["paths"].items():
        described = {method.upper() for method in operations}
        answer = server.http.request("PUT", re.sub(r"\{\w+\}", "x", path))
        assert answer.status_code == 405, path
        assert set(answer.headers["allow"].split(", ")) == described | ({"HEAD"} if "GET" in described else set()), path


@pytest.mark.parametrize(
    ("path", "fits"),
    [
        *((path, True) for path in ("/", "/api/events?all=true", "/?", "/a?b\n", "/a%20b/ü", "/a//b")),
        *((path, False) for path in ("0", "", "//", "//evil.example/a", "api/events", "/a\n", "/\u0000", "?/", " /a")),
    ],
)
def test_the_documented_pattern_of_a_ticket_path_matches_the_server(server: LocalServer, path: str, fits: bool) -> None:
    said = document()["components"]["schemas"]["TicketBody"]["properties"]["path"]
    # Python's `$` also matches before a final newline; that of JSON Schema does not.
    assert bool(re.search(said["pattern"].removesuffix("$") + r"\Z", path)) is fits
    assert server.http.post("/api/tickets", json={"path": path}).status_code == (201 if fits else 400)


def test_refusals_of_messages_aborts_and_answers_are_described(make_server: Callable[..., LocalServer]) -> None:
    server = make_server(slots=1)
    ended, idle, busy = (server.create() for _ in range(3))
    server.turn(idle, "say one", message_id="once")
    server.post(f"/api/sessions/{ended}/stop")
    server.send(busy, "hang")
    for path, session, body in (
        ("messages", ended, {"text": "say x"}),
        ("messages", idle, {"text": "say x", "when_full": "refuse"}),
        ("messages", idle, {"text": "say another", "message_id": "once"}),
        ("messages", busy, {"text": "say x"}),
        ("abort", ended, {}),
        ("abort", idle, {}),
        ("prompts/p", ended, {"cancel": True}),
        ("prompts/p", idle, {"cancel": True}),
    ):
        code = server.post(f"/api/sessions/{session}/{path}", body)["code"]
        assert code in described_refusals(f"/api/sessions/{{session_id}}/{path.replace('/p', '/{prompt_id}')}"), path
        if path == "messages":
            assert code in described_refusals("/api/messages")


def described_refusals(path: str) -> list[str]:
    answers = document()["paths"][path]["post"]["responses"].values()
    told = [answer["description"].removeprefix("Refused: ") for answer in answers]
    return [code for codes in told for code in codes.split(", ")]
