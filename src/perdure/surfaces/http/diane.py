"""Diane's API, `/agents/{name}/sessions...`, so that clients of Diane work with Perdure.

Above: routes.py. Below: the verbs; surfaces/diane_shapes.py converts sessions to Diane's terms. A session belongs to
its current agent and is not found under the name of another. Unlike in Diane, timeouts and crashes don't close
sessions: a session without an agent process is `disconnected`, and the next prompt starts its agent.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from perdure.core.errors import Refused
from perdure.runtime.verbs.sessions import NewSession, Outgoing, Query, Sessions, warmed_up
from perdure.surfaces import diane_shapes as shapes
from perdure.surfaces.collecting import collect
from perdure.surfaces.http.connection_takeover import EventStream
from perdure.surfaces.http.diane_stream import PromptViewer
from perdure.surfaces.http.endpoint import ABSOLUTE, MAX_LIMIT, Endpoint, QueryFields, between
from perdure.surfaces.http.fields import Name, NonBlankText, TitleText, wants_fresh
from perdure.surfaces.http.long_requests import while_connected
from perdure.surfaces.http.requests import body_of, flag, reply, verbs, whole_number
from perdure.surfaces.http.runs import Run, shown_run
from perdure.surfaces.http.sessions import ConfigBody, Configured

PAGE_LIMIT = 500


class DianeSessionBody(Struct, kw_only=True):
    """A new session. Without `workdir`, it gets a new directory."""

    workdir: Annotated[str, Meta(max_length=4096, extra_json_schema={"pattern": r"^(/[^\u0000]*)?$"})] = ""
    title: TitleText = ""
    parent: Name | None = None
    """The session that starts this one. An extension: Diane itself has no parents."""


class DianePromptBody(Struct, kw_only=True):
    prompt: NonBlankText
    fresh: bool | UnsetType = UNSET
    force_fresh_session: bool | UnsetType = field(name="forceFreshSession", default=UNSET)


async def _session(request: Request) -> dict[str, Any]:
    """The session in the path. Not found if its agent is not the one in the path."""
    name, session_id = request.path_params["name"], request.path_params["session_id"]
    session = await verbs(request).get(session_id)
    if session["agent"] != name:
        raise Refused(
            "not_found", f"Agent {name!r} has no session {session_id}. GET /sessions lists the sessions of all agents."
        )
    return session


async def diane_start(request: Request) -> Response:
    """Create a session and start its agent, because the response lists the agent's models and modes."""
    body = await body_of(request, DianeSessionBody)
    sessions = verbs(request)
    agent = request.path_params["name"]
    new = NewSession(agent=agent, workdir=body.workdir or None, title=body.title, parent=body.parent, warm=True)
    journal, _ = await sessions.create(new)
    session_id = journal.state.id
    if not await while_connected(request, warmed_up(journal, sessions.settings.start_timeout_s)):
        reason = journal.state.error or "It exited before it opened its session."
        await sessions.end(session_id, "completed", "start_failed")
        raise Refused("agent_unavailable", f"Agent {new.agent!r} could not be started. {reason}")
    return reply(_shown(sessions, await sessions.get(session_id)), 201)


def _shown(sessions: Sessions, session: dict[str, Any]) -> shapes.DianeSession:
    """If the agent has not run in this session yet, the models and modes are those that it last reported elsewhere."""
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
    """Without a status, all sessions that are not closed."""
    sessions = verbs(request)
    wanted = request.query_params.get("status")
    limit = whole_number(request, "limit", MAX_LIMIT, low=1, high=MAX_LIMIT)
    if wanted is not None and wanted not in shapes.STATUSES:
        raise Refused("invalid", f"status must be one of: {', '.join(shapes.STATUSES)}.")
    # The store can only filter by whether a session has ended. Diane's status also depends on the time.
    state, status = ("ended", None) if wanted == "closed" else (None, "running")
    workdir = request.query_params.get("workdir")
    now_s = sessions.now()
    found: list[shapes.DianeListed] = []
    cursor: str | None = None
    while len(found) < limit:
        query = Query(agent=agent, status=status, state=state, workdir=workdir, limit=PAGE_LIMIT, cursor=cursor)
        page, cursor = await sessions.search(query)
        entries = [shapes.listed(session, now_s) for session in page]
        found += [entry for entry in entries if wanted in (None, entry.status)]
        if cursor is None:
            break
    return found[:limit]


