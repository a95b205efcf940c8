"""A parser for server-sent events: bytes in, frames out. Pure.

Above: stream.py. Below: nothing. It deliberately does not reconnect, store positions or decode JSON.
"""

from typing import NamedTuple


class Frame(NamedTuple):
    """One frame. Comments (heartbeats) produce none."""

    id: str | None
    event: str
    data: bytes


class Frames:
    """Feed it received bytes; it returns complete frames and buffers an incomplete one."""

    def __init__(self) -> None:
        # Pieces are joined once per line, so a huge line in small chunks takes linear time.
        self._torn: list[bytes] = []
        self._id: str | None = None
        self._event = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Frame]:
        found: list[Frame] = []
        lines = chunk.split(b"\n")
        if len(lines) == 1:
            self._torn.append(chunk)
            return found
        lines[0] = b"".join([*self._torn, lines[0]])
        self._torn = [lines.pop()]
        for line in lines:
            frame = self._line(line.rstrip(b"\r"))
            if frame is not None:
                found.append(frame)
        return found

    def _line(self, line: bytes) -> Frame | None:
        if not line:
            frame = Frame(self._id, self._event or "message", b"\n".join(self._data)) if self._data else None
            self._id, self._event, self._data = None, "", []
            return frame
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._event = value.decode("utf-8", "replace")
        elif field == b"id":
            self._id = value.decode("utf-8", "replace")
        return None
