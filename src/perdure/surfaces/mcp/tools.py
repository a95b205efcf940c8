"""The MCP tools: names, arguments, results, and descriptions for the model. Values only.

Above: server.py, which lists and calls them. Below: Diane's shapes of a session, because the session tools are Diane's.
Names and shapes are fixed, because other programs rely on them; fields may be added.
"""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from perdure.core.validation import what_is_wrong
from perdure.surfaces.diane_shapes import DianeListed, DianeSession, Status

Json = dict[str, Any]
RunStatus = Literal["completed", "failed", "cancelled", "awaiting"]

INSTRUCTIONS = (
    "Delegate work to coding agents in durable sessions: start one, prompt it as often as you like (it remembers the "
    "conversation), and close it when you are done. A turn continues even if you stop waiting for it. "
    "Scheduled jobs send messages at set times; list them, or run one now."
)

# Arguments ----------------------------------------------------------------------------------------------------------


class StartArguments(Struct, kw_only=True):
    agent: Annotated[str, Meta(description="Name of the agent. For an unknown name, the error lists the agents.")]
    workdir: Annotated[str, Meta(description="Directory to work in. Default: a new, empty one.")] | UnsetType = UNSET
    title: Annotated[str, Meta(description="Short title for people, shown in lists.")] | UnsetType = UNSET


class PromptArguments(Struct, kw_only=True):
    session_id: Annotated[str, Meta(description="The session_id that agent_session_start returned.")]
    prompt: Annotated[str, Meta(description="What the agent should do.")]
    agent: (
        Annotated[
            str,
            Meta(
                description="Switch the session to this agent, from now on. It gets the conversation so far. Default: "
                "the session's agent."
            ),
        ]
        | UnsetType
    ) = UNSET
    fresh: (
        Annotated[bool, Meta(description="True: restart the agent's context and replay the conversation to it.")]
        | UnsetType
    ) = UNSET
    message_id: (
        Annotated[
            str,
            Meta(
                description="Idempotency key, a new one for each prompt. If you repeat it with the same prompt, "
                "nothing is sent: the call waits for the existing turn, or returns its result."
            ),
        ]
        | UnsetType
    ) = UNSET


class ListArguments(Struct, kw_only=True):
    agent: Annotated[str, Meta(description="Only sessions of this agent.")] | UnsetType = UNSET
    status: (
        Annotated[Status, Meta(description="Only sessions with this status. Default: all that are not closed.")]
        | UnsetType
    ) = UNSET


class CloseArguments(Struct, kw_only=True):
    session_id: Annotated[str, Meta(description="The session to close.")]


class ListJobsArguments(Struct, kw_only=True):
    pass


class RunJobArguments(Struct, kw_only=True):
    job_id: Annotated[str, Meta(description="The job_id that job_list returned.")]
    run_id: (
        Annotated[
            str,
            Meta(
                description="Idempotency key, a new one for each run. If you repeat it, nothing is started: the call "
                "returns the current state of the existing run."
            ),
        ]
        | UnsetType
    ) = UNSET


Arguments = StartArguments | PromptArguments | ListArguments | CloseArguments | ListJobsArguments | RunJobArguments

# Results ------------------------------------------------------------------------------------------------------------


class Listed(DianeListed, kw_only=True):
    """`status`: active, idle (no activity for five minutes), disconnected (the agent's process restarts with the next
    prompt) or closed. `turn_count` counts finished turns."""

    state: Literal["accepted", "processing", "idle", "ended"]
    pending_prompts: int | UnsetType = UNSET


class Sessions(Struct, kw_only=True):
    """Most recently active first. `more`: there are further sessions, which are not listed."""

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
    """A permission request or a question that is waiting for a person."""

    prompt_id: str
    kind: str
    title: str
    input: Any
    options: list[Json]
    questions: list[Json]
    asked_at: str
    answer_with: str


class Run(Struct, kw_only=True):
    """One turn. `awaiting`: it continues when a person has answered `pending_prompts`; `next_step` says what to do."""

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
    """One run of a job. `state`: waiting (for the previous run), starting, running or ended. `outcome` of an ended run:
    completed, failed, cancelled or skipped; `detail` says why."""

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
    """`state`: active, paused (`reason` says why, if the server paused it) or ended. A long `message` is truncated."""

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
    """Sorted by id. `more`: there are further jobs, which are not listed."""

    jobs: list[ListedJob]
    more: bool


Answer = DianeSession | Sessions | Run | Closed | Jobs | JobRun

# The table ----------------------------------------------------------------------------------------------------------


class Tool(NamedTuple):
    name: str
    title: str
    description: str
    arguments: type[Arguments]
    answer: type[DianeSession] | type[Sessions] | type[Run] | type[Closed] | type[Jobs] | type[JobRun]
    hints: dict[str, bool]


TOOLS = (
    Tool(
        "agent_session_start",
        "Start an agent session",
        "Start a new multi-turn session with a coding agent. It does nothing yet: send it work with "
        "agent_session_prompt.",
        StartArguments,
        DianeSession,
        {"read_only_hint": False, "destructive_hint": False, "idempotent_hint": False},
    ),
    Tool(
        "agent_session_prompt",
        "Prompt an agent session",
        "Send a prompt to a session and wait for the agent's answer, which may take long. The agent remembers earlier "
        "prompts of the session. If the status is awaiting, a person must first answer a permission request or a "
        "question: tell them what next_step says.",
        PromptArguments,
        Run,
        {"read_only_hint": False, "destructive_hint": True, "idempotent_hint": False, "open_world_hint": True},
    ),
    Tool(
        "agent_session_list",
        "List agent sessions",
        "List all sessions that are not closed, most recently active first, including those that others started.",
        ListArguments,
        Sessions,
        {"read_only_hint": True},
    ),
    Tool(
        "agent_session_close",
        "Close an agent session",
        "Close a session. A running turn is stopped. The history stays.",
        CloseArguments,
        Closed,
        {"read_only_hint": False, "destructive_hint": True, "idempotent_hint": True},
    ),
    Tool(
        "job_list",
        "List scheduled jobs",
        "List the scheduled jobs (messages that the server sends to agents at set times), each with its next run and "
        "its last outcome.",
        ListJobsArguments,
        Jobs,
        {"read_only_hint": True},
    ),
    Tool(
        "job_run",
        "Run a scheduled job now",
        "Run a scheduled job now, regardless of its schedule. Returns the new run without waiting for its end; call "
        "again with the same run_id to get its current state.",
        RunJobArguments,
        JobRun,
        {"read_only_hint": False, "destructive_hint": True, "idempotent_hint": False, "open_world_hint": True},
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}


def schema(kind: type) -> Json:
    """A struct's JSON schema with the object at the root, as MCP requires."""
    _, parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = parts.pop(kind.__name__)
    root["title"] = kind.__name__.removesuffix("Arguments")
    return {**root, "$defs": parts} if parts else root


def read_arguments(tool: Tool, given: Json | None) -> Arguments:
    """Validate arguments. Raises ValueError with a message. Null counts as omitted: models often send it."""
    present = {key: value for key, value in (given or {}).items() if value is not None}
    try:
        return msgspec.convert(present, tool.arguments)
    except msgspec.ValidationError as error:
        raise ValueError(f"Invalid arguments: {what_is_wrong(error, tool.arguments)}.") from error
