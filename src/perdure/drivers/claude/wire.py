"""Lines of stream-json: what is read of each at once, and how ours are made.

Above: the conversation and its parts. Below: jsonrpc.py for JSON from strangers. Nearly all lines are pieces of text,
so these are read into a few fields; any other line becomes a dict. A broken line of ours would end the agent's process:
each is made here, whole.
"""

import json
from typing import Any, Literal

import msgspec
from msgspec import Struct

from perdure.drivers import jsonrpc


class Delta(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""


class StreamEvent(Struct):
    type: str = ""
    index: int = -1
    delta: Delta | None = None


class StreamLine(Struct):
    """A line, as far as it can be a piece of the answer."""

    type: str = ""
    event: StreamEvent | None = None
    parent_tool_use_id: str | None = None


class Awaited(Struct):
    """Of a line that can't be read whole, what somebody waits for: the end of a turn, or a request to answer."""

    type: Literal["result", "control_request"]
    subtype: str = ""
    is_error: bool = False
    result: str = ""
    request_id: str = ""


_awaited: msgspec.json.Decoder[Awaited] = msgspec.json.Decoder(Awaited)
_stream_line: msgspec.json.Decoder[StreamLine] = msgspec.json.Decoder(StreamLine)


def stream_line(line: bytes) -> StreamLine | None:
    """Only a quick look: None if the line has another shape, and then it is read with care."""
    try:
        return _stream_line.decode(line)
    except (ValueError, RecursionError):
        return None


def message(line: bytes) -> dict[str, Any] | None:
    found = jsonrpc.value(line)
    return found if isinstance(found, dict) else None


def awaited(line: bytes) -> dict[str, Any] | None:
    """What is needed of a line that has more parts, or deeper ones, than `message` reads."""
    found = jsonrpc.read(line, _awaited)
    return msgspec.to_builtins(found) if found is not None else None


def torn_text(line: bytes) -> str:
    """The text of a piece as it came, with the halves of emojis that `message` mends one by one."""
    return string(part(part(json.loads(line.decode("utf-8", "replace")), "event"), "delta"), "text")


def joined(text: str) -> tuple[str, str]:
    """A text whose halves of emojis are joined or, if alone, replaced; and the half that it ends with, if it does."""
    half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    whole = text.removesuffix(half) if half else text
    return whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), half


def line(message: dict[str, Any]) -> bytes:
    try:
        return jsonrpc.encoded(message) + b"\n"
    except UnicodeEncodeError:
        # Half an emoji in a person's text: escaped, it is still JSON.
        return json.dumps(message).encode() + b"\n"


def string(value: Any, key: str) -> str:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def part(value: Any, key: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def items(value: Any, key: str) -> list[dict[str, Any]]:
    """The objects of a list; whatever else is in it is left out."""
    found = value.get(key) if isinstance(value, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def whole(value: Any) -> int | None:
    """A count, or None. Bounded, since stores keep 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 2**53 else None


def amount(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e12 else None
