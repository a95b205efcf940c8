"""The state of one session: everything that a decision needs, and nothing that grows with the session's length.

evolve.py folds it from decisive events, and the store saves it with each decision, so it is always exact. Text is
elsewhere: the newest turn's in view.py, the rest in the store's events and turn records.

Above: the machine (session.py), and everything that shows a session. Below: nothing but the structs it contains.
"""

from typing import Any

import msgspec
from msgspec import Struct, field

from perdure.core.events import FileAction, PendingPrompt
from perdure.core.permissions import Remembered, Rule


class Span(Struct, array_like=True):
    """Consecutive visible turns of one agent, from `first` to `last` inclusive. `answered`: they did not fail."""

    first: int
    last: int
    agent: str = ""
    answered: bool = True


class Verdict(Struct, array_like=True):
    """The outcome of a running tool's permission request, and how long the tool waited for it."""

    outcome: str
    waited_ms: int = 0


class Turn(Struct, kw_only=True):
    """One message and the agent's work on it: the public fields, then those that only the machine needs."""

    turn: int
    run_id: str
    message_id: str
    agent: str
    started_at: str
    ended_at: str | None = None
    duration_ms: int | None = None
    stop_reason: str | None = None
    exit_code: int | None = None
    error: str | None = None
    usage: dict[str, Any] | None = None
    cost_usd: float | None = None
    context: str | None = None
    """None until the turn begins."""
    context_reason: str = ""
    input_bytes: int | None = None

    model: str | None = None
    catch_up: int = 0
    """How many turns were sent with the message because the native session did not hold them."""
    replayed: int = 0
    """How many turns were replayed to an agent that started without context."""
    slash_command: str = ""
    """The agent's slash command that the message calls. It can't follow a replay."""
    digested: int = 0
    left_out: int = 0
    """Of the turns sent with the message: how many were shortened, and how many were too old to include."""

    native_session_id: str | None = None
    scope: str = "all"
    seen: int = 0
    """The last turn that the native session holds; 0 if it holds none, and the agent receives them all."""
    origin: str = "person"
    trusted: bool = True
    """The native session was complete when the turn began, so it is complete again when the turn ends well."""
    shortened: int = 0
    """How often the history sent with this turn was too long for its agent."""
    attempt: int = 1
    tool_ran: bool = False
    open_tools: list[str] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """By tool id; open tools only."""
    commands: dict[str, str] = field(default_factory=dict)
    """The open tools that run a shell command, and when each was first reported."""
    paused_ms: int = 0
    paused_since: str | None = None

    def begin_tool(self, tool_id: str, command_at: str | None) -> None:
        """`command_at`: the current time if the tool runs a shell command, else None."""
        self.tool_ran = True
        if tool_id not in self.open_tools:
            self.open_tools.append(tool_id)
        if command_at is not None:
            self.commands.setdefault(tool_id, command_at)

    def end_tool(self, tool_id: str) -> None:
        self.open_tools.remove(tool_id)
        self.verdicts.pop(tool_id, None)
        self.commands.pop(tool_id, None)

    def judge(self, tool_id: str, outcome: str, waited_ms: int) -> None:
        """Record the outcome of a tool's permission request. If the tool asks several times, the last outcome counts,
        and the waiting times add up."""
        before = self.verdicts.get(tool_id)
        self.verdicts[tool_id] = Verdict(outcome, waited_ms + (before.waited_ms if before else 0))


class Queued(Struct, kw_only=True):
    message_id: str
    text: str
    agent: str | None = None
    fresh: bool = False
    attachments: list[dict[str, Any]] = field(default_factory=list)
    queued_at: str = ""
    first: bool = False
    """Sent as an interruption: it goes before the other queued messages."""


class WaitsFor(Struct, frozen=True):
    """Why the turn of an accepted message has not begun: a code for programs, a sentence for people. The sentence is
    empty if the turn is about to begin on another node."""

    code: str
    message: str


class FileOperation(Struct, kw_only=True):
    """A requested change to files that is not done yet: see events.FilesRequested."""

    operation_id: str
    action: FileAction
    details: dict[str, Any] = {}
    then: dict[str, Any] | None = None
    requested_at: str = ""

    def public(self) -> dict[str, Any]:
        return {"operation_id": self.operation_id, "action": self.action}


class Binding(Struct, kw_only=True):
    """One agent's native session. `confirmed`: it holds every turn up to `last_turn`."""

    native_session_id: str
    workdir_id: str
    fingerprint: str
    context_version: int = field(default=0, name="epoch")
    """The agent's entry in `Session.context_versions` when its native session began. If the two differ, the history has
    changed since. Stored as `epoch`, which is unrelated to the epoch of event ids."""
    confirmed: bool = False
    first_turn: int = 0
    last_turn: int = 0
    scope: str = "all"


class IssuedNativeSession(Struct, frozen=True):
    """A native session id that an agent issued. `program`: the fingerprint of the agent's program at that time."""

    program: str
    native_session_id: str
    agent: str


class Attached(Struct, kw_only=True):
    """The session's current process. No other launch can affect the session."""

    launch_id: str
    agent: str
    driver: str
    workdir_id: str
    fingerprint: str
    since: str
    pid: int | None = None
    native_session_id: str | None = None
    resuming: bool = False
    """It was started to resume a native session, so it holds a context even before its first turn."""
    opened: bool = False
    opened_at: str | None = None
    used: bool = False


