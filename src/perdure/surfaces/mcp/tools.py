"""The tools: their names, what each takes and answers, and what a model is told of it. Values only.

Above: server.py offers and calls them. Below: Diane's shapes of a session, since those of sessions are Diane's tools.
Names and shapes are fixed, other programs rely on them; more fields may be added.
"""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from perdure.core.misfits import what_is_wrong
from perdure.surfaces.http.diane_shapes import DianeListed, DianeSession, Status

Json = dict[str, Any]
RunStatus = Literal["completed", "failed", "cancelled", "awaiting"]

INSTRUCTIONS = (
    "Delegate work to coding agents in sessions that last: start one, prompt it as often as you like (it remembers the "
    "conversation), close it when you are done. A turn that was begun goes on even if you stop waiting for it. "
    "Scheduled jobs send messages at set times; list them, or run one now."
)

# What the tools take ------------------------------------------------------------------------------------------------


class Start(Struct, kw_only=True):
    agent: Annotated[str, Meta(description="The agent's name. An unknown name is answered with those that exist.")]
    workdir: Annotated[str, Meta(description="The directory it works in. Left out: a new, empty one.")] | UnsetType = (
        UNSET
    )
    title: Annotated[str, Meta(description="A few words for people, shown in lists.")] | UnsetType = UNSET


class Prompt(Struct, kw_only=True):
    session_id: Annotated[str, Meta(description="As agent_session_start answered it.")]
    prompt: Annotated[str, Meta(description="What the agent is asked to do.")]
    agent: (
        Annotated[
            str,
            Meta(
                description="Another agent, to go on with from now on. It is told what was said before. Left out: the "
                "session's."
            ),
        ]
        | UnsetType
    ) = UNSET
    fresh: (
        Annotated[bool, Meta(description="True: the agent is told the whole conversation anew instead of going on.")]
        | UnsetType
    ) = UNSET
    message_id: (
        Annotated[
            str,
            Meta(
                description="Your own name for this prompt, new for each. The same again, with the same prompt, sends "
                "nothing: it waits for the turn that was begun, or answers how it ended."
            ),
        ]
        | UnsetType
    ) = UNSET


class List(Struct, kw_only=True):
    agent: Annotated[str, Meta(description="Only sessions of this agent.")] | UnsetType = UNSET
    status: (
        Annotated[Status, Meta(description="Only sessions with this status. Left out: all that are not closed.")]
        | UnsetType
    ) = UNSET


class Close(Struct, kw_only=True):
    session_id: Annotated[str, Meta(description="The session to close.")]


class ListJobs(Struct, kw_only=True):
    pass


class RunJob(Struct, kw_only=True):
    job_id: Annotated[str, Meta(description="As job_list answered it.")]
    run_id: (
        Annotated[
            str,
            Meta(
                description="Your own name for this run, new for each. The same again starts nothing: it answers how "
                "far that run has come."
            ),
        ]
        | UnsetType
    ) = UNSET


Arguments = Start | Prompt | List | Close | ListJobs | RunJob

# What they answer ---------------------------------------------------------------------------------------------------


class Listed(DianeListed, kw_only=True):
    """`status`: active, idle (nothing for five minutes), disconnected (the agent's process comes back with the next
    prompt) or closed. `turn_count` counts finished turns."""

    state: Literal["accepted", "processing", "idle", "ended"]
    pending_prompts: int | UnsetType = UNSET


class Sessions(Struct, kw_only=True):
    """Newest activity first. `more`: there are others, which are left out."""

    sessions: list[Listed]
    more: bool


class Part(Struct, kw_only=True):
    content_type: Literal["text/plain"]
    content: str


class Output(Struct, kw_only=True):
    role: Literal["agent"]
    parts: list[Part]


class RunError(Struct, kw_only=True):
    code: str
    message: str


class PendingPrompt(Struct, kw_only=True):
    """A permission request or a question that waits for a person."""

    prompt_id: str
    kind: str
    title: str
    input: Any
    options: list[Json]
    questions: list[Json]
    asked_at: str
    answer_with: str


class Run(Struct, kw_only=True):
    """One turn. `awaiting`: it goes on when a person has answered `pending_prompts`; `next_step` says what to do."""

    run_id: str
    agent_name: str
    session_id: str
    message_id: str
    status: RunStatus
    output: list[Output]
    turn_number: int
    created_at: str
    finished_at: str | UnsetType = UNSET
    stop_reason: str | UnsetType = UNSET
    error: RunError | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    pending_prompts: list[PendingPrompt] | UnsetType = UNSET
    next_step: str | UnsetType = UNSET


