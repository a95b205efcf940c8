"""Imports over HTTP: a session from another installation or program, with its finished turns.

Above: routes.py. Below: the verb for imports.
"""

import asyncio
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct, field
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import Refused
from perdure.runtime.verbs.sessions import Import
from perdure.surfaces.http.endpoint import Endpoint
from perdure.surfaces.http.fields import ConfigValue, Labels, Limits, LongText, Name, PathText, TitleText, given_limits
from perdure.surfaces.http.requests import decoded, raw_body_of, reply, verbs
from perdure.surfaces.http.sessions import Session

IMPORT_MAX_BYTES = 128 * 1024 * 1024
IMPORT_REST_MAX_BYTES = 1024 * 1024
"""The limit for an import without its events."""


class ImportEvents(Struct, kw_only=True):
    """Decodes only the field of an import that may be large, and leaves its contents undecoded."""

    events: Raw = Raw(b"[]")


class ImportBody(Struct, kw_only=True):
    """A session from elsewhere: its finished turns as events, and its last state."""

    id: Name
    created_at: str
    events: Annotated[Raw, Meta(extra_json_schema={"type": "array", "items": {"type": "object"}})]
    """Decoded later, one by one: there may be very many."""
    project: Name | None = None
    workdir: PathText | None = None
    agent: Name | None = None
    title: TitleText = ""
    summary: LongText = ""
    model: Name | None = None
    mode: Name | None = None
    config: Annotated[dict[Name, ConfigValue], Meta(max_length=50)] = {}
    """The agent's other options, by id."""
    limits: Limits = field(default_factory=Limits)
    labels: Labels = []
    archived: bool = False
    parent: Name | None = None
    """The session that started it. It need not exist on this server."""
    status: Literal["running", "completed", "stopped", "timed-out", "failed"] = "running"
    state: Literal["accepted", "processing", "idle", "ended"] = "idle"
    ended_at: str | None = None
    error: LongText | None = None


async def import_session(request: Request) -> Response:
    raw = await raw_body_of(request, IMPORT_MAX_BYTES)
    rest_bytes = len(raw) - len(decoded(raw, ImportEvents).events)
    if rest_bytes > IMPORT_REST_MAX_BYTES:
        raise Refused("too_large", f"The import is larger than {IMPORT_REST_MAX_BYTES} bytes without its events.")
    body = decoded(raw, ImportBody)
    fields = {name: getattr(body, name) for name in body.__struct_fields__}
    given = Import(**{**fields, "labels": tuple(body.labels), "limits": given_limits(body.limits)})
    # One at a time: a second import with the same id finds the session that the first one created.
    async with request.app.state.creating.setdefault(body.id, asyncio.Lock()):
        return reply(await verbs(request).imports.take_in(given), 201)


IMPORTS = [
    Endpoint(
        "POST",
        "/api/import",
        import_session,
        "Import a session with its finished turns",
        body=ImportBody,
        answers={201: Session},
        refusals=("not_found", "conflict"),
    ),
]
