"""Splitting a byte stream into lines.

Splits on newline only (never `splitlines`: U+0085 is data). A line longer than `max_line_bytes` is dropped: it is
returned as an empty line and counted in `overlong`, so that positions stay correct. Pure.
"""

MAX_LINE_BYTES = 16 * 1024 * 1024
"""The longest lines seen from agents have a few megabytes. Decoding a line takes several times its size in memory."""


class LineFramer:
    """Takes chunks in order and returns whole lines. `consumed` is the position after the last whole line."""

    def __init__(self, position: int = 0, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.consumed = position
        self.position = position
        """Position of the next chunk."""
        self.overlong = 0
        self._max = max_line_bytes
        self._begun = bytearray()
        self._dropped = 0

    @property
    def freeable(self) -> int:
        """Position where a new reader may start. It skips the part of an overlong line that was already dropped."""
        return self.consumed + self._dropped

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without their newline."""
        self.position += len(chunk)
        first = chunk.find(b"\n")
        if first < 0:
            self._hold(chunk)
            return []
        if first == len(chunk) - 1 <= self._max and not self._begun and not self._dropped:
            # The common case: one line, and nothing before it.
            self.consumed += len(chunk)
            return [chunk[:-1]]
        lines = chunk.split(b"\n")
        rest = lines.pop()
        self.consumed += len(self._begun) + self._dropped + len(chunk) - len(rest)
        if self._dropped or len(self._begun) + first > self._max:
            self.overlong += 1
            lines[0] = b""
        elif self._begun:
            # One growing buffer, not a list of chunks, which would fragment the memory.
            self._begun += lines[0]
            lines[0] = bytes(self._begun)
        if len(chunk) > self._max:
            # A chunk may contain a whole overlong line. Which lines are dropped must not depend on the chunk size.
            for index in range(1, len(lines)):
                if len(lines[index]) > self._max:
                    self.overlong += 1
                    lines[index] = b""
        self._begun, self._dropped = bytearray(), 0
        if rest:
            self._hold(rest)
        return lines

    def _hold(self, part: bytes) -> None:
        if self._dropped or len(self._begun) + len(part) > self._max:
            self._dropped += len(self._begun) + len(part)
            self._begun = bytearray()
        else:
            self._begun += part
