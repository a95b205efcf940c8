"""One prompt's events in Diane's words, as server-sent events: from the message to `done`, then the stream ends.

Above: diane.py. Below: a journal's frames, as for every viewer; what they no longer hold comes from the verbs. The
names are those of ACP's updates where ACP has one, and the log's own where it has none (prompts, errors).
"""

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.runtime.log.journal import Journal
from perdure.runtime.verbs.sessions import Sessions
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


class PromptViewer(Viewer):
    """Watches one turn of a session."""

    __slots__ = ("_accepted", "_cursor", "_journal", "_sessions")

    def __init__(self, hub: Hub, sessions: Sessions, journal: Journal, accepted: Json) -> None:
        super().__init__(hub)
        self._sessions = sessions
        self._journal = journal
        self._accepted = accepted
        self._cursor: int = accepted["seq"] - 1

    @property
    def position(self) -> int:
        return self._cursor

    def attach(self) -> None:
        self._journal.followers.add(self)

    def detach(self) -> None:
        self._journal.followers.discard(self)

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
        """What is no longer in memory, a batch at a time: afterwards this viewer is woken and looks again."""
        for row in await self._sessions.read(self._journal.state.id, self._cursor, READ_BATCH):
            if not self._tell(row.seq, row.body) or self._paused:
                return

    def _tell(self, seq: int, body: bytes) -> bool:
        """Write one event; False after the last one."""
        self._cursor = seq
        event: Json = msgspec.json.decode(body)
        if event["turn"] != self._accepted["turn"]:
            return True
        if event["type"] == "turn_end":
            end = {
                "run_id": self._accepted["run_id"],
                "stop_reason": event["stop_reason"],
                "turn_number": event["turn"],
            }
            self.write(_frame("done", end))
            self.finish()
            return False
        if event["type"] in TOLD:
            name, words = TOLD[event["type"]]
            self.write(_frame(name, words(event)))
        return True


def _frame(name: str, data: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
