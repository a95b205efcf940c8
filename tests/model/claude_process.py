"""The real `claude` program in its streaming mode, as a child of a test: lines in, lines out, every wait bounded.

Above: test_claude.py. Below: subprocess. It is deliberately not the driver: it shows what the program does by itself,
so that a driver can be held against it.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import RealAgent
from tests.model.server import ModelServer

WAIT_S = 60.0
END_S = 20.0
MODEL = "claude-opus-4-8"
FLAGS = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--include-partial-messages")

Event = dict[str, Any]


def environment(model: ModelServer, home: Path) -> dict[str, str]:
    """All that the program needs, and nothing of ours."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }


class ClaudeProcess:
    def __init__(self, agent: RealAgent, env: dict[str, str], workdir: Path, *more: str) -> None:
        argv = [*agent.argv, "-p", *FLAGS, "--permission-prompt-tool", "stdio", "--model", MODEL, *more]
        self._errors = (workdir.parent / "claude-stderr").open("w+b")
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**env, **agent.env},
            cwd=workdir,
            start_new_session=True,
        )
        self.events: list[Event] = []
        self._seen = 0
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def write(self, message: Event) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def send(self, text: str) -> None:
        # With an id of its own the program says what becomes of a message.
        self.write({"type": "user", "message": {"role": "user", "content": text}, "uuid": str(uuid.uuid4())})

    def until(self, fits: Callable[[Event], bool], timeout_s: float = WAIT_S) -> Event:
        """The first event that fits, after the one that the last call found."""
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

    def result(self) -> Event:
        return self.until(lambda event: event["type"] == "result")

    def turn(self, text: str) -> Event:
        self.send(text)
        return self.result()

    def asked(self) -> Event:
        """The next question to the host, permissions included."""
        return self.until(lambda event: event["type"] == "control_request")

    def answer(self, request: Event, response: Event) -> None:
        body = {"subtype": "success", "request_id": request["request_id"], "response": response}
        self.write({"type": "control_response", "response": body})

    def interrupt(self) -> None:
        self.write({"type": "control_request", "request_id": "stop", "request": {"subtype": "interrupt"}})

    def stderr(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-2000:]

    def close(self) -> int:
        """End of input, then its own exit; the whole group is killed if that does not come."""
        assert self._process.stdin is not None and self._process.stdout is not None
        # It may be gone already.
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
    return f"{event['type']}/{event.get('subtype', '')}"