class Closed(Struct, kw_only=True):
    session_id: str
    status: Literal["closed"]


class JobRun(Struct, kw_only=True):
    """One run of a job. `state`: waiting (for the run before it), starting, running or ended. `outcome`, once it has
    ended: completed, failed, cancelled or skipped; `detail` says why."""

    id: str
    job_id: str
    due_at: str
    trigger: Literal["schedule", "missed", "manual"]
    state: Literal["waiting", "starting", "running", "ended"]
    outcome: Literal["completed", "failed", "cancelled", "skipped"] | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    ended_at: str | UnsetType = UNSET


class ListedJob(Struct, kw_only=True):
    """`state`: active, paused (`reason` says why, if it paused itself) or ended. `message` is cut if it is long."""

    job_id: str
    name: str
    message: str
    schedule: str
    time_zone: str
    state: Literal["active", "paused", "ended"]
    reason: str | UnsetType = UNSET
    next_run_at: str | UnsetType = UNSET
    backoff_until: str | UnsetType = UNSET
    last_run: JobRun | UnsetType = UNSET


class Jobs(Struct, kw_only=True):
    """In the order of their ids. `more`: there are others, which are left out."""

    jobs: list[ListedJob]
    more: bool


Answer = DianeSession | Sessions | Run | Closed | Jobs | JobRun

# The table ----------------------------------------------------------------------------------------------------------


class Tool(NamedTuple):
    name: str
    title: str
    description: str
    arguments: type[Start] | type[Prompt] | type[List] | type[Close] | type[ListJobs] | type[RunJob]
    answer: type[DianeSession] | type[Sessions] | type[Run] | type[Closed] | type[Jobs] | type[JobRun]
    hints: dict[str, bool]


TOOLS = (
    Tool(
        "agent_session_start",
        "Start an agent session",
        "Start a new multi-turn session with a coding agent. It does nothing yet: send it work with "
        "agent_session_prompt.",
        Start,
        DianeSession,
        {"read_only_hint": False, "destructive_hint": False, "idempotent_hint": False},
    ),
    Tool(
        "agent_session_prompt",
        "Prompt an agent session",
        "Send a prompt to a session and wait for the agent's answer, which may take long. The agent remembers earlier "
        "prompts of the session. If the answer's status is awaiting, a person must answer a permission request or a "
        "question first: tell them what next_step says.",
        Prompt,
        Run,
        {"read_only_hint": False, "destructive_hint": True, "idempotent_hint": False, "open_world_hint": True},
    ),
    Tool(
        "agent_session_list",
        "List agent sessions",
        "List sessions that are not closed, newest activity first, whoever started them.",
        List,
        Sessions,
        {"read_only_hint": True},
    ),
    Tool(
        "agent_session_close",
        "Close an agent session",
        "Close a session. A turn that runs in it is stopped; what was said is kept.",
        Close,
        Closed,
        {"read_only_hint": False, "destructive_hint": True, "idempotent_hint": True},
    ),
    Tool(
        "job_list",
        "List scheduled jobs",
        "List the scheduled jobs: messages that the server sends to agents at set times, with when each runs next and "
        "how it ended last.",
        ListJobs,
        Jobs,
        {"read_only_hint": True},
    ),
    Tool(
        "job_run",
        "Run a scheduled job now",
        "Run a scheduled job now, whatever its schedule says. It does not wait for the end: the answer is the run that "
        "was begun, and the same run_id again answers how far it has come.",
        RunJob,
        JobRun,
        {"read_only_hint": False, "destructive_hint": True, "idempotent_hint": False, "open_world_hint": True},
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}


def schema(kind: type) -> Json:
    """A struct's JSON schema with the object itself at the root, where MCP wants it."""
    _, parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = parts.pop(kind.__name__)
    return {**root, "$defs": parts} if parts else root


def read_arguments(tool: Tool, given: Json | None) -> Arguments:
    """Raises ValueError with a sentence. Models often write null for what they leave out."""
    present = {key: value for key, value in (given or {}).items() if value is not None}
    try:
        return msgspec.convert(present, tool.arguments)
    except msgspec.ValidationError as error:
        raise ValueError(f"The arguments do not fit: {what_is_wrong(error, tool.arguments)}.") from error
