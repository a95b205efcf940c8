"""Projects over HTTP.

Above: routes.py. Below: the verbs for projects. Some settings of a project can only be set in perdure.toml.
"""

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from starlette.requests import Request
from starlette.responses import Response

from perdure.config import ProjectSettings
from perdure.core.permissions import Rule
from perdure.surfaces.http.endpoint import Endpoint
from perdure.surfaces.http.fields import Limits, Name, PathText, Workspace
from perdure.surfaces.http.requests import body_of, reply, verbs

# Request bodies -------------------------------------------------------------------------------------------------------

REFUSED_FIELDS = {
    **dict.fromkeys(
        ("resume", "runner_mode", "options"), "it can only be set in perdure.toml, for a project defined there"
    ),
    "id": "it is derived from the name when the project is created",
    **dict.fromkeys(("active_session_id", "activeSessionId"), "it always names the most recently active session"),
}


class ProjectBody(Struct, kw_only=True):
    refused_fields: ClassVar[dict[str, str]] = REFUSED_FIELDS

    name: Name
    path: PathText
    agent: Name | None = None
    permissions: list[Rule] = []
    limits: Limits = field(default_factory=Limits)
    instructions: str | None = None
    kickoff: str | None = None
    history_scope: Literal["all", "agent"] = "all"
    workspace: Workspace = "directory"


class ProjectChanges(Struct, kw_only=True):
    """Omitted fields don't change. Null removes a setting that is optional."""

    refused_fields: ClassVar[dict[str, str]] = REFUSED_FIELDS

    name: Name | UnsetType = UNSET
    path: PathText | UnsetType = UNSET
    agent: Name | UnsetType | None = UNSET
    permissions: list[Rule] | UnsetType = UNSET
    limits: Limits | UnsetType = UNSET
    instructions: str | UnsetType | None = UNSET
    kickoff: str | UnsetType | None = UNSET
    history_scope: Literal["all", "agent"] | UnsetType = UNSET
    workspace: Workspace | UnsetType = UNSET


# Responses ------------------------------------------------------------------------------------------------------------


class Project(Struct, kw_only=True):
    id: str
    name: str
    path: str
    agent: str | None
    permissions: list[dict[str, Any]]
    limits: dict[str, Any]
    instructions: str | None
    kickoff: str | None
    history_scope: str
    workspace: str
    active_session_id: str | None
    activeSessionId: str | None  # noqa: N815
    """TeamHQ's name for `active_session_id`."""


class ProjectList(Struct):
    projects: list[Project]


# Handlers -------------------------------------------------------------------------------------------------------------


async def _project(request: Request, identity: str) -> dict[str, Any]:
    sessions = verbs(request)
    identity, settings = sessions.projects.find(identity)
    return sessions.projects.public(identity, settings, await sessions.active_in(identity))


async def list_projects(request: Request) -> Response:
    known = verbs(request).projects.all()
    return reply({"projects": [await _project(request, identity) for identity in sorted(known)]})


async def create_project(request: Request) -> Response:
    body = await body_of(request, ProjectBody)
    if body.agent is not None:
        verbs(request).agents.settings(body.agent)
    settings = msgspec.convert(msgspec.to_builtins(body), ProjectSettings)
    identity = await verbs(request).projects.create(settings)
    return reply(await _project(request, identity), 201)


async def get_project(request: Request) -> Response:
    return reply(await _project(request, request.path_params["project_id"]))


async def change_project(request: Request) -> Response:
    now = await _project(request, request.path_params["project_id"])
    changes = msgspec.to_builtins(await body_of(request, ProjectChanges, now=now))
    if changes.get("agent") is not None:
        verbs(request).agents.settings(changes["agent"])
    identity = await verbs(request).projects.change(request.path_params["project_id"], changes)
    return reply(await _project(request, identity))


async def delete_project(request: Request) -> Response:
    await verbs(request).projects.remove(request.path_params["project_id"])
    return Response(status_code=204)


# Endpoints ------------------------------------------------------------------------------------------------------------

P = "/api/projects/{project_id:path}"

PROJECTS = [
    Endpoint("GET", "/api/projects", list_projects, "List the projects", answers={200: ProjectList}),
    Endpoint(
        "POST",
        "/api/projects",
        create_project,
        "Create a project",
        body=ProjectBody,
        answers={201: Project},
        refusals=("not_found",),
    ),
    Endpoint("GET", P, get_project, "Get a project", answers={200: Project}, refusals=("not_found",)),
    Endpoint(
        "PATCH",
        P,
        change_project,
        "Change a project",
        body=ProjectChanges,
        answers={200: Project},
        refusals=("not_found", "conflict"),
    ),
    Endpoint(
        "DELETE",
        P,
        delete_project,
        "Delete a project; its sessions and files stay",
        answers={204: None},
        refusals=("not_found", "conflict"),
    ),
]
