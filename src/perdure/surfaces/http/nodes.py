"""Nodes over HTTP: what people ask and change of them, and what load balancers ask.

Above: routes.py. Below: the verbs for nodes. `GET /api/health` says that the process answers; `GET /api/ready` that it
should get new requests.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import Refused
from perdure.runtime.verbs.nodes import Nodes, Readiness
from perdure.surfaces.http import bodies
from perdure.surfaces.http.endpoint import MAX_LIMIT, Endpoint
from perdure.surfaces.http.requests import body_of, reply


class MoveBody(Struct, kw_only=True):
    """Which sessions are moved: give one of the two."""

    session_ids: Annotated[list[bodies.Name], Meta(max_length=MAX_LIMIT)] = []
    source: bodies.Name | None = field(default=None, name="from")
    """A node: all of its sessions that have not ended."""


class Node(Struct, kw_only=True):
    id: str
    name: str
    url: str | None
    """Where people reach it."""
    version: str | None
    state: Literal["alive", "silent", "draining", "dead"]
    """`silent`: its heartbeat has not changed for longer than its `takeover_after_s`."""
    draining: bool
    """A person wants it to start nothing new, whether it is alive or not."""
    this: bool
    """The node that answers this request."""
    started_at: str | None
    last_seen_s: float | None
    """For how long the answering node has seen no new heartbeat; null for itself."""
    sessions: int
    """How many it owns that have not ended."""
    running: int
    """In how many of them a turn runs."""
    slots: int | None
    """How many turns it runs at a time; 0: no limit, null: not known."""
    labels: list[str]
    workdirs: Literal["local", "shared"]
    agents: list[str]


class NodeList(Struct):
    nodes: list[Node]


class NodeRemoved(Struct, kw_only=True):
    id: str
    name: str
    sessions: int
    """How many sessions have no node now."""


class NotMoved(Struct, kw_only=True):
    session_id: str
    code: str
    error: str


class Moved(Struct, kw_only=True):
    to: str
    moved: list[str]
    failed: list[NotMoved]


class Ready(Struct, kw_only=True):
    status: Literal["ready"]
    node: str | None
    """The id of the node that answers."""


def _nodes(request: Request) -> Nodes:
    nodes: Nodes = request.app.state.nodes
    return nodes


async def ready(request: Request) -> Response:
    readiness: Readiness = request.app.state.readiness
    if (reason := readiness.reason()) is not None:
        raise Refused("unavailable", reason)
    return reply({"status": "ready", "node": _nodes(request).this})


async def list_nodes(request: Request) -> Response:
    return reply({"nodes": await _nodes(request).all()})


async def drain_node(request: Request) -> Response:
    return reply(await _nodes(request).drain(request.path_params["node_id"]))


async def resume_node(request: Request) -> Response:
    return reply(await _nodes(request).resume(request.path_params["node_id"]))


async def remove_node(request: Request) -> Response:
    return reply(await _nodes(request).remove(request.path_params["node_id"]))


async def move_sessions(request: Request) -> Response:
    body = await body_of(request, MoveBody)
    to = request.path_params["node_id"]
    return reply(await _nodes(request).move(to, session_ids=body.session_ids, source=body.source))


READY = Endpoint(
    "GET", "/api/ready", ready, "Whether the server should get new requests, for load balancers", answers={200: Ready}
)
N = "/api/nodes/{node_id}"
NODES = [
    Endpoint("GET", "/api/nodes", list_nodes, "All nodes of this installation", answers={200: NodeList}),
    Endpoint(
        "POST",
        f"{N}/drain",
        drain_node,
        "Let a node start nothing new; what runs there goes on",
        answers={200: Node},
        refusals=("not_found", "conflict"),
    ),
    Endpoint(
        "POST",
        f"{N}/resume",
        resume_node,
        "Let a draining node start turns again",
        answers={200: Node},
        refusals=("not_found", "conflict"),
    ),
    Endpoint(
        "DELETE",
        N,
        remove_node,
        "Forget a node that is gone for good; its sessions have no node then",
        answers={200: NodeRemoved},
        refusals=("not_found", "conflict"),
    ),
    Endpoint(
        "POST",
        f"{N}/move",
        move_sessions,
        "Move sessions to this node: some, or all of another node",
        body=MoveBody,
        answers={200: Moved},
        refusals=("not_found", "conflict", "turn_active", "session_ended"),
    ),
]
