"""A small host for `claude`, connected to a real rehearsal agent by pipes. Every wait is bounded."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.rehearsal.listener import WAIT_LIMIT_S, Listener

SOURCE = Path(__file__).parents[2] / "src"
STREAMS = ("-p", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json")
PARTIAL = (*STREAMS, "--include-partial-messages")
DRIVEN = (*PARTIAL, "--permission-prompt-tool", "stdio")
Line = dict[str, Any]


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PERDURE_REHEARSAL_DIR": str(folder), "PYTHONPATH": str(SOURCE), **more}


def command(*flags: str) -> list[str]:
    return [sys.executable, "-m", "perdure.rehearsal", "--claude", *flags]


def kind(line: Line) -> str:
    """`type/what`, where `what` is the subtype, the event's type, or the type of the first block."""
    what = line.get("subtype") or line.get("event", {}).get("type") or line.get("request", {}).get("subtype")
    content = line["message"].get("content") if isinstance(line.get("message"), dict) else None
    if what is None and isinstance(content, list):
        what = content[0]["type"]
    return f"{line['type']}/{what}" if what else str(line["type"])


def kinds(lines: list[Line]) -> list[str]:
    """The order of the lines, with consecutive deltas counted as one."""
    found: list[str] = []
    for line in lines:
        if not found or kind(line) != "stream_event/content_block_delta" or found[-1] != kind(line):
            found.append(kind(line))
    return found


class Host(Listener):
    """One process. Use it in a `with` block, which kills it at the end."""

    def __init__(self, folder: Path, workdir: Path, *flags: str, **more: str) -> None:
        self.seen: list[Line] = []
        """Everything received since the last message was sent."""
        self.noise: list[bytes] = []
        self.longest_line_bytes = 0
        self.errors = b""
        self.process = subprocess.Popen(
            command(*(flags or DRIVEN)),
            cwd=workdir,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(folder, **more),
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.process.kill()
        self.end()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line

    def send(self, line: Line) -> None:
        self.send_bytes(json.dumps(line).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def say(self, text: str, **fields: Any) -> None:
        self.send({"type": "user", "message": {"role": "user", "content": text}, **fields})

    def lines(self) -> Iterator[Line]:
        """Lines until the process closes its stdout."""
        deadline = time.monotonic() + WAIT_LIMIT_S
        while (line := self._next_line(deadline)) is not None:
            self.longest_line_bytes = max(self.longest_line_bytes, len(line))
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if isinstance(message, dict) and isinstance(message.get("type"), str):
                self.seen.append(message)
                yield message
            else:
                self.noise.append(line)

    def until(self, wanted: Callable[[Line], bool]) -> Line:
        for line in self.lines():
            if wanted(line):
                return line
        raise EOFError(f"the agent closed its stdout; stderr: {self.errors!r}")

    def result(self) -> Line:
        return self.until(lambda line: line["type"] == "result")

    def turn(self, text: str, **fields: Any) -> Line:
        """The result of a message that is not expected to ask anything."""
        self.seen.clear()
        self.say(text, **fields)
        return self.result()

    def asked(self) -> Line:
        return self.until(lambda line: line["type"] == "control_request")

    def answer(self, request: Line, response: Line) -> None:
        body = {"subtype": "success", "request_id": request["request_id"], "response": response}
        self.send({"type": "control_response", "response": body})

    def allow(self, request: Line, **fields: Any) -> None:
        self.answer(request, {"behavior": "allow", "updatedInput": request["request"]["input"], **fields})

    def control(self, subtype: str, **fields: Any) -> Line:
        """The inner response to a control request."""
        request_id = str(uuid.uuid4())
        self.send({"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}})
        wanted = self.until(
            lambda line: line["type"] == "control_response" and line["response"]["request_id"] == request_id
        )
        response: Line = wanted["response"]
        return response

    def said(self, delta: str) -> None:
        """Wait for a text delta."""
        self.until(lambda line: line.get("event", {}).get("delta", {}).get("text") == delta)

    def blocks(self, block_type: str) -> list[Line]:
        """Blocks of this type in the received assistant and user lines."""
        lists = [line["message"]["content"] for line in self.seen if line["type"] in ("assistant", "user")]
        blocks = [block for content in lists if isinstance(content, list) for block in content]
        return [block for block in blocks if block["type"] == block_type]

    def recalled(self) -> list[str]:
        answer = str(self.turn("recall")["result"])
        return [json.loads(line.removeprefix("- ")) for line in answer.split("\n")[1:]]

    def signal(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_LIMIT_S)

    def close_input(self) -> None:
        assert self.process.stdin is not None
        # The agent may already be gone, which is fine.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self) -> int:
        """Close the input, read the remaining output, and return the exit code."""
        self.close_input()
        code = self.process.wait(WAIT_LIMIT_S)
        for thread in self._threads:
            thread.join(WAIT_LIMIT_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return code
