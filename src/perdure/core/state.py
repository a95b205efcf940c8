"""The machine's memory of one session: what must be known to decide, and nothing that grows with its length.

Folded from decisive events by evolve.py, stored beside them, and exact at any moment: text is in view.py, finished
turns and messages are rows in the store.
"""

from typing import Any

import msgspec
from msgspec import Struct, field

from perdure.core.events import PendingPrompt
from perdure.core.permissions import Remembered, Rule


class Span(Struct, array_like=True):
    """Visible turns that follow each other, first and last included, of one agent. `answered`: they did not fail."""

    first: int
    last: int
    agent: str = ""
    answered: bool = True


class Verdict(Struct, array_like=True):
    """What became of the permission that a running tool asked for, and how long it waited for that."""

    outcome: str
    waited_ms: int = 0


class Turn(Struct, kw_only=True):
    """One user message worked to its end; the public fields, then what only the machine needs."""

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
    """How many turns rode along because the agent's own session did not hold them."""
    replayed: int = 0
    """How many turns were told to an agent that began without any context."""
    slash_command: str = ""
    """The agent's slash command that the message calls: it can't be sent behind a replay."""
    digested: int = 0
    left_out: int = 0
    """Of the turns that it was told: how many in short form, and how many were too old to be told at all."""

    native_session_id: str | None = None
    scope: str = "all"
    seen: int = 0
    """The last turn that the agent's own session holds; 0 if it holds none and is told all."""
    origin: str = "person"
    trusted: bool = True
    """When it began, the agent's own session held all that it was to hold: so it does when the turn has ended well."""
    shortened: int = 0
    """How often what it was told was too much for its agent."""
    attempt: int = 1
    tool_ran: bool = False
    open_tools: list[str] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """Of open tools."""
    commands: dict[str, str] = field(default_factory=dict)
    """The open tools that run a command, and when each was first heard of."""
    paused_ms: int = 0
    paused_since: str | None = None

    def begin_tool(self, tool_id: str, command_at: str | None) -> None:
        """`command_at`: the moment, if the tool runs a command."""
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
        """Note what became of a tool's request. It may ask again: the last answer counts, and all of the waiting."""
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
    """Sent as an interruption: it goes before those that were content to wait."""


class WaitsFor(Struct, frozen=True):
    """Why an accepted message has not begun yet: a code for programs, a sentence for people. Without a sentence it is
    not worth one: it begins in a moment, on another node."""

    code: str
    message: str


class Binding(Struct, kw_only=True):
    """What is known of one agent's own session. `confirmed`: it holds every turn up to `last_turn`."""

    native_session_id: str
    workdir_id: str
    fingerprint: str
    epoch: int = 0
    confirmed: bool = False
    first_turn: int = 0
    last_turn: int = 0
    scope: str = "all"


class Given(Struct, frozen=True):
    """The id of a native session that an agent gave to a session of ours. `program`: what its name stood for."""

    program: str
    native_session_id: str
    agent: str


class Attached(Struct, kw_only=True):
    """The process that belongs to the session now. A launch that is not this one can't touch the session."""

    launch_id: str
    agent: str
    driver: str
    workdir_id: str
    fingerprint: str
    since: str
    pid: int | None = None
    native_session_id: str | None = None
    resuming: bool = False
    """It was started on a native session, so it holds a context even before its first turn."""
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
    """When it came from elsewhere. Its clocks begin here: all else in it may be years old."""
    title: str = ""
    title_by: str = ""
    message_title: str = ""
    """The title that its first message gave it: what it is called again when an agent's title is out of date."""
    summary: str = ""
    labels: list[str] = field(default_factory=list)
    archived: bool = False
    parent: str | None = None
    forked_from: dict[str, Any] | None = None
    """The session and the turn whose history this one began with."""
    limits: dict[str, Any] = field(default_factory=dict)
    permissions: list[Rule] = field(default_factory=list)
    """Rules of this session alone; they go before those of its project."""
    single_shot: bool = False
    """It ends with its turn, and nobody is there to answer a prompt."""
    model: str | None = None
    mode: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    models: dict[str, Any] | None = None
    modes: dict[str, Any] | None = None
    config_options: list[dict[str, Any]] | None = None
    commands: list[dict[str, Any]] = field(default_factory=list)
    """The slash commands that the agent offers."""
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Model, mode, config and the lists of these, of the agents that the session has had before."""

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
    """How often the history was changed: a change may name the one it was made for."""
    turn: Turn | None = None
    """The turn that is accepted or runs, or the last one."""
    accepted: Queued | None = None
    """The message of an accepted turn, until the turn begins."""
    waits_for: WaitsFor | None = None
    queue: list[Queued] = field(default_factory=list)
    prompts: dict[str, PendingPrompt] = field(default_factory=dict)
    resolved_prompts: list[str] = field(default_factory=list)
    attached: Attached | None = None
    remembered: list[Remembered] = field(default_factory=list)
    """Requests that a person has answered with "always"."""
    granted: dict[str, list[str]] = field(default_factory=dict)
    """The same, by agent and in its own words: a new process of it is told."""
    bindings: dict[str, Binding] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    poisoned: list[str] = field(default_factory=list)
    unpinned: list[str] = field(default_factory=list)
    """Agents whose own session was given up as unusable, and which have no other one yet."""
    shortened: dict[str, int] = field(default_factory=dict)
    """By agent: how often it could not take what it was told, and is told less since."""
    drivers: dict[str, str] = field(default_factory=dict)
    """Agents that fell back to another driver in this session."""
    background_tasks: int = 0
    """What the process still does between turns: it is not suspended meanwhile."""
    waits: int = 0
    """How often in a row a turn was put off until a limit resets."""
    usage: dict[str, Any] = field(default_factory=dict)

    @property
    def working(self) -> bool:
        return self.phase in ("working", "aborting")

    @property
    def busy(self) -> bool:
        """Whether a turn is accepted or runs."""
        return self.phase in ("accepted", "working", "aborting")

    @property
    def state(self) -> str:
        """The word on the wire."""
        return "processing" if self.working else self.phase


def chosen_by_agent(state: Session) -> dict[str, dict[str, Any]]:
    """Model, mode and other options of each agent that the session has had, where any was chosen; not what they offer,
    which each of them says itself."""
    known = {**state.choices, state.agent: {"model": state.model, "mode": state.mode, "config": state.config}}
    found: dict[str, dict[str, Any]] = {}
    for agent, chosen in known.items():
        others = {name: value for name, value in (chosen.get("config") or {}).items() if name not in ("model", "mode")}
        kept = {"model": chosen.get("model"), "mode": chosen.get("mode"), "config": others}
        if any(kept.values()):
            found[agent] = kept
    return found


# JSON and not MessagePack: an agent's input may hold integers of any size, and MessagePack has 64 bits.
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Session)


def dump(state: Session) -> bytes:
    return _encoder.encode(state)


def restore(blob: bytes) -> Session:
    return _decoder.decode(blob)


def fork(state: Session) -> Session:
    """A copy that can be changed without touching the original."""
    return restore(dump(state))
