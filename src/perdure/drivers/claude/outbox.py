"""What one step leads to: observations in order, with neighbouring text joined, and lines for the agent.

Above: the parts of the conversation. Below: wire.py. It is empty between steps, so nothing of it is remembered; the
numbers of requests and the counts of strange things are, and live in the state.
"""

from typing import Any

from perdure.core.events import AssistantText, AssistantThinking, System
from perdure.drivers.base import Noise, Observation, Step
from perdure.drivers.claude import wire
from perdure.drivers.claude.state import Sent, State

SAMPLE_MAX_CHARS = 200
STRANGE_KINDS_MAX = 64


class Outbox:
    def __init__(self, state: State) -> None:
        self._state = state
        self._observed: list[Observation] = []
        self._lines: list[bytes] = []
        self._event: AssistantText | AssistantThinking | None = None
        self._parts: list[str] = []

    def emit(self, observation: Observation) -> None:
        self._join()
        self._observed.append(observation)

    def say(self, thinking: bool, turn: int, block: int, text: str) -> None:
        """A piece of a block: joined to the one before if that is its neighbour."""
        event = self._event
        if event is None or event.block != block or event.turn != turn:
            self._join()
            self._event = (AssistantThinking if thinking else AssistantText)(turn=turn, block=block, delta="")
        self._parts.append(text)

    def tell(self, code: str, message: str) -> None:
        """Something that people should see and that is no part of the answer."""
        running = self._state.running
        self.emit(System(turn=running.turn if running is not None else None, code=code, message=message))

    def request(self, subtype: str, config_id: str = "", value: Any = None, **fields: Any) -> None:
        """Ask the agent's process for something."""
        state = self._state
        request_id = f"{state.launch_id}-r{state.next_id}"
        state.next_id += 1
        state.sent[request_id] = Sent(subtype, config_id, value)
        request = {"subtype": subtype, **fields}
        self.write(wire.line({"type": "control_request", "request_id": request_id, "request": request}))

    def respond(self, request_id: str, response: dict[str, Any]) -> None:
        body = {"subtype": "success", "request_id": request_id, "response": response}
        self.write(wire.line({"type": "control_response", "response": body}))

    def refuse(self, request_id: str, error: str) -> None:
        body = {"subtype": "error", "request_id": request_id, "error": error}
        self.write(wire.line({"type": "control_response", "response": body}))

    def write(self, line: bytes) -> None:
        self._lines.append(line)

    def strange(self, key: str, sample: str, reason: str) -> None:
        """Something that is not understood: reported the first time, then only counted."""
        if self.count(key) == 1:
            self.emit(Noise(sample[:SAMPLE_MAX_CHARS], reason))

    def count(self, key: str) -> int:
        strange = self._state.strange
        key = key[:SAMPLE_MAX_CHARS]
        if key not in strange and len(strange) >= STRANGE_KINDS_MAX:
            key = "other"
        strange[key] = strange.get(key, 0) + 1
        return strange[key]

    def step(self) -> Step:
        """All that came together, and begin anew."""
        self._join()
        step = Step(self._observed, self._lines)
        self._observed, self._lines = [], []
        return step

    def _join(self) -> None:
        if self._event is not None:
            self._event.delta = "".join(self._parts)
            self._observed.append(self._event)
            self._event, self._parts = None, []
