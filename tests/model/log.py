"""The requests that a scripted model received, with queries on them.

Above: tests; server.py writes it. Below: the dialects, which read a request. The server's thread and the test share it:
every access is under one lock, and every wait is bounded. Keys and tokens are never stored.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.model.conversation import Conversation
from tests.model.dialect import Dialect

WAIT_S = 60.0
SECRETS = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "proxy-authorization")


class Request:
    """One request. `outcome` is None at first, then `answered`, `failed`, `cut` or `left` (the client disconnected)."""

    def __init__(
        self, number: int, method: str, path: str, query: str, headers: dict[str, str], body: Any, size_bytes: int
    ) -> None:
        self.number = number
        self.method = method
        self.path = path
        self.query = query
        self.headers = {name: value for name, value in headers.items() if name not in SECRETS}
        self.body = body
        self.size_bytes = size_bytes
        self.at = time.monotonic()
        self.dialect: Dialect | None = None
        self.status = 0
        self.outcome: str | None = None

    def __repr__(self) -> str:
        said = user_texts(self)[-1:] if self.dialect else []
        return f"<{self.number}: {self.method} {self.path} {self.status} {self.outcome} {said}>"

    @property
    def asks(self) -> bool:
        """Also False for the agent's own requests, such as for a title or a choice of model."""
        return self.dialect is not None and self.conversation.form is None

    @property
    def conversation(self) -> Conversation:
        if self.dialect is None:
            raise ValueError(f"{self.method} {self.path} asks no model")
        return self.dialect.conversation(self.body)


class Prefix(NamedTuple):
    """The length of the prefix that two requests share. Only an identical prefix can come from a prompt cache."""

    system: bool
    tools: bool
    messages: int
    of: int

    @property
    def whole(self) -> bool:
        return self.system and self.tools and self.messages == self.of


class RequestLog:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._all: list[Request] = []

    def add(self, make: Callable[[int], Request]) -> Request:
        with self._changed:
            request = make(len(self._all))
            self._all.append(request)
            self._changed.notify_all()
            return request

    def finish(self, request: Request, outcome: str) -> None:
        with self._changed:
            request.outcome = request.outcome or outcome
            self._changed.notify_all()

    @property
    def all(self) -> list[Request]:
        with self._changed:
            return list(self._all)

    @property
    def asked(self) -> list[Request]:
        """Requests that asked the model to answer the user."""
        return [request for request in self.all if request.asks]

    def wait(self, fits: Callable[[Request], bool], timeout_s: float = WAIT_S) -> Request:
        """Wait for the first matching one of these."""
        with self._changed:
            found: list[Request] = []

            def look() -> bool:
                found[:] = [request for request in self._all if request.asks and fits(request)][:1]
                return bool(found)

            if not self._changed.wait_for(look, timeout_s):
                raise AssertionError(f"no such request within {timeout_s} s, but {self._all}")
            return found[0]

    def outcomes(self, timeout_s: float = WAIT_S) -> list[str | None]:
        """The outcomes of these requests, once all have one: a client gets its answer a moment before it is
        recorded."""
        with self._changed:
            if not self._changed.wait_for(lambda: all(one.outcome for one in self._all if one.asks), timeout_s):
                raise AssertionError(f"not all have ended within {timeout_s} s: {self._all}")
            return [request.outcome for request in self._all if request.asks]


def all_text(request: Request) -> str:
    """Every text that the model received, unmodified, including what `user_texts` splits."""

    def texts(value: Any) -> list[str]:
        if isinstance(value, str):
            return [value]
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [text for part in inner for text in texts(part)]

    return "\n".join(texts(request.body))


def user_texts(request: Request) -> list[str]:
    """The user's messages in this request, oldest first."""
    return request.conversation.user_texts


def common_prefix(first: Request, second: Request) -> Prefix:
    """How much of the first request is a prefix of the second, in the order of the Messages API: tools, system,
    messages."""
    before, after = _plain(first.body), _plain(second.body)
    said, says = (_messages(body) for body in (before, after))
    same = 0
    for one, other in zip(said, says, strict=False):
        if one != other:
            break
        same += 1
    system = all(before.get(key) == after.get(key) for key in ("system", "instructions", "systemInstruction"))
    return Prefix(system, before.get("tools") == after.get("tools"), same, len(said))


def _messages(body: Any) -> list[Any]:
    found: Any = next((body[key] for key in ("messages", "input", "contents") if key in body), [])
    return found if isinstance(found, list) else [found]


def _plain(value: Any) -> Any:
    """Without cache markers, which move with every turn, and with a plain string as the block it means."""
    if isinstance(value, dict):
        plain = {key: _plain(part) for key, part in value.items() if key != "cache_control"}
        if isinstance(plain.get("content"), str) and "role" in plain:
            plain["content"] = [{"type": "text", "text": plain["content"]}]
        return plain
    return [_plain(part) for part in value] if isinstance(value, list) else value
