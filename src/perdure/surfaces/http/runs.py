"""Runs over HTTP: run one prompt and return its result in one call.

Above: routes.py, and diane.py, which shows turns in the same shape. Below: the verbs, and collecting.py, which waits
for the turn. The session of a single run closes when its turn ends. Otherwise it is an ordinary session.
"""

import hashlib
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from perdure.config import Seconds
from perdure.core.permissions import Rule
from perdure.runtime.verbs.sessions import NewSession, Outgoing, WhenFull
from perdure.surfaces.collecting import Collected, collect
from perdure.surfaces.http.endpoint import Endpoint
from perdure.surfaces.http.fields import Labels, MessageId, Name, NonBlankText, PathText, TitleText
from perdure.surfaces.http.long_requests import while_connected
from perdure.surfaces.http.messages import Accepted
from perdure.surfaces.http.requests import body_of, flag, reply, verbs
from perdure.surfaces.http.sessions import create_once

Status = Literal["completed", "failed", "cancelled"]
STATUS_OF_STOP_REASON: dict[str, Status] = {"failed": "failed", "timed_out": "failed", "cancelled": "cancelled"}
"""All other stop reasons mean that the agent has finished: `completed`."""


class RunBody(Struct, kw_only=True):
    """One prompt. The session closes after its turn."""

    text: NonBlankText
    agent: Name | None = None
    project: Name | None = None
    workdir: PathText | None = None
    title: TitleText = ""
    model: Name | None = None
    mode: Name | None = None
    labels: Labels = []
    parent: Name | None = None
    """The session that starts this run."""
    timeout_s: Seconds | None = None
    permissions: Annotated[list[Rule], Meta(max_length=1_000)] = []
    message_id: MessageId | None = None
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
    """A finished turn. `output` has the agent's text, even if the turn failed or was cancelled."""

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
    """A finished run with the details of its turn. `text` is the whole output."""

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
    """Create a session, send the prompt and wait for the result. With a message_id, a repeated request does not start a
    second run: it waits for the same one."""
    body = await body_of(request, RunBody)
    waits = flag(request, "wait") if "wait" in request.query_params else True
    message = Outgoing(text=body.text, message_id=body.message_id, when_full=body.when_full)
    if body.message_id is None:
        _, accepted = await verbs(request).create(_new_session(body), message)
    else:
        seed = f"run {body.message_id}".encode("utf-8", "surrogatepass")
        accepted = await create_once(request, "s_" + hashlib.sha256(seed).hexdigest()[:21], _new_session(body), message)
    if not waits:
        return reply(accepted, 202)
    return reply(shown_single_run(await while_connected(request, collect(verbs(request), accepted))))


def _new_session(body: RunBody) -> NewSession:
    return NewSession(
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


RUNS = [
    Endpoint(
        "POST",
        "/api/run",
        run,
        "Run one prompt, return the result and close the session",
        body=RunBody,
        query={"wait": (bool, "False: respond immediately (202); follow the session's events for the result.")},
        answers={200: SingleRun, 202: Accepted},
        refusals=("not_found", "slots_full", "conflict", "turn_active", "too_large", "agent_unavailable"),
    ),
]
