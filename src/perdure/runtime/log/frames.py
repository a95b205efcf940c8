"""The cache for viewers: the last frames of each session, with one memory limit for all sessions.

Above: the log, whose journals each have a tail. Below: nothing. Readers fall back to the store, so frames can be
evicted at any time; the least recently used sessions go first.
"""

from collections import OrderedDict, deque
from collections.abc import Callable

TAIL_BYTES = 256 * 1024
TAIL_FRAMES = 4096
JOINS_MAX = 4
"""How many joined pieces to cache for viewers at the same position. Most viewers are at one of a few positions."""
MAX_RECENT_BYTES = 64 * 1024 * 1024
"""Limit for the frames, snapshots and running texts of all sessions together."""


class Tail:
    """The last frames of one session, with their sequence numbers."""

    def __init__(self) -> None:
        self._frames: deque[tuple[int, bytes]] = deque()
        self._frame_bytes = 0
        self._joins: dict[int, bytes] = {}
        self._join_bytes = 0

    @property
    def size(self) -> int:
        return self._frame_bytes + self._join_bytes

    def add(self, seq: int, frame: bytes) -> None:
        self._joins.clear()
        self._join_bytes = 0
        self._frames.append((seq, frame))
        self._frame_bytes += len(frame)
        while self._frame_bytes > TAIL_BYTES or len(self._frames) > TAIL_FRAMES:
            self._frame_bytes -= len(self._frames.popleft()[1])

    def clear(self) -> None:
        self._frames.clear()
        self._frame_bytes = self._join_bytes = 0
        self._joins.clear()

    def holds(self, position: int, last_seq: int) -> bool:
        """Whether all frames after `position`, up to the session's last event, are here."""
        if position >= last_seq:
            # A viewer that has read the store can be ahead of this journal.
            return True
        return bool(self._frames) and self._frames[0][0] - 1 <= position < last_seq

    def after(self, position: int, last_seq: int) -> bytes | None:
        """All frames after `position`, joined and shared by all viewers at it; None if some of them are not here."""
        if position >= last_seq:
            return b""
        if not self._frames or self._frames[0][0] - 1 > position:
            return None
        last = self._frames[-1]
        if last[0] == position + 1:
            return last[1]  # the common case; nothing to join
        joined = self._joins.get(position)
        if joined is None:
            pieces: list[bytes] = []
            for seq, frame in reversed(self._frames):
                if seq <= position:
                    break
                pieces.append(frame)
            pieces.reverse()
            joined = b"".join(pieces)
            if len(self._joins) == JOINS_MAX:
                self._join_bytes -= len(self._joins.pop(next(iter(self._joins))))
            self._joins[position] = joined
            self._join_bytes += len(joined)
        return joined

    def since(self, position: int) -> list[tuple[int, bytes]]:
        """The same as separate frames with their sequence numbers."""
        return [entry for entry in self._frames if entry[0] > position]


class Recent:
    """How many bytes each session has cached, least recently used first."""

    def __init__(self, evict: Callable[[str], None], limit_bytes: int = MAX_RECENT_BYTES) -> None:
        self._evict = evict
        self._limit_bytes = limit_bytes
        # Only journals in memory. Call `forget` when you evict one.
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self.total_bytes = 0

    def note(self, session_id: str, size: int) -> None:
        """Record that this session was used and how much it has cached; evict others if the total is too large."""
        self.total_bytes += size - self._sizes.get(session_id, 0)
        self._sizes[session_id] = size
        self._sizes.move_to_end(session_id)
        while self.total_bytes > self._limit_bytes and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            self.forget(oldest)
            self._evict(oldest)

    def forget(self, session_id: str) -> None:
        self.total_bytes -= self._sizes.pop(session_id, 0)
