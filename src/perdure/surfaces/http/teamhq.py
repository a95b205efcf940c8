"""TeamHQ's API, `/api/projects/{id}/sessions...`, so that clients of TeamHQ work with Perdure.

Above: routes.py. Below: the verbs; surfaces/teamhq.py converts sessions to TeamHQ's format, and teamhq_stream.py
streams their events. A session belongs to its project and is not found under another one. Error messages are TeamHQ's.
"""

from typing import Any, NoReturn

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from perdure.core.errors import Refused
from perdure.runtime.verbs.filters import check_choice
from perdure.runtime.verbs.sessions import NewSession, Outgoing, Query
from perdure.surfaces.http import teamhq_shapes as shapes
from perdure.surfaces.http.connection_takeover import EventStream
from perdure.surfaces.http.endpoint import AT_POSITION, MAX_LIMIT, STATUS, Endpoint, between
from perdure.surfaces.http.fields import wants_fresh
from perdure.surfaces.http.requests import body_of, position_of, reply, verbs, whole_number
from perdure.surfaces.http.streams import single
from perdure.surfaces.http.teamhq_stream import TeamViewer
from perdure.surfaces.http.viewers import Hub
from perdure.surfaces.kickoff import made_message
from perdure.surfaces.teamhq import metadata, started_at, state_of

NOT_IDLE, STOPPED, NOT_RUNNING = "Session is not idle", "Session has been stopped", "Session is not running"
NO_SESSION, NOT_ACTIVE = "Session not found", "Session not found or not active"
PAGE_LIMIT = 500


def _project(request: Request) -> str:
    try:
        return verbs(request).projects.find(request.path_params["project_id"])[0]
    except Refused as refusal:
        raise Refused("not_found", "Project not found") from refusal


async def _session(request: Request, detail: str = NO_SESSION) -> dict[str, Any]:
    """The session in the path. Not found if it belongs to another project."""
    project = _project(request)
    try:
        session = await verbs(request).get(request.path_params["session_id"])
    except Refused as refusal:
        if refusal.code != "not_found":
            raise
        raise Refused("not_found", detail) from refusal
    if session["project"] != project:
        raise Refused("not_found", detail)
    return session


async def _shown(request: Request, session: dict[str, Any]) -> shapes.TeamSession:
    rows = await verbs(request).turns(session["id"])
    turns = [msgspec.json.decode(row.public) for row in rows]
    return msgspec.convert(metadata(session, turns), shapes.TeamSession)


def _refuse(request: Request, refusal: Refused) -> NoReturn:
    """Raise the refusal again with TeamHQ's message."""
    if refusal.code == "slots_full" and refusal.facts["limit_of"] == "server":
        limit = verbs(request).slots
        raise Refused("rate_limited", f"Maximum concurrent sessions ({limit}) reached") from refusal
    details = {
        "slots_full": "A session is already running for this project",
        "turn_active": NOT_IDLE,
        "session_ended": STOPPED,
    }
    if refusal.code not in details:
        raise refusal
    raise Refused(refusal.code, details[refusal.code], **refusal.facts) from refusal


# Sessions -------------------------------------------------------------------------------------------------------------


async def teamhq_start(request: Request) -> Response:
    """Create a session and begin its first turn, with the project's kickoff or with the given message. A kickoff with a
    place for the message includes it; otherwise the message replaces the kickoff."""
    project = _project(request)
    body = await body_of(request, shapes.TeamSessionBody)
    sessions = verbs(request)
    message = _checked(body.message) if body.message is not None else None
    text = made_message(sessions, project, body.title, message) or message
    if text is None or not text.strip():
        raise Refused("invalid", "Message is required: this project has no kickoff.")
    try:
        journal, _ = await sessions.create(
            NewSession(project=project, title=body.title, agent=body.agent), Outgoing(text=text, when_full="refuse")
        )
    except Refused as refusal:
        _refuse(request, refusal)
    return reply(await _shown(request, await sessions.get(journal.state.id)), 201)


async def teamhq_list(request: Request) -> Response:
    project = _project(request)
    sessions = verbs(request)
    limit = whole_number(request, "limit", MAX_LIMIT, low=1, high=MAX_LIMIT)
    status, state = (request.query_params.get(name) for name in ("status", "state"))
    check_choice("state", state, shapes.STATES)
    # The store sorts by last activity, TeamHQ by start: read all sessions, then sort, then apply the limit.
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        # TeamHQ's `processing` includes `accepted`, so it is compared below instead of in the store.
        stored_state = None if state == "processing" else state
        query = Query(project=project, status=status, state=stored_state, limit=PAGE_LIMIT, cursor=cursor)
        page, cursor = await sessions.search(query)
        found += [session for session in page if state in (None, state_of(session))]
        if cursor is None:
            break
    found.sort(key=started_at, reverse=True)
    return reply(shapes.TeamSessions([await _shown(request, session) for session in found[:limit]]))


