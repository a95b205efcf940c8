"""Agents over HTTP: the configured agents, and the catalogue of known ones.

Above: routes.py. Below: the verbs for agents.
"""

from typing import Any, Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from perdure.surfaces.http.endpoint import Endpoint
from perdure.surfaces.http.requests import reply, verbs

# Responses ------------------------------------------------------------------------------------------------------------


class Agent(Struct, kw_only=True):
    name: str
    driver: str
    command: list[str]
    state: Literal["ready", "missing", "needs_login", "too_old", "broken"]
    reason: str | None
    version: str | None
    capabilities: dict[str, Any]
    models: dict[str, Any] | None
    modes: dict[str, Any] | None
    commands: list[dict[str, Any]] | None
    """The slash commands that the agent last reported; null until it has run."""


class AgentList(Struct):
    agents: list[Agent]
    default: str


class KnownAgent(Struct, kw_only=True):
    name: str
    title: str
    driver: str
    command: list[str]
    mode: str | None
    install: str
    login: str
    homepage: str
    notes: str
    offered: bool


class Catalogue(Struct):
    catalogue: list[KnownAgent]


# Handlers -------------------------------------------------------------------------------------------------------------


async def list_agents(request: Request) -> Response:
    agents = verbs(request).agents
    return reply({"agents": [agents.public(name) for name in agents.names()], "default": agents.default()})


async def reload_agents(request: Request) -> Response:
    verbs(request).agents.reload()
    return await list_agents(request)


async def get_agent(request: Request) -> Response:
    return reply(verbs(request).agents.public(request.path_params["name"]))


async def list_catalogue(request: Request) -> Response:
    return reply({"catalogue": verbs(request).agents.catalogue()})


# Endpoints ------------------------------------------------------------------------------------------------------------

AGENTS = [
    Endpoint("GET", "/api/agents", list_agents, "List the agents of this server", answers={200: AgentList}),
    # Before the path of one agent, whose name may be anything.
    Endpoint(
        "POST",
        "/api/agents/reload",
        reload_agents,
        "Reload the agents from perdure.toml",
        answers={200: AgentList},
        refusals=("invalid", "conflict"),
    ),
    Endpoint(
        "GET",
        "/api/agents/{name:path}",
        get_agent,
        "Get an agent",
        answers={200: Agent},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        "/api/catalogue",
        list_catalogue,
        "List well-known agents that you can add to perdure.toml",
        answers={200: Catalogue},
    ),
]
