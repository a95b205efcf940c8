"""Prompts over HTTP: the permission requests and questions of a session's agent, and their answers.

Above: routes.py. Below: the verbs.
"""

from typing import Any, Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from perdure.core import commands as cmd
from perdure.surfaces.http.endpoint import SESSION, Endpoint
from perdure.surfaces.http.fields import LongText
from perdure.surfaces.http.requests import body_of, reply, verbs


class AnswerBody(Struct, kw_only=True):
    """An answer to a prompt: one of option_id, answers or cancel."""

    option_id: str | None = None
    input: Any = None
    reason: LongText | None = None
    interrupt: bool = False
    answers: dict[str, str | list[str]] | None = None
    cancel: bool = False


class Prompt(Struct, kw_only=True):
    prompt_id: str
    kind: Literal["permission", "question"]
    turn: int | None
    title: str
    tool_id: str | None
    tool: str | None
    tool_kind: str
    input: Any
    diff: list[dict[str, Any]] | None
    content: str | None
    asked_at: str
    options: list[dict[str, Any]]
    questions: list[dict[str, Any]]
    always: list[str]
    covers: list[str]


class Prompts(Struct):
    prompts: list[Prompt]


class Resolved(Struct, kw_only=True):
    prompt_id: str
    by: str
    outcome: str
    delivered: bool


async def list_prompts(request: Request) -> Response:
    return reply({"prompts": await verbs(request).prompts(request.path_params["session_id"])})


async def answer_prompt(request: Request) -> Response:
    body = await body_of(request, AnswerBody)
    command = cmd.AnswerPrompt(
        prompt_id=request.path_params["prompt_id"],
        option_id=body.option_id,
        input=body.input,
        reason=body.reason,
        interrupt=body.interrupt,
        answers=body.answers,
        cancel=body.cancel,
    )
    return reply(await verbs(request).answer(request.path_params["session_id"], command))


PROMPTS = [
    Endpoint(
        "GET",
        f"{SESSION}/prompts",
        list_prompts,
        "List the unanswered prompts",
        answers={200: Prompts},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        f"{SESSION}/prompts/{{prompt_id:path}}",
        answer_prompt,
        "Answer a prompt; the first answer wins",
        body=AnswerBody,
        answers={200: Resolved},
        refusals=("not_found", "prompt_resolved", "session_ended"),
    ),
]
