"""What requests carry, as structs: checked when they are read, and shown in the OpenAPI document."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from perdure import config
from perdure.core.errors import Refused
from perdure.core.permissions import Rule

Name = Annotated[str, Meta(min_length=1, max_length=200)]
# SQLite compares what it finds in JSON up to the first NUL only.
Label = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]
Labels = Annotated[list[Label], Meta(max_length=50)]
TitleText = Annotated[str, Meta(max_length=500)]
PathText = Annotated[str, Meta(min_length=1, max_length=4096)]
MessageId = Annotated[str, Meta(min_length=1, max_length=200)]


class Limits(config.Limits, kw_only=True, forbid_unknown_fields=False, omit_defaults=True):
    """As in the configuration, but unknown fields are ignored, as everywhere in a request."""


class MessageBody(Struct, kw_only=True):
    """A message to a session."""

    text: str
    message_id: MessageId | None = None
    agent: Name | None = None
    fresh: bool | UnsetType = UNSET
    force_fresh_session: bool | UnsetType = field(name="forceFreshSession", default=UNSET)
    when_busy: Literal["reject", "queue", "interrupt"] = "reject"
    attachments: Annotated[list[dict[str, Any]], Meta(max_length=50)] = []


def wants_fresh(fresh: bool | UnsetType, force_fresh_session: bool | UnsetType) -> bool:
    """One wish under two names."""
    if fresh is not UNSET and force_fresh_session is not UNSET and fresh != force_fresh_session:
        raise Refused("invalid", "fresh and forceFreshSession are the same: give one of them, or both alike.")
    return fresh is True or force_fresh_session is True


Revision = Annotated[int, Meta(ge=0)]
TurnNumber = Annotated[int, Meta(ge=1)]


class EditBody(Struct, kw_only=True):
    """Another text for a message. With `revision` (see the session), only if the history was not changed since."""

    text: str
    revision: Revision | None = None


class RewindBody(Struct, kw_only=True):
    """The first turn that is no longer visible."""

    turn: TurnNumber
    revision: Revision | None = None


class RetryBody(Struct, kw_only=True):
    """The turn to be tried again, with its own text and agent or with others. That is always fresh."""

    turn: TurnNumber
    text: str | None = None
    agent: Name | None = None
    fresh: bool | UnsetType = UNSET
    force_fresh_session: bool | UnsetType = field(name="forceFreshSession", default=UNSET)
    message_id: MessageId | None = None
    revision: Revision | None = None


class ForkBody(Struct, kw_only=True):
    """The last turn that the new session has; all, if it is left out."""

    turn: TurnNumber | None = None
    agent: Name | None = None


class PlanBody(Struct, kw_only=True):
    """What the next message would be sent with."""

    agent: Name | None = None
    fresh: bool | UnsetType = UNSET
    force_fresh_session: bool | UnsetType = field(name="forceFreshSession", default=UNSET)


class SessionBody(Struct, kw_only=True):
    """A new session."""

    project: Name | None = None
    workdir: PathText | None = None
    agent: Name | None = None
    title: TitleText = ""
    message: str | None = None
    kickoff: bool = False
    """Make the first message from the project's template, with `message` in its place."""
    message_id: MessageId | None = None
    model: Name | None = None
    mode: Name | None = None
    labels: Labels = []
    limits: Limits = field(default_factory=Limits)
    parent: Name | None = None
    """The session that starts this one."""
    warm: bool = False
    """Start its agent at once, if it can be kept until the first message."""


class ImportBody(Struct, kw_only=True):
    """A session that was kept elsewhere: its finished turns as events, and the state that it was left in."""

    id: Name
    created_at: str
    events: list[Annotated[Raw, Meta(extra_json_schema={"type": "object"})]]
    """Read one by one later: there may be very many."""
    project: Name | None = None
    workdir: PathText | None = None
    agent: Name | None = None
    title: TitleText = ""
    summary: Annotated[str, Meta(max_length=10_000)] = ""
    labels: Labels = []
    archived: bool = False
    parent: Name | None = None
    """The session that started it. It need not be here, or not yet."""
    status: Literal["running", "completed", "stopped", "timed-out", "failed"] = "running"
    state: Literal["processing", "idle", "ended"] = "idle"
    ended_at: str | None = None
    error: Annotated[str, Meta(max_length=10_000)] | None = None


class AnyMessageBody(MessageBody, kw_only=True):
    """A message to a session, or to a new one."""

    session_id: Name | None = None
    project: Name | None = None
    kickoff: bool = False
    """Make the first message of a new session from the project's template, with `text` in its place."""
    workdir: PathText | None = None
    title: TitleText = ""
    model: Name | None = None
    mode: Name | None = None
    labels: Labels = []
    limits: Limits = field(default_factory=Limits)
    parent: Name | None = None
    """The session that starts a new one."""


class SessionChanges(Struct, kw_only=True):
    title: TitleText | None = None
    summary: Annotated[str, Meta(max_length=10_000)] | None = None
    labels: Labels | None = None
    archived: bool | None = None


class AnswerBody(Struct, kw_only=True):
    """An answer to a prompt: one of option_id, answers or cancel."""

    option_id: str | None = None
    input: Any = None
    reason: Annotated[str, Meta(max_length=10_000)] | None = None
    interrupt: bool = False
    answers: dict[str, str | list[str]] | None = None
    cancel: bool = False


class ConfigBody(Struct, kw_only=True):
    config_id: Name
    value: str | bool | int | float


class ProjectBody(Struct, kw_only=True):
    name: Name
    path: PathText
    agent: Name | None = None
    permissions: list[Rule] = []
    limits: Limits = field(default_factory=Limits)
    instructions: str | None = None
    kickoff: str | None = None
    history_scope: Literal["all", "agent"] = "all"


class ProjectChanges(Struct, kw_only=True):
    """What is left out stays; what may be null is taken away by it."""

    name: Name | UnsetType = UNSET
    path: PathText | UnsetType = UNSET
    agent: Name | UnsetType | None = UNSET
    permissions: list[Rule] | UnsetType = UNSET
    limits: Limits | UnsetType = UNSET
    instructions: str | UnsetType | None = UNSET
    kickoff: str | UnsetType | None = UNSET
    history_scope: Literal["all", "agent"] | UnsetType = UNSET


class LoginBody(Struct, kw_only=True):
    code: Annotated[str, Meta(min_length=1, max_length=200)]
