"""Events: everything that happens in a session, with the names that the API uses.

Above: the machine (session.py) makes them; views and transcripts (view.py, transcript.py) are folds of them.
Below: nothing.

An event is encoded to JSON once, and the same bytes are in the store, in streams and in a downloaded log. They don't
include `seq`: the store assigns it at the commit, and `with_seq` inserts it. Stored events are permanent, so fields are
only added, with defaults, and never renamed or removed. docs/sessions.md lists the events with the first paragraph of
their docstrings.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import msgspec
from msgspec import Struct

StopReason = Literal["end_turn", "cancelled", "failed", "timed_out", "max_turns", "refusal"]
Context = Literal["live", "resumed", "fresh"]
ToolStatus = Literal["pending", "in_progress", "completed", "failed"]
ToolOutcome = Literal["denied", "interrupted"]
FileAction = Literal["restore", "discard", "undo", "commit", "merge", "clean_up"]


class Event(Struct, kw_only=True, tag_field="type", omit_defaults=False):
    """The fields of every event. `Decision` sets `at` and `session_id`; for streamed text, the journal does."""

    decisive: ClassVar[bool] = True
    """Whether the machine reads it. Other events never change what is allowed."""

    at: str = ""
    session_id: str = ""
    turn: int | None = None


# Messages, turns and content ----------------------------------------------------------------------------------


class SessionCreated(Event, tag="session_created"):
    """The session was created. `session` is its initial state."""

    session: dict[str, Any]


class UserMessage(Event, tag="user_message"):
    """A message was accepted. Its turn has a number from here on, and begins with `turn_start`."""

    message_id: str
    text: str
    agent: str
    attachments: list[dict[str, Any]] = []
    origin: Literal["person", "agent"] = "person"
    fresh: bool = False
    """The sender requested a restarted context."""


class WaitingToBegin(Event, tag="waiting_to_begin"):
    """The turn can't begin yet. `code` and `message` say what it waits for, until `turn_start` or `turn_end`."""

    code: str
    message: str


class TurnStart(Event, tag="turn_start"):
    """The turn begins. Context `live` or `resumed`: the agent holds the conversation. `fresh`: it receives a replay."""

    run_id: str
    message_id: str
    agent: str
    context: Context
    context_reason: str
    native_session_id: str | None = None
    origin: Literal["person", "agent"] = "person"
    """`agent`: the agent started the turn on its own; there is nothing to send."""
    scope: Literal["all", "agent"] = "all"
    seen: int = 0
    """The native session holds the agent's view up to this turn."""
    taken_over: bool = False
    """The turn ran in another session, which was forked or imported."""
    catch_up: int = 0
    """How many turns are sent with the message because the native session lacks them."""
    replayed: int = 0
    """How many turns are replayed in a `fresh` turn: all that its agent receives."""
    slash_command: str = ""
    """The agent's slash command that the message calls, without the slash."""


class AssistantText(Event, tag="assistant_text", gc=False):
    """A piece of the answer. Pieces with the same `block` belong together."""

    decisive: ClassVar[bool] = False
    block: int
    delta: str


class AssistantThinking(Event, tag="assistant_thinking", gc=False):
    """A piece of the agent's thinking."""

    decisive: ClassVar[bool] = False
    block: int
    delta: str


class ToolUse(Event, tag="tool_use"):
    """The agent calls a tool."""

    tool_id: str
    name: str
    kind: str = "other"
    title: str = ""
    input: Any = None
    parent_tool_id: str | None = None


class ToolProgress(Event):
    """The shared fields of updates and results. Null fields have not changed."""

    tool_id: str
    status: ToolStatus = "in_progress"
    content: str | None = None
    diff: list[dict[str, Any]] | None = None
    locations: list[dict[str, Any]] | None = None
    is_error: bool = False
    title: str | None = None
    input: Any = None


class ToolUpdate(ToolProgress, tag="tool_update"):
    """The progress of a running tool. Null fields have not changed."""

    decisive: ClassVar[bool] = False


class ToolResult(ToolProgress, tag="tool_result"):
    """A tool has finished. `outcome` is `denied` if permission was denied, `interrupted` if it was stopped before its
    end. `waited_ms` is how long it waited for a person."""

    status: ToolStatus = "completed"
    outcome: ToolOutcome | None = None
    waited_ms: int = 0


class Image(Event, tag="image"):
    """An image from the agent or a tool. `data` (base64) is null if the image is too large to store."""

    decisive: ClassVar[bool] = False
    mime_type: str
    size: int
    data: str | None = None
    tool_id: str | None = None


class PlanEntry(Struct):
    content: str
    status: str = "pending"
    priority: str = "medium"


class Plan(Event, tag="plan"):
    """The agent's current plan. The last one of a turn counts."""

    entries: list[PlanEntry]


