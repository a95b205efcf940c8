"""The interface of a driver: how to start and talk to one family of agents, as pure functions on values.

Above: the runner (runtime/running/runner.py) gives orders, feeds lines and stores the results. Below: the protocols
(acp/, claude/). A driver does no I/O and uses no clock or random numbers. It receives whole lines, and its complete
state is in `dump()`, which the runner stores in one transaction with the events and the position in the agent's output.
After a crash, `restore(dump)` continues as if nothing had happened.

The lines that a step returns are stored in the same transaction before they are written, so each is written once.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from msgspec import Struct, field

from perdure.core.events import Event
from perdure.core.observations import (
    Noise,
    PromptWithdrawn,
    ResumeRefused,
    SessionOpened,
    StartFailed,
    TranscriptShortened,
    TurnBegun,
    TurnFinished,
)

__all__ = [
    "CancelTurn",
    "CloseSession",
    "Conversation",
    "Driver",
    "LaunchCommand",
    "Noise",
    "Observation",
    "Order",
    "Probe",
    "ProbeVerdict",
    "PromptWithdrawn",
    "ResumeRefused",
    "SendAnswer",
    "SendConfig",
    "SendInput",
    "SessionOpened",
    "StartFailed",
    "StartSession",
    "Step",
    "TurnBegun",
    "TurnFinished",
]

SAID_MAX_CHARS = 200
_VERSION = re.compile(r"(\d{1,99})\.(\d{1,99})\.(\d{1,99})")

# Orders from the runner, each made from logged events ---------------------------------------------------------


class StartSession(Struct, frozen=True, tag=True):
    """Open the agent's native session: a new one, or resume `native_session_id`. This is the first order, and is
    repeated without an id after a refused resume. Model and mode are applied as soon as the session is open."""

    workdir: str
    native_session_id: str | None = None
    model: str | None = None
    mode: str | None = None
    config: dict[str, Any] = {}
    """The user's choices for this session."""
    options: dict[str, Any] = {}
    """Options of the agent and the project from perdure.toml. Some of them run code, so a session can't set them."""


class SendInput(Struct, frozen=True, tag="SendPrompt"):
    """The input of a turn: its message, and the context that the agent lacks. May come before the session is open; the
    driver holds it until then. Stored under its former tag."""

    turn: int
    message_id: str
    text: str
    attachments: tuple[dict[str, Any], ...] = ()
    shortened: TranscriptShortened | None = field(default=None, name="told")
    """How a transcript that was too long was shortened; for the log, not for the agent. Stored as `told`."""


class CancelTurn(Struct, frozen=True, tag=True):
    """Interrupt the turn. Idempotent, and harmless when nothing runs."""

    turn: int


class SendAnswer(Struct, frozen=True, tag=True):
    """The answer of a person or a rule. `answer` is one of
    {"option_id": ..., "input"?: ..., "reason"?: ..., "interrupt"?: bool} | {"answers": {...}} | {"cancel": true}."""

    prompt_id: str
    answer: dict[str, Any]


class SendConfig(Struct, frozen=True, tag=True):
    config_id: str
    value: Any


class CloseSession(Struct, frozen=True, tag=True):
    """Close the session through the protocol, if it can do that, before stdin is closed."""


Order = StartSession | SendInput | CancelTurn | SendAnswer | SendConfig | CloseSession

# Observations of what the agent did ----------------------------------------------------------------------------
# Content uses the public events (AssistantText, AssistantThinking, ToolUse, ToolUpdate, ToolResult, Plan, Usage,
# PendingPrompt, Config, Title, System), each with its `turn`. The rest is in core/observations.py, because the state
# machine reads it.

Observation = Event | SessionOpened | ResumeRefused | StartFailed | PromptWithdrawn | TurnBegun | TurnFinished | Noise


class Step(Struct, frozen=True, gc=False):
    """The result of one order or a batch of lines."""

    observations: list[Observation]
    lines: list[bytes]
    """Lines to write to the agent, each with one newline, at its end."""


class Conversation(Protocol):
    """The protocol state of one launch. It never raises, whatever bytes it receives."""

    def perform(self, order: Order) -> Step: ...

    def receive(self, lines: Sequence[bytes]) -> Step:
        """Process whole lines, without their newline. Adjacent deltas of one block are joined in the result."""
        ...

    def dump(self) -> bytes: ...

    @property
    def input_bytes(self) -> int | None:
        """Size of the input that the agent is working on, if any."""
        ...

    @property
    def unanswered(self) -> int | None:
        """The turn whose input was sent but not acknowledged, for agents that acknowledge input immediately. Late
        output of an earlier turn does not count."""
        ...


LAUNCH_FOLDER = "{launch}/"


class LaunchCommand(NamedTuple):
    """How to start the process. `files` (name to text) are written before the start, readable only by this user. An
    argument `LAUNCH_FOLDER` + name becomes the path of a file."""

    argv: list[str]
    env: dict[str, str]
    files: dict[str, str] = {}


