"""Open Design's API: get a run by its id, and answer a question with the result of its tool.

Above: routes.py. Below: the verbs; open_design_answers.py converts results to answers. A run is a turn. Its id consists
of the session's id and the turn's number.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response

from perdure.core import commands as cmd
from perdure.core.errors import Refused
from perdure.core.view import public_prompt, public_turn
from perdure.runtime.verbs.streams import FollowedSession
from perdure.surfaces.http.endpoint import Endpoint
from perdure.surfaces.http.open_design_answers import answers_in
from perdure.surfaces.http.prompts import Prompt, Resolved
from perdure.surfaces.http.requests import body_of, reply, verbs
from perdure.surfaces.http.runs import STATUS_OF_STOP_REASON
from perdure.surfaces.http.sessions import Turn

MAX_TURN_DIGITS = 15


class TurnRun(Turn, kw_only=True):
    """A turn, and whether the agent continued its native session instead of getting the transcript."""

    session_id: str
    status: Literal["running", "completed", "failed", "cancelled"]
    session_resumed: bool = field(name="sessionResumed")
    pending_prompts: list[Prompt]


class ToolResultBody(Struct, kw_only=True, rename="camel"):
    """An answer. `content` is a text, a list of texts, or an object with a text for each question."""

    tool_use_id: str
    content: Any = None
    is_error: bool = False
    """True cancels the question."""


class ToolResultTaken(Resolved, kw_only=True):
    ok: bool = True


async def _run(request: Request) -> tuple[FollowedSession, dict[str, Any]]:
    """The session and the turn of a run."""
    run_id = request.path_params["run_id"]
    session_id, _, number = run_id.rpartition(".")
    sessions = verbs(request)
    unknown = Refused("not_found", f"There is no run {run_id}.")
    if not (number.isascii() and number.isdigit() and len(number) <= MAX_TURN_DIGITS):
        raise unknown
    if not await sessions.exists(session_id):
        raise unknown
    journal = await sessions.journal(session_id)
    current = journal.state.turn
    if current is not None and current.run_id == run_id:
        return journal, public_turn(current)
    for row in await sessions.turns(session_id, from_turn=int(number), hidden=True):
        turn: dict[str, Any] = msgspec.json.decode(row.public)
        if turn["run_id"] == run_id:
            return journal, turn
    raise unknown


def _prompts(journal: FollowedSession, turn: dict[str, Any]) -> list[dict[str, Any]]:
    return [public_prompt(prompt) for prompt in journal.state.prompts.values() if prompt.turn == turn["turn"]]


async def get_run(request: Request) -> Response:
    journal, turn = await _run(request)
    reason = turn["stop_reason"]
    shown = {
        **turn,
        "session_id": journal.state.id,
        "status": "running" if reason is None else STATUS_OF_STOP_REASON.get(reason, "completed"),
        "sessionResumed": turn["context"] in ("live", "resumed"),
        "pending_prompts": _prompts(journal, turn),
    }
    return reply(shown)


async def answer_run(request: Request) -> Response:
    """`tool_use_id` is the tool call that asked the question, or the prompt's id if the agent asks without a tool."""
    body = await body_of(request, ToolResultBody)
    journal, turn = await _run(request)
    prompt = next((p for p in _prompts(journal, turn) if body.tool_use_id in (p["tool_id"], p["prompt_id"])), None)
    if prompt is None:
        raise _nothing_waits(journal, turn, body.tool_use_id)
    path = f"POST /api/sessions/{journal.state.id}/prompts/{prompt['prompt_id']}"
    if prompt["kind"] != "question":
        raise Refused("invalid", f"This tool waits for permission, not for a result. Answer it with {path}.")
    if body.is_error:
        command = cmd.AnswerPrompt(prompt_id=prompt["prompt_id"], cancel=True)
    else:
        answers = answers_in(body.content, prompt["questions"])
        command = cmd.AnswerPrompt(prompt_id=prompt["prompt_id"], answers=answers)
    return reply({"ok": True, **await verbs(request).answer(journal.state.id, command)})


def _nothing_waits(journal: FollowedSession, turn: dict[str, Any], tool_use_id: str) -> Refused:
    if turn["stop_reason"] is not None:
        return Refused("prompt_resolved", "The run has ended and has no open questions.")
    if tool_use_id in journal.state.resolved_prompts or tool_use_id in journal.view.tools:
        return Refused("prompt_resolved", "This tool is not waiting for an answer, or has already got one.")
    return Refused(
        "not_found",
        f"No tool {tool_use_id!r} is waiting in this run. GET /api/runs/{turn['run_id']} lists what is.",
    )


OPEN_DESIGN = [
    Endpoint(
        "GET",
        "/api/runs/{run_id}",
        get_run,
        "Open Design: get a run, and whether its agent continued its native session",
        answers={200: TurnRun},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        "/api/runs/{run_id}/tool-result",
        answer_run,
        "Open Design: answer a question with the result of its tool",
        body=ToolResultBody,
        answers={200: ToolResultTaken},
        refusals=("not_found", "prompt_resolved", "session_ended"),
    ),
]
