"""What one step leads to: observations in order, with neighbouring text joined, and lines for the agent.

Above: the parts of each driver's conversation, which add requests in their own protocol. Below: nothing. It is empty
between steps, so nothing of it is remembered; the counts of strange things are, and live in the driver's state.
"""

from perdure.core.events import AssistantText, AssistantThinking
from perdure.drivers.base import Noise, Observation, Step

SAMPLE_MAX_CHARS = 200
RAW_MAX_CHARS = 16 * 1024
STRANGE_KINDS_MAX = 64
TOO_MUCH = "more parts, or deeper ones, than can be read"
KEPT_MAX = 100
"""So many lines that are not understood are kept of one process; the rest is counted."""

PIECE_CHARS = 1024 * 1024
"""A longer text is several events: each is copied alone, and one emoji makes only its own piece four bytes wide."""

KEPT = "kept"


class Outbox:
    def __init__(self, strange: dict[str, int]) -> None:
        self._strange = strange
        self._observed: list[Observation] = []
        self._lines: list[bytes] = []
        self._block: tuple[type[AssistantText | AssistantThinking], int, int] | None = None
        """The block that is being said: its kind, turn and number."""
        self._parts: list[str] = []

    def emit(self, observation: Observation) -> None:
        self._join()
        self._observed.append(observation)

    def say(self, thinking: bool, turn: int, block: int, text: str) -> None:
        """A piece of a block: joined to the one before if that is its neighbour."""
        said, long = (AssistantThinking if thinking else AssistantText, turn, block), len(text) > PIECE_CHARS
        if long or said != self._block:
            self._join()
            self._block = said
        self._parts.append(text)
        if long:
            # At once, and alone: to be joined, all of it would be copied.
            self._join()

    def write(self, line: bytes) -> None:
        self._lines.append(line)

    def strange(self, key: str, raw: str, reason: str, quiet: bool = False) -> None:
        """Something that is not understood. People are told the first time; it is kept as it came, up to a limit."""
        first = self.count(key) == 1
        if self._strange.get(KEPT, 0) < KEPT_MAX:
            self.count(KEPT)
            self.emit(Noise(raw[:SAMPLE_MAX_CHARS], reason, raw=raw[:RAW_MAX_CHARS], told=first and not quiet))

    def count(self, key: str) -> int:
        key = key[:SAMPLE_MAX_CHARS]
        if key not in self._strange and len(self._strange) >= STRANGE_KINDS_MAX:
            key = "other"
        self._strange[key] = self._strange.get(key, 0) + 1
        return self._strange[key]

    def step(self) -> Step:
        """All that came together, and begin anew."""
        self._join()
        step = Step(self._observed, self._lines)
        self._observed, self._lines = [], []
        return step

    def _join(self) -> None:
        if self._block is not None:
            (kind, turn, block), text = self._block, "".join(self._parts)
            self._block, self._parts = None, []
            for start in range(0, max(1, len(text)), PIECE_CHARS):
                self._observed.append(kind(turn=turn, block=block, delta=text[start : start + PIECE_CHARS]))
