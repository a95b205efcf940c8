"""The real `claude` program in its streaming mode, as a child of a test.

Above: test_claude.py. Below: line_process.py.
"""

import os
import uuid
from pathlib import Path

from tests.conftest import RealAgent
from tests.model.line_process import Event, LineProcess
from tests.model.server import ModelServer

MODEL = "claude-opus-4-8"
FLAGS = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--include-partial-messages")


def environment(model: ModelServer, home: Path) -> dict[str, str]:
    """Everything that the program needs, and nothing from our environment."""
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


class ClaudeProcess(LineProcess):
    def __init__(self, agent: RealAgent, env: dict[str, str], workdir: Path, *more: str) -> None:
        argv = [*agent.argv, "-p", *FLAGS, "--permission-prompt-tool", "stdio", "--model", MODEL, *more]
        super().__init__(argv, {**env, **agent.env}, workdir)

    def send(self, text: str) -> None:
        # If a message has an id, the program reports what happens to it.
        self.write({"type": "user", "message": {"role": "user", "content": text}, "uuid": str(uuid.uuid4())})

    def result(self) -> Event:
        return self.until(lambda event: event["type"] == "result")

    def turn(self, text: str) -> Event:
        self.send(text)
        return self.result()

    def asked(self) -> Event:
        """The next request to the host, including permission requests."""
        return self.until(lambda event: event["type"] == "control_request")

    def answer(self, request: Event, response: Event) -> None:
        body = {"subtype": "success", "request_id": request["request_id"], "response": response}
        self.write({"type": "control_response", "response": body})

    def interrupt(self) -> None:
        self.write({"type": "control_request", "request_id": "stop", "request": {"subtype": "interrupt"}})
