"""Converts sessions, turns and events to TeamHQ's format. Pure.

Above: TeamHQ's HTTP surface, and the files that `perdure export` writes. Below: a session and its events from the API.
Each event of the log becomes one TeamHQ event or none, and keeps its number. Nothing is aggregated, so a stream can
resume at any position. Everything that TeamHQ's format lacks is left out.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

MESSAGE_CHARS = 500
OUTPUT_LINES = 200
ENDED_WELL = ("end_turn", "max_turns", "refusal")
_EXIT_CODE = re.compile(r"\(exit code (\d+)\)")

Json = dict[str, Any]


class Words(NamedTuple):
    """How long texts may be: viewers get the beginning of a long text, files get all of it."""

    message_chars: int | None = MESSAGE_CHARS
    output_lines: int | None = OUTPUT_LINES


FOR_VIEWERS = Words()
FOR_FILES = Words(message_chars=None, output_lines=None)

# Sessions -------------------------------------------------------------------------------------------------------------


def metadata(session: Json, turns: list[Json]) -> Json:
    """A session in TeamHQ's format."""
    state = state_of(session)
    return {
        "id": session["id"],
        "projectId": session["project"] or "",
        "status": session["status"],
        "startedAt": started_at(session),
        "endedAt": session["ended_at"],
        "durationMs": session["duration_ms"],
        "eventCount": session["event_count"],
        "exitCode": exit_code(turns[-1]) if state == "ended" and turns else None,
        "error": session["error"],
        "pid": session["pid"],
        "conversationId": session["native_session_id"],
        "cliSessionId": session["native_session_id"],
        "currentTurnPid": session["pid"] if session["state"] == "processing" else None,
        "turnCount": session["turn_count"],
        "state": state,
        "turns": [
            {
                "turnNumber": turn["turn"],
                "startedAt": turn["started_at"],
                "endedAt": turn["ended_at"],
                "exitCode": exit_code(turn),
            }
            for turn in turns
        ],
    }


def state_of(session: Json) -> str:
    """TeamHQ has no state for a message that is waiting for a slot, so it counts as processing."""
    return "processing" if session["state"] == "accepted" else str(session["state"])


def started_at(session: Json) -> str:
    return str(session["started_at"] or session["created_at"])


def exit_code(turn: Json) -> int | None:
    """The exit code of the process, if it ended with the turn. Otherwise 0 if the turn succeeded."""
    if turn["exit_code"] is not None:
        return int(turn["exit_code"])
    return 0 if turn["stop_reason"] in ENDED_WELL else None


# Events ---------------------------------------------------------------------------------------------------------------


def number_of(seq: int) -> int:
    """TeamHQ numbers events from 0, so the next number is also the count."""
    return seq - 1


def told(event: Json, tool: str, words: Words = FOR_VIEWERS) -> tuple[str, Json] | None:
    """TeamHQ's type and data for an event; None if it has no equivalent. `tool` is the name of the event's tool."""
    tell = TOLD.get(event["type"])
    return None if tell is None else tell(event, tool, words)


