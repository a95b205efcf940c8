"""Generates the OpenAPI document, and a plain HTML page with the list of endpoints.

Above: app.py, docs/generate.py and tests. Below: the endpoints in routes.py, with their bodies and responses.
"""

import html
import re
from typing import Any, get_args, get_origin

import msgspec

from perdure import __version__
from perdure.core.errors import STATUS_OF_CODE
from perdure.surfaces.http.access import COOKIE
from perdure.surfaces.http.endpoint import POSITION, Endpoint
from perdure.surfaces.http.problems import Problem
from perdure.surfaces.http.routes import ENDPOINTS

REF = "#/components/schemas/{name}"
_TYPES = {str: "string", int: "integer", bool: "boolean"}
FRAME = {"type": "object", "properties": {name: {"type": "string"} for name in ("id", "event", "data")}}
"""One server-sent event."""
CONFLICTING_FRESH = {
    "anyOf": [
        {
            "required": ["fresh", "forceFreshSession"],
            "properties": {"fresh": {"const": fresh}, "forceFreshSession": {"const": not fresh}},
        }
        for fresh in (True, False)
    ]
}
"""Matches a body that has different values for `fresh` and its alias."""


def document(cookie: str = f"{COOKIE}_ID") -> dict[str, Any]:
    """`cookie` is the name of the sign-in cookie, which differs between installations."""
    kinds: list[Any] = [Problem]
    for endpoint in ENDPOINTS:
        answered = [kind for status in endpoint.answers for kind in answer_kinds(endpoint, status)]
        kinds += [kind for kind in (endpoint.body, *answered) if kind is not None and not isinstance(kind, str)]
    _, components = msgspec.json.schema_components(kinds, ref_template=REF)
    for schema in components.values():
        if {"fresh", "forceFreshSession"} <= set(schema.get("properties", {})):
            schema["not"] = CONFLICTING_FRESH
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(shown_path(endpoint), {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Perdure",
            "version": __version__,
            "description": "Durable, multi-turn conversations with coding agents.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": cookie},
                "page_key": {"type": "apiKey", "in": "header", "name": "Perdure-Page-Key"},
            },
        },
        "security": [{"token": []}, {"cookie": [], "page_key": []}],
    }


def shown_path(endpoint: Endpoint) -> str:
    """The path without the router's `:path` marks."""
    return endpoint.path.replace(":path}", "}")


def answer_kinds(endpoint: Endpoint, status: int) -> tuple[Any, ...]:
    """The possible bodies of a response: structs, lists of a struct, media types. None for an empty body."""
    kind = endpoint.answers[status]
    return kind if isinstance(kind, tuple) else () if kind is None else (kind,)


def _content(kind: Any) -> dict[str, Any]:
    if isinstance(kind, str):
        return {kind: {"schema": FRAME if kind == "text/event-stream" else {"type": "string"}}}
    if get_origin(kind) is list:
        items = {"$ref": REF.format(name=get_args(kind)[0].__name__)}
        return {"application/json": {"schema": {"type": "array", "items": items}}}
    return {"application/json": {"schema": {"$ref": REF.format(name=kind.__name__)}}}


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint),
        "responses": _responses(endpoint),
    }
    if endpoint.body is not None:
        schema = {"$ref": REF.format(name=endpoint.body.__name__)}
        needed = any(one.required for one in msgspec.structs.fields(endpoint.body))
        operation["requestBody"] = {"required": needed, "content": {"application/json": {"schema": schema}}}
    if endpoint.path in ("/api/health", "/api/ready", "/api/login"):
        operation["security"] = []
    return operation


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", shown_path(endpoint))
    ]
    if "text/event-stream" in endpoint.answers.values():
        header = {"name": "Last-Event-ID", "in": "header", "description": POSITION, "schema": {"type": "string"}}
        found.append(header)
    for name, (kind, description, *more) in endpoint.query.items():
        schema = {"type": _TYPES[kind], **(more[0] if more else {})}
        found.append({"name": name, "in": "query", "description": description, "schema": schema})
    return found


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in endpoint.answers:
        answer: dict[str, Any] = {"description": endpoint.summary}
        for kind in answer_kinds(endpoint, status):
            answer.setdefault("content", {}).update(_content(kind))
        found[str(status)] = answer
    by_status: dict[int, list[str]] = {}
    always = ["invalid", "unauthorized", "forbidden", "unavailable", *(["too_large"] if endpoint.body else [])]
    for code in dict.fromkeys([*always, *endpoint.refusals]):
        by_status.setdefault(STATUS_OF_CODE[code], []).append(code)
    for status, codes in sorted(by_status.items()):
        found[str(status)] = {
            "description": "Refused: " + ", ".join(codes),
            "content": {"application/problem+json": {"schema": {"$ref": REF.format(name="Problem")}}},
        }
    return found


def page() -> str:
    """All endpoints on one HTML page, without scripts or external resources."""
    rows = [
        f"<tr><td>{endpoint.method}</td><td><code>{html.escape(shown_path(endpoint))}</code></td>"
        f"<td>{html.escape(endpoint.summary)}</td>"
        f"<td>{html.escape(endpoint.body.__name__ if endpoint.body else ', '.join(endpoint.query))}</td></tr>"
        for endpoint in ENDPOINTS
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Perdure API</title>'
        '<link rel="stylesheet" href="/page/docs.css"><main><h1>Perdure API</h1>'
        "<p>The OpenAPI document at <code>/api/openapi.json</code> describes the API in full. It needs the token, like "
        "all endpoints here except health, ready and login.</p>"
        "<table><thead><tr><th>Method</th><th>Path</th><th>What it does</th><th>Body or query</th></tr></thead><tbody>"
        + "".join(rows)
        + "</tbody></table></main></html>"
    )
