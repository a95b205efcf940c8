"""Waits for the end of a turn, or for a prompt that blocks it.

Above: server.py. Below: the client, whose event stream survives disconnects and server restarts. A thread reads the
stream; the event loop polls for progress. It deliberately doesn't collect the answer, which is read from the transcript
at the end: a long turn takes no more memory than a short one.
"""

import threading
import time
from typing import Any

from perdure.surfaces.client import Client, Unreachable
from perdure.surfaces.short_text import one_line, running_tool
from perdure.surfaces.stream import Event, EventStream

Json = dict[str, Any]

WORDS_CHARS = 200
RETRY_S = 0.2


class Turn:
    """The turn of a sent message. `known`: prompts that were already reported to the caller."""

    def __init__(self, client: Client, sent: Json, known: frozenset[str], lost_limit_s: float) -> None:
        self.session_id = str(sent["session_id"])
        self.number = int(sent["turn"])
        self.message_id = str(sent["message_id"])
        self._words = f"Turn {self.number} has started. Its message_id is {self.message_id}."
        self._client = client
        self._position = max(0, int(sent["seq"]) - 1)
        self._known = known
        self._lost_limit_s = lost_limit_s
        self._lost_at: float | None = None
        self._said = ""
        self._closed = threading.Event()
        self._stream: EventStream | None = None

    def close(self) -> None:
        """Stop reading. The turn itself continues."""
        self._closed.set()
        if self._stream is not None:
            self._stream.close()

    def progress(self) -> str:
        """The current progress message. Raises if the server was unreachable for too long."""
        lost_at = self._lost_at
        if lost_at is not None and time.monotonic() - lost_at > self._lost_limit_s:
            raise Unreachable(
                f"The connection to the server was lost. To find the turn again, use message_id {self.message_id}."
            )
        return self._words

    def read(self) -> list[Json]:
        """Wait until the turn ends (returns nothing), or there are new prompts (returns all open ones)."""
        deadline = time.monotonic() + self._lost_limit_s
        while True:
            stream = self._client.events(self.session_id, self._position, on_lost=self._lost, on_back=self._back)
            self._stream = stream
            if self._closed.is_set():
                return []
            try:
                return self._read(stream)
            except Unreachable:
                # The stream reconnects after a disconnect, but not if its first connection failed.
                if time.monotonic() > deadline or self._closed.wait(RETRY_S):
                    raise

    def _read(self, stream: EventStream) -> list[Json]:
        for event in stream:
            if self._is_over(event):
                break
            if self._may_ask(event):
                waiting = self.waiting()
                if any(prompt["prompt_id"] not in self._known for prompt in waiting):
                    return waiting
            if event.turn == self.number:
                self._tell(event)
        return []

    def waiting(self) -> list[Json]:
        """The open prompts of this turn, without those that a rule has answered."""
        return [prompt for prompt in self._client.prompts(self.session_id) if prompt["turn"] == self.number]

    def _is_over(self, event: Event) -> bool:
        if event.type == "session_end":
            return True
        if event.type == "snapshot":
            return event.turn != self.number or event.data["session"]["state"] not in ("accepted", "processing")
        return event.type == "turn_end" and event.turn == self.number

    @staticmethod
    def _may_ask(event: Event) -> bool:
        return event.type == "pending_prompt" or bool(event.data.get("pending_prompts"))

    # Progress --------------------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        data = event.data
        if event.type == "assistant_text":
            self._said = (self._said + data["delta"])[-WORDS_CHARS:]
            self._words = one_line(self._said, WORDS_CHARS) or self._words
        elif event.type == "tool_use":
            self._said = ""
            self._words = running_tool(data)
        elif event.type in ("system", "error", "waiting_to_begin"):
            self._words = one_line(data["message"], WORDS_CHARS)
        elif event.type == "pending_prompt":
            self._words = "Waiting for a person to answer."

    def _lost(self, _: str) -> None:
        self._lost_at = time.monotonic()
        self._words = "The server is unreachable. Waiting for it."

    def _back(self) -> None:
        self._lost_at = None
        self._words = "The server is back."
