"""Events: everything that ever happened in a session, in the words of the wire.

Above: the machine (session.py) makes them, readings (view.py, transcript.py) fold them. Below: nothing.
An event's JSON is made once and is the same in the store, on the wire and in a downloaded log. It has no
`seq` of its own: the store gives the number when it commits, and `with_seq` puts it in front.
A stored event is a fact for ever: fields are added with defaults, never renamed or removed.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import msgspec
from msgspec import Struct

StopReason = Literal["end_turn", "cancelled", "failed", "timed_out", "max_turns", "refusal"]
Context = Literal["live", "resumed", "fresh"]
ToolStatus = Literal["pending", "in_progress", "completed", "failed"]
ToolOutcome = Literal["denied", "interrupted"]


class Event(Struct, kw_only=True, tag_field="type", omit_defaults=False):
    """What every event says. `at` and `session_id` are stamped by the log, never by the machine."""

    decisive: ClassVar[bool] = True
    """Whether the machine reads it. Events that are not decisive never change what is allowed."""

    at: str = ""
    session_id: str = ""
    turn: int | None = None


# What was said and done ---------------------------------------------------------------------------------------


class SessionCreated(Event, tag="session_created"):
    """A session was made; `session` is what it looked like then."""

    session: dict[str, Any]


class UserMessage(Event, tag="user_message"):
    """The message of a turn. The turn has its number from here on, and begins with `turn_start`."""

    message_id: str
    text: str
    agent: str
    attachments: list[dict[str, Any]] = []
    origin: Literal["person", "agent"] = "person"
    fresh: bool = False
    """The sender asks for a restarted context."""


class WaitingToBegin(Event, tag="waiting_to_begin"):
    """The turn can't begin yet: `code` and `message` say what it waits for, until `turn_start` or `turn_end`."""

    code: str
    message: str


class TurnStart(Event, tag="turn_start"):
    """A turn begins. `live` and `resumed`: its agent holds the conversation; `fresh`: it gets a replay of it."""

    run_id: str
    message_id: str
    agent: str
    context: Context
    context_reason: str
    native_session_id: str | None = None
    origin: Literal["person", "agent"] = "person"
    """`agent`: it began by itself, and nothing is to be sent."""
    scope: Literal["all", "agent"] = "all"
    seen: int = 0
    """The agent's own session holds what it was given up to this turn."""
    taken_over: bool = False
    """It was worked in another session, of which this one is a fork or a copy."""
    catch_up: int = 0
    """How many turns it is told besides the message, because its own session does not hold them."""
    replayed: int = 0
    """How many turns were replayed to a `fresh` one, which are all that its agent is given."""
    slash_command: str = ""
    """The agent's slash command that the message calls, without its slash."""


class AssistantText(Event, tag="assistant_text", gc=False):
    """A piece of the answer. Pieces of one `block` belong together."""

    decisive: ClassVar[bool] = False
    block: int
    delta: str


class AssistantThinking(Event, tag="assistant_thinking", gc=False):
    """A piece of what the agent thought."""

    decisive: ClassVar[bool] = False
    block: int
    delta: str


class ToolUse(Event, tag="tool_use"):
    """The agent uses a tool."""

    tool_id: str
    name: str
    kind: str = "other"
    title: str = ""
    input: Any = None
    parent_tool_id: str | None = None


class ToolProgress(Event):
    """What is known of a tool by now; fields that are null did not change."""

    tool_id: str
    status: ToolStatus = "in_progress"
    content: str | None = None
    diff: list[dict[str, Any]] | None = None
    locations: list[dict[str, Any]] | None = None
    is_error: bool = False
    title: str | None = None
    input: Any = None


class ToolUpdate(ToolProgress, tag="tool_update"):
    """What is known of a running tool by now; fields that are null did not change."""

    decisive: ClassVar[bool] = False


class ToolResult(ToolProgress, tag="tool_result"):
    """A tool is over. `outcome`: it was not done, because somebody denied it (`denied`), or it was stopped before its
    end (`interrupted`). `waited_ms` is the part of its time in which it waited for a person."""

    status: ToolStatus = "completed"
    outcome: ToolOutcome | None = None
    waited_ms: int = 0


