"""The resource API of what was said and what it has cost: edit, rewind, retry, fork, import, plan, usage. Each handler
calls one verb."""

import asyncio
import mimetypes

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from perdure.core.errors import Refused
from perdure.runtime.verbs.sessions import Import
from perdure.surfaces.http import bodies
from perdure.surfaces.http.handlers import verbs
from perdure.surfaces.http.requests import body_of, decoded, raw_body_of, reply

IMPORT_MAX_BYTES = 128 * 1024 * 1024
IMPORT_REST_MAX_BYTES = 1024 * 1024
"""What an import may have besides its events."""
USAGE_FILTERS = ("since", "until", "agent", "project", "session")


async def edit_message(request: Request) -> Response:
    body = await body_of(request, bodies.EditBody)
    session_id, message_id = request.path_params["session_id"], request.path_params["message_id"]
    return reply(await verbs(request).histories.edit(session_id, message_id, body.text, body.revision))


async def rewind(request: Request) -> Response:
    body = await body_of(request, bodies.RewindBody)
    return reply(await verbs(request).histories.rewind(request.path_params["session_id"], body.turn, body.revision))


async def retry(request: Request) -> Response:
    body = await body_of(request, bodies.RetryBody)
    bodies.wants_fresh(body.fresh, body.force_fresh_session)
    answer = await verbs(request).histories.retry(
        request.path_params["session_id"],
        body.turn,
        text=body.text,
        agent=body.agent,
        message_id=body.message_id,
        revision=body.revision,
        when_full=body.when_full,
    )
    return reply(answer, 202)


async def fork(request: Request) -> Response:
    body = await body_of(request, bodies.ForkBody)
    return reply(await verbs(request).histories.fork(request.path_params["session_id"], body.turn, body.agent), 201)


async def import_session(request: Request) -> Response:
    raw = await raw_body_of(request, IMPORT_MAX_BYTES)
    rest_bytes = len(raw) - len(decoded(raw, bodies.ImportEvents).events)
    if rest_bytes > IMPORT_REST_MAX_BYTES:
        raise Refused("too_large", f"The import is larger than {IMPORT_REST_MAX_BYTES} bytes without its events.")
    body = decoded(raw, bodies.ImportBody)
    fields = {name: getattr(body, name) for name in body.__struct_fields__}
    limits = bodies.given_limits(body.limits)
    given = Import(**{**fields, "labels": tuple(body.labels), "limits": limits})
    # One at a time, so that a second one finds what the first has made.
    async with request.app.state.creating.setdefault(body.id, asyncio.Lock()):
        return reply(await verbs(request).imports.take_in(given), 201)


async def plan(request: Request) -> Response:
    body = await body_of(request, bodies.PlanBody)
    fresh = bodies.wants_fresh(body.fresh, body.force_fresh_session)
    return reply(await verbs(request).histories.plan(request.path_params["session_id"], body.agent, fresh))


async def get_attachment(request: Request) -> Response:
    """A file that came with a message. A picture is shown; anything else is saved and never run as a page."""
    session_id, file = request.path_params["session_id"], request.path_params["file"]
    path, is_picture = await verbs(request).attachment(session_id, file)
    kind = mimetypes.guess_type(path.name)[0]
    headers = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox; default-src 'none'"}
    if is_picture:
        return FileResponse(path, media_type=kind, headers=headers)
    return FileResponse(path, media_type="application/octet-stream", filename=path.name[9:], headers=headers)


async def get_usage(request: Request) -> Response:
    given = request.query_params
    named = {name: given[name] for name in USAGE_FILTERS if name in given}
    return reply(await verbs(request).usage(given.get("group_by", "day"), named))
