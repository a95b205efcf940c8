"""A real agent as a child of a test: JSON lines in, JSON lines out, every wait bounded, nothing left afterwards.

Above: claude_process.py and acp_process.py add their protocols. Below: subprocess. It is deliberately not a driver: it
shows how a program behaves, so that a driver can be checked against it.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT_S = 60.0
END_S = 20.0
BRIEF_CHARS = 200

Event = dict[str, Any]


class LineProcess:
    def __init__(self, argv: list[str], env: dict[str, str], workdir: Path) -> None:
        self._errors = (workdir.parent / "agent-stderr").open("w+b")
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=env,
            cwd=workdir,
            start_new_session=True,
        )
        self.events: list[Event] = []
        self.noise: list[bytes] = []
        """Lines that were not JSON."""
        self._seen = 0
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                try:
                    self.events.append(json.loads(line))
                except ValueError:
                    self.noise.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def write(self, message: Event) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def until(self, fits: Callable[[Event], bool], timeout_s: float = WAIT_S) -> Event:
        """The first matching event after the one that the last call found."""
        found: list[Event] = []

        def look() -> bool:
            while self._seen < len(self.events) and not found:
                event = self.events[self._seen]
                self._seen += 1
                if fits(event):
                    found.append(event)
            return bool(found) or self._ended

        with self._changed:
            self._changed.wait_for(look, timeout_s)
            if not found:
                raise AssertionError(f"no such event: {[_brief(event) for event in self.events]}\n{self.stderr()}")
            return found[0]

    def stderr(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-2000:]

    def close(self) -> int:
        """Close the input and wait for the exit. Kills the whole process group if it does not exit."""
        assert self._process.stdin is not None and self._process.stdout is not None
        # It may have exited already.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait(END_S)
        finally:
            self._reader.join(END_S)
            self._process.stdout.close()
            self._errors.close()


def _brief(event: Event) -> str:
    """Enough to see what arrived instead."""
    return json.dumps(event)[:BRIEF_CHARS]