class Image(Event, tag="image"):
    """A picture that the agent shows, or that a tool gave. `data` (base64) is null if it is too large to be kept."""

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
    """The agent's plan as it is now; the last one of a turn counts."""

    entries: list[PlanEntry]


class Usage(Event, tag="usage"):
    """Tokens and cost of the turn so far, absolute; the last one of a turn counts."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None
    context_used: int | None = None
    context_size: int | None = None


class TurnEnd(Event, tag="turn_end"):
    """A turn is over, and nothing of it is open any more."""

    stop_reason: StopReason
    exit_code: int | None = None
    duration_ms: int = 0
    usage: dict[str, Any] | None = None
    cost_usd: float | None = None
    model: str | None = None
    input_bytes: int | None = None
    confirmed: bool = False
    """Ended by the agent's own word, so that its native session holds this turn."""
    poisoned: bool = False
    """The agent's native session can't be used again (over-long, corrupt)."""


class WaitingForInput(Event, tag="waiting_for_input"):
    """The session waits for a message."""


class SessionEnd(Event, tag="session_end"):
    """The session is over: `completed`, `stopped`, `timed-out` or `failed`."""

    status: str
    reason: str


# Prompts that wait --------------------------------------------------------------------------------------------


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
    """The agent asks for permission or puts a question, and waits."""

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
    """What "always" stands for, in the agent's own words; empty if it is just this request."""
    tool_kind: str = ""
    """`edit`, `execute` and so on, as of a tool; empty if the agent does not say."""
    diff: list[dict[str, Any]] | None = None
    """What an edit would change, as of a tool's result, with a `line` if the file was read, else maybe `overwrites`."""
    content: str | None = None
    """What the agent shows with its request."""
    covers: list[str] = []
    """What "always" would allow, for people to read; empty if the option's name says it."""


class PromptResolved(Event, tag="prompt_resolved"):
    """A prompt waits no longer. `answer` is what the agent is told, so that a new owner can deliver it."""

    prompt_id: str
    by: Literal["person", "rule", "agent", "server"]
    outcome: Literal["allowed", "denied", "answered", "cancelled", "withdrawn", "discarded", "agent_lost"]
    delivered: bool
    answer: dict[str, Any] | None = None


# The queue, and what people ask for -----------------------------------------------------------------------------


class MessageQueued(Event, tag="message_queued"):
    """A message waits for the running turn to end."""

    message_id: str
    text: str
    agent: str | None = None
    fresh: bool = False
    first: bool = False
    attachments: list[dict[str, Any]] = []


class QueuedMessageEdited(Event, tag="queued_message_edited"):
    """A waiting message has another text. Its place in the queue and its files stay."""

    message_id: str
    text: str


class MessageUnqueued(Event, tag="message_unqueued"):
    """A message waits no longer: it is sent now, was taken back, or the session ended."""

    message_id: str
    text: str
    reason: Literal["sent", "removed", "session_ended"] = "removed"


class AbortRequested(Event, tag="abort_requested"):
    """The turn is to be interrupted; it ends when the agent says so, or is made to."""

    reason: Literal["person", "interrupt", "turn_timeout", "turn_limit", "silence", "stop"]


class SessionUpdated(Event, tag="session_updated"):
    """Summary, labels or archive were changed; what is null was not."""

    summary: str | None = None
    labels: list[str] | None = None
    archived: bool | None = None


class Title(Event, tag="title"):
    """The session is called this from now on."""

    title: str
    by: Literal["person", "message", "agent"] = "person"


class Config(Event, tag="config"):
    """The value of an agent's option: a person's choice (`requested`), what the agent says is so, or, after it refused
    a choice (`refused`), what it is still."""

    config_id: str
    value: Any
    requested: bool = False
    refused: bool = False
    options: list[dict[str, Any]] | None = None


# The agent's process ------------------------------------------------------------------------------------------------


class AgentLaunched(Event, tag="agent_launched"):
    """A process is about to be started. Recorded before anything is spawned: a launch that is not here never ran."""

    launch_id: str
    agent: str
    driver: str
    native_session_id: str | None = None
    workdir_id: str = ""
    fingerprint: str = ""


