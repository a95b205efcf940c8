"""The resource API that people's pages look at: how the server is, files to name in a message, browsers signed in."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from perdure.surfaces.http.access import LOGIN
from perdure.surfaces.http.handlers import access_of, verbs
from perdure.surfaces.http.requests import reply, whole_number
from perdure.surfaces.http.viewers import Hub

MAX_FILES = 200


async def get_vitals(request: Request) -> Response:
    hub: Hub = request.app.state.hub
    return reply({**await verbs(request).vitals(), "viewers": len(hub.viewers)})


async def get_directory(request: Request) -> Response:
    path = request.query_params.get("path", "/")
    return reply(await asyncio.to_thread(verbs(request).workspaces.describe, path))


async def list_files(request: Request) -> Response:
    limit = whole_number(request, "limit", 20, low=1, high=MAX_FILES)
    wanted = request.query_params.get("q", "")
    return reply({"files": await verbs(request).files(request.path_params["session_id"], wanted, limit)})


async def list_logins(request: Request) -> Response:
    return reply({"logins": access_of(request).logins(request.scope[LOGIN])})


async def end_logins(request: Request) -> Response:
    return reply({"ended": await asyncio.shield(access_of(request).end_all())})


async def end_login(request: Request) -> Response:
    await asyncio.shield(access_of(request).end_login(request.path_params["login_id"]))
    return Response(status_code=204)
