"""Waits for an agent's next line, with a timeout, and reports the last line if none arrives."""

import queue
import subprocess
import time
from typing import Any

WAIT_LIMIT_S = 30.0


class Listener:
    """The shared part of both clients: a thread that reads lines."""

    process: subprocess.Popen[bytes]
    seen: list[dict[str, Any]]
    _lines: "queue.Queue[bytes | None]"

    def _next_line(self, deadline: float) -> bytes | None:
        try:
            return self._lines.get(timeout=max(0.001, deadline - time.monotonic()))
        except queue.Empty:
            last, code = self.seen[-5:], self.process.poll()
            raise AssertionError(f"not within {WAIT_LIMIT_S} s; the last was {last}, exit code {code}") from None
