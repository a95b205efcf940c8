"""A scripted agent side: sends what a test tells it to, with the ids that our side used.

Above: tests of the claude drivers. Below: the drivers' conversation. Every step goes through a dump, so each test also
tests the stored state.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from perdure.core.events import PendingPrompt
from perdure.drivers.base import Observation, Order, SendInput, StartSession, Step
from perdure.drivers.claude import ClaudeStreamDriver
from perdure.drivers.claude.launching import session_id

T = TypeVar("T")

LAUNCH = "L"
SESSION = session_id(LAUNCH)
START = StartSession("/srv/site")
Json = dict[str, Any]


class Peer:
    def __init__(self, driver: ClaudeStreamDriver | None = None) -> None:
        self.driver = driver or ClaudeStreamDriver()
        self.dump = self.driver.begin(LAUNCH).dump()
        self.sent: list[Json] = []
        self.heard: list[Json] = []
        """Every message sent to the agent; `sent` has those of the last step."""

    def order(self, order: Order) -> list[Observation]:
        conversation = self.driver.restore(self.dump)
        return self._take(conversation.perform(order), conversation.dump)

    def lines(self, *lines: bytes) -> list[Observation]:
        conversation = self.driver.restore(self.dump)
        return self._take(conversation.receive(lines), conversation.dump)

    def says(self, *messages: Json) -> list[Observation]:
        return self.lines(*(json.dumps(message).encode() for message in messages))

    def _take(self, step: Step, dump: Callable[[], bytes]) -> list[Observation]:
        self.dump = dump()
        self.sent = [json.loads(line) for line in step.lines]
        self.heard += self.sent
        return step.observations

    def requests(self, subtype: str) -> list[Json]:
        return [message for message in self.heard if message.get("request", {}).get("subtype") == subtype]

    def replies(self, subtype: str, response: Json | None = None, error: str | None = None) -> list[Observation]:
        body: Json = {"subtype": "success", "request_id": self.requests(subtype)[-1]["request_id"]}
        body |= {"subtype": "error", "error": error} if error is not None else {"response": response or {}}
        return self.says({"type": "control_response", "response": body})

    @property
    def unanswered(self) -> int | None:
        return self.driver.restore(self.dump).unanswered

    # Common starting points of tests

    def open(self, order: StartSession = START, **response: Any) -> list[Observation]:
        self.order(order)
        return self.replies("initialize", response)

    def send_input(self, text: str = "go", turn: int = 1) -> None:
        """Open the session if it is not open yet."""
        if not self.heard:
            self.open()
        self.order(SendInput(turn, f"m{turn}", text))

    def asked(self, tool: str = "Bash", given: Json | None = None, **more: Any) -> PendingPrompt:
        request = {
            "subtype": "can_use_tool",
            "tool_name": tool,
            "tool_use_id": "t1",
            "input": given or {"command": "ls"},
        }
        return only(
            PendingPrompt,
            self.says({"type": "control_request", "request_id": "theirs-1", "request": {**request, **more}}),
        )

    @property
    def answer(self) -> Json:
        """Return what the last step answered to the agent's request."""
        (message,) = [message for message in self.sent if message["type"] == "control_response"]
        assert message["response"]["request_id"] == "theirs-1"
        response = message["response"]["response"]
        assert isinstance(response, dict)
        return response


def only(kind: type[T], observations: list[Observation]) -> T:
    (found,) = all_of(kind, observations)
    return found


def all_of(kind: type[T], observations: list[Observation]) -> list[T]:
    return [observation for observation in observations if isinstance(observation, kind)]


def start(message_id: str, **usage: int) -> Json:
    message = {"id": message_id, "role": "assistant", "content": [], "usage": usage}
    return {"type": "stream_event", "event": {"type": "message_start", "message": message}, "parent_tool_use_id": None}


def piece(text: str, index: int = 0, thinking: bool = False) -> Json:
    delta = {"type": "thinking_delta", "thinking": text} if thinking else {"type": "text_delta", "text": text}
    return {"type": "stream_event", "event": {"type": "content_block_delta", "index": index, "delta": delta}}


def whole(message_id: str, *blocks: Json, parent: str | None = None, **more: Any) -> Json:
    message = {"id": message_id, "role": "assistant", "model": "claude-x", "content": list(blocks)}
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent, **more}


def text(content: str) -> Json:
    return {"type": "text", "text": content}


def tool_use(tool_id: str, name: str = "Bash", **given: Any) -> Json:
    return {"type": "tool_use", "id": tool_id, "name": name, "input": given}


def tool_result(tool_id: str, content: Any, detail: Any = None, parent: str | None = None, **more: Any) -> Json:
    block = {"type": "tool_result", "tool_use_id": tool_id, "content": content, **more}
    message = {"role": "user", "content": [block]}
    return {"type": "user", "message": message, "parent_tool_use_id": parent, "tool_use_result": detail}


def result(**more: Any) -> Json:
    return {"type": "result", "subtype": "success", "is_error": False, "session_id": SESSION, **more}


def failed(text: str, **more: Any) -> Json:
    return result(is_error=True, result=text, **more)


def system(subtype: str, **more: Any) -> Json:
    return {"type": "system", "subtype": subtype, **more}


def init(session: str = SESSION, **more: Any) -> Json:
    return system("init", session_id=session, **more)
