"""A scripted agent side: sends what a test tells it to, with the ids that our side used.

Above: tests of the acp driver. Below: the driver's conversation. Every step goes through a dump, so each test also
tests the stored state.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from perdure.core.events import PendingPrompt
from perdure.drivers.acp import AcpDriver
from perdure.drivers.base import Observation, Order, SendInput, StartSession, Step

T = TypeVar("T")

SESSION = "session-1"
Json = dict[str, Any]


class Peer:
    def __init__(self, launch_id: str = "L") -> None:
        self.driver = AcpDriver()
        self.dump = self.driver.begin(launch_id).dump()
        self.seen: list[Observation] = []
        self.sent: list[Json] = []
        self.heard: list[Json] = []
        """Every message sent to the agent; `sent` has those of the last step."""
        self.taken: set[str] = set()
        """Native sessions of the other conversations in the process."""

    def joined(self, member: int) -> "Peer":
        """Return a peer for another session in the same process."""
        other = Peer()
        other.dump = self.driver.join(self.driver.restore(self.dump), member).dump()
        return other

    def order(self, order: Order) -> list[Observation]:
        conversation = self.driver.restore(self.dump)
        return self._take(conversation.perform(order), conversation.dump)

    def lines(self, *lines: bytes) -> list[Observation]:
        conversation = self.driver.restore(self.dump)
        conversation.taken = self.taken
        return self._take(conversation.receive(lines), conversation.dump)

    def says(self, *messages: Json) -> list[Observation]:
        return self.lines(*(json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages))

    def _take(self, step: Step, dump: Callable[[], bytes]) -> list[Observation]:
        self.dump = dump()
        self.sent = [json.loads(line) for line in step.lines]
        self.heard += self.sent
        self.seen += step.observations
        return step.observations

    @property
    def native_session_id(self) -> str | None:
        return self.driver.restore(self.dump).native_session_id

    def id_of(self, method: str) -> int:
        """Return the id of the newest request with this method."""
        return int(next(message["id"] for message in reversed(self.heard) if message.get("method") == method))

    def replies(self, method: str, result: Any) -> list[Observation]:
        return self.says({"id": self.id_of(method), "result": result})

    def fails(self, method: str, code: int, message: str, data: Any = None) -> list[Observation]:
        error = {"code": code, "message": message, "data": data}
        return self.says({"id": self.id_of(method), "error": error})

    def updates(self, *updates: Json, session: str = SESSION) -> list[Observation]:
        return self.says(*(update(one, session) for one in updates))

    # Common starting points of tests

    def initialize(self, order: StartSession, **capabilities: Any) -> list[Observation]:
        self.order(order)
        return self.replies("initialize", {"protocolVersion": 1, "agentCapabilities": capabilities})

    def open(self, order: StartSession | None = None, result: Json | None = None, **capabilities: Any) -> None:
        self.initialize(order or StartSession("/srv/site"), **capabilities)
        self.replies("session/new", {"sessionId": SESSION, **(result or {})})

    def send_input(self, turn: int = 1, text: str = "do it") -> None:
        self.order(SendInput(turn, f"m{turn}", text))

    def ends(self, stop_reason: str = "end_turn", **result: Any) -> list[Observation]:
        return self.replies("session/prompt", {"stopReason": stop_reason, **result})

    def asks_permission(self, id: Any, tool: Json | None = None, options: list[Json] | None = None) -> PendingPrompt:
        params = {"sessionId": SESSION, "toolCall": tool or {"toolCallId": "t1"}, "options": options or OPTIONS}
        return only(PendingPrompt, self.says({"id": id, "method": "session/request_permission", "params": params}))


OPTIONS: list[Json] = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


def update(body: Json, session: str = SESSION) -> Json:
    return {"method": "session/update", "params": {"sessionId": session, "update": body}}


def text(words: str, **more: Any) -> Json:
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": words}, **more}


def thought(words: str, **more: Any) -> Json:
    return {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": words}, **more}


def tool_call(id: str, **more: Any) -> Json:
    return {"sessionUpdate": "tool_call", "toolCallId": id, **more}


def tool_update(id: str, **more: Any) -> Json:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, **more}


def only(kind: type[T], observations: list[Observation]) -> T:
    (found,) = all_of(kind, observations)
    return found


def all_of(kind: type[T], observations: list[Observation]) -> list[T]:
    return [one for one in observations if isinstance(one, kind)]