async def diane_get(request: Request) -> Response:
    return reply(_shown(verbs(request), await _session(request)))


async def diane_prompt(request: Request) -> ASGIApp:
    """Respond when the turn has ended. The turn continues if the client disconnects."""
    body = await body_of(request, DianePromptBody)
    streams = flag(request, "stream")
    sessions = verbs(request)
    session_id = (await _session(request))["id"]
    fresh = wants_fresh(body.fresh, body.force_fresh_session)
    # Diane has no waiting messages: without a free slot, refuse the prompt.
    prompt = Outgoing(text=body.prompt, fresh=fresh, when_full="refuse")
    accepted = await sessions.send(session_id, prompt)
    if streams:
        journal = await sessions.journal(session_id)
        return EventStream(PromptViewer(request.app.state.hub, sessions, journal, accepted))
    return reply(shown_run(await while_connected(request, collect(sessions, accepted))))


async def diane_cancel(request: Request) -> Response:
    """Interrupt the running turn. Without one, only return the session's status."""
    session = await _session(request)
    sessions = verbs(request)
    try:
        await sessions.abort(session["id"])
    except Refused as refusal:
        if refusal.code not in ("no_turn_active", "session_ended"):
            raise
        return reply(shapes.DianeStatus(status=shapes.status_of(session, sessions.now())))
    return reply(shapes.DianeStatus(status="cancelled"))


async def diane_configure(request: Request) -> Response:
    body = await body_of(request, ConfigBody)
    session = await _session(request)
    return reply(await verbs(request).configure(session["id"], body.config_id, body.value))


async def diane_close(request: Request) -> Response:
    session = await _session(request)
    await verbs(request).end(session["id"], "completed", "closed")
    return reply(shapes.DianeClosed())


# Endpoints ------------------------------------------------------------------------------------------------------------

D = "/agents/{name:path}/sessions"
LIST_QUERY: QueryFields = {
    "status": (
        str,
        "Only sessions with this status: active, idle, disconnected, closed. Default: all except closed.",
        {"enum": list(shapes.STATUSES)},
    ),
    "workdir": (str, "Only sessions in this working directory.", ABSOLUTE),
    "limit": (int, "Number of sessions, 1 to 1,000; default 1,000.", between(1, MAX_LIMIT)),
}

DIANE = [
    Endpoint(
        "POST",
        D,
        diane_start,
        "Diane: start a session",
        body=DianeSessionBody,
        answers={201: shapes.DianeSession},
        refusals=("not_found", "slots_full", "too_large", "agent_unavailable"),
    ),
    Endpoint(
        "GET",
        D,
        diane_list,
        "Diane: list the sessions of an agent",
        query=LIST_QUERY,
        answers={200: list[shapes.DianeListed]},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        f"{D}/{{session_id}}",
        diane_get,
        "Diane: get a session",
        answers={200: shapes.DianeSession},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        f"{D}/{{session_id}}/prompt",
        diane_prompt,
        "Diane: send a prompt and wait for the result",
        body=DianePromptBody,
        query={"stream": (bool, "True: respond with server-sent events, the last of which is `done`.")},
        answers={200: (Run, "text/event-stream")},
        refusals=("not_found", "turn_active", "session_ended", "slots_full", "too_large", "agent_unavailable"),
    ),
    Endpoint(
        "POST",
        f"{D}/{{session_id}}/cancel",
        diane_cancel,
        "Diane: interrupt the running prompt; does nothing if none is running",
        answers={200: shapes.DianeStatus},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        f"{D}/{{session_id}}/config",
        diane_configure,
        "Diane: set the agent's model, mode or another option",
        body=ConfigBody,
        answers={200: Configured},
        refusals=("not_found", "session_ended", "agent_unavailable"),
    ),
    Endpoint(
        "DELETE",
        f"{D}/{{session_id}}",
        diane_close,
        "Diane: close a session",
        answers={200: shapes.DianeClosed},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        "/sessions",
        diane_list_all,
        "Diane: list the sessions of all agents",
        query=LIST_QUERY,
        answers={200: list[shapes.DianeListed]},
    ),
]
