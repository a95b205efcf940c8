"""A recorded launch, served from memory to the real runner. It is the only thing here that is not a real process.

A crash after any byte, or between a commit and the write that follows it, can't be caused with a real process. The
bytes come from a real agent. A line becomes readable only after the input that it answers was written, as in the
recording.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from perdure.runtime.keeping.hints import Hints
from perdure.runtime.keeping.launch import Exit, Launch, LaunchSpec


class Crash(asyncio.CancelledError):
    """Simulates the death of the server."""


class Spool:
    """What a real agent wrote, and how many lines of input preceded each of its lines."""

    def __init__(self, out: bytes, given: bytes) -> None:
        self.out = out
        self.given = given.splitlines(keepends=True)
        self.ends: list[tuple[int, int]] = []
        """(lines of input needed, end offset of the output line)"""
        sent = [json.loads(line) for line in self.given]
        requests = {message["id"]: n + 1 for n, message in enumerate(sent) if "method" in message and "id" in message}
        answers = {message["id"]: n + 1 for n, message in enumerate(sent) if "method" not in message}
        needed = position = 0
        waiting = 0
        for line in re.findall(rb"[^\n]*\n", out):
            needed = max(needed, waiting)
            message = read(line)
            if "method" not in message:
                needed = max(needed, requests.get(message.get("id"), 0))
            elif "id" in message:
                waiting = answers[message["id"]]
            position += len(line)
            self.ends.append((needed, position))

    def shown(self, lines_in: int) -> int:
        """How many bytes the agent has written after this many lines of input."""
        return max((end for needed, end in self.ends if needed <= lines_in), default=0)


def read(line: bytes) -> dict[str, Any]:
    """The line as a message; empty if it is not one, because an agent may write anything."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class RecordedLaunch(Launch):
    """The server's handle of the launch. Like a file, `given` survives a crash."""

    def __init__(self, spool: Spool, given: list[bytes]) -> None:
        super().__init__(Path("/nonexistent/recorded"))
        self.spool = spool
        self.given = given
        self.cut: int | None = None
        self.crash_at_line: int | None = None
        self.reached = asyncio.Event()
        self._tell: Callable[[], object] = lambda: None

    async def connect(
        self,
        on_output: Callable[[], object],
        on_closed: Callable[[], object],
        timeout_s: float,
        hints: Hints | None = None,
    ) -> None:
        self._tell = on_output
        asyncio.get_running_loop().call_soon(on_output)

    def read(self, position: int, max_bytes: int) -> bytes:
        end = self.spool.shown(len(self.given))
        if self.cut is not None and self.cut <= end:
            end = self.cut
            if position == self.cut:
                self.reached.set()
        return self.spool.out[position : min(end, position + max_bytes)]

    def write(self, lines: Sequence[bytes]) -> None:
        if self.crash_at_line is not None and len(self.given) + len(lines) >= self.crash_at_line:
            self.given += lines[: self.crash_at_line - len(self.given) - 1]
            self.reached.set()
            raise Crash
        self.given += lines
        asyncio.get_running_loop().call_soon(self._tell)

    def repair_input(self) -> int:
        return len(self.given)

    def in_size(self) -> int:
        return sum(map(len, self.given))

    def is_alive(self) -> bool:
        return True

    def exit(self) -> Exit | None:
        return None

    def pid(self) -> int | None:
        return 1

    def end(self, eof_grace_s: float, term_grace_s: float) -> None:
        raise AssertionError("nobody asked for the end of this agent")

    def close(self) -> None:
        self._tell = lambda: None


class Recordings:
    """Replaces `Launch` in the runner: every launch is the recorded one."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.given: list[bytes] = []
        self.newest: RecordedLaunch | None = None
        self.plan: dict[str, Any] = {}

    def create(self, root: Path, spec: LaunchSpec, files: dict[str, str] | None = None) -> RecordedLaunch:
        return self.handle()

    def handle(self) -> RecordedLaunch:
        self.newest = RecordedLaunch(self.spool, self.given)
        for name, value in self.plan.items():
            setattr(self.newest, name, value)
        return self.newest
