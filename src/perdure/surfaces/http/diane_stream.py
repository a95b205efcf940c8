"""The events of one prompt in Diane's terms, as server-sent events: from the message to `done`, which ends the stream.

Above: diane.py. Below: the session's frames, or the store for events that are no longer in memory. Events have the
names of ACP's updates; those that ACP doesn't have (prompts, errors) keep the names of the log.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.runtime.verbs.sessions import Sessions
from perdure.runtime.verbs.streams import FollowedSession
from perdure.surfaces.http.viewers import Hub, Viewer

READ_BATCH = 1_000
DATA = b"\ndata: "
RUNNING = {"pending": "running", "in_progress": "running"}
HIDDEN = ("seq", "first_seq", "type", "at", "session_id", "turn", "answer")

Json = dict[str, Any]


def _chunk(event: Json) -> Json:
    return {"content": {"type": "text", "text": event["delta"]}}


def _tool_call(event: Json) -> Json:
    return {
        "tool_call_id": event["tool_id"],
        "title": event["title"] or event["name"],
        "kind": event["kind"],
        "status": "running",
        "raw_input": event["input"],
    }


def _tool_call_update(event: Json) -> Json:
    told = {"tool_call_id": event["tool_id"], "status": RUNNING.get(event["status"], event["status"])}
    return told | {key: event[key] for key in ("title", "content", "diff", "locations") if event.get(key) is not None}


def _as_it_is(event: Json) -> Json:
    return {key: value for key, value in event.items() if key not in HIDDEN}


TOLD: dict[str, tuple[str, Callable[[Json], Json]]] = {
    "assistant_text": ("agent_message_chunk", _chunk),
    "assistant_thinking": ("agent_thought_chunk", _chunk),
    "tool_use": ("tool_call", _tool_call),
    "tool_update": ("tool_call_update", _tool_call_update),
    "tool_result": ("tool_call_update", _tool_call_update),
    "plan": ("plan", _as_it_is),
    "pending_prompt": ("pending_prompt", _as_it_is),
    "prompt_resolved": ("prompt_resolved", _as_it_is),
    "error": ("error", _as_it_is),
}
LAST = "turn_end"
NOT_TOLD = (
    # The message, and the session around it. Diane's own requests have their data.
    "session_created",
    "session_updated",
    "session_end",
    "user_message",
    "waiting_to_begin",
    "turn_start",
    "waiting_for_input",
    "waiting_until",
    "message_queued",
    "queued_message_edited",
    "message_unqueued",
    "abort_requested",
    "title",
    "config",
    "history_changed",
    # Diane has no words for these.
    "turn_changes",
    "files_requested",
    "files_changed",
    "image",
    "usage",
    "system",
    "agent_launched",
    "agent_attached",
    "agent_detached",
    "context_fallback",
    "driver_fallback",
    "history_shortened",
    "unrecognised",
)


def told(event: Json, run_id: str) -> tuple[str, Json] | None:
    """Diane's name and data for an event of the run's turn; None if it is not shown."""
    if event["type"] == LAST:
        return "done", {"run_id": run_id, "stop_reason": event["stop_reason"], "turn_number": event["turn"]}
    if event["type"] not in TOLD:
        return None
    name, words = TOLD[event["type"]]
    return name, words(event)


class PromptViewer(Viewer):
    """Streams one turn of a session."""

    __slots__ = ("_accepted", "_cursor", "_journal", "_sessions")

    def __init__(self, hub: Hub, sessions: Sessions, journal: FollowedSession, accepted: Json) -> None:
        super().__init__(hub)
        self._sessions = sessions
        self._journal = journal
        self._accepted = accepted
        self._cursor: int = accepted["seq"] - 1

    @property
    def position(self) -> int:
        return self._cursor

    def attach(self) -> None:
        self._journal.follow(self)

    def detach(self) -> None:
        self._journal.unfollow(self)

    def wake(self) -> None:
        if self._paused or self._busy or self._pipe is None:
            return
        frames = self._journal.frames_since(self._cursor)
        if frames is None:
            self.catch_up(self._replay())
            return
        for seq, frame in frames:
            if not self._tell(seq, frame[frame.index(DATA) + len(DATA) :]) or self._paused:
                return

    async def _replay(self) -> None:
        """Write a batch of events that are no longer in memory. The viewer is woken afterwards and continues."""
        for row in await self._sessions.read(self._journal.state.id, self._cursor, READ_BATCH):
            if not self._tell(row.seq, row.body) or self._paused:
                return

    def _tell(self, seq: int, body: bytes) -> bool:
        """Write one event. Returns False if it was the turn's last one."""
        self._cursor = seq
        event: Json = msgspec.json.decode(body)
        if event["turn"] != self._accepted["turn"]:
            return True
        if (found := told(event, self._accepted["run_id"])) is not None:
            self.write(_frame(*found))
        if event["type"] == LAST:
            self.finish()
            return False
        return True


def _frame(name: str, data: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
