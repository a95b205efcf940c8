"""What requests carry, as structs: checked when they are read, and shown in the OpenAPI document.

A field that nobody knows is ignored, so that a newer client can be understood, but not in limits and rules. One that
Perdure knows but can't set with that request is refused, with what to do instead (`elsewhere`): whoever sends it would
believe that it is in force. What is already so may be sent along, so that a thing can be sent back as it was shown.
"""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field, to_builtins

from perdure import config
from perdure.core.errors import Refused
from perdure.core.permissions import Rule
from perdure.runtime.verbs.sessions import WhenFull

IN_THE_FILE = "only perdure.toml can set it, for a project that is named there"
OF_RULES = "rules are set for a project, or for a single run (POST /api/run)"
BY_CONFIG = "set it with POST /api/sessions/SESSION/config"
BY_PATCH = "set it afterwards, with PATCH /api/sessions/SESSION"
AT_FIRST = "it is fixed when the session is made"
OF_A_PROJECT = {
    "resume": IN_THE_FILE,
    "runner_mode": IN_THE_FILE,
    "options": IN_THE_FILE,
    "id": "it is made from the name, once",
    **dict.fromkeys(("active_session_id", "activeSessionId"), "it says which session was used last"),
}
OF_A_NEW_SESSION = {"permissions": OF_RULES, "config": BY_CONFIG, "summary": BY_PATCH, "archived": BY_PATCH}
OF_A_SESSION = {
    **dict.fromkeys(("model", "mode", "config"), BY_CONFIG),
    "agent": "send the next message with it",
    **dict.fromkeys(("project", "workdir", "limits", "parent"), AT_FIRST),
    "permissions": OF_RULES,
}
"""Not what changes without the client, as a session's state: a program that sends back what it read sends what was."""

SAID = {"minLength": 1, "pattern": r"[^\s\u001c-\u001f\u0085\ufeff]"}
"""What a text must have to say something. It is looked at later, to be refused with a sentence of its own."""
SaidText = Annotated[str, Meta(extra_json_schema=SAID)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
# SQLite compares what it finds in JSON up to the first NUL only.
Label = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]
Labels = Annotated[list[Label], Meta(max_length=50)]
TitleText = Annotated[str, Meta(max_length=500)]
PathText = Annotated[str, Meta(min_length=1, max_length=4096, extra_json_schema={"pattern": r"^/[^\u0000]*$"})]
OPENED = {"pattern": r"^/([^/?\u0000-\u001f\u007f][^?\u0000-\u001f\u007f]*)?(\?[\s\S]*)?$"}
"""A path of this server, with or without a query. It is looked at later, as the one that its escapes stand for."""
ConfigValue = str | bool | int | float
MessageId = Annotated[str, Meta(min_length=1, max_length=200)]


class Limits(config.Limits, kw_only=True, omit_defaults=True):
    """As in the configuration. Unknown fields are refused here too: with a misspelt one no limit would hold."""


def given_limits(limits: Limits) -> dict[str, Any]:
    """Those that were named."""
    given: dict[str, Any] = to_builtins(limits)
    return {key: value for key, value in given.items() if value is not None}


_TEXT = {"type": "string"}
ATTACHMENT = {
    "properties": {
        **dict.fromkeys(("name", "mime_type", "media_type", "path", "uri"), _TEXT),
        "data": {"type": "string", "pattern": r"^([A-Za-z0-9+/]{4})*$"},
    },
    "anyOf": [{"required": [name]} for name in ("data", "path", "uri")],
}
"""What the document says of an attachment. It is looked at later, to be refused with its number."""
Attachment = Annotated[dict[str, Any], Meta(extra_json_schema=ATTACHMENT)]


class MessageBody(Struct, kw_only=True):
    """A message to a session."""

    text: SaidText
    message_id: MessageId | None = None
    agent: Name | None = None
    fresh: bool | UnsetType = UNSET
    force_fresh_session: bool | UnsetType = field(name="forceFreshSession", default=UNSET)
    when_busy: Literal["reject", "queue", "interrupt"] = "reject"
    when_full: WhenFull = "wait"
    """With no free slot: accept the message and begin its turn later, or refuse it (409 `slots_full`)."""
    attachments: Annotated[list[Attachment], Meta(max_length=50)] = []


def wants_fresh(fresh: bool | UnsetType, force_fresh_session: bool | UnsetType) -> bool:
    """One wish under two names."""
    if fresh is not UNSET and force_fresh_session is not UNSET and fresh != force_fresh_session:
        raise Refused("invalid", "fresh and forceFreshSession are the same: give one of them, or both alike.")
    return fresh is True or force_fresh_session is True