class Session(Struct, kw_only=True):
    id: str
    project: str | None
    agent: str
    workdir: str
    created_at: str
    imported_at: str = ""
    """When it was imported. Its timeouts count from here, because its other times may be years old."""
    title: str = ""
    title_by: str = ""
    message_title: str = ""
    """The title taken from the first message, restored when an agent's title is out of date."""
    summary: str = ""
    labels: list[str] = field(default_factory=list)
    archived: bool = False
    parent: str | None = None
    forked_from: dict[str, Any] | None = None
    """The session and turn that this session was forked from."""
    worktree: dict[str, Any] | None = None
    """Its own git worktree: the repository, path and branch, the branch that it came from (`base`), and the commit."""
    file_operation: FileOperation | None = None
    """The change to files that is being carried out. No turn begins meanwhile."""
    wants_clean_up: bool = False
    """It was archived, and its worktree is to be removed when nothing works in it."""
    limits: dict[str, Any] = field(default_factory=dict)
    permissions: list[Rule] = field(default_factory=list)
    """Rules of this session only, checked before those of its project."""
    single_shot: bool = False
    """It ends when its turn and all queued messages are done, and no person answers its prompts."""
    model: str | None = None
    mode: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    models: dict[str, Any] | None = None
    modes: dict[str, Any] | None = None
    config_options: list[dict[str, Any]] | None = None
    commands: list[dict[str, Any]] = field(default_factory=list)
    """The slash commands that the agent offers."""
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name, for agents that this session used before: model, mode, config, and the choices that they offered."""

    phase: str = "idle"
    status: str = "running"
    started_at: str | None = None
    last_active_at: str = ""
    ended_at: str | None = None
    error: str | None = None
    waiting_until: str | None = None
    waiting_reason: str | None = None
    abort_reason: str | None = None
    abort_requested_at: str | None = None

    last_turn: int = 0
    turn_count: int = 0
    visible: list[Span] = field(default_factory=list)
    revision: int = 0
    """How often the history was changed. A command that changes it may name the revision it expects."""
    turn: Turn | None = None
    """The accepted or running turn, else the last one."""
    accepted: Queued | None = None
    """The message of an accepted turn, until the turn begins."""
    waits_for: WaitsFor | None = None
    queue: list[Queued] = field(default_factory=list)
    prompts: dict[str, PendingPrompt] = field(default_factory=dict)
    resolved_prompts: list[str] = field(default_factory=list)
    attached: Attached | None = None
    remembered: list[Remembered] = field(default_factory=list)
    """Permission requests that a person answered with "always"."""
    granted: dict[str, list[str]] = field(default_factory=dict)
    """The same by agent, in the agent's own rule syntax: passed to its next process."""
    bindings: dict[str, Binding] = field(default_factory=dict)
    context_versions: dict[str, int] = field(default_factory=dict, name="epochs")
    """By agent: how often the part of the history that its native session holds was changed. Stored as `epochs`."""
    poisoned: list[str] = field(default_factory=list)
    unpinned: list[str] = field(default_factory=list)
    """Agents whose native session became unusable, and that have no new one yet."""
    shortened: dict[str, int] = field(default_factory=dict)
    """By agent: how often the history was too long for it. Each time, the agent receives less."""
    drivers: dict[str, str] = field(default_factory=dict)
    """By agent: the driver that it fell back to in this session."""
    background_tasks: int = 0
    """Tasks that the process still runs between turns. Until they end, it is not suspended."""
    waits: int = 0
    """How many times in a row a turn was postponed until a limit resets."""
    usage: dict[str, Any] = field(default_factory=dict)

    @property
    def working(self) -> bool:
        return self.phase in ("working", "aborting")

    @property
    def running_turn(self) -> int | None:
        return self.turn.turn if self.working and self.turn is not None else None

    @property
    def busy(self) -> bool:
        """Whether a turn is accepted or running."""
        return self.phase in ("accepted", "working", "aborting")

    @property
    def state(self) -> str:
        """The phase as the API names it."""
        return "processing" if self.working else self.phase


def chosen_by_agent(state: Session) -> dict[str, dict[str, Any]]:
    """The chosen model, mode and other options of each agent that the session has used, if any was chosen. Without the
    options that agents offer: they report those themselves."""
    known = {**state.choices, state.agent: {"model": state.model, "mode": state.mode, "config": state.config}}
    found: dict[str, dict[str, Any]] = {}
    for agent, chosen in known.items():
        others = {name: value for name, value in (chosen.get("config") or {}).items() if name not in ("model", "mode")}
        kept = {"model": chosen.get("model"), "mode": chosen.get("mode"), "config": others}
        if any(kept.values()):
            found[agent] = kept
    return found


# JSON and not MessagePack: a tool's input may contain integers of any size, and MessagePack stops at 64 bits.
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Session)


def dump(state: Session) -> bytes:
    return _encoder.encode(state)


def restore(blob: bytes) -> Session:
    return _decoder.decode(blob)


def fork(state: Session) -> Session:
    """A deep copy."""
    return restore(dump(state))
