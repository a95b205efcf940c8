"""The HTTP application: routes, error handlers, the files of the page, and the guard in front of everything.

Above: server.py. Below: the endpoints in routes.py and everything that they share.
"""

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
from perdure.surfaces.http import openapi, page_files
from perdure.surfaces.http.access import Access
from perdure.surfaces.http.connections import Admitting
from perdure.surfaces.http.guard import OPEN_PATHS, Guard
from perdure.surfaces.http.large_responses import LargeResponses
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
    nodes: Nodes,
    readiness: Readiness | None = None,
) -> ASGIApp:
    routes = [
        Route(endpoint.path, endpoint.handler, methods=[endpoint.method], name=endpoint.handler.__name__)
        for endpoint in ENDPOINTS
    ]
    routes += [Route("/api/openapi.json", openapi_document), Route("/api/docs", docs_page)]
    routes += [Route(path, page_files.page_file) for path in page_files.paths()]
    routes += [Route(path, page_files.view) for path in (*page_files.VIEWS, f"{page_files.SESSION_VIEWS}{{rest:path}}")]
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
    app.state.nodes = nodes
    app.state.readiness = readiness or Readiness()
    app.state.hub = hub
    app.state.large_responses = LargeResponses()
    app.state.creating = WeakValueDictionary()
    app.state.access = access
    access.on_signed_out = hub.signed_out
    hub.is_signed_in = access.is_signed_in
    app.state.behind_proxy = sessions.settings.behind_proxy
    app.state.max_message_bytes = sessions.settings.max_message_bytes
    app.state.max_attachment_bytes = sessions.settings.max_attachment_bytes
    open_paths = OPEN_PATHS | set(page_files.paths())
    admitting = Admitting(app, lambda path: path in open_paths or page_files.is_view(path))

    def not_found(scope: Scope) -> ASGIApp | None:
        is_unknown = all(route.matches(scope)[0] is Match.NONE for route in routes)
        return page_files.not_found() if is_unknown and page_files.is_navigation(Request(scope)) else None

    return Guard(
        admitting,
        access,
        hosts=hosts,
        origins=origins,
        page_paths=page_files.paths(),
        is_view=page_files.is_view,
        not_found=not_found,
        refresh=sessions.freshen,
    )


async def openapi_document(request: Request) -> Response:
    return reply(openapi.document(request.app.state.access.cookie))


async def docs_page(_: Request) -> Response:
    return HTMLResponse(openapi.page(), headers=page_files.HEADERS)


def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allow = ", ".join(methods_at(request))
        response = problem("invalid", f"This path only supports {allow}.", status=405)
        response.headers["allow"] = allow
        return response
    if error.status_code == 404:
        if page_files.is_navigation(request):
            return page_files.not_found()
        return problem("not_found", "This path does not exist. /api/docs lists all paths.")
    return problem("invalid", str(error.detail), status=error.status_code)


def methods_at(request: Request) -> list[str]:
    """The methods of this path. The router only knows those of the first matching route. Matching routes with another
    path are ignored: a `:path` parameter matches the paths of other resources too."""
    matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in matching if route.path == matching[0].path for method in route.methods})


def _on_gone(request: Request, _: Exception) -> Response:
    """The client has disconnected, so this response is not sent."""
    logger.info("client disconnected during its request: %s %r", request.method, request.url.path[:SHOWN_CHARS])
    return Response(status_code=400)


def _on_bug(_: Request, error: Exception) -> Response:
    response = problem("internal", "Internal error. The server's log has the details; please report it.")
    # The exception is re-raised after this response, which closes the connection. Tell the client not to reuse it.
    response.headers["connection"] = "close"
    return response
