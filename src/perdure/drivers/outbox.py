"""The result of one step: observations in order, with adjacent text joined, and lines for the agent.

Above: the parts of each driver's conversation, which add requests in their own protocol. Below: nothing. The outbox is
empty between steps, so it is not part of the stored state. The counts of strange messages are: they live in the
driver's state.
"""

from perdure.core.events import AssistantText, AssistantThinking
from perdure.drivers.base import Noise, Observation, Step

SAMPLE_MAX_CHARS = 200
RAW_MAX_CHARS = 16 * 1024
STRANGE_KINDS_MAX = 64
TOO_MUCH = "more parts, or deeper ones, than can be read"
KEPT_MAX = 100
"""Maximum number of unknown lines of one process to store; the rest is only counted."""

PIECE_CHARS = 1024 * 1024
"""Longer text is split into several events. That limits the size of copies, and one emoji makes only its own piece use
four bytes per character."""

KEPT = "kept"


class Outbox:
    def __init__(self, strange: dict[str, int]) -> None:
        self._strange = strange
        self._observed: list[Observation] = []
        self._lines: list[bytes] = []
        self._block: tuple[type[AssistantText | AssistantThinking], int, int] | None = None
        """The current block: its kind, turn and number."""
        self._parts: list[str] = []

    def emit(self, observation: Observation) -> None:
        self._join()
        self._observed.append(observation)

    def say(self, thinking: bool, turn: int, block: int, text: str) -> None:
        """Add a piece of a block. It is joined with the previous piece if that is of the same block."""
        said, long = (AssistantThinking if thinking else AssistantText, turn, block), len(text) > PIECE_CHARS
        if long or said != self._block:
            self._join()
            self._block = said
        self._parts.append(text)
        if long:
            # Emit it immediately and alone: joining would copy all of it.
            self._join()

    def write(self, line: bytes) -> None:
        self._lines.append(line)

    def strange(self, key: str, raw: str, reason: str, quiet: bool = False) -> None:
        """Report a message that is not understood. The first of its kind is shown to people, unless `quiet`. All are
        stored as received, up to a limit."""
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
        """Return what was collected, and reset."""
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
