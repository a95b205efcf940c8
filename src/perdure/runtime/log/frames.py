"""What is kept ready for viewers: the last frames of each session, and how much that is for all of them together.

Above: the log, whose journals have a tail each. Below: bytes. Whatever is not here any more is read from the store, so
it may be let go of at any moment; the sessions in which nothing happened for longest go first.
"""

from collections import OrderedDict, deque
from collections.abc import Callable

TAIL_BYTES = 256 * 1024
TAIL_FRAMES = 4096
JOINS_MAX = 4
"""Pieces that are shared by those who are at the same place. Few places have many; others join for themselves."""
MAX_RECENT_BYTES = 64 * 1024 * 1024
"""Frames, snapshots and running texts of all sessions together."""


class Tail:
    """The last frames of one session, with their numbers."""

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
        """Whether everything after `position`, up to the session's last event, is here."""
        if position >= last_seq:
            # Whoever has read the store may be ahead of what was seen here.
            return True
        return bool(self._frames) and self._frames[0][0] - 1 <= position < last_seq

    def after(self, position: int, last_seq: int) -> bytes | None:
        """Everything after `position` as one piece shared by all who are there; None if some of it is not here."""
        if position >= last_seq:
            return b""
        if not self._frames or self._frames[0][0] - 1 > position:
            return None
        last = self._frames[-1]
        if last[0] == position + 1:
            return last[1]  # mostly so, and it is one piece already
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
        """The same as single frames with their numbers."""
        return [entry for entry in self._frames if entry[0] > position]


class Recent:
    """How many bytes each session keeps ready, the one longest without use first."""

    def __init__(self, let_go: Callable[[str], None], limit_bytes: int = MAX_RECENT_BYTES) -> None:
        self._let_go = let_go
        self._limit_bytes = limit_bytes
        # Of journals in memory only: what lets one of these go forgets its size here.
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self.total_bytes = 0

    def note(self, session_id: str, size: int) -> None:
        """It has this much now, and was just used."""
        self.total_bytes += size - self._sizes.get(session_id, 0)
        self._sizes[session_id] = size
        self._sizes.move_to_end(session_id)
        while self.total_bytes > self._limit_bytes and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            self.forget(oldest)
            self._let_go(oldest)

    def forget(self, session_id: str) -> None:
        self.total_bytes -= self._sizes.pop(session_id, 0)
