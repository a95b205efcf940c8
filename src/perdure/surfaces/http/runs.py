"""Runs: one prompt that is worked to its end. The shape that a run has for others, and the single run in one call.

Above: the table of endpoints, and Diane's surface, which shows its turns in the same shape. Below: the verbs, and
collecting.py, which waits. A single run is a session like any other, that closes itself when its turn is over.
"""

import hashlib
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from perdure.config import Seconds
from perdure.core.permissions import Rule
from perdure.runtime.verbs.sessions import Opening, Outgoing, WhenFull
from perdure.surfaces.collecting import Collected, collect
from perdure.surfaces.http import bodies
from perdure.surfaces.http.handlers import create_once, verbs
from perdure.surfaces.http.requests import body_of, flag, reply
from perdure.surfaces.http.waiting import while_connected

Status = Literal["completed", "failed", "cancelled"]
STATUS_OF_STOP_REASON: dict[str, Status] = {"failed": "failed", "timed_out": "failed", "cancelled": "cancelled"}
"""All others are ends that the agent chose."""


class RunBody(Struct, kw_only=True):
    """One prompt, to an agent that is let go afterwards."""

    text: bodies.SaidText
    agent: bodies.Name | None = None
    project: bodies.Name | None = None
    workdir: bodies.PathText | None = None
    title: bodies.TitleText = ""
    model: bodies.Name | None = None
    mode: bodies.Name | None = None
    labels: bodies.Labels = []
    parent: bodies.Name | None = None
    """The session that starts this run."""
    timeout_s: Seconds | None = None
    permissions: Annotated[list[Rule], Meta(max_length=1_000)] = []
    message_id: bodies.MessageId | None = None
    when_full: WhenFull = "wait"


class RunPart(Struct, kw_only=True):
    content_type: Literal["text/plain"] = "text/plain"
    content: str


class RunMessage(Struct, kw_only=True):
    role: Literal["agent"] = "agent"
    parts: list[RunPart]


class RunError(Struct, kw_only=True):
    code: str
    message: str


class Run(Struct, kw_only=True):
    """A turn that is over. What was said until then is in `output`, however it ended."""

    run_id: str
    agent_name: str
    session_id: str
    status: Status
    output: list[RunMessage]
    turn_number: int
    created_at: str
    finished_at: str
    error: RunError | UnsetType = UNSET


class SingleRun(Run, kw_only=True):
    """The same, and what else is known of its turn. `text` is all of the output in one piece."""

    text: str
    message_id: str
    stop_reason: str
    duration_ms: int
    usage: dict[str, Any] | None
    cost_usd: float | None


def _fields(turn: Collected) -> dict[str, Any]:
    return {
        "run_id": turn.run_id,
        "agent_name": turn.agent,
        "session_id": turn.session_id,
        "status": STATUS_OF_STOP_REASON.get(turn.stop_reason, "completed"),
        "output": [RunMessage(parts=[RunPart(content=turn.text)])],
        "turn_number": turn.turn,
        "created_at": turn.started_at,
        "finished_at": turn.ended_at,
        "error": UNSET if turn.error is None else RunError(code=turn.error.code, message=turn.error.message),
    }


def shown_run(turn: Collected) -> Run:
    return Run(**_fields(turn))


def shown_single_run(turn: Collected) -> SingleRun:
    return SingleRun(
        **_fields(turn),
        text=turn.text,
        message_id=turn.message_id,
        stop_reason=turn.stop_reason,
        duration_ms=turn.duration_ms,
        usage=turn.usage,
        cost_usd=turn.cost_usd,
    )


async def run(request: Request) -> Response:
    """Start, one prompt, collect, close. A message_id makes it repeatable: the same run is waited for again."""
    body = await body_of(request, RunBody)
    waits = flag(request, "wait") if "wait" in request.query_params else True
    message = Outgoing(text=body.text, message_id=body.message_id, when_full=body.when_full)
    if body.message_id is None:
        _, accepted = await verbs(request).create(_opening(body), message)
    else:
        seed = f"run {body.message_id}".encode("utf-8", "surrogatepass")
        accepted = await create_once(request, "s_" + hashlib.sha256(seed).hexdigest()[:21], _opening(body), message)
    if not waits:
        return reply(accepted, 202)
    return reply(shown_single_run(await while_connected(request, collect(verbs(request), accepted))))


def _opening(body: RunBody) -> Opening:
    return Opening(
        project=body.project,
        workdir=body.workdir,
        agent=body.agent,
        title=body.title,
        model=body.model,
        mode=body.mode,
        labels=tuple(body.labels),
        parent=body.parent,
        limits={} if body.timeout_s is None else {"turn_limit_s": body.timeout_s},
        permissions=tuple(body.permissions),
        single_shot=True,
    )
