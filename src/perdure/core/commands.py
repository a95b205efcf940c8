"""Commands: what people, programs and clocks ask of a session. Imperative; each may be refused."""

from typing import Any, Literal

from msgspec import Struct

from perdure.core.observations import Told
from perdure.core.permissions import Rule


class CreateSession(Struct, frozen=True, kw_only=True):
    """Make a session. Not in the table: there is nothing yet that could refuse it."""

    session_id: str
    project: str | None
    agent: str
    workdir: str
    title: str = ""
    labels: tuple[str, ...] = ()
    limits: dict[str, Any] = {}
    model: str | None = None
    mode: str | None = None
    config: dict[str, Any] = {}
    """Other options of the agent, by their ids."""
    choices: dict[str, dict[str, Any]] = {}
    """Model, mode and config of other agents that the session may come back to."""
    parent: str | None = None
    forked_from: dict[str, Any] | None = None
    permissions: tuple[Rule, ...] = ()
    single_shot: bool = False
    imported_at: str = ""
    """When it was taken in, if it comes from elsewhere."""


class SubmitMessage(Struct, frozen=True, kw_only=True):
    """Start a turn with this message; if one runs, be refused, wait for its end, or interrupt it."""

    message_id: str
    text: str
    agent: str | None = None
    fresh: bool = False
    when_busy: Literal["reject", "queue", "interrupt"] = "reject"
    attachments: tuple[dict[str, Any], ...] = ()


class EditMessage(Struct, frozen=True, kw_only=True):
    """Give the message of a turn another text. `revision`: only if the history was not changed since."""

    turn: int
    message_id: str
    text: str
    revision: int | None = None


class Rewind(Struct, frozen=True, kw_only=True):
    """Drop this turn and all after it from the visible history."""

    turn: int
    revision: int | None = None


class RetryTurn(Struct, frozen=True, kw_only=True):
    """Rewind, then send this message, fresh."""

    turn: int
    message_id: str
    text: str
    agent: str | None = None
    attachments: tuple[dict[str, Any], ...] = ()
    revision: int | None = None


class EditQueuedMessage(Struct, frozen=True):
    """Give a message that waits another text; its place in the queue stays."""

    message_id: str
    text: str


class UnqueueMessage(Struct, frozen=True):
    """Take back a message that waits."""

    message_id: str


class AbortTurn(Struct, frozen=True):
    """Interrupt the running turn. Again: nothing more happens."""

    reason: Literal["person", "interrupt", "turn_timeout", "turn_limit", "silence"] = "person"


class EndSession(Struct, frozen=True):
    """Stop, close, replace, or end by a timer: they differ in the words that are kept."""

    status: Literal["completed", "stopped", "timed-out", "failed"]
    reason: str


class AnswerPrompt(Struct, frozen=True, kw_only=True):
    """Answer a permission request or a question. The first answer wins."""

    prompt_id: str
    option_id: str | None = None
    input: Any = None
    reason: str | None = None
    interrupt: bool = False
    answers: dict[str, Any] | None = None
    cancel: bool = False


class SetConfig(Struct, frozen=True):
    """Choose a model, a mode or another option that the agent offers."""

    config_id: str
    value: Any


class UpdateSession(Struct, frozen=True, kw_only=True):
    """Change what people keep about a session."""

    title: str | None = None
    summary: str | None = None
    labels: tuple[str, ...] | None = None
    archived: bool | None = None


class DetachAgent(Struct, frozen=True):
    """End the process, keep the session: it comes back with the next message."""

    reason: str


class ExpireTurnClock(Struct, frozen=True):
    """A turn showed no sign of life for too long, ran for too long, or was silent for too long."""

    clock: Literal["turn_timeout", "turn_limit", "silence"]
    turn: int
    limit_s: float
    abort: bool


class PrepareLaunch(Struct, frozen=True, kw_only=True):
    """Record a launch before anything is spawned."""

    launch_id: str
    agent: str
    driver: str
    native_session_id: str | None
    workdir_id: str
    fingerprint: str
    told: Told | None = None
    """What became of a history that was too long, if the running turn's message is sent with the launch."""


class BeginAnew(Struct, frozen=True):
    """The running turn, which has no process yet, can't go on in its agent's own session after all: tell it all."""

    reason: str


class BeginTurn(Struct, frozen=True):
    """Begin the turn of an accepted message, planned from the facts of this moment. From the session's owner only."""


class EndWait(Struct, frozen=True):
    """The moment has come until which a turn was put off: go on with what waits, or with `text`."""

    text: str


class GiveUpTurn(Struct, frozen=True, kw_only=True):
    """The turn has no process and gets none: it was aborted first, or no agent can be started for it."""

    code: str
    message: str


Command = (
    SubmitMessage
    | EditMessage
    | Rewind
    | RetryTurn
    | EditQueuedMessage
    | UnqueueMessage
    | AbortTurn
    | EndSession
    | AnswerPrompt
    | SetConfig
    | UpdateSession
    | DetachAgent
    | ExpireTurnClock
    | PrepareLaunch
    | GiveUpTurn
    | BeginAnew
    | BeginTurn
    | EndWait
)
