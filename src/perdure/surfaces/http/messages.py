"""Messages over HTTP: send, queue, abort.

Above: routes.py. Below: the verbs for sessions. `POST /api/messages` also creates the session if it does not exist.
"""

import hashlib
from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import Refused
from perdure.runtime.verbs.sessions import Outgoing, WhenFull
from perdure.surfaces.http.endpoint import SESSION, Endpoint
from perdure.surfaces.http.fields import (
    Labels,
    Limits,
    MessageId,
    Name,
    NonBlankText,
    PathText,
    TitleText,
    Workspace,
    wants_fresh,
)
from perdure.surfaces.http.requests import body_of, reply, verbs
from perdure.surfaces.http.sessions import REFUSED_AT_CREATION, WaitsFor, create_once, new_session
from perdure.surfaces.kickoff import asked_message

# Request bodies -------------------------------------------------------------------------------------------------------

_TEXT = {"type": "string"}
ATTACHMENT = {
    "properties": {
        **dict.fromkeys(("name", "mime_type", "media_type", "path", "uri"), _TEXT),
        "data": {"type": "string", "pattern": r"^([A-Za-z0-9+/]{4})*$"},
    },
    "anyOf": [{"required": [name]} for name in ("data", "path", "uri")],
}
"""JSON Schema for an attachment. The verbs check it later, to refuse a bad one with its number."""
Attachment = Annotated[dict[str, Any], Meta(extra_json_schema=ATTACHMENT)]


class MessageBody(Struct, kw_only=True):
    """A message to a session."""

    text: NonBlankText
    message_id: MessageId | None = None
    agent: Name | None = None
    fresh: bool | UnsetType = UNSET
    force_fresh_session: bool | UnsetType = field(name="forceFreshSession", default=UNSET)
    when_busy: Literal["reject", "queue", "interrupt"] = "reject"
    when_full: WhenFull = "wait"
    """If no slot is free: accept the message and begin its turn later, or refuse it (409 `slots_full`)."""
    attachments: Annotated[list[Attachment], Meta(max_length=50)] = []


class AnyMessageBody(MessageBody, kw_only=True):
    """A message to an existing session, or to a new one."""

    refused_fields: ClassVar[dict[str, str]] = REFUSED_AT_CREATION

    text: str
    """May be empty with `kickoff`."""
    session_id: Name | None = None
    project: Name | None = None
    kickoff: bool = False
    """Create the first message of a new session from the project's template, with `text` inserted."""
    workdir: PathText | None = None
    title: TitleText = ""
    model: Name | None = None
    mode: Name | None = None
    labels: Labels = []
    limits: Limits = field(default_factory=Limits)
    parent: Name | None = None
    """The session that starts the new one."""
    workspace: Workspace | None = None
    """For a new session. `worktree`: a git worktree and branch of its own. Default: as the project says."""


class QueuedTextBody(Struct, kw_only=True):
    """A new text for a queued message."""

    text: NonBlankText


# Responses ------------------------------------------------------------------------------------------------------------


class Accepted(Struct, kw_only=True):
    session_id: str
    message_id: str
    run_id: str | None
    turn: int | None
    state: str
    """`processing`: the turn has begun, or the message is queued behind one. `accepted`: the turn begins later."""
    waits_for: WaitsFor | None
    seq: int


class QueuedMessage(Struct, kw_only=True):
    message_id: str
    text: str
    agent: str | None
    attachments: list[dict[str, Any]]
    queued_at: str
    first: bool
    """It was sent to interrupt the turn, so it goes before the other queued messages."""


class Queue(Struct):
    queue: list[QueuedMessage]


class Aborting(Struct, kw_only=True):
    session_id: str
    turn: int | None
    state: str


# Handlers -------------------------------------------------------------------------------------------------------------


def _outgoing(body: MessageBody) -> Outgoing:
    return Outgoing(
        text=body.text,
        message_id=body.message_id,
        agent=body.agent,
        fresh=wants_fresh(body.fresh, body.force_fresh_session),
        when_busy=body.when_busy,
        when_full=body.when_full,
        attachments=tuple(body.attachments),
    )


