"""Nodes over HTTP: list, drain, resume and remove nodes, and move sessions between them.

Above: routes.py. Below: the verbs for nodes. The readiness check for load balancers is in server.py.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from starlette.requests import Request
from starlette.responses import Response

from perdure.runtime.verbs.nodes import Nodes
from perdure.surfaces.http.endpoint import MAX_LIMIT, Endpoint
from perdure.surfaces.http.fields import Name
from perdure.surfaces.http.requests import body_of, reply


class MoveBody(Struct, kw_only=True):
    """The sessions to move: either their ids, or all of a node."""

    session_ids: Annotated[list[Name], Meta(max_length=MAX_LIMIT)] = []
    source: Name | None = field(default=None, name="from")
    """A node. All its sessions that have not ended are moved."""


class Node(Struct, kw_only=True):
    id: str
    name: str
    url: str | None
    """Its address for clients."""
    version: str | None
    state: Literal["alive", "silent", "draining", "dead"]
    """`silent`: its heartbeat has not changed for longer than its `takeover_after_s`."""
    draining: bool
    """Whether it was asked to start no new turns. Independent of whether it is alive."""
    this: bool
    """Whether it is the node that responds."""
    started_at: str | None
    last_seen_s: float | None
    """Seconds since its last heartbeat, as seen by the responding node; null for that node itself."""
    sessions: int
    """Sessions that it owns and that have not ended."""
    running: int
    """How many of them run a turn."""
    slots: int | None
    """How many turns it runs at the same time; 0: no limit, null: unknown."""
    labels: list[str]
    workdirs: Literal["local", "shared"]
    agents: list[str]


class NodeList(Struct):
    nodes: list[Node]


class NodeRemoved(Struct, kw_only=True):
    id: str
    name: str
    sessions: int
    """How many sessions have no node after this."""


class NotMoved(Struct, kw_only=True):
    session_id: str
    code: str
    error: str


class Moved(Struct, kw_only=True):
    to: str
    moved: list[str]
    failed: list[NotMoved]


def _nodes(request: Request) -> Nodes:
    nodes: Nodes = request.app.state.nodes
    return nodes


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


N = "/api/nodes/{node_id}"
NODES = [
    Endpoint("GET", "/api/nodes", list_nodes, "List the nodes", answers={200: NodeList}),
    Endpoint(
        "POST",
        f"{N}/drain",
        drain_node,
        "Drain a node: it starts no new turns, and running turns continue",
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
        "Remove a node that is gone for good; other nodes can then run its sessions",
        answers={200: NodeRemoved},
        refusals=("not_found", "conflict"),
    ),
    Endpoint(
        "POST",
        f"{N}/move",
        move_sessions,
        "Move sessions to this node: the given ones, or all of another node",
        body=MoveBody,
        answers={200: Moved},
        refusals=("not_found", "conflict", "turn_active", "session_ended"),
    ),
]
