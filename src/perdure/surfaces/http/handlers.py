"""The resource API: each handler reads a request, calls one verb, and shows what it returned."""

import asyncio
import hashlib
from typing import Any
from urllib.parse import unquote
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from perdure import __version__
from perdure.config import ProjectSettings
from perdure.core import commands as cmd
from perdure.core.errors import UNREADABLE, Refused
from perdure.core.view import PAGE_TURNS
from perdure.runtime.verbs.sessions import Opening, Outgoing, Query, Sessions
from perdure.surfaces.http import bodies
from perdure.surfaces.http.access import COOKIE_LIFETIME_S, LOGIN, TICKET_LIFETIME_S, Access
from perdure.surfaces.http.connections import LOGIN_MAX_BYTES
from perdure.surfaces.http.documents import Document
from perdure.surfaces.http.requests import MAX_LIMIT, MAX_POSITION, MEDIA, body_of, flag, reply, whole_number
from perdure.surfaces.kickoff import asked_message


def verbs(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.sessions
    return sessions


async def health(request: Request) -> Response:
    return reply({"status": "ok", "version": __version__, "damaged": len(verbs(request).damaged())})


# Agents and projects ----------------------------------------------------------------------------------------------


async def list_agents(request: Request) -> Response:
    agents = verbs(request).agents
    return reply({"agents": [agents.public(name) for name in agents.names()], "default": agents.default()})


async def get_agent(request: Request) -> Response:
    return reply(verbs(request).agents.public(request.path_params["name"]))


async def reload_agents(request: Request) -> Response:
    verbs(request).agents.reload()
    return await list_agents(request)


async def list_catalogue(request: Request) -> Response:
    return reply({"catalogue": verbs(request).agents.catalogue()})


async def _project(request: Request, identity: str) -> dict[str, Any]:
    sessions = verbs(request)
    identity, settings = sessions.projects.find(identity)
    return sessions.projects.public(identity, settings, await sessions.active_in(identity))


async def list_projects(request: Request) -> Response:
    known = verbs(request).projects.all()
    return reply({"projects": [await _project(request, identity) for identity in sorted(known)]})


async def create_project(request: Request) -> Response:
    body = await body_of(request, bodies.ProjectBody)
    if body.agent is not None:
        verbs(request).agents.settings(body.agent)
    settings = msgspec.convert(msgspec.to_builtins(body), ProjectSettings)
    identity = await verbs(request).projects.create(settings)
    return reply(await _project(request, identity), 201)


async def get_project(request: Request) -> Response:
    return reply(await _project(request, request.path_params["project_id"]))


async def change_project(request: Request) -> Response:
    now = await _project(request, request.path_params["project_id"])
    changes = msgspec.to_builtins(await body_of(request, bodies.ProjectChanges, now=now))
    if changes.get("agent") is not None:
        verbs(request).agents.settings(changes["agent"])
    identity = await verbs(request).projects.change(request.path_params["project_id"], changes)
    return reply(await _project(request, identity))


async def delete_project(request: Request) -> Response:
    await verbs(request).projects.remove(request.path_params["project_id"])
    return Response(status_code=204)


# Sessions -----------------------------------------------------------------------------------------------------------


def _opening(body: bodies.SessionBody | bodies.AnyMessageBody) -> Opening:
    return Opening(
        project=body.project,
        workdir=body.workdir,
        agent=body.agent,
        title=body.title,
        model=body.model,
        mode=body.mode,
        labels=tuple(body.labels),
        limits=bodies.given_limits(body.limits),
        parent=body.parent,
        warm=isinstance(body, bodies.SessionBody) and body.warm,
    )


def _outgoing(body: bodies.MessageBody) -> Outgoing:
    return Outgoing(
        text=body.text,
        message_id=body.message_id,
        agent=body.agent,
        fresh=bodies.wants_fresh(body.fresh, body.force_fresh_session),
        when_busy=body.when_busy,
        when_full=body.when_full,
        attachments=tuple(body.attachments),
    )


async def create_session(request: Request) -> Response:
    body = await body_of(request, bodies.SessionBody)
    text, message = body.message, None
    if body.kickoff:
        text = asked_message(verbs(request), body.project, body.title, body.message)
    if text is not None:
        message = Outgoing(text=text, message_id=body.message_id, when_full=body.when_full)
    journal, _ = await verbs(request).create(_opening(body), message)
    return reply(await verbs(request).get(journal.state.id), 201)


async def list_sessions(request: Request) -> Response:
    given = request.query_params
    query = Query(
        project=given.get("project"),
        agent=given.get("agent"),
        state=given.get("state"),
        status=given.get("status"),
        label=given.get("label"),
        workdir=given.get("workdir"),
        parent=given.get("parent"),
        archived=flag(request, "archived") if "archived" in given else None,
        q=given.get("q"),
        limit=whole_number(request, "limit", 50, low=1, high=MAX_LIMIT),
        cursor=given.get("cursor"),
    )
    sessions, cursor = await verbs(request).search(query)
    return reply({"sessions": sessions, "next_cursor": cursor})


async def get_session(request: Request) -> Response:
    limit = whole_number(request, "limit", PAGE_TURNS, low=1, high=MAX_LIMIT)
    cursor = request.query_params.get("cursor")
    return reply(await verbs(request).get(request.path_params["session_id"], limit=limit, cursor=cursor))


async def change_session(request: Request) -> Response:
    now = await verbs(request).get(request.path_params["session_id"])
    body = await body_of(request, bodies.SessionChanges, now=now)
    command = cmd.UpdateSession(
        title=body.title,
        summary=body.summary,
        labels=tuple(body.labels) if body.labels is not None else None,
        archived=body.archived,
    )
    return reply(await verbs(request).update(request.path_params["session_id"], command))


async def delete_session(request: Request) -> Response:
    session_id = request.path_params["session_id"]
    purge = flag(request, "purge")
    try:
        closed = await verbs(request).end(session_id, "completed", "closed")
    except (Refused, *UNREADABLE) as error:
        if not purge or (isinstance(error, Refused) and error.code != "damaged"):
            raise
        # It can be erased, but nothing can be shown of it.
        await verbs(request).erase(session_id)
        return Response(status_code=204)
    if purge:
        await verbs(request).erase(session_id)
    return reply(closed)


async def send_message(request: Request) -> Response:
    body = await body_of(request, bodies.MessageBody)
    return reply(await verbs(request).send(request.path_params["session_id"], _outgoing(body)), 202)


async def send_or_create(request: Request) -> Response:
    """One entry point: with a session id it continues, without it creates. A message_id makes the creation idempotent
    too, because the new session's id is made from it."""
    body = await body_of(request, bodies.AnyMessageBody)
    sessions = verbs(request)
    if body.session_id is not None:
        if body.kickoff:
            raise Refused(
                "invalid",
                "A kickoff begins a session: leave session_id or kickoff out.",
                fields=["session_id"],
            )
        return reply(await sessions.send(body.session_id, _outgoing(body)), 202)
    session_id = None
    if body.message_id is not None:
        session_id = "s_" + hashlib.sha256(body.message_id.encode("utf-8", "surrogatepass")).hexdigest()[:21]
    if body.kickoff:
        # The same message makes another text tomorrow, or of another template: it is known by its id alone.
        if session_id is not None and (earlier := await sessions.replayed(session_id, body.message_id or "", None)):
            return reply(earlier, 202)
        body.text = asked_message(sessions, body.project, body.title, body.text if body.text.strip() else None)
    if session_id is None:
        _, answer = await sessions.create(_opening(body), _outgoing(body))
        return reply(answer, 202)
    return reply(await create_once(request, session_id, _opening(body), _outgoing(body)), 202)


async def create_once(request: Request, session_id: str, opening: Opening, message: Outgoing) -> dict[str, Any]:
    """A new session with its first message, or the answer that the same message got before."""
    sessions = verbs(request)
    # One at a time: a second request with the same id finds the session that the first one made.
    creating: WeakValueDictionary[str, asyncio.Lock] = request.app.state.creating
    async with creating.setdefault(session_id, asyncio.Lock()):
        return await sessions.create_once(session_id, opening, message)


async def list_queue(request: Request) -> Response:
    return reply({"queue": await verbs(request).queue(request.path_params["session_id"])})


async def edit_queued(request: Request) -> Response:
    body = await body_of(request, bodies.QueuedTextBody)
    session_id = request.path_params["session_id"]
    await verbs(request).edit_queued(session_id, request.path_params["message_id"], body.text)
    return reply({"queue": await verbs(request).queue(session_id)})


async def unqueue(request: Request) -> Response:
    session_id = request.path_params["session_id"]
    await verbs(request).unqueue(session_id, request.path_params["message_id"])
    return reply({"queue": await verbs(request).queue(session_id)})


async def abort(request: Request) -> Response:
    return reply(await verbs(request).abort(request.path_params["session_id"]), 202)


async def stop(request: Request) -> Response:
    return reply(await verbs(request).end(request.path_params["session_id"], "stopped", "stopped"))


async def configure(request: Request) -> Response:
    body = await body_of(request, bodies.ConfigBody)
    return reply(await verbs(request).configure(request.path_params["session_id"], body.config_id, body.value))


async def list_prompts(request: Request) -> Response:
    return reply({"prompts": await verbs(request).prompts(request.path_params["session_id"])})


async def answer_prompt(request: Request) -> Response:
    body = await body_of(request, bodies.AnswerBody)
    command = cmd.AnswerPrompt(
        prompt_id=request.path_params["prompt_id"],
        option_id=body.option_id,
        input=body.input,
        reason=body.reason,
        interrupt=body.interrupt,
        answers=body.answers,
        cancel=body.cancel,
    )
    return reply(await verbs(request).answer(request.path_params["session_id"], command))


# Reading ------------------------------------------------------------------------------------------------------------


async def get_log(request: Request) -> ASGIApp:
    session_id = request.path_params["session_id"]
    after = whole_number(request, "offset", 0)
    limit = whole_number(request, "limit", 1_000, low=1, high=MAX_POSITION)
    pieces = await verbs(request).histories.lines(session_id, after, limit)
    return Document(request.app.state.documents, pieces, "application/x-ndjson")


async def get_transcript(request: Request) -> ASGIApp:
    session_id = request.path_params["session_id"]
    from_turn = whole_number(request, "from_turn", 1)
    # Looked at whatever the format is: what can't be is refused, and not ignored.
    to_turn = whole_number(request, "to_turn", MAX_POSITION)
    rewound = flag(request, "rewound")
    how = request.query_params.get("format", "json")
    histories, documents = verbs(request).histories, request.app.state.documents
    if how == "markdown":
        pieces = await histories.transcript_markdown(session_id, from_turn)
        return Document(documents, pieces, "text/markdown; charset=utf-8")
    if how != "json":
        raise Refused("invalid", "format must be json or markdown.", fields=["format"])
    pieces = await histories.transcript(session_id, from_turn, to_turn=to_turn, rewound=rewound)
    return Document(documents, pieces, MEDIA)


async def explain(request: Request) -> Response:
    return reply(await verbs(request).explain(request.path_params["session_id"]))


# Signing in ---------------------------------------------------------------------------------------------------------


def access_of(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


async def new_login_link(request: Request) -> Response:
    """A link whose secret is in the fragment, which browsers never send."""
    return reply({"path": f"/#login={await access_of(request).new_code(request.scope[LOGIN])}"}, 201)


async def login(request: Request) -> Response:
    body = await body_of(request, bodies.LoginBody, limit_bytes=LOGIN_MAX_BYTES)
    access = access_of(request)
    cookie, page_key = await access.redeem(body.code)
    response = reply({"page_key": page_key})
    secure = request.url.scheme == "https" or request.app.state.behind_proxy
    response.set_cookie(
        access.cookie, cookie, max_age=COOKIE_LIFETIME_S, httponly=True, samesite="strict", secure=secure
    )
    return response


async def logout(request: Request) -> Response:
    access = access_of(request)
    response = Response(status_code=204)
    if request.scope[LOGIN] is not None:
        await asyncio.shield(access.end(request.scope[LOGIN]))
        response.delete_cookie(access.cookie)
    return response


async def new_ticket(request: Request) -> Response:
    """For what can't send a header: a browser's download, or an EventSource."""
    body = await body_of(request, bodies.TicketBody)
    path = unquote(body.path.partition("?")[0])
    if not path.startswith("/") or path.startswith("//") or not path.isprintable():
        raise Refused("invalid", "path must be a path of this server, such as /api/sessions/ID/events.")
    ticket = await access_of(request).new_ticket(path, request.scope[LOGIN])
    return reply({"ticket": ticket, "expires_in_s": TICKET_LIFETIME_S}, 201)
