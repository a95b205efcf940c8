"""TeamHQ's surface: `/api/projects/{id}/sessions...`, so that a program made for TeamHQ works here.

Above: the table of endpoints. Below: the verbs, as for every surface; surfaces/teamhq.py has the words, and
teamhq_stream.py the events. A session belongs to its project: under another one it is not found.
"""

from typing import Any, NoReturn

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from perdure.core.errors import Refused
from perdure.runtime.verbs.filters import check_choice
from perdure.runtime.verbs.sessions import Opening, Outgoing, Query
from perdure.surfaces.http import bodies
from perdure.surfaces.http import teamhq_shapes as shapes
from perdure.surfaces.http.handlers import verbs
from perdure.surfaces.http.requests import MAX_LIMIT, body_of, position_of, reply, whole_number
from perdure.surfaces.http.streams import single
from perdure.surfaces.http.takeover import EventStream
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


async def _mine(request: Request, words: str = NO_SESSION) -> dict[str, Any]:
    """The session of the path, if it is this project's."""
    project = _project(request)
    try:
        session = await verbs(request).get(request.path_params["session_id"])
    except Refused as refusal:
        if refusal.code != "not_found":
            raise
        raise Refused("not_found", words) from refusal
    if session["project"] != project:
        raise Refused("not_found", words)
    return session


async def _shown(request: Request, session: dict[str, Any]) -> shapes.TeamSession:
    rows = await verbs(request).turns(session["id"])
    turns = [msgspec.json.decode(row.public) for row in rows]
    return msgspec.convert(metadata(session, turns), shapes.TeamSession)


def _refuse(request: Request, refusal: Refused) -> NoReturn:
    """The same refusal in TeamHQ's words."""
    if refusal.code == "slots_full" and refusal.facts["limit_of"] == "server":
        limit = verbs(request).facts.config.slots
        raise Refused("rate_limited", f"Maximum concurrent sessions ({limit}) reached") from refusal
    words = {
        "slots_full": "A session is already running for this project",
        "turn_active": NOT_IDLE,
        "session_ended": STOPPED,
    }
    if refusal.code not in words:
        raise refusal
    raise Refused(refusal.code, words[refusal.code], **refusal.facts) from refusal


# Sessions -------------------------------------------------------------------------------------------------------------


async def teamhq_start(request: Request) -> Response:
    """A new session with its first turn. A message that is sent has its place in the kickoff, or goes before it."""
    project = _project(request)
    body = await body_of(request, shapes.TeamSessionBody)
    sessions = verbs(request)
    message = _checked(body.message) if body.message is not None else None
    text = made_message(sessions, project, body.title, message) or message
    if text is None or not text.strip():
        raise Refused("invalid", "Message is required: this project has no kickoff.")
    try:
        journal, _ = await sessions.create(
            Opening(project=project, title=body.title, agent=body.agent), Outgoing(text=text, when_full="refuse")
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
    # All of them are sorted before the list is cut: the store knows them by when they were last used.
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        # TeamHQ has one word for two of our states, so the state is compared in its words.
        kept = None if state == "processing" else state
        query = Query(project=project, status=status, state=kept, limit=PAGE_LIMIT, cursor=cursor)
        page, cursor = await sessions.search(query)
        found += [session for session in page if state in (None, state_of(session))]
        if cursor is None:
            break
    found.sort(key=started_at, reverse=True)
    return reply(shapes.TeamSessions([await _shown(request, session) for session in found[:limit]]))


async def teamhq_get(request: Request) -> Response:
    return reply(await _shown(request, await _mine(request)))


async def teamhq_stop(request: Request) -> Response:
    session = await _mine(request)
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
    fresh = bodies.wants_fresh(body.fresh, body.force_fresh_session)
    session = await _mine(request, NOT_ACTIVE)
    try:
        outgoing = Outgoing(text=text, agent=body.agent, fresh=fresh, when_full="refuse")
        accepted = await verbs(request).send(session["id"], outgoing)
    except Refused as refusal:
        _refuse(request, refusal)
    return reply(shapes.TeamAccepted(turn_number=accepted["turn"]), 202)


async def teamhq_events(request: Request) -> ASGIApp:
    """Everything from the position on, then live; without one, or with one of another life of the store, all of it.
    `offset` is the number of the first event that is wanted, the header that of the last one that was seen."""
    session = await _mine(request)
    hub: Hub = request.app.state.hub
    journal = await hub.log.open(session["id"])
    text, epoch = position_of(request)
    position = 0
    if text is not None and epoch in (None, hub.log.epoch):
        position = single(text) + ("last-event-id" in request.headers)
    # Only a browser that comes back by itself is sent away: who asks with an offset is told how it ended.
    if "last-event-id" in request.headers and journal.state.phase == "ended" and position >= journal.last_seq:
        return Response(status_code=204)
    return EventStream(TeamViewer(hub, verbs(request), journal, position))
