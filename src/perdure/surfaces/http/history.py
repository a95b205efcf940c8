"""The history of a session over HTTP: edit a message, rewind, retry, fork, and plan the next turn.

Above: routes.py. Below: the verbs for history.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import Refused
from perdure.runtime.verbs.history_verbs import Restoring
from perdure.runtime.verbs.sessions import WhenFull
from perdure.surfaces.http.endpoint import SESSION, Endpoint
from perdure.surfaces.http.fields import MessageId, Name, NonBlankText, wants_fresh
from perdure.surfaces.http.messages import Accepted
from perdure.surfaces.http.requests import body_of, reply, verbs
from perdure.surfaces.http.sessions import Session

# Request bodies -------------------------------------------------------------------------------------------------------

Revision = Annotated[int, Meta(ge=0)]
TurnNumber = Annotated[int, Meta(ge=1)]


Files = Literal["keep", "restore"]
Outside = Literal["keep", "overwrite"]


class FilesToo(Struct, kw_only=True):
    """Whether to restore the files to what they were before the turn, in the same step. If somebody else has changed
    some of them since, `outside` says what to do; without it, nothing changes and the response lists them."""

    files: Files = "keep"
    outside: Outside | None = None


class EditBody(FilesToo, kw_only=True):
    """A new text for a message. With `revision`, refused if the session's history has changed since."""

    text: NonBlankText
    revision: Revision | None = None


class RewindBody(FilesToo, kw_only=True):
    """The first turn to hide."""

    turn: TurnNumber
    revision: Revision | None = None


class RetryBody(FilesToo, kw_only=True):
    """The turn to re-run, with its own text and agent or with new ones. The context is always restarted."""

    turn: TurnNumber
    text: NonBlankText | None = None
    agent: Name | None = None
    fresh: bool | UnsetType = UNSET
    force_fresh_session: bool | UnsetType = field(name="forceFreshSession", default=UNSET)
    message_id: MessageId | None = None
    revision: Revision | None = None
    when_full: WhenFull = "wait"


class ForkBody(Struct, kw_only=True):
    """The last turn to copy to the new session. Default: all turns."""

    turn: TurnNumber | None = None
    agent: Name | None = None


class PlanBody(Struct, kw_only=True):
    """The options of the message to plan for."""

    agent: Name | None = None
    fresh: bool | UnsetType = UNSET
    force_fresh_session: bool | UnsetType = field(name="forceFreshSession", default=UNSET)


# Responses ------------------------------------------------------------------------------------------------------------


class Plan(Struct, kw_only=True):
    agent: str
    context: Literal["live", "resumed", "fresh"]
    reason: str
    guards: dict[str, bool]
    native_session_id: str | None
    scope: Literal["all", "agent"]
    turns_told: list[int]
    digested: list[int]
    left_out: list[int]
    tokens: int
    bytes: int


# Handlers -------------------------------------------------------------------------------------------------------------


def _restoring(body: FilesToo) -> Restoring | None:
    if body.files == "restore":
        return Restoring(body.outside)
    if body.outside is not None:
        raise Refused("invalid", "outside can only be given with `files`: `restore`.", fields=["outside"])
    return None


async def edit_message(request: Request) -> Response:
    body = await body_of(request, EditBody)
    session_id, message_id = request.path_params["session_id"], request.path_params["message_id"]
    return reply(await verbs(request).history.edit(session_id, message_id, body.text, body.revision, _restoring(body)))


async def rewind(request: Request) -> Response:
    body = await body_of(request, RewindBody)
    session_id = request.path_params["session_id"]
    return reply(await verbs(request).history.rewind(session_id, body.turn, body.revision, _restoring(body)))


async def retry(request: Request) -> Response:
    body = await body_of(request, RetryBody)
    # A retry always restarts the context; this only refuses conflicting values.
    wants_fresh(body.fresh, body.force_fresh_session)
    answer = await verbs(request).history.retry(
        request.path_params["session_id"],
        body.turn,
        text=body.text,
        agent=body.agent,
        message_id=body.message_id,
        revision=body.revision,
        when_full=body.when_full,
        restoring=_restoring(body),
    )
    return reply(answer, 202)


async def fork(request: Request) -> Response:
    body = await body_of(request, ForkBody)
    return reply(await verbs(request).history.fork(request.path_params["session_id"], body.turn, body.agent), 201)


async def plan(request: Request) -> Response:
    body = await body_of(request, PlanBody)
    fresh = wants_fresh(body.fresh, body.force_fresh_session)
    return reply(await verbs(request).history.plan(request.path_params["session_id"], body.agent, fresh))


# Endpoints ------------------------------------------------------------------------------------------------------------

CHANGE_REFUSALS = (
    "not_found",
    "turn_active",
    "session_ended",
    "conflict",
    "no_repository",
    "files_changed",
    "unavailable",
)

HISTORY = [
    Endpoint(
        "PATCH",
        f"{SESSION}/messages/{{message_id:path}}",
        edit_message,
        "Edit a message in the history",
        body=EditBody,
        answers={200: Session},
        refusals=(*CHANGE_REFUSALS, "too_large"),
    ),
    Endpoint(
        "POST",
        f"{SESSION}/rewind",
        rewind,
        "Remove a turn and all later ones from the visible history",
        body=RewindBody,
        answers={200: Session},
        refusals=CHANGE_REFUSALS,
    ),
    Endpoint(
        "POST",
        f"{SESSION}/retry",
        retry,
        "Rewind to a turn and send its message again",
        body=RetryBody,
        answers={202: Accepted},
        refusals=(*CHANGE_REFUSALS, "slots_full", "too_large", "agent_unavailable"),
    ),
    Endpoint(
        "POST",
        f"{SESSION}/fork",
        fork,
        "Create a session that starts with a copy of this history",
        body=ForkBody,
        answers={201: Session},
        refusals=("not_found", "turn_active"),
    ),
    Endpoint(
        "POST",
        f"{SESSION}/plan",
        plan,
        "Preview what the next turn would send to the agent, and why",
        body=PlanBody,
        answers={200: Plan},
        refusals=("not_found", "turn_active", "session_ended"),
    ),
]
