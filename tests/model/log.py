"""The requests that a scripted model got, and what can be asked of them.

Above: tests; server.py writes it. Below: the dialects, by which a request is read.
It is shared by the server's thread and the test's: every look is under one lock and every wait is bounded. Keys and
tokens are never kept.
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
    """One request. `outcome` is None at first, then `answered`, `failed`, `cut` or `left` (by the client)."""

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
        """False also for what an agent asks on its own account: a title, a choice of model."""
        return self.dialect is not None and self.conversation.form is None

    @property
    def conversation(self) -> Conversation:
        if self.dialect is None:
            raise ValueError(f"{self.method} {self.path} asks no model")
        return self.dialect.conversation(self.body)


class Prefix(NamedTuple):
    """How much of one request the next one begins with. Only an identical beginning can come from a prompt cache."""

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
        """Those that asked the model to answer the person."""
        return [request for request in self.all if request.asks]

    def wait(self, fits: Callable[[Request], bool], timeout_s: float = WAIT_S) -> Request:
        """The first of those that fits, now or soon."""
        with self._changed:
            found: list[Request] = []

            def look() -> bool:
                found[:] = [request for request in self._all if request.asks and fits(request)][:1]
                return bool(found)

            if not self._changed.wait_for(look, timeout_s):
                raise AssertionError(f"no such request within {timeout_s} s, but {self._all}")
            return found[0]

    def outcomes(self, timeout_s: float = WAIT_S) -> list[str | None]:
        """How those that asked the model ended, once all have: a client has its answer a moment before it is noted."""
        with self._changed:
            if not self._changed.wait_for(lambda: all(one.outcome for one in self._all if one.asks), timeout_s):
                raise AssertionError(f"not all have ended within {timeout_s} s: {self._all}")
            return [request.outcome for request in self._all if request.asks]


def all_text(request: Request) -> str:
    """Every text of what the model was sent, as it was sent: also what `user_texts` takes apart."""

    def texts(value: Any) -> list[str]:
        if isinstance(value, str):
            return [value]
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [text for part in inner for text in texts(part)]

    return "\n".join(texts(request.body))


def user_texts(request: Request) -> list[str]:
    """What the person said, as this request tells it to the model: oldest first."""
    return request.conversation.user_texts


def common_prefix(first: Request, second: Request) -> Prefix:
    """How much of the first request leads the second one, in the Messages API's order: tools, system, messages."""
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
    """Without the marks for the cache, which move on with every turn, and with a bare string as the block it means."""
    if isinstance(value, dict):
        plain = {key: _plain(part) for key, part in value.items() if key != "cache_control"}
        if isinstance(plain.get("content"), str) and "role" in plain:
            plain["content"] = [{"type": "text", "text": plain["content"]}]
        return plain
    return [_plain(part) for part in value] if isinstance(value, list) else value
