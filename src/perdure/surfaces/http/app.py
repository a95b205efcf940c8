"""The HTTP application: routes, errors, the page's files, and the guard in front of them."""

import logging
from collections.abc import Iterable
from weakref import WeakValueDictionary

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Scope

from perdure.core.errors import Refused, StoreError
from perdure.runtime.verbs.jobs import Jobs
from perdure.runtime.verbs.nodes import Nodes, Readiness
from perdure.runtime.verbs.sessions import Sessions
from perdure.surfaces.http import openapi, page
from perdure.surfaces.http.access import Access
from perdure.surfaces.http.connections import Admitting
from perdure.surfaces.http.documents import Documents
from perdure.surfaces.http.guard import OPEN_PATHS, Guard
from perdure.surfaces.http.problems import on_refused, on_store_error, on_unreadable, problem
from perdure.surfaces.http.requests import reply
from perdure.surfaces.http.routes import ENDPOINTS
from perdure.surfaces.http.viewers import Hub

logger = logging.getLogger(__name__)

SHOWN_CHARS = 200


def make_app(
    sessions: Sessions,
    jobs: Jobs,
    hub: Hub,
    access: Access,
    hosts: set[str],
    origins: Iterable[str] = (),
    *,
    nodes: Nodes | None = None,
    readiness: Readiness | None = None,
) -> ASGIApp:
    routes = [
        Route(endpoint.path, endpoint.handler, methods=[endpoint.method], name=endpoint.handler.__name__)
        for endpoint in ENDPOINTS
    ]
    routes += [Route("/api/openapi.json", openapi_document), Route("/api/docs", docs_page)]
    routes += [Route(path, page.page_file) for path in page.paths()]
    routes += [Route(path, page.view) for path in (*page.VIEWS, f"{page.VIEWS_BELOW}{{rest:path}}")]
    app = Starlette(
        routes=routes,
        exception_handlers={
            Refused: on_refused,
            StoreError: on_store_error,
            msgspec.MsgspecError: on_unreadable,
            UnicodeError: on_unreadable,
            HTTPException: _on_http,
            ClientDisconnect: _on_gone,
            Exception: _on_bug,
        },
    )
    app.router.redirect_slashes = False
    app.state.sessions = sessions
    app.state.jobs = jobs
    app.state.nodes = nodes or Nodes(sessions.log, sessions.facts)
    app.state.readiness = readiness or Readiness()
    app.state.hub = hub
    app.state.documents = Documents()
    app.state.creating = WeakValueDictionary()
    app.state.access = access
    access.on_signed_out = hub.signed_out
    hub.is_signed_in = access.is_signed_in
    app.state.behind_proxy = sessions.facts.settings.behind_proxy
    app.state.max_message_bytes = sessions.facts.settings.max_message_bytes
    app.state.max_attachment_bytes = sessions.facts.settings.max_attachment_bytes
    open_paths = OPEN_PATHS | set(page.paths())
    admitting = Admitting(app, lambda path: path in open_paths or page.is_view(path))

    def lost(scope: Scope) -> ASGIApp | None:
        is_nowhere = all(route.matches(scope)[0] is Match.NONE for route in routes)
        return page.nowhere() if is_nowhere and page.is_for_people(Request(scope)) else None

    return Guard(
        admitting,
        access,
        hosts=hosts,
        origins=origins,
        page_paths=page.paths(),
        is_view=page.is_view,
        lost=lost,
        fresh=hub.log.freshen_documents,
    )


async def openapi_document(request: Request) -> Response:
    return reply(openapi.document(request.app.state.access.cookie))


async def docs_page(_: Request) -> Response:
    return HTMLResponse(openapi.page(), headers=page.HEADERS)


def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allow = ", ".join(methods_at(request))
        response = problem("invalid", f"This path takes {allow} only.", status=405)
        response.headers["allow"] = allow
        return response
    if error.status_code == 404:
        if page.is_for_people(request):
            return page.nowhere()
        return problem("not_found", "There is nothing at this path. See /api/docs.")
    return problem("invalid", str(error.detail), status=error.status_code)


def methods_at(request: Request) -> list[str]:
    """What this path takes: the routing itself names only the methods of the first route that fits. A path with a place
    for any rest may fit too, and is of something else."""
    fitting = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in fitting if route.path == fitting[0].path for method in route.methods})


def _on_gone(request: Request, _: Exception) -> Response:
    """Nobody is there any more to read an answer."""
    logger.info("a client left in the middle of its request: %s %r", request.method, request.url.path[:SHOWN_CHARS])
    return Response(status_code=400)


def _on_bug(_: Request, error: Exception) -> Response:
    response = problem("internal", "Perdure failed while answering. The server's log says more; please report it.")
    # The connection is closed after an error that is raised on; a client must not use it again.
    response.headers["connection"] = "close"
    return response