async def teamhq_get(request: Request) -> Response:
    return reply(await _shown(request, await _session(request)))


async def teamhq_stop(request: Request) -> Response:
    session = await _session(request)
    if session["state"] == "ended":
        raise Refused("session_ended", NOT_RUNNING, state="ended")
    return reply(await _shown(request, await verbs(request).end(session["id"], "stopped", "stopped")))


# Messages and events --------------------------------------------------------------------------------------------------


def _checked(message: Any) -> str:
    if not isinstance(message, str) or not message.strip():
        raise Refused("invalid", "Message is required")
    if len(message) > shapes.MESSAGE_MAX_CHARS:
        raise Refused("invalid", f"Message too long (max {shapes.MESSAGE_MAX_CHARS:,} characters)")
    return message.strip()


async def teamhq_message(request: Request) -> Response:
    body = await body_of(request, shapes.TeamMessageBody)
    text = _checked(body.message)
    fresh = wants_fresh(body.fresh, body.force_fresh_session)
    session = await _session(request, NOT_ACTIVE)
    try:
        outgoing = Outgoing(text=text, agent=body.agent, fresh=fresh, when_full="refuse")
        accepted = await verbs(request).send(session["id"], outgoing)
    except Refused as refusal:
        _refuse(request, refusal)
    return reply(shapes.TeamAccepted(turn_number=accepted["turn"]), 202)


async def teamhq_events(request: Request) -> ASGIApp:
    """Replay the events from a position on, then stream live ones. Without a position, or with one from another epoch,
    replay all. `offset` is the first event to send; Last-Event-ID is the last one received."""
    session = await _session(request)
    hub: Hub = request.app.state.hub
    journal = await hub.streams.open(session["id"])
    text, epoch = position_of(request)
    position = 0
    if text is not None and hub.streams.is_valid(epoch):
        position = single(text) + ("last-event-id" in request.headers)
    # 204 stops the automatic reconnect of an EventSource. A request with an offset gets the final event again.
    if "last-event-id" in request.headers and journal.state.phase == "ended" and position >= journal.last_seq:
        return Response(status_code=204)
    return EventStream(TeamViewer(hub, verbs(request), journal, position))


# Endpoints ------------------------------------------------------------------------------------------------------------

FIRST = "Number of the first event to send: the id of the last one received, plus 1. The header takes precedence."
T = "/api/projects/{project_id:path}/sessions"

TEAMHQ = [
    Endpoint(
        "POST",
        T,
        teamhq_start,
        "TeamHQ: start a session with the project's kickoff or with a message",
        body=shapes.TeamSessionBody,
        answers={201: shapes.TeamSession},
        refusals=("not_found", "slots_full", "rate_limited", "too_large", "agent_unavailable"),
    ),
    Endpoint(
        "GET",
        T,
        teamhq_list,
        "TeamHQ: list the sessions of a project, newest first",
        query={
            "status": (str, "Only sessions with this status: running, completed, stopped, timed-out, failed.", STATUS),
            "state": (str, "Only sessions in this state: processing, idle, ended.", {"enum": list(shapes.STATES)}),
            "limit": (int, "Number of sessions, 1 to 1,000; default 1,000.", between(1, MAX_LIMIT)),
        },
        answers={200: shapes.TeamSessions},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        f"{T}/{{session_id}}",
        teamhq_get,
        "TeamHQ: get a session",
        answers={200: shapes.TeamSession},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        f"{T}/{{session_id}}/message",
        teamhq_message,
        "TeamHQ: send another message",
        body=shapes.TeamMessage,
        answers={202: shapes.TeamAccepted},
        refusals=(
            "not_found",
            "turn_active",
            "session_ended",
            "slots_full",
            "rate_limited",
            "too_large",
            "agent_unavailable",
        ),
    ),
    Endpoint(
        "POST",
        f"{T}/{{session_id}}/stop",
        teamhq_stop,
        "TeamHQ: end a session",
        answers={200: shapes.TeamSession},
        refusals=("not_found", "session_ended"),
    ),
    Endpoint(
        "GET",
        f"{T}/{{session_id}}/events",
        teamhq_events,
        "TeamHQ: replay all events of a session, then stream live ones (server-sent events)",
        query={"offset": (str, FIRST, AT_POSITION)},
        answers={200: "text/event-stream", 204: None},
        refusals=("not_found",),
    ),
]
