"""What one step leads to: observations in order, with neighbouring text joined, and lines for the agent.

Above: the parts of the conversation. Below: jsonrpc. It is empty between steps, so nothing of it is remembered; the
numbers of requests and the counts of strange things are, and live in the state.
"""

from typing import Any

from perdure.core.events import AssistantText, AssistantThinking
from perdure.drivers import jsonrpc
from perdure.drivers.acp.state import Sent, State
from perdure.drivers.base import Noise, Observation, Step

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

    def request(self, method: str, params: dict[str, Any], config_id: str = "", value: Any = None) -> bytes:
        """Ask the agent for something; the line, for those who count its bytes."""
        state = self._state
        line = jsonrpc.request(state.next_id, method, params)
        state.sent[state.next_id] = Sent(method, config_id, value)
        state.next_id += 1
        self._lines.append(line)
        return line

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
