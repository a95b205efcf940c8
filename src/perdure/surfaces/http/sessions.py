"""Sessions over HTTP: create, list, read, change and delete; stop, configure, explain; files to mention in a message.

Above: routes.py. Below: the verbs for sessions. Messages, prompts, history and transcripts have their own modules.
"""

import asyncio
from typing import Any, ClassVar, Literal, Protocol
from weakref import WeakValueDictionary

from msgspec import UNSET, Struct, UnsetType, field
from starlette.requests import Request
from starlette.responses import Response

from perdure.core import commands as cmd
from perdure.core.errors import UNREADABLE, Refused
from perdure.core.events import FileAction
from perdure.core.view import PAGE_TURNS
from perdure.runtime.verbs.sessions import NewSession, Outgoing, Query, WhenFull
from perdure.surfaces.http.endpoint import (
    ABSOLUTE,
    MAX_LIMIT,
    NEXT_PAGE,
    PAGE_SIZE,
    SESSION,
    STATE,
    STATUS,
    Endpoint,
    QueryFields,
    between,
)
from perdure.surfaces.http.fields import (
    ConfigValue,
    Labels,
    Limits,
    LongText,
    MessageId,
    Name,
    NonBlankText,
    PathText,
    TitleText,
    Workspace,
    given_limits,
)
from perdure.surfaces.http.prompts import Prompt
from perdure.surfaces.http.requests import body_of, flag, reply, verbs, whole_number
from perdure.surfaces.kickoff import asked_message

MAX_FILES = 200

# Request bodies -------------------------------------------------------------------------------------------------------

BY_CONFIG = "set it with POST /api/sessions/SESSION/config"
BY_PATCH = "set it afterwards, with PATCH /api/sessions/SESSION"
AT_CREATION = "it is fixed when the session is created"
RULES = "set permission rules on a project, or for a single run (POST /api/run)"
REFUSED_AT_CREATION = {"permissions": RULES, "config": BY_CONFIG, "summary": BY_PATCH, "archived": BY_PATCH}
REFUSED_IN_CHANGES = {
    **dict.fromkeys(("model", "mode", "config"), BY_CONFIG),
    "agent": "send the next message with it",
    **dict.fromkeys(("project", "workdir", "limits", "parent", "workspace"), AT_CREATION),
    "permissions": RULES,
}
"""Fields such as `state`, which change without the client, are ignored instead: a client that sends back what it has
read may send outdated values."""


class SessionBody(Struct, kw_only=True):
    """A new session."""

    refused_fields: ClassVar[dict[str, str]] = REFUSED_AT_CREATION

    project: Name | None = None
    workdir: PathText | None = None
    agent: Name | None = None
    title: TitleText = ""
    message: NonBlankText | None = None
    kickoff: bool = False
    """Create the first message from the project's template, with `message` inserted."""
    message_id: MessageId | None = None
    when_full: WhenFull = "wait"
    """For the first message."""
    model: Name | None = None
    mode: Name | None = None
    labels: Labels = []
    limits: Limits = field(default_factory=Limits)
    parent: Name | None = None
    """The session that starts this one."""
    workspace: Workspace | None = None
    """`worktree`: a git worktree and branch of its own. Default: as the project says."""
    warm: bool = False
    """Start the agent immediately, if it can idle until the first message."""


class SessionChanges(Struct, kw_only=True):
    refused_fields: ClassVar[dict[str, str]] = REFUSED_IN_CHANGES

    title: TitleText | None = None
    summary: LongText | None = None
    labels: Labels | None = None
    archived: bool | None = None


class ConfigBody(Struct, kw_only=True):
    config_id: Name
    value: ConfigValue


# Responses ------------------------------------------------------------------------------------------------------------


class Turn(Struct, kw_only=True):
    turn: int
    run_id: str
    message_id: str
    agent: str
    started_at: str
    ended_at: str | None
    duration_ms: int | None
    stop_reason: str | None
    exit_code: int | None
    error: str | None
    usage: dict[str, Any] | None
    cost_usd: float | None
    context: Literal["live", "resumed", "fresh"] | None
    """Null until the turn begins."""
    context_reason: str
    input_bytes: int | None
    model: str | None
    catch_up: int
    replayed: int
    digested: int
    left_out: int


class Worktree(Struct, kw_only=True):
    """A session's own git worktree."""

    repository: str
    path: str
    branch: str
    base: str | None
    """The branch that it came from; null if no branch was checked out."""
    base_commit: str