async def send_message(request: Request) -> Response:
    body = await body_of(request, MessageBody)
    return reply(await verbs(request).send(request.path_params["session_id"], _outgoing(body)), 202)


async def send_or_create(request: Request) -> Response:
    """Send to the given session or, without a session id, to a new one. With a message_id, creation is idempotent too,
    because the id of the new session is derived from it."""
    body = await body_of(request, AnyMessageBody)
    sessions = verbs(request)
    if body.session_id is not None:
        if body.kickoff:
            raise Refused(
                "invalid",
                "A kickoff starts a new session. Leave out either session_id or kickoff.",
                fields=["session_id"],
            )
        return reply(await sessions.send(body.session_id, _outgoing(body)), 202)
    session_id = None
    if body.message_id is not None:
        session_id = "s_" + hashlib.sha256(body.message_id.encode("utf-8", "surrogatepass")).hexdigest()[:21]
    if body.kickoff:
        # Recognise a repeated request by its id alone: the text changes with the date and with the template.
        if session_id is not None and (earlier := await sessions.replayed(session_id, body.message_id or "", None)):
            return reply(earlier, 202)
        body.text = asked_message(sessions, body.project, body.title, body.text if body.text.strip() else None)
    if session_id is None:
        _, answer = await sessions.create(new_session(body), _outgoing(body))
        return reply(answer, 202)
    return reply(await create_once(request, session_id, new_session(body), _outgoing(body)), 202)


async def list_queue(request: Request) -> Response:
    return reply({"queue": await verbs(request).queue(request.path_params["session_id"])})


async def edit_queued(request: Request) -> Response:
    body = await body_of(request, QueuedTextBody)
    session_id = request.path_params["session_id"]
    await verbs(request).edit_queued(session_id, request.path_params["message_id"], body.text)
    return reply({"queue": await verbs(request).queue(session_id)})


async def unqueue(request: Request) -> Response:
    session_id = request.path_params["session_id"]
    await verbs(request).unqueue(session_id, request.path_params["message_id"])
    return reply({"queue": await verbs(request).queue(session_id)})


async def abort(request: Request) -> Response:
    return reply(await verbs(request).abort(request.path_params["session_id"]), 202)


# Endpoints ------------------------------------------------------------------------------------------------------------

SEND_REFUSALS = (
    "not_found",
    "turn_active",
    "session_ended",
    "slots_full",
    "queue_full",
    "conflict",
    "too_large",
    "agent_unavailable",
)

MESSAGES = [
    Endpoint(
        "POST",
        "/api/messages",
        send_or_create,
        "Send a message to a session, or to a new one",
        body=AnyMessageBody,
        answers={202: Accepted},
        refusals=SEND_REFUSALS,
    ),
    Endpoint(
        "POST",
        f"{SESSION}/messages",
        send_message,
        "Send a message",
        body=MessageBody,
        answers={202: Accepted},
        refusals=SEND_REFUSALS,
    ),
    Endpoint(
        "GET",
        f"{SESSION}/queue",
        list_queue,
        "List the queued messages",
        answers={200: Queue},
        refusals=("not_found",),
    ),
    Endpoint(
        "PATCH",
        f"{SESSION}/queue/{{message_id:path}}",
        edit_queued,
        "Replace the text of a queued message; it keeps its place",
        body=QueuedTextBody,
        answers={200: Queue},
        refusals=("not_found", "queue_full", "conflict", "session_ended"),
    ),
    Endpoint(
        "DELETE",
        f"{SESSION}/queue/{{message_id:path}}",
        unqueue,
        "Withdraw a queued message",
        answers={200: Queue},
        refusals=("not_found", "session_ended"),
    ),
    Endpoint(
        "POST",
        f"{SESSION}/abort",
        abort,
        "Interrupt the running turn",
        answers={202: Aborting},
        refusals=("not_found", "no_turn_active", "session_ended"),
    ),
]
