"""The server over HTTP: health and readiness for load balancers, and figures about the server.

Above: routes.py. Below: the verbs. `GET /api/health` says that the process responds, `GET /api/ready` that it should
get new requests.
"""

from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from perdure import __version__
from perdure.core.errors import Refused
from perdure.runtime.verbs.nodes import Nodes, Readiness
from perdure.surfaces.http.endpoint import Endpoint
from perdure.surfaces.http.requests import reply, verbs
from perdure.surfaces.http.viewers import Hub

# Responses ------------------------------------------------------------------------------------------------------------


class Health(Struct):
    status: Literal["ok"]
    version: str
    damaged: int
    """The number of damaged items that were set aside; `GET /api/server` lists them."""


class Ready(Struct, kw_only=True):
    status: Literal["ready"]
    node: str | None
    """The id of the responding node."""


class ServerSessions(Struct, kw_only=True):
    attached: int
    working: int
    waiting: int
    """Sessions with an unanswered prompt."""
    accepted: int
    """Sessions with a message whose turn has not begun."""


class Damage(Struct, kw_only=True):
    """A stored item that can't be read. It is set aside and does not affect the rest."""

    kind: Literal["session", "launch", "project", "job"]
    id: str
    session_id: str | None
    what: str


class Vitals(Struct, kw_only=True):
    version: str
    pid: int
    at: str
    started_at: str
    uptime_s: float
    slots: int
    sessions: ServerSessions
    viewers: int
    processes: int
    memory_bytes: int
    agents_memory_bytes: int
    events: int
    disk_free_bytes: int
    damaged: list[Damage]


# Handlers -------------------------------------------------------------------------------------------------------------


async def health(request: Request) -> Response:
    return reply({"status": "ok", "version": __version__, "damaged": len(verbs(request).damaged())})


async def ready(request: Request) -> Response:
    readiness: Readiness = request.app.state.readiness
    nodes: Nodes = request.app.state.nodes
    if (reason := readiness.reason()) is not None:
        raise Refused("unavailable", reason)
    return reply({"status": "ready", "node": nodes.this})


async def get_vitals(request: Request) -> Response:
    hub: Hub = request.app.state.hub
    return reply({**await verbs(request).vitals(), "viewers": len(hub.viewers)})


# Endpoints ------------------------------------------------------------------------------------------------------------

SERVER = [
    Endpoint("GET", "/api/health", health, "Check that the server is up", answers={200: Health}),
    Endpoint(
        "GET",
        "/api/ready",
        ready,
        "Check whether the server accepts new requests, for load balancers",
        answers={200: Ready},
    ),
    Endpoint(
        "GET",
        "/api/server",
        get_vitals,
        "Get figures about the server: sessions, processes, memory, number of events",
        answers={200: Vitals},
    ),
]
