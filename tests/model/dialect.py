"""What the server needs from each model API: recognize its requests, read them, and write an answer.

Above: server.py. Below: conversation.py. Implemented by anthropic.py, openai_chat.py, openai_responses.py, gemini.py.
An `Answer` is written piece by piece and remembers what it wrote, so the same acts work for a stream and for a complete
response. It does no I/O and never waits.
"""

import json
import uuid
from typing import Any, NamedTuple, Protocol

from tests.model.conversation import Conversation
from tests.model.tools import Call

BYTES_PER_TOKEN = 4
"""Good enough, because nobody pays for this usage."""


class Tokens(NamedTuple):
    input: int
    output: int | None
    """None: as many as deltas were written."""


class Answer(Protocol):
    """An answer being written. Every method returns the bytes to stream."""

    def open(self) -> bytes: ...

    def text(self, delta: str) -> bytes: ...

    def thought(self, delta: str) -> bytes: ...

    def call(self, call: Call) -> bytes: ...

    def fail(self, status: int) -> bytes:
        """An error inside a stream that has started."""

    def close(self) -> bytes: ...

    def whole(self) -> dict[str, Any]:
        """The complete answer, once it is closed."""


class Dialect(Protocol):
    name: str

    def speaks(self, method: str, path: str) -> bool:
        """Whether a request asks this API's model to answer."""

    def streamed(self, path: str, body: Any) -> bool: ...

    def conversation(self, body: Any) -> Conversation: ...

    def answer(self, path: str, body: Any, tokens: Tokens) -> Answer: ...

    def error(self, status: int) -> dict[str, Any]:
        """The body of an HTTP error."""


def new_id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex[:24]


def sse(data: Any, event: str = "") -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # Half an emoji has no UTF-8 encoding, so it is escaped.
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode("utf-8", "backslashreplace")


def halves(text: str) -> list[str]:
    """Arguments are streamed in pieces too."""
    middle = len(text) // 2
    return [text[:middle], text[middle:]]


def block_text(content: Any) -> str:
    """The text of a tool's result: a string, or blocks of which some are text."""
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in content or [] if isinstance(block, dict) and "text" in block)