def _started(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    return "system", {"message": "Session started"}


def _user_message(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    """In TeamHQ, the first message of a session is part of its `turn_start`."""
    message = {"message": event["text"][: words.message_chars], "turnNumber": event["turn"]}
    return "turn_start" if event["turn"] == 1 else "user_message", message


def _turn_start(event: Json, tool: str, words: Words) -> tuple[str, Json] | None:
    if event["turn"] == 1 and event.get("origin", "person") == "person":
        return None
    return "turn_start", {"turnNumber": event["turn"]}


def _text(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    return "assistant_text", {"text": event["delta"], "delta": True}


def _tool_use(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    return "tool_use", {"tool": event["name"], "input": {} if event["input"] is None else event["input"]}


def _tool_result(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    output = event["content"] or ""
    lines = output.split("\n")
    truncated = words.output_lines is not None and len(lines) > words.output_lines
    if truncated:
        output = "\n".join([*lines[: words.output_lines], f"[... truncated, {len(lines)} total lines]"])
    return "tool_result", {"tool": tool, "output": output, "truncated": truncated}


def _turn_end(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    data = {"turnNumber": event["turn"], "exitCode": exit_code(event), "durationMs": event["duration_ms"]}
    # Omitted if unknown: clients show the cost whenever the field exists.
    return "turn_end", data | ({} if event["cost_usd"] is None else {"costUsd": event["cost_usd"]})


def _waiting(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    return "waiting_for_input", {"turnNumber": event["turn"] or 0}


def _error(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    message, code = event["message"], _EXIT_CODE.search(event["message"])
    if event["code"] == "agent_exited" and event["turn"] is not None and code is not None:
        message = f"Turn {event['turn']} failed (exit code {code.group(1)})"
    return "error", {"message": message} | ({"detail": event["detail"]} if event.get("detail") else {})


def _attached(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    return "system", {"message": "Agent initialized"}


def _system(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    return "system", {"message": event["message"]}


def _asked(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    return "system", {"message": f"Waiting for a person to answer: {event['title']}"}


def _changed(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    edited = f"The message of turn {event['turn']} was edited"
    return "system", {"message": edited if event["change"] == "edit" else f"Turn {event['turn']} was rewound"}


def _ended(event: Json, tool: str, words: Words) -> tuple[str, Json]:
    if event["status"] == "stopped":
        by = "by user" if event["reason"] == "stopped" else f"({event['reason']})"
        return "system", {"message": f"Session stopped {by}"}
    if event["status"] == "completed":
        return "system", {"message": "Session completed"}
    return "error", {"message": "Session timed out" if event["status"] == "timed-out" else "Session failed"}


TOLD: dict[str, Callable[[Json, str, Words], tuple[str, Json] | None]] = {
    "session_created": _started,
    "user_message": _user_message,
    "waiting_to_begin": _system,
    "turn_start": _turn_start,
    "assistant_text": _text,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "turn_end": _turn_end,
    "waiting_for_input": _waiting,
    "error": _error,
    "agent_attached": _attached,
    "system": _system,
    "pending_prompt": _asked,
    "history_changed": _changed,
    "session_end": _ended,
}


NOT_TOLD = (
    # TeamHQ shows the text and tools of an answer, and nothing else of it.
    "assistant_thinking",
    "tool_update",
    "image",
    "plan",
    "usage",
    "unrecognised",
    # It has no prompts, queue, options or processes. `pending_prompt` is a notice.
    "prompt_resolved",
    "turn_changes",
    "files_requested",
    "files_changed",
    "message_queued",
    "queued_message_edited",
    "message_unqueued",
    "abort_requested",
    "session_updated",
    "title",
    "config",
    "agent_launched",
    "agent_detached",
    "context_fallback",
    "driver_fallback",
    "history_shortened",
    "waiting_until",
)
"""Event types without an equivalent."""

KNOWN_TOOLS = 10_000
"""How many tools of a turn are remembered. The result of an older one has the tool name `unknown`."""


class Teller:
    """Converts the events of one session, in order. Its only state is the names of the turn's tools, because a result
    has only the tool's id."""

    def __init__(self, words: Words = FOR_VIEWERS) -> None:
        self._words = words
        self.tools: dict[str, str] = {}

    def note(self, event: Json) -> None:
        """Update the tool names for an event, without converting it."""
        if event["type"] == "turn_start":
            self.tools.clear()
        elif event["type"] == "tool_use":
            self.tools[event["tool_id"]] = event["name"]
            if len(self.tools) > KNOWN_TOOLS:
                del self.tools[next(iter(self.tools))]

    def tell(self, seq: int, event: Json) -> Json | None:
        self.note(event)
        found = told(event, self.tools.get(event.get("tool_id") or "", "unknown"), self._words)
        if found is None:
            return None
        return {"id": number_of(seq), "timestamp": event["at"], "type": found[0], "data": found[1]}