class FileOperation(Struct, kw_only=True):
    operation_id: str
    action: FileAction


class WaitsFor(Struct, kw_only=True):
    """Why the turn of an accepted message has not begun: a code for programs and a message for people."""

    code: str
    message: str


class ListedSession(Struct, kw_only=True):
    id: str
    project: str | None
    agent: str
    title: str
    summary: str
    workdir: str
    labels: list[str]
    archived: bool
    state: Literal["accepted", "processing", "idle", "ended"]
    status: Literal["running", "completed", "stopped", "timed-out", "failed"]
    attached: Literal["live", "suspended", "ended"]
    created_at: str
    started_at: str | None
    last_active_at: str
    ended_at: str | None
    duration_ms: int | None
    event_count: int
    turn_count: int
    native_session_id: str | None
    pid: int | None
    node: str | None = None
    """The id of the node that owns it, or null. Not in snapshots, because a change of owner is not an event."""
    node_name: str | None = None
    model: str | None
    mode: str | None
    models: dict[str, Any] | None
    modes: dict[str, Any] | None
    config: dict[str, Any] = {}
    """The selected values of the agent's other options, by id."""
    config_options: list[dict[str, Any]] | None
    commands: list[dict[str, Any]]
    error: str | None
    parent: str | None
    forked_from: dict[str, Any] | None
    worktree: Worktree | None
    file_operation: FileOperation | None
    """The change to its files that is being carried out. No turn begins meanwhile."""
    revision: int
    limits: dict[str, Any]
    permissions: list[dict[str, Any]]
    single_shot: bool
    queue_length: int
    pending_prompts: int
    waiting_until: str | None
    waiting_reason: str | None
    waits_for: WaitsFor | None
    """What its accepted message waits for."""
    usage: dict[str, Any]


class Session(ListedSession, kw_only=True):
    turns: list[Turn]
    """The newest visible turns, or those before the cursor; oldest first."""
    next_cursor: str | None
    """The cursor for older turns; null if there are none."""
    operation: dict[str, Any] | UnsetType = UNSET
    """After a change to the history that also restored files: what was done to them."""


class FoundSession(ListedSession, kw_only=True):
    last_line: str = ""
    """The last line of the agent's text."""
    waiting_for: str = ""
    """The first unanswered prompt, on one line."""
    snippet: str | None = None
    """A passage with the search terms in brackets."""
    snippet_turn: int | None = None
    """The turn of the snippet; null if only the title matches."""


class SessionList(Struct):
    sessions: list[FoundSession]
    next_cursor: str | None


class Configured(Struct, kw_only=True):
    """The value now in force. `applied` is false if no agent process runs; it gets the value when it starts."""

    status: Literal["ok"]
    config_id: str
    value: Any
    applied: bool
    config_options: list[dict[str, Any]]


class Explanation(Struct, kw_only=True):
    session_id: str
    state: str
    status: str
    why: str
    last_event: dict[str, Any] | None
    quiet_for_s: float
    processes: list[dict[str, Any]]
    open_tools: list[str]
    prompts: list[Prompt]
    queue_length: int
    waits_for: WaitsFor | None
    next_timer: dict[str, Any] | None
    timers: list[dict[str, Any]]


class Files(Struct):
    files: list[str]


# Handlers -------------------------------------------------------------------------------------------------------------


class NewSessionFields(Protocol):
    """The fields that every body for a new session has."""

    project: str | None
    workdir: str | None
    agent: str | None
    title: str
    model: str | None
    mode: str | None
    labels: list[str]
    limits: Limits
    parent: str | None
    workspace: Workspace | None


def new_session(body: NewSessionFields, *, warm: bool = False) -> NewSession:
    return NewSession(
        project=body.project,
        workdir=body.workdir,
        agent=body.agent,
        title=body.title,
        model=body.model,
        mode=body.mode,
        labels=tuple(body.labels),
        limits=given_limits(body.limits),
        parent=body.parent,
        workspace=body.workspace,
        warm=warm,
    )


async def create_once(request: Request, session_id: str, new: NewSession, message: Outgoing) -> dict[str, Any]:
    """Create a session with its first message, or return the earlier response to the same message."""
    # One at a time: a second request with the same id finds the session that the first one created.
    creating: WeakValueDictionary[str, asyncio.Lock] = request.app.state.creating
    async with creating.setdefault(session_id, asyncio.Lock()):
        return await verbs(request).create_once(session_id, new, message)


