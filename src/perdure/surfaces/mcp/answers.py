"""Converts API responses to tool results. Pure.

Above: server.py. Below: the shapes in tools.py, and Diane's shapes for sessions.
"""

from typing import Any

from msgspec import UNSET
from msgspec.structs import asdict

from perdure.surfaces import diane_shapes
from perdure.surfaces.mcp import tools

Json = dict[str, Any]

# More would fill a model's context; the transcript has all of it.
OUTPUT_CHARS = 100_000
MESSAGE_CHARS = 500
STATUS_OF_STOP: dict[str | None, tools.RunStatus] = {
    "cancelled": "cancelled",
    "failed": "failed",
    "timed_out": "failed",
}


def listed(session: Json, now_s: float) -> tools.Listed:
    return tools.Listed(
        **asdict(diane_shapes.listed(session, now_s)),
        state=session["state"],
        pending_prompts=session["pending_prompts"] or UNSET,
    )


def run_of(session_id: str, turn: Json, waiting: list[Json]) -> tools.Run:
    """The result for a turn of the transcript. `waiting`: the open prompts that block it."""
    text = "".join(part["text"] for part in turn["parts"] if part["type"] == "text")
    parts = [tools.Part(content_type="text/plain", content=text[-OUTPUT_CHARS:])]
    run = tools.Run(
        run_id=turn["run_id"],
        agent_name=turn["agent"],
        session_id=session_id,
        message_id=turn["message_id"],
        status=STATUS_OF_STOP.get(turn["stop_reason"], "completed") if turn["stop_reason"] else "awaiting",
        output=[tools.Output(role="agent", parts=parts)],
        turn_number=turn["turn"],
        created_at=turn["started_at"],
        finished_at=turn["ended_at"] or UNSET,
        stop_reason=turn["stop_reason"] or UNSET,
        truncated=True if len(text) > OUTPUT_CHARS else UNSET,
    )
    if run.status == "failed":
        run.error = _error(turn)
    if run.status == "awaiting":
        run.pending_prompts = [_pending(session_id, prompt) for prompt in waiting]
        run.next_step = _next_step(run)
    return run


def listed_job(job: Json) -> tools.ListedJob:
    message = job["message"]
    return tools.ListedJob(
        job_id=job["id"],
        name=job["name"],
        message=message if len(message) <= MESSAGE_CHARS else f"{message[:MESSAGE_CHARS]}...",
        schedule=job["schedule"],
        time_zone=job["time_zone"],
        state=job["state"],
        reason=job["reason"] or UNSET,
        next_run_at=job["next_run_at"] or UNSET,
        backoff_until=job["backoff_until"] or UNSET,
        last_run=job_run(job["last_run"]) if job["last_run"] else UNSET,
    )


def job_run(run: Json) -> tools.JobRun:
    return tools.JobRun(
        id=run["id"],
        job_id=run["job_id"],
        due_at=run["due_at"],
        trigger=run["trigger"],
        state=run["state"],
        outcome=run["outcome"] or UNSET,
        detail=run["detail"] or UNSET,
        session_id=run["session_id"] or UNSET,
        ended_at=run["ended_at"] or UNSET,
    )


def _error(turn: Json) -> tools.RunError:
    codes = [part.get("code") for part in turn["parts"] if part["type"] == "error" and part.get("code")]
    code = str(codes[-1]) if codes else str(turn["stop_reason"])
    return tools.RunError(code=code, message=turn["error"] or "The turn failed.")


def _pending(session_id: str, prompt: Json) -> tools.PendingPrompt:
    return tools.PendingPrompt(
        prompt_id=prompt["prompt_id"],
        kind=prompt["kind"],
        title=prompt["title"],
        input=prompt["input"],
        options=prompt["options"],
        questions=prompt["questions"],
        asked_at=prompt["asked_at"],
        answer_with=f"perdure answer {session_id} {prompt['prompt_id']}",
    )


def _next_step(run: tools.Run) -> str:
    prompts = run.pending_prompts or []
    commands = ", ".join(f"`{prompt.answer_with}`" for prompt in prompts)
    return (
        f"The agent is waiting for a person. Ask them to answer with {commands}. Then call agent_session_prompt again "
        f'with the same prompt and message_id "{run.message_id}" to get the rest.'
    )
