"""Open Design's surface: a run by its id, and the answer to a question as the result of a tool.

Above: the table of endpoints. Below: the verbs, as for every surface. A run is a turn; its id names its session and its
number. What answers a question is told apart in tool_results.py.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response

from perdure.core import commands as cmd
from perdure.core.errors import Refused
from perdure.core.view import public_prompt, public_turn
from perdure.runtime.log.journal import Journal
from perdure.surfaces.http import shapes
from perdure.surfaces.http.endpoint import Endpoint
from perdure.surfaces.http.handlers import verbs
from perdure.surfaces.http.requests import body_of, reply
from perdure.surfaces.http.runs import STATUS_OF_STOP_REASON
from perdure.surfaces.http.tool_results import answers_in

MAX_TURN_DIGITS = 15


class TurnRun(shapes.Turn, kw_only=True):
    """A run: its turn, and whether the agent went on in its own session instead of being told everything."""

    session_id: str
    status: Literal["running", "completed", "failed", "cancelled"]
    session_resumed: bool = field(name="sessionResumed")
    pending_prompts: list[shapes.Prompt]


class ToolResultBody(Struct, kw_only=True, rename="camel"):
    """An answer. `content` is a text, a list of texts, or an object with a text for each question."""

    tool_use_id: str
    content: Any = None
    is_error: bool = False
    """There is no answer: the question is cancelled."""


class ToolResultTaken(shapes.Resolved, kw_only=True):
    ok: bool = True


async def _run(request: Request) -> tuple[Journal, dict[str, Any]]:
    """The journal and the turn of a run."""
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


def _prompts(journal: Journal, turn: dict[str, Any]) -> list[dict[str, Any]]:
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
    """A question waits for the result of its tool; an agent whose questions are no tools is answered by prompt id."""
    body = await body_of(request, ToolResultBody)
    journal, turn = await _run(request)
    prompt = next((p for p in _prompts(journal, turn) if body.tool_use_id in (p["tool_id"], p["prompt_id"])), None)
    if prompt is None:
        raise _nothing_waits(journal, turn, body.tool_use_id)
    path = f"POST /api/sessions/{journal.state.id}/prompts/{prompt['prompt_id']}"
    if prompt["kind"] != "question":
        raise Refused("invalid", f"This tool waits for a permission, not for a result. Give it with {path}.")
    if body.is_error:
        command = cmd.AnswerPrompt(prompt_id=prompt["prompt_id"], cancel=True)
    else:
        answers = answers_in(body.content, prompt["questions"])
        command = cmd.AnswerPrompt(prompt_id=prompt["prompt_id"], answers=answers)
    return reply({"ok": True, **await verbs(request).answer(journal.state.id, command)})


def _nothing_waits(journal: Journal, turn: dict[str, Any], tool_use_id: str) -> Refused:
    if turn["stop_reason"] is not None:
        return Refused("prompt_resolved", "The run is over, so nothing in it waits for an answer.")
    if tool_use_id in journal.state.resolved_prompts or tool_use_id in journal.view.tools:
        return Refused("prompt_resolved", "This tool does not wait for an answer, or has got one.")
    return Refused(
        "not_found", f"No tool {tool_use_id!r} waits in this run. GET /api/runs/{turn['run_id']} shows which."
    )


OPEN_DESIGN = [
    Endpoint(
        "GET",
        "/api/runs/{run_id}",
        get_run,
        "Open Design: one run, and whether its agent went on in its own session",
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