Revision = Annotated[int, Meta(ge=0)]
TurnNumber = Annotated[int, Meta(ge=1)]


class EditBody(Struct, kw_only=True):
    """Another text for a message. With `revision` (see the session), only if the history was not changed since."""

    text: SaidText
    revision: Revision | None = None


class QueuedTextBody(Struct, kw_only=True):
    """Another text for a message that waits."""

    text: SaidText


class RewindBody(Struct, kw_only=True):
    """The first turn that is no longer visible."""

    turn: TurnNumber
    revision: Revision | None = None


class RetryBody(Struct, kw_only=True):
    """The turn to run again, with its own text and agent or with others. Its context is always restarted."""

    turn: TurnNumber
    text: SaidText | None = None
    agent: Name | None = None
    fresh: bool | UnsetType = UNSET
    force_fresh_session: bool | UnsetType = field(name="forceFreshSession", default=UNSET)
    message_id: MessageId | None = None
    revision: Revision | None = None
    when_full: WhenFull = "wait"


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

    elsewhere: ClassVar[dict[str, str]] = OF_A_NEW_SESSION

    project: Name | None = None
    workdir: PathText | None = None
    agent: Name | None = None
    title: TitleText = ""
    message: SaidText | None = None
    kickoff: bool = False
    """Make the first message from the project's template, with `message` in its place."""
    message_id: MessageId | None = None
    when_full: WhenFull = "wait"
    """Of the first message."""
    model: Name | None = None
    mode: Name | None = None
    labels: Labels = []
    limits: Limits = field(default_factory=Limits)
    parent: Name | None = None
    """The session that starts this one."""
    warm: bool = False
    """Start its agent at once, if it can be kept until the first message."""


class ImportEvents(Struct, kw_only=True):
    """The long part of an import, which nothing is made of yet."""

    events: Raw = Raw(b"[]")


class ImportBody(Struct, kw_only=True):
    """A session that was kept elsewhere: its finished turns as events, and the state that it was left in."""

    id: Name
    created_at: str
    events: Annotated[Raw, Meta(extra_json_schema={"type": "array", "items": {"type": "object"}})]
    """Read one by one later: there may be very many."""
    project: Name | None = None
    workdir: PathText | None = None
    agent: Name | None = None
    title: TitleText = ""
    summary: Annotated[str, Meta(max_length=10_000)] = ""
    model: Name | None = None
    mode: Name | None = None
    config: Annotated[dict[Name, ConfigValue], Meta(max_length=50)] = {}
    """The agent's other options, by their ids."""
    limits: Limits = field(default_factory=Limits)
    labels: Labels = []
    archived: bool = False
    parent: Name | None = None
    """The session that started it. It need not be here, or not yet."""
    status: Literal["running", "completed", "stopped", "timed-out", "failed"] = "running"
    state: Literal["accepted", "processing", "idle", "ended"] = "idle"
    ended_at: str | None = None
    error: Annotated[str, Meta(max_length=10_000)] | None = None


class AnyMessageBody(MessageBody, kw_only=True):
    """A message to a session, or to a new one."""

    elsewhere: ClassVar[dict[str, str]] = OF_A_NEW_SESSION

    text: str
    """It may be empty where a kickoff is sent."""
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
    elsewhere: ClassVar[dict[str, str]] = OF_A_SESSION

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
    value: ConfigValue


class ProjectBody(Struct, kw_only=True):
    elsewhere: ClassVar[dict[str, str]] = OF_A_PROJECT

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

    elsewhere: ClassVar[dict[str, str]] = OF_A_PROJECT

    name: Name | UnsetType = UNSET
    path: PathText | UnsetType = UNSET
    agent: Name | UnsetType | None = UNSET
    permissions: list[Rule] | UnsetType = UNSET
    limits: Limits | UnsetType = UNSET
    instructions: str | UnsetType | None = UNSET
    kickoff: str | UnsetType | None = UNSET
    history_scope: Literal["all", "agent"] | UnsetType = UNSET


class TicketBody(Struct, kw_only=True):
    path: Annotated[str, Meta(min_length=1, max_length=4_000, extra_json_schema=OPENED)]
    """What the ticket is for, such as `/api/sessions/ID/events`."""


class LoginBody(Struct, kw_only=True):
    code: Annotated[str, Meta(min_length=1, max_length=200)]
