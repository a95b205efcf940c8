"""A small ACP client, connected to a real rehearsal agent by pipes. Every wait is bounded."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.rehearsal.listener import WAIT_LIMIT_S, Listener

Message = dict[str, Any]


class Client(Listener):
    def __init__(self, folder: Path, workdir: Path) -> None:
        self.workdir = workdir
        self.noise: list[bytes] = []
        """Lines that were not JSON objects."""
        self.seen: list[Message] = []
        """Everything received since the last input was sent."""
        self.longest_line_bytes = 0
        environment = {**os.environ, "PERDURE_REHEARSAL_DIR": str(folder)}
        source = Path(__file__).parents[2] / "src"
        environment["PYTHONPATH"] = str(source)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "perdure.rehearsal", "--acp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self.stderr_bytes = 0
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._last_id = 100
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._read_stderr)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr_bytes += len(line)

    def send(self, message: Message) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def notify(self, method: str, **params: Any) -> None:
        self.send({"method": method, "params": params})

    def request(self, method: str, **params: Any) -> int:
        self._last_id += 1
        self.send({"id": self._last_id, "method": method, "params": params})
        return self._last_id

    def receive(self, wanted: Callable[[Message], bool]) -> Message:
        """The next matching message. Earlier ones are only recorded."""
        deadline = time.monotonic() + WAIT_LIMIT_S
        while True:
            line = self._next_line(deadline)
            if line is None:
                raise EOFError("the agent closed its stdout")
            self.longest_line_bytes = max(self.longest_line_bytes, len(line))
            message = _message(line)
            if message is None:
                self.noise.append(line)
                continue
            self.seen.append(message)
            if wanted(message):
                return message

    def reply_to(self, request_id: int) -> Message:
        return self.receive(lambda message: message.get("id") == request_id and "method" not in message)

    def ask_for(self, method: str, **params: Any) -> Message:
        """The result of a request that is expected to succeed."""
        reply = self.reply_to(self.request(method, **params))
        assert "result" in reply, reply
        result: Message = reply["result"]
        return result

    def error_of(self, method: str, **params: Any) -> Message:
        reply = self.reply_to(self.request(method, **params))
        assert "error" in reply, reply
        error: Message = reply["error"]
        return error

    def initialize(self, **capabilities: Any) -> Message:
        return self.ask_for("initialize", protocolVersion=1, clientCapabilities=capabilities)

    def open(self) -> str:
        return str(self.ask_for("session/new", cwd=str(self.workdir), mcpServers=[])["sessionId"])

    def load(self, session_id: str) -> Message:
        self.seen.clear()
        return self.reply_to(self.request("session/load", sessionId=session_id, cwd=str(self.workdir), mcpServers=[]))

    def start(self, session_id: str, text: str) -> int:
        self.seen.clear()
        return self.request("session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": text}])

    def send_input(self, session_id: str, text: str) -> Message:
        """The reply to an input that is not expected to ask anything."""
        return self.reply_to(self.start(session_id, text))

    def say(self, session_id: str, text: str) -> str:
        """The whole answer to an input."""
        assert self.send_input(session_id, text)["result"]["stopReason"] == "end_turn"
        return self.said()

    def updates(self, kind: str = "") -> list[Message]:
        found = [
            message["params"]["update"]
            for message in self.seen
            if message.get("method") == "session/update" and isinstance(message["params"], dict)
        ]
        return [one for one in found if isinstance(one, dict) and kind in ("", one["sessionUpdate"])]

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.updates(kind))

    def asked(self) -> Message:
        """The agent's next request."""
        return self.receive(lambda message: "method" in message and "id" in message)

    def choose(self, question: Message, option_id: str) -> None:
        self.send({"id": question["id"], "result": {"outcome": {"outcome": "selected", "optionId": option_id}}})

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> int:
        """Close the agent's stdin and return its exit code."""
        assert self.process.stdin is not None
        # The agent may already be gone, which is fine.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        code = self.process.wait(WAIT_LIMIT_S)
        for thread in self._threads:
            thread.join(WAIT_LIMIT_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return code


def _message(line: bytes) -> Message | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
