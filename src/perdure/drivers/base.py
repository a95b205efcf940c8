"""What a driver is: how one family of agents is started and spoken to, as values in and values out.

Above: the runner (runtime/runner.py) gives orders, feeds lines and stores what comes back. Below: the protocols
(acp.py, ...). A driver does no I/O, reads no clock and makes no random numbers: it is fed with whole lines, and
everything it remembers is in `dump()`, which the runner stores in one transaction with the events and with the
position in the agent's output. After a crash `restore(dump)` goes on as if nothing had happened.

Lines that a step returns are stored in that same transaction before they are written, so each is written once.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from perdure.core.events import Event
from perdure.core.observations import (
    Noise,
    PromptWithdrawn,
    ResumeRefused,
    SessionOpened,
    StartFailed,
    Told,
    TurnBegun,
    TurnFinished,
)

__all__ = [
    "AnswerPrompt",
    "CancelTurn",
    "CloseSession",
    "Command",
    "Conversation",
    "Driver",
    "Noise",
    "Observation",
    "Order",
    "PromptWithdrawn",
    "ResumeRefused",
    "SendPrompt",
    "SessionOpened",
    "SetConfig",
    "StartFailed",
    "StartSession",
    "Step",
    "TurnBegun",
    "TurnFinished",
]

# Orders: what the runner asks for, each made from logged events -----------------------------------------------


class StartSession(Struct, frozen=True, tag=True):
    """Open the agent's own session: a new one, or `native_session_id` again. Comes first, and again after a
    refused resume (then with no id). Model and mode are applied as soon as the session is open."""

    workdir: str
    native_session_id: str | None = None
    model: str | None = None
    mode: str | None = None
    config: dict[str, Any] = {}
    """What a person chose for this session."""
    options: dict[str, Any] = {}
    """What perdure.toml says for the agent and the project. Some of it runs code, so a session can't set it."""


class SendPrompt(Struct, frozen=True, tag=True):
    """One user message. May come before the session is open: the driver holds it until then."""

    turn: int
    message_id: str
    text: str
    attachments: tuple[dict[str, Any], ...] = ()
    told: Told | None = None
    """What became of a history that was too long; for the log and not for the agent."""


class CancelTurn(Struct, frozen=True, tag=True):
    """Interrupt. Harmless when nothing runs; may be repeated."""

    turn: int


class AnswerPrompt(Struct, frozen=True, tag=True):
    """What the person (or a rule) said. `answer` is one of
    {"option_id": ..., "input"?: ..., "reason"?: ..., "interrupt"?: bool} | {"answers": {...}} | {"cancel": true}."""

    prompt_id: str
    answer: dict[str, Any]


class SetConfig(Struct, frozen=True, tag=True):
    config_id: str
    value: Any


class CloseSession(Struct, frozen=True, tag=True):
    """Say goodbye in the protocol's own words, if it has any, before stdin is closed."""


Order = StartSession | SendPrompt | CancelTurn | AnswerPrompt | SetConfig | CloseSession

# Observations: what the agent did ------------------------------------------------------------------------------
# Content is said in the wire's own events (AssistantText, AssistantThinking, ToolUse, ToolUpdate, ToolResult,
# Plan, Usage, PendingPrompt, Config, Title, System), each with the `turn` it belongs to; the rest is in
# core/observations.py, because the machine reads it.

Observation = Event | SessionOpened | ResumeRefused | StartFailed | PromptWithdrawn | TurnBegun | TurnFinished | Noise


class Step(Struct, frozen=True, gc=False):
    """What one order or a batch of lines led to."""

    observations: list[Observation]
    lines: list[bytes]
    """What is to be written to the agent, each ending in a newline and holding no other."""


class Conversation(Protocol):
    """The protocol half of one launch. It never raises, whatever bytes it is fed."""

    def perform(self, order: Order) -> Step: ...

    def receive(self, lines: Sequence[bytes]) -> Step:
        """Whole lines, without their newline. Neighbouring deltas of one block are joined in the result."""
        ...

    def dump(self) -> bytes: ...

    @property
    def prompt_bytes(self) -> int | None:
        """The size of the prompt that the agent is working on, if there is one."""
        ...

    @property
    def unanswered(self) -> int | None:
        """The turn whose prompt the agent was given and has shown nothing of, where it is known to show that at once.
        What it still says of an earlier turn is no answer."""
        ...


LAUNCH_FOLDER = "{launch}/"


class Command(NamedTuple):
    """How the process is started. Each of `files` (a name, its text) is there when it is, readable by nobody else; an
    argument `LAUNCH_FOLDER` + its name is its path."""

    argv: list[str]
    env: dict[str, str]
    files: dict[str, str] = {}


class Driver(Protocol):
    """One family of agents. A new one is a module and a line in drivers/__init__.py."""

    name: str
    process_per_turn: bool
    """The process ends by itself after each turn (and that is not an error)."""

    def command(self, argv: list[str], order: StartSession, launch_id: str) -> Command:
        """The command line and extra environment for a launch, from the agent's configured command."""
        ...

    def begin(self, launch_id: str) -> Conversation: ...

    def restore(self, dump: bytes) -> Conversation: ...


class SharedConversation(Conversation, Protocol):
    """One of several in a process: each reads all of its output, and heeds what is meant for it."""

    @property
    def joinable(self) -> bool:
        """The process has introduced itself, and may be asked for another session."""
        ...

    @property
    def member(self) -> int:
        """Its number in the process; 0 is the one that the process was started for."""
        ...

    @property
    def native_session_id(self) -> str | None:
        """The session that it has open."""
        ...

    taken: Collection[str]
    """Those that others in the process have open: what is said in them is not for this one, so it must have another."""
    speaks: bool
    """It answers and tells of what concerns no session in particular."""


@runtime_checkable
class SharingDriver(Protocol):
    """A driver whose processes can serve several sessions."""

    def join(self, other: SharedConversation, member: int) -> SharedConversation:
        """For another session in the process of `other`, which is joinable."""
        ...