class Usage(Event, tag="usage"):
    """Tokens and cost of the turn so far, as totals. The last one of a turn counts."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None
    context_used: int | None = None
    context_size: int | None = None


class TurnEnd(Event, tag="turn_end"):
    """The turn has ended. All its tools and prompts are closed."""

    stop_reason: StopReason
    exit_code: int | None = None
    duration_ms: int = 0
    usage: dict[str, Any] | None = None
    cost_usd: float | None = None
    model: str | None = None
    input_bytes: int | None = None
    confirmed: bool = False
    """The agent reported the end of the turn, so its native session holds this turn."""
    poisoned: bool = False
    """The native session can't be used again (too long, corrupt)."""


class WaitingForInput(Event, tag="waiting_for_input"):
    """The session waits for a message."""


class SessionEnd(Event, tag="session_end"):
    """The session has ended. `status` is `completed`, `stopped`, `timed-out` or `failed`."""

    status: str
    reason: str


# Prompts ------------------------------------------------------------------------------------------------------


class PromptOption(Struct):
    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class Choice(Struct):
    label: str
    description: str = ""


class Question(Struct):
    question_id: str
    question: str
    header: str = ""
    multiple: bool = False
    options: list[Choice] = []


class PendingPrompt(Event, tag="pending_prompt"):
    """The agent asks for permission or asks a question, and waits for the answer."""

    prompt_id: str
    kind: Literal["permission", "question"]
    title: str
    tool_id: str | None = None
    tool: str | None = None
    input: Any = None
    asked_at: str = ""
    options: list[PromptOption] = []
    questions: list[Question] = []
    always: list[str] = []
    """What "always" would allow, in the agent's own rule syntax; empty if only this request."""
    tool_kind: str = ""
    """The kind of tool, such as `edit` or `execute`; empty if the agent does not report it."""
    diff: list[dict[str, Any]] | None = None
    """What an edit would change, as in a tool's result. Entries have a `line` if the server read the file; otherwise
    they may have `overwrites`."""
    content: str | None = None
    """What the agent shows with its request."""
    covers: list[str] = []
    """What "always" would allow, in readable form; empty if the option's name says it."""


class PromptResolved(Event, tag="prompt_resolved"):
    """A prompt is closed. `answer` is what the agent receives; it is stored so that a new owner can deliver it."""

    prompt_id: str
    by: Literal["person", "rule", "agent", "server"]
    outcome: Literal["allowed", "denied", "answered", "cancelled", "withdrawn", "discarded", "agent_lost"]
    delivered: bool
    answer: dict[str, Any] | None = None


# The queue, aborts, and session settings ------------------------------------------------------------------------


class MessageQueued(Event, tag="message_queued"):
    """A message was queued until the current turn ends."""

    message_id: str
    text: str
    agent: str | None = None
    fresh: bool = False
    first: bool = False
    attachments: list[dict[str, Any]] = []


class QueuedMessageEdited(Event, tag="queued_message_edited"):
    """The text of a queued message was changed. It keeps its place in the queue and its attachments."""

    message_id: str
    text: str


class MessageUnqueued(Event, tag="message_unqueued"):
    """A message left the queue: it is sent now, was withdrawn, or the session ended."""

    message_id: str
    text: str
    reason: Literal["sent", "removed", "session_ended"] = "removed"


class AbortRequested(Event, tag="abort_requested"):
    """The turn was asked to stop. It ends when the agent confirms, or when its process is killed."""

    reason: Literal["person", "interrupt", "turn_timeout", "turn_limit", "silence", "stop"]


class SessionUpdated(Event, tag="session_updated"):
    """The summary, labels or archived flag changed. Null fields have not changed."""

    summary: str | None = None
    labels: list[str] | None = None
    archived: bool | None = None


class Title(Event, tag="title"):
    """The session has a new title."""

    title: str
    by: Literal["person", "message", "agent"] = "person"


class Config(Event, tag="config"):
    """The value of an agent's option: as a person chose it (`requested`), as the agent reports it, or, after the agent
    refused a choice (`refused`), the value still in effect."""

    config_id: str
    value: Any
    requested: bool = False
    refused: bool = False
    options: list[dict[str, Any]] | None = None


# The agent's process ------------------------------------------------------------------------------------------------


class AgentLaunched(Event, tag="agent_launched"):
    """A process is about to start. Stored before the process is spawned, so a launch without this event never ran."""

    launch_id: str
    agent: str
    driver: str
    native_session_id: str | None = None
    workdir_id: str = ""
    fingerprint: str = ""


class AgentAttached(Event, tag="agent_attached"):
    """The agent's process is ready, and its native session is open."""

    agent: str
    pid: int | None
    native_session_id: str | None
    reason: str
    launch_id: str = ""
    models: dict[str, Any] | None = None
    modes: dict[str, Any] | None = None
    config_options: list[dict[str, Any]] | None = None