async def create_session(request: Request) -> Response:
    body = await body_of(request, SessionBody)
    text, message = body.message, None
    if body.kickoff:
        text = asked_message(verbs(request), body.project, body.title, body.message)
    if text is not None:
        message = Outgoing(text=text, message_id=body.message_id, when_full=body.when_full)
    journal, _ = await verbs(request).create(new_session(body, warm=body.warm), message)
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
    body = await body_of(request, SessionChanges, now=now)
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
        # A damaged session can be erased, but not shown.
        await verbs(request).erase(session_id)
        return Response(status_code=204)
    if purge:
        await verbs(request).erase(session_id)
    return reply(closed)


async def stop(request: Request) -> Response:
    return reply(await verbs(request).end(request.path_params["session_id"], "stopped", "stopped"))


async def configure(request: Request) -> Response:
    body = await body_of(request, ConfigBody)
    return reply(await verbs(request).configure(request.path_params["session_id"], body.config_id, body.value))


async def explain(request: Request) -> Response:
    return reply(await verbs(request).explain(request.path_params["session_id"]))


async def list_files(request: Request) -> Response:
    limit = whole_number(request, "limit", 20, low=1, high=MAX_FILES)
    wanted = request.query_params.get("q", "")
    return reply({"files": await verbs(request).files(request.path_params["session_id"], wanted, limit)})


# Endpoints ------------------------------------------------------------------------------------------------------------

LIST_QUERY: QueryFields = {
    "project": (str, "Only sessions of this project."),
    "agent": (str, "Only sessions of this agent."),
    "state": (str, "Only sessions in this state: idle, accepted, processing, ended.", STATE),
    "status": (str, "Only sessions with this status: running, completed, stopped, timed-out, failed.", STATUS),
    "label": (str, "Only sessions with this label."),
    "workdir": (str, "Only sessions in this working directory.", ABSOLUTE),
    "parent": (str, "Only sessions that this session started."),
    "archived": (bool, "True: only archived sessions. False: only sessions that are not archived."),
    "q": (str, "Search titles and transcripts. `snippet` and `snippet_turn` show the match."),
    "limit": (int, PAGE_SIZE, between(1, MAX_LIMIT)),
    "cursor": (str, NEXT_PAGE),
}
TURNS_QUERY: QueryFields = {
    "limit": (int, "Number of turns, 1 to 1,000; default 50.", between(1, MAX_LIMIT)),
    "cursor": (str, "The `next_cursor` of the previous page, for older turns."),
}

SESSIONS = [
    Endpoint(
        "POST",
        "/api/sessions",
        create_session,
        "Create a session, with or without a first message",
        body=SessionBody,
        answers={201: Session},
        refusals=("not_found", "slots_full", "too_large", "agent_unavailable"),
    ),
    Endpoint(
        "GET",
        "/api/sessions",
        list_sessions,
        "List sessions, most recently active first",
        query=LIST_QUERY,
        answers={200: SessionList},
    ),
    Endpoint(
        "GET",
        SESSION,
        get_session,
        "Get a session with its newest turns",
        query=TURNS_QUERY,
        answers={200: Session},
        refusals=("not_found",),
    ),
    Endpoint(
        "PATCH",
        SESSION,
        change_session,
        "Change the title, summary or labels, or archive the session",
        body=SessionChanges,
        answers={200: Session},
        refusals=("not_found",),
    ),
    Endpoint(
        "DELETE",
        SESSION,
        delete_session,
        "Close a session as `completed`; with `purge`, also erase it",
        query={"purge": (bool, "Erase the session and everything that belongs to it.")},
        answers={200: Session, 204: None},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST", f"{SESSION}/stop", stop, "End a session as `stopped`", answers={200: Session}, refusals=("not_found",)
    ),
    Endpoint(
        "POST",
        f"{SESSION}/config",
        configure,
        "Set the agent's model, mode or another option",
        body=ConfigBody,
        answers={200: Configured},
        refusals=("not_found", "session_ended", "agent_unavailable"),
    ),
    Endpoint(
        "GET",
        f"{SESSION}/explain",
        explain,
        "Explain why the session is in its state and what happens next",
        answers={200: Explanation},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        f"{SESSION}/files",
        list_files,
        "List files in the working directory, to mention one in a message",
        query={
            "q": (str, "Text that the path must contain."),
            "limit": (int, "Number of files, 1 to 200; default 20.", between(1, MAX_FILES)),
        },
        answers={200: Files},
        refusals=("not_found",),
    ),
]
