"""What the API answers, as structs. They shape the OpenAPI document; a test holds real answers against them."""

from typing import Any, Literal

from msgspec import Struct


class Problem(Struct, kw_only=True):
    type: str
    title: str
    status: int
    detail: str
    code: str
    error: str


class Health(Struct):
    status: Literal["ok"]
    version: str
    damaged: int
    """How many things are damaged and set aside; `GET /api/server` names them."""


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
    """The slash commands that it offered last; null until it has run."""


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
    active_session_id: str | None
    activeSessionId: str | None  # noqa: N815
    """The same under TeamHQ's name."""


class ProjectList(Struct):
    projects: list[Project]


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


class WaitsFor(Struct, kw_only=True):
    """Why an accepted message has not begun yet: a code for programs, a sentence for people."""

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
    """The id of the node that owns it; null if none does. Snapshots leave it out: a change of owner is no event."""
    node_name: str | None = None
    model: str | None
    mode: str | None
    models: dict[str, Any] | None
    modes: dict[str, Any] | None
    config: dict[str, Any] = {}
    """What was chosen of the agent's other options, by their ids."""
    config_options: list[dict[str, Any]] | None
    commands: list[dict[str, Any]]
    error: str | None
    parent: str | None
    forked_from: dict[str, Any] | None
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
    """The newest visible turns, oldest first; or those before the cursor."""
    next_cursor: str | None
    """The cursor for the turns before these; null if there are none."""


class FoundSession(ListedSession, kw_only=True):
    last_line: str = ""
    """The end of what was last said."""
    waiting_for: str = ""
    """What a person is asked, if one is."""
    snippet: str | None = None
    """Where the words that were searched for stand, in brackets."""
    snippet_turn: int | None = None
    """The turn that it is of; null if only the title has the words."""


class SessionList(Struct):
    sessions: list[FoundSession]
    next_cursor: str | None


class Accepted(Struct, kw_only=True):
    session_id: str
    message_id: str
    run_id: str | None
    turn: int | None
    state: str
    """`processing`: the turn has begun, or the message is queued behind one. `accepted`: it begins later."""
    waits_for: WaitsFor | None
    seq: int


class QueuedMessage(Struct, kw_only=True):
    message_id: str
    text: str
    agent: str | None
    attachments: list[dict[str, Any]]
    queued_at: str
    first: bool
    """It interrupts, and so goes before those that are content to wait."""


class Queue(Struct):
    queue: list[QueuedMessage]


class Aborting(Struct, kw_only=True):
    session_id: str
    turn: int | None
    state: str


class Configured(Struct, kw_only=True):
    """The value that is in force now. `applied`: the agent has said so; else no process of it runs, and it gets the
    value when it starts."""

    status: Literal["ok"]
    config_id: str
    value: Any
    applied: bool
    config_options: list[dict[str, Any]]


class Prompt(Struct, kw_only=True):
    prompt_id: str
    kind: Literal["permission", "question"]
    turn: int | None
    title: str
    tool_id: str | None
    tool: str | None
    tool_kind: str
    input: Any
    diff: list[dict[str, Any]] | None
    content: str | None
    asked_at: str
    options: list[dict[str, Any]]
    questions: list[dict[str, Any]]
    always: list[str]
    covers: list[str]


class Prompts(Struct):
    prompts: list[Prompt]


class Resolved(Struct, kw_only=True):
    prompt_id: str
    by: str
    outcome: str
    delivered: bool


class Transcript(Struct, kw_only=True):
    session_id: str
    title: str
    seq: int
    revision: int
    turns: list[dict[str, Any]]


class Plan(Struct, kw_only=True):
    agent: str
    context: Literal["live", "resumed", "fresh"]
    reason: str
    guards: dict[str, bool]
    native_session_id: str | None
    scope: Literal["all", "agent"]
    turns_told: list[int]
    digested: list[int]
    left_out: list[int]
    tokens: int
    bytes: int


class UsageGroup(Struct, kw_only=True):
    key: str
    turns: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float
    contexts: dict[str, int]
    input_bytes: int
    saved_bytes: int
    duration_ms: int


class Usage(Struct, kw_only=True):
    group_by: list[str]
    usage: list[UsageGroup]
    total: UsageGroup | None


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


class LoginLink(Struct):
    path: str


class LoggedIn(Struct):
    """The page's key, which is sent as the header `Perdure-Page-Key` beside the cookie."""

    page_key: str


class Ticket(Struct):
    ticket: str
    expires_in_s: int


class ServerSessions(Struct, kw_only=True):
    attached: int
    working: int
    waiting: int
    """How many wait for a person."""
    accepted: int
    """How many have a message whose turn has not begun."""


class Damage(Struct, kw_only=True):
    """Something that can't be read. It is set aside, and everything else goes on."""

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


class Directory(Struct, kw_only=True):
    path: str
    """Without symbolic links."""
    identity: str
    """Made from the kernel's boot id and the directory's device and inode."""
    private: bool
    """Whether it is in the data directory, where no session may work."""
    projects: list[str]
    """The projects that it lies in: the innermost, or several that share its path."""


class Files(Struct):
    files: list[str]


class SignedIn(Struct, kw_only=True):
    id: str
    until: str
    this: bool


class Logins(Struct):
    logins: list[SignedIn]


class LoginsEnded(Struct):
    ended: int
