"""Diane's surface: `/agents/{name}/sessions...`, so that a program made for Diane works here.

Above: the table of endpoints. Below: the verbs, as for every surface; diane_shapes.py has the words. A session belongs
to the agent that it has now: under another agent's name it is not found. Nothing is closed by a clock or a crash: a
session without a process is `disconnected`, and its next prompt brings it back.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from perdure.core.errors import Refused
from perdure.runtime.verbs.sessions import Opening, Outgoing, Query, Sessions, warmed_up
from perdure.surfaces.collecting import collect
from perdure.surfaces.http import bodies
from perdure.surfaces.http import diane_shapes as shapes
from perdure.surfaces.http.diane_stream import PromptViewer
from perdure.surfaces.http.handlers import verbs
from perdure.surfaces.http.requests import MAX_LIMIT, body_of, flag, reply, whole_number
from perdure.surfaces.http.runs import shown_run
from perdure.surfaces.http.takeover import EventStream
from perdure.surfaces.http.waiting import while_connected

PAGE_LIMIT = 500


async def _mine(request: Request) -> dict[str, Any]:
    """The session of the path, if it is this agent's."""
    name, session_id = request.path_params["name"], request.path_params["session_id"]
    session = await verbs(request).get(session_id)
    if session["agent"] != name:
        raise Refused("not_found", f"Agent {name!r} has no session {session_id}. GET /sessions lists those of all.")
    return session


async def diane_start(request: Request) -> Response:
    """A new session, with its agent running: only then is it known what models and modes there are."""
    body = await body_of(request, shapes.DianeSessionBody)
    sessions = verbs(request)
    agent = request.path_params["name"]
    opening = Opening(agent=agent, workdir=body.workdir or None, title=body.title, parent=body.parent, warm=True)
    journal, _ = await sessions.create(opening)
    session_id = journal.state.id
    if not await while_connected(request, warmed_up(journal, sessions.facts.settings.start_timeout_s)):
        reason = journal.state.error or "It ended before its session was open."
        await sessions.end(session_id, "completed", "start_failed")
        raise Refused("agent_unavailable", f"Agent {opening.agent!r} could not be started. {reason}")
    return reply(_shown(sessions, await sessions.get(session_id)), 201)


def _shown(sessions: Sessions, session: dict[str, Any]) -> shapes.DianeSession:
    """A session whose agent has not run in it yet offers what that agent offered elsewhere."""
    known = sessions.agents.public(session["agent"]) if session["agent"] in sessions.agents.names() else {}
    offered = {name: session[name] or known.get(name) for name in ("models", "modes")}
    return shapes.shown({**session, **offered}, sessions.now())


async def diane_list(request: Request) -> Response:
    name = request.path_params["name"]
    found = await _listed(request, name)
    if not found:
        verbs(request).agents.settings(name)
    return reply(found)


async def diane_list_all(request: Request) -> Response:
    return reply(await _listed(request, None))


async def _listed(request: Request, agent: str | None) -> list[shapes.DianeListed]:
    """Those that are not closed; closed ones only if the status asks for them."""
    sessions = verbs(request)
    wanted = request.query_params.get("status")
    limit = whole_number(request, "limit", MAX_LIMIT, low=1, high=MAX_LIMIT)
    if wanted is not None and wanted not in shapes.STATUSES:
        raise Refused("invalid", f"status must be one of: {', '.join(shapes.STATUSES)}.")
    # The store knows which have ended; the rest of a status depends on the time.
    state, kept = ("ended", None) if wanted == "closed" else (None, "running")
    workdir = request.query_params.get("workdir")
    now_s = sessions.now()
    found: list[shapes.DianeListed] = []
    cursor: str | None = None
    while len(found) < limit:
        query = Query(agent=agent, status=kept, state=state, workdir=workdir, limit=PAGE_LIMIT, cursor=cursor)
        page, cursor = await sessions.search(query)
        entries = [shapes.listed(session, now_s) for session in page]
        found += [entry for entry in entries if wanted in (None, entry.status)]
        if cursor is None:
            break
    return found[:limit]


async def diane_get(request: Request) -> Response:
    return reply(_shown(verbs(request), await _mine(request)))


async def diane_prompt(request: Request) -> ASGIApp:
    """A prompt, answered when its turn is over; a client that leaves before stops nothing."""
    body = await body_of(request, shapes.DianePromptBody)
    streams = flag(request, "stream")
    sessions = verbs(request)
    session_id = (await _mine(request))["id"]
    fresh = bodies.wants_fresh(body.fresh, body.force_fresh_session)
    # Diane knows no message that waits: with no free slot the prompt is refused.
    prompt = Outgoing(text=body.prompt, fresh=fresh, when_full="refuse")
    accepted = await sessions.send(session_id, prompt)
    if streams:
        journal = await sessions.journal(session_id)
        return EventStream(PromptViewer(request.app.state.hub, sessions, journal, accepted))
    return reply(shown_run(await while_connected(request, collect(sessions, accepted))))


async def diane_cancel(request: Request) -> Response:
    """Interrupt the running turn. With none it is harmless, and the session's status is told."""
    session = await _mine(request)
    sessions = verbs(request)
    try:
        await sessions.abort(session["id"])
    except Refused as refusal:
        if refusal.code not in ("no_turn_active", "session_ended"):
            raise
        return reply(shapes.DianeStatus(status=shapes.status_of(session, sessions.now())))
    return reply(shapes.DianeStatus(status="cancelled"))


async def diane_configure(request: Request) -> Response:
    body = await body_of(request, bodies.ConfigBody)
    session = await _mine(request)
    return reply(await verbs(request).configure(session["id"], body.config_id, body.value))


async def diane_close(request: Request) -> Response:
    session = await _mine(request)
    await verbs(request).end(session["id"], "completed", "closed")
    return reply(shapes.DianeClosed())