class SharedConversation(Conversation, Protocol):
    """One of several conversations in a process. Each reads all output and ignores what belongs to the others."""

    @property
    def joinable(self) -> bool:
        """Whether the process is initialized, so that another session can be opened in it."""
        ...

    @property
    def member(self) -> int:
        """Number of this conversation in the process. The process was started for number 0."""
        ...

    @property
    def native_session_id(self) -> str | None:
        """The open native session."""
        ...

    taken: Collection[str]
    """Native sessions of the other conversations in the process. This one must have a different id, because output is
    assigned by id."""
    speaks: bool
    """Whether this conversation handles messages that belong to no session."""


class ProbeVerdict(NamedTuple):
    """What a driver concludes about a program. `reason` is a sentence, unless it is ready."""

    state: Literal["ready", "too_old", "broken"]
    version: str | None = None
    reason: str | None = None
    can_resume: bool = True


class Probe:
    """How to find out whether a program can be used, and its version. The runtime runs the program; this is pure. The
    default accepts every program that prints a version."""

    is_required: ClassVar[bool] = False
    """Whether a program must pass before it is used. If so, the agent's whole command is run with `--version`.
    Otherwise the version is only informational: the program is run without its arguments, which may start the protocol,
    and only if the catalogue says that it supports `--version`."""
    oldest: ClassVar[tuple[int, ...]] = ()
    """The minimum supported version."""
    help_options: ClassVar[tuple[str, ...]] = ()
    """Options to look for in the output of `--help`. The runtime may run it again until it shows all of them, because
    on a busy machine output may be cut. Empty: the help text is not needed."""
    rules_version: ClassVar[int] = 2
    """Version of the rules in `judge`. Increase it to probe every program again after the rules change."""

    def judge(self, code: int, output: str, help_text: str | None = None) -> ProbeVerdict:
        """Judge a program by the exit code and output of `--version`, and by its help text: None if it was not asked
        for, "" if there is none. Never raises."""
        found = _VERSION.search(output)
        if code != 0 or found is None:
            said = "".join(output.strip().splitlines()[:1])[:SAID_MAX_CHARS] or "no output"
            return ProbeVerdict("broken", reason=f"It printed no version (exit code {code}): {said}.")
        version = found.group(0)
        if tuple(int(part) for part in found.groups()) < self.oldest:
            wanted = ".".join(map(str, self.oldest))
            return ProbeVerdict("too_old", version, f"Version {version} is too old; {wanted} or newer is needed.")
        return ProbeVerdict("ready", version)


class Driver(ABC):
    """One family of agents. To add a driver, write a module with a subclass, and add a line to drivers/__init__.py. The
    runtime asks the driver for everything that depends on it, and contains no driver's name.

    The attributes have defaults that fit most protocols. tests/drivers/test_traits.py checks each registered driver."""

    name: ClassVar[str]
    """Its name in perdure.toml, in the API and in stored launches."""
    family: ClassVar[str] = ""
    """A name in perdure.toml for several drivers of the same program; empty if there is none. The project's
    `runner_mode` chooses: `resume` the driver with `process_per_turn`, anything else the other. Drivers of a family
    differ only in how they run the program, so their `probe`, `shares`, `is_preferred` and `login_hint` are equal."""
    process_per_turn: ClassVar[bool] = False
    """Whether the process exits after each turn. That is not an error. Such an agent has no process before its first
    message, unless its settings say so."""
    prewarms: ClassVar[bool] = False
    """Whether to start the agent when its session is created, unless its settings say otherwise."""
    fallback: ClassVar[str | None] = None
    """The driver that a session switches to if a process of this one doesn't open its session in time, or doesn't
    react to input. The latter is detected only if its conversations report `unanswered` input."""
    shares: ClassVar[bool] = False
    """Whether one process can serve several sessions. Then `join` is implemented, and all conversations are
    SharedConversations."""
    delivers_reasons: ClassVar[bool] = False
    """Whether the protocol has a field for the reason of a denial. If not, people are told to send it as a message."""
    is_preferred: ClassVar[bool] = False
    """Whether an agent with this driver is the default agent if none is configured."""
    login_hint: ClassVar[str] = "log in with its own program"
    """How to log in, for agents that are not in the catalogue. Continues the sentence "It is not logged in: ..."."""
    probe: ClassVar[Probe] = Probe()
    """How to check a program before it is used."""

    @abstractmethod
    def command(self, argv: list[str], order: StartSession, launch_id: str) -> LaunchCommand:
        """Return the command line and extra environment for a launch, from the agent's configured command."""

    @abstractmethod
    def begin(self, launch_id: str) -> Conversation: ...

    @abstractmethod
    def restore(self, dump: bytes) -> Conversation: ...

    def join(self, other: SharedConversation, member: int) -> SharedConversation:
        """Return a conversation for another session in the process of `other`, which must be joinable. Called only if
        the driver `shares`."""
        raise NotImplementedError(f"Processes of driver {self.name} serve one session each.")
