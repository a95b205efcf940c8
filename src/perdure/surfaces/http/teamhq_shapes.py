"""TeamHQ's request bodies and responses.

Above: teamhq.py in this folder. Below: nothing. surfaces/teamhq.py converts sessions to this format.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from perdure.surfaces.http.fields import NON_BLANK, Name, TitleText

MESSAGE_MAX_CHARS = 100_000
STATES = ("processing", "idle", "ended")

TeamText = Annotated[str, Meta(extra_json_schema={**NON_BLANK, "maxLength": MESSAGE_MAX_CHARS})]


class TeamSessionBody(Struct, kw_only=True):
    """A new session. Without a message, the first message is the project's kickoff."""

    message: TeamText | None = None
    title: TitleText = ""
    agent: Name | None = None


class TeamMessageBody(Struct, kw_only=True):
    """A message to a session. `message` may have any type here: the handler checks it, with TeamHQ's error messages."""

    message: Any = None
    agent: Name | None = None
    fresh: bool | UnsetType = UNSET
    force_fresh_session: bool | UnsetType = field(name="forceFreshSession", default=UNSET)


class TeamMessage(TeamMessageBody, kw_only=True):
    """A message to a session."""

    message: TeamText


class TeamTurn(Struct, kw_only=True, rename="camel"):
    turn_number: int
    started_at: str
    ended_at: str | None
    exit_code: int | None


class TeamSession(Struct, kw_only=True, rename="camel"):
    """A session in TeamHQ's format. `conversationId` and `cliSessionId` are the id of the agent's native session."""

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