class AgentAttached(Event, tag="agent_attached"):
    """The agent's process is ready, with its own session."""

    agent: str
    pid: int | None
    native_session_id: str | None
    reason: str
    launch_id: str = ""
    models: dict[str, Any] | None = None
    modes: dict[str, Any] | None = None
    config_options: list[dict[str, Any]] | None = None


class AgentDetached(Event, tag="agent_detached"):
    """The session has let go of its process."""

    agent: str
    pid: int | None
    native_session_id: str | None
    reason: str
    launch_id: str = ""


class ContextFallback(Event, tag="context_fallback"):
    """The planned context could not be had; this turn goes on with the full transcript."""

    reason: str
    poisoned: bool = False
    """The native session must never be used again."""
    shorter: bool = False
    """What it was told was too long for it: from now on it is told less."""
    tried: bool = True
    """The turn was sent already, and is sent once more."""


class DriverFallback(Event, tag="driver_fallback"):
    """The agent is spoken to in another way from now on, in this session."""

    agent: str
    from_driver: str = msgspec.field(name="from")
    to: str
    reason: str


class HistoryChanged(Event, tag="history_changed"):
    """What was said was changed. `edit`: the message of this turn has another text. `rewind` and `retry`: this turn and
    all after it are no longer visible; they stay in the log. `bumped`: the agents whose own session is out of date."""

    change: Literal["edit", "rewind", "retry"]
    bumped: list[str]
    message_id: str | None = None
    text: str | None = None


class HistoryShortened(Event, tag="history_shortened"):
    """The conversation was too long to be told as it is: these turns were told in short form, those not at all."""

    digested: list[int]
    left_out: list[int]
    tokens: int
    message: str


class WaitingUntil(Event, tag="waiting_until"):
    """Nothing runs before this time (a usage limit); null: the wait is over."""

    until: str | None
    reason: str


class System(Event, tag="system"):
    """Something that a person may want to know."""

    message: str
    code: str


class Unrecognised(Event, tag="unrecognised"):
    """A line of the agent that is not understood, as it came (the first 16 KiB). No part of the conversation."""

    reason: str
    raw: str


class Error(Event, tag="error"):
    """Something went wrong; `message` says what in one sentence, `detail` is the agent's own text: what it wrote
    to stderr last, or what the message was made from."""

    message: str
    code: str
    detail: str | None = None


# fmt: off
AnyEvent = (
    SessionCreated | UserMessage | WaitingToBegin | TurnStart | AssistantText | AssistantThinking | ToolUse |
    ToolUpdate | ToolResult | Image | Plan | Usage | TurnEnd | WaitingForInput | SessionEnd | PendingPrompt |
    PromptResolved | MessageQueued | QueuedMessageEdited | MessageUnqueued | AbortRequested | SessionUpdated | Title |
    Config | AgentLaunched | AgentAttached | AgentDetached | ContextFallback | DriverFallback | HistoryChanged |
    HistoryShortened | WaitingUntil | System | Unrecognised | Error
)
# fmt: on

DELTA_TYPES = ("assistant_text", "assistant_thinking")
"""The types whose neighbours of one block may be joined: before they get a number, and by compaction."""

TYPES: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in get_args(AnyEvent)}
"""The names of all kinds of events on the wire."""
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def type_of(event: Event) -> str:
    """The event's name on the wire."""
    return TYPES[type(event)]


encode: Callable[[Event], bytes] = _encoder.encode
"""The event's JSON without its `seq`: what is stored."""


def decode(body: bytes) -> AnyEvent:
    """An event from its stored JSON."""
    return _decoder.decode(body)


def with_seq(seq: int, body: bytes, first_seq: int | None = None) -> bytes:
    """The JSON that people see: the stored one with its number in front."""
    if first_seq is not None and first_seq != seq:
        return b'{"seq":%d,"first_seq":%d,%b' % (seq, first_seq, body[1:])
    return b'{"seq":%d,%b' % (seq, body[1:])