class AgentDetached(Event, tag="agent_detached"):
    """The session no longer uses this process."""

    agent: str
    pid: int | None
    native_session_id: str | None
    reason: str
    launch_id: str = ""


class ContextFallback(Event, tag="context_fallback"):
    """The planned context was not available. The turn continues with the full transcript."""

    reason: str
    poisoned: bool = False
    """The native session must never be used again."""
    shorter: bool = False
    """The history was too long for the agent: from now on it receives less."""
    tried: bool = True
    """The message was already sent, and is sent again."""


class DriverFallback(Event, tag="driver_fallback"):
    """From now on, this session uses another driver for the agent."""

    agent: str
    from_driver: str = msgspec.field(name="from")
    to: str
    reason: str


class HistoryChanged(Event, tag="history_changed"):
    """The history was changed. `edit`: this turn's message has a new text. `rewind` and `retry`: this turn and all
    later ones are no longer visible; they stay in the log. `bumped`: the agents whose native session is out of date."""

    change: Literal["edit", "rewind", "retry"]
    bumped: list[str]
    message_id: str | None = None
    text: str | None = None


class HistoryShortened(Event, tag="history_shortened"):
    """The conversation was too long for the agent: the turns in `digested` were shortened, those in `left_out` were
    not sent."""

    digested: list[int]
    left_out: list[int]
    tokens: int
    message: str


# The files of the working directory ---------------------------------------------------------------------------------


class TurnChanges(Event, tag="turn_changes"):
    """What a turn changed in the repository was recorded, or can't be known; `reason` says why. The changes themselves
    are not in the log."""

    decisive: ClassVar[bool] = False
    state: Literal["ready", "partial", "unavailable"]
    reason: str | None = None
    files: int | None = None
    added: int | None = None
    removed: int | None = None
    directory: str = ""


class FilesRequested(Event, tag="files_requested"):
    """A person asked to change files. The node that has the directory carries it out. No turn begins before
    `files_changed`. `then` is a change to the history that takes effect together with it."""

    operation_id: str
    action: FileAction
    details: dict[str, Any] = {}
    then: dict[str, Any] | None = None


class FilesChanged(Event, tag="files_changed"):
    """A requested change to files is done, or was refused (`conflict`, `failed`). Then nothing has changed, except for
    the files in `files`."""

    operation_id: str
    action: FileAction
    outcome: Literal["done", "conflict", "failed"]
    message: str
    code: str = ""
    for_turn: int | None = None
    files: list[dict[str, Any]] = []
    file_count: int = 0
    commit: str | None = None
    undoable: bool = False


class WaitingUntil(Event, tag="waiting_until"):
    """No turn runs before `until`, because of a usage limit. Null: the wait is over."""

    until: str | None
    reason: str


class System(Event, tag="system"):
    """A notice for people."""

    message: str
    code: str


class Unrecognised(Event, tag="unrecognised"):
    """A line from the agent that Perdure does not understand, as received (the first 16 KiB). Not part of the
    conversation."""

    reason: str
    raw: str


class Error(Event, tag="error"):
    """Something failed. `message` says what, in one sentence. `detail` is the agent's own text: the end of its stderr,
    or the text that the message was made from."""

    message: str
    code: str
    detail: str | None = None


# fmt: off
AnyEvent = (
    SessionCreated | UserMessage | WaitingToBegin | TurnStart | AssistantText | AssistantThinking | ToolUse |
    ToolUpdate | ToolResult | Image | Plan | Usage | TurnEnd | WaitingForInput | SessionEnd | PendingPrompt |
    PromptResolved | MessageQueued | QueuedMessageEdited | MessageUnqueued | AbortRequested | SessionUpdated | Title |
    Config | AgentLaunched | AgentAttached | AgentDetached | ContextFallback | DriverFallback | HistoryChanged |
    HistoryShortened | TurnChanges | FilesRequested | FilesChanged | WaitingUntil | System | Unrecognised | Error
)
# fmt: on

DELTA_TYPES = ("assistant_text", "assistant_thinking")
"""The types whose adjacent events of one block may be joined, before they get a number and by compaction."""

TYPES: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in get_args(AnyEvent)}
"""The wire name of each event type."""
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def type_of(event: Event) -> str:
    """The event's wire name."""
    return TYPES[type(event)]


encode: Callable[[Event], bytes] = _encoder.encode
"""The event's JSON without `seq`, as stored."""


def decode(body: bytes) -> AnyEvent:
    """An event from its stored JSON."""
    return _decoder.decode(body)


def with_seq(seq: int, body: bytes, first_seq: int | None = None) -> bytes:
    """The JSON that clients receive: the stored JSON with `seq` in front."""
    if first_seq is not None and first_seq != seq:
        return b'{"seq":%d,"first_seq":%d,%b' % (seq, first_seq, body[1:])
    return b'{"seq":%d,%b' % (seq, body[1:])
