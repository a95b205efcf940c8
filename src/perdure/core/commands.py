"""Commands: what people, programs and timers request of a session. Each may be refused.

Above: verbs, placement, timers and runners make them. Below: session.py decides on them. docs/sessions.md lists them
with the first paragraph of their docstrings.
"""

from typing import Any, Literal

from msgspec import Struct

from perdure.core.events import FileAction
from perdure.core.observations import TranscriptShortened
from perdure.core.permissions import Rule


class CreateSession(Struct, frozen=True, kw_only=True):
    """Create a session. Not in the table, because there is no session yet that could refuse it."""

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
    """Other options of the agent, by id."""
    choices: dict[str, dict[str, Any]] = {}
    """Model, mode and config of other agents, for when the session switches to them."""
    parent: str | None = None
    forked_from: dict[str, Any] | None = None
    worktree: dict[str, Any] | None = None
    permissions: tuple[Rule, ...] = ()
    single_shot: bool = False
    imported_at: str = ""
    """When it was imported; empty if it was not."""


class SubmitMessage(Struct, frozen=True, kw_only=True):
    """Start a turn with this message. If a turn is active, `when_busy` says whether to reject the message, queue it, or
    interrupt the turn."""

    message_id: str
    text: str
    agent: str | None = None
    fresh: bool = False
    when_busy: Literal["reject", "queue", "interrupt"] = "reject"
    attachments: tuple[dict[str, Any], ...] = ()


class EditMessage(Struct, frozen=True, kw_only=True):
    """Change the text of a turn's message. With `revision`: only if the history has not changed since."""

    turn: int
    message_id: str
    text: str
    revision: int | None = None


class Rewind(Struct, frozen=True, kw_only=True):
    """Remove this turn and all later ones from the visible history."""

    turn: int
    revision: int | None = None


class RetryTurn(Struct, frozen=True, kw_only=True):
    """Rewind, then send this message with a restarted context."""

    turn: int
    message_id: str
    text: str
    agent: str | None = None
    attachments: tuple[dict[str, Any], ...] = ()
    revision: int | None = None


class EditQueuedMessage(Struct, frozen=True):
    """Change the text of a queued message. It keeps its place in the queue."""

    message_id: str
    text: str


class UnqueueMessage(Struct, frozen=True):
    """Withdraw a queued message."""

    message_id: str


class AbortTurn(Struct, frozen=True):
    """Interrupt the running turn, or end a wait for a usage limit. Repeating it has no effect."""

    reason: Literal["person", "interrupt", "turn_timeout", "turn_limit", "silence"] = "person"


class EndSession(Struct, frozen=True):
    """End the session: stopped or closed by a person, replaced, or timed out. `status` and `reason` say which."""

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
    """Change the title, summary, labels or archived flag."""

    title: str | None = None
    summary: str | None = None
    labels: tuple[str, ...] | None = None
    archived: bool | None = None


class RequestFiles(Struct, frozen=True, kw_only=True):
    """Change files in the working directory: restore, discard, undo, commit, merge, or remove the session's worktree.
    `then` is an edit, a rewind or a retry that takes effect when the files have changed."""

    operation_id: str
    action: FileAction
    details: dict[str, Any] = {}
    then: dict[str, Any] | None = None


class FinishFiles(Struct, frozen=True, kw_only=True):
    """Record that a requested change to files is done, or why it is not possible. Only the node that carried it out
    sends it."""

    operation_id: str
    outcome: Literal["done", "conflict", "failed"]
    message: str
    code: str = ""
    for_turn: int | None = None
    files: tuple[dict[str, Any], ...] = ()
    file_count: int = 0
    commit: str | None = None
    undoable: bool = False


class DetachAgent(Struct, frozen=True):
    """End the process but not the session. The next message starts a new process."""

    reason: str


class ExpireTurnClock(Struct, frozen=True):
    """The turn has reached a limit: it was inactive, silent or running for too long."""

    clock: Literal["turn_timeout", "turn_limit", "silence"]
    turn: int
    limit_s: float
    abort: bool


class PrepareLaunch(Struct, frozen=True, kw_only=True):
    """Record a launch before its process is started."""

    turn: int | None
    """The running turn that it was planned for, or None. Another one may have another agent, and another context."""
    launch_id: str
    agent: str
    driver: str
    native_session_id: str | None
    workdir_id: str
    fingerprint: str
    shortened: TranscriptShortened | None = None
    """How a long history was shortened, if the running turn's message is sent with the launch."""


class BeginAnew(Struct, frozen=True):
    """Replay the conversation in the running turn, which has no process yet: its native session can't be resumed after
    all."""

    reason: str


class BeginTurn(Struct, frozen=True):
    """Begin the turn of an accepted message, with a plan based on current facts. Only the session's owner sends it."""


class EndWait(Struct, frozen=True):
    """A usage limit has reset: continue with the next queued message, or else send `text`."""

    text: str


class GiveUpTurn(Struct, frozen=True, kw_only=True):
    """Fail a turn that gets no process: it was aborted before one started, or no agent can be started for it."""

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
    | RequestFiles
    | FinishFiles
    | DetachAgent
    | ExpireTurnClock
    | PrepareLaunch
    | GiveUpTurn
    | BeginAnew
    | BeginTurn
    | EndWait
)
