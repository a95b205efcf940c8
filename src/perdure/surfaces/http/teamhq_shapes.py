"""What TeamHQ's requests carry and what they are answered, as structs: read, and shown in the OpenAPI document.

Above: teamhq.py of this folder. Below: nothing; surfaces/teamhq.py has the words.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from perdure.surfaces.http import bodies

MESSAGE_MAX_CHARS = 100_000
STATES = ("processing", "idle", "ended")


TeamText = Annotated[str, Meta(extra_json_schema={**bodies.SAID, "maxLength": MESSAGE_MAX_CHARS})]


class TeamSessionBody(Struct, kw_only=True):
    """A new session. Without a message the project's kickoff is its first one."""

    message: TeamText | None = None
    title: bodies.TitleText = ""
    agent: bodies.Name | None = None


class TeamMessageBody(Struct, kw_only=True):
    """A further message. What is no text at all is refused in TeamHQ's own words, so it is looked at later."""

    message: Any = None
    agent: bodies.Name | None = None
    fresh: bool | UnsetType = UNSET
    force_fresh_session: bool | UnsetType = field(name="forceFreshSession", default=UNSET)


class TeamMessage(TeamMessageBody, kw_only=True):
    """The same as the document says it."""

    message: TeamText


class TeamTurn(Struct, kw_only=True, rename="camel"):
    turn_number: int
    started_at: str
    ended_at: str | None
    exit_code: int | None


class TeamSession(Struct, kw_only=True, rename="camel"):
    """A session as TeamHQ keeps it. `conversationId` and `cliSessionId` are the agent's own id."""

    id: str
    project_id: str
    status: Literal["running", "completed", "stopped", "timed-out", "failed"]
    started_at: str
    ended_at: str | None
    duration_ms: int | None
    event_count: int
    exit_code: int | None
    error: str | None
    pid: int | None
    conversation_id: str | None
    cli_session_id: str | None
    current_turn_pid: int | None
    turn_count: int
    state: Literal["processing", "idle", "ended"]
    turns: list[TeamTurn]


class TeamSessions(Struct):
    sessions: list[TeamSession]


class TeamAccepted(Struct, kw_only=True, rename="camel"):
    turn_number: int
    status: Literal["processing"] = "processing"
    state: Literal["processing"] = "processing"
