"""Lines of any length out of chunks of bytes.

Splits on newline only (never `splitlines`: U+0085 is data). A line longer than `max_line_bytes` is not kept but
counted, and given as an empty line with `overlong` raised, so that positions stay true. Pure.
"""

MAX_LINE_BYTES = 16 * 1024 * 1024
"""The longest that agents were seen to write have a few megabytes. Each takes several times its size to be read."""


class LineFramer:
    """Feed it chunks in order; it gives whole lines. `consumed` is where the last whole line ended."""

    def __init__(self, position: int = 0, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.consumed = position
        self.position = position
        """Where the next chunk must come from."""
        self.overlong = 0
        self._max = max_line_bytes
        self._begun = bytearray()
        self._dropped = 0

    @property
    def freeable(self) -> int:
        """Where a new reader may start. It may skip the part of an overlong line that was already dropped."""
        return self.consumed + self._dropped

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their newline."""
        self.position += len(chunk)
        first = chunk.find(b"\n")
        if first < 0:
            self._hold(chunk)
            return []
        if first == len(chunk) - 1 <= self._max and not self._begun and not self._dropped:
            # Mostly so: one line, and nothing before it.
            self.consumed += len(chunk)
            return [chunk[:-1]]
        lines = chunk.split(b"\n")
        rest = lines.pop()
        self.consumed += len(self._begun) + self._dropped + len(chunk) - len(rest)
        if self._dropped or len(self._begun) + first > self._max:
            self.overlong += 1
            lines[0] = b""
        elif self._begun:
            # One buffer that grows, and not a list of chunks: those would leave holes in memory that stay.
            self._begun += lines[0]
            lines[0] = bytes(self._begun)
        if len(chunk) > self._max:
            # A chunk may hold a whole line that is too long; which lines are kept must not depend on the chunks.
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
