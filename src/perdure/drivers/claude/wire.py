"""Lines of stream-json: decoding the agent's lines and encoding ours.

Above: the conversation and its parts. Below: jsonrpc.py to parse untrusted JSON. Nearly all lines are pieces of text,
so these are decoded into a few fields; any other line becomes a dict. An invalid line from us would end the agent's
process, so all lines are encoded here.
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
    """A line, decoded only as far as needed for a piece of the answer."""

    type: str = ""
    event: StreamEvent | None = None
    parent_tool_use_id: str | None = None


class Awaited(Struct):
    """The essential parts of a line that is too large to decode: the end of a turn, or a request to answer."""

    type: Literal["result", "control_request"]
    subtype: str = ""
    is_error: bool = False
    result: str = ""
    request_id: str = ""


_awaited: msgspec.json.Decoder[Awaited] = msgspec.json.Decoder(Awaited)
_stream_line: msgspec.json.Decoder[StreamLine] = msgspec.json.Decoder(StreamLine)


def stream_line(line: bytes) -> StreamLine | None:
    """Fast path for pieces of text. Returns None for other lines, which then need `message`."""
    try:
        return _stream_line.decode(line)
    except (ValueError, RecursionError):
        return None


def message(line: bytes) -> dict[str, Any] | None:
    found = jsonrpc.value(line)
    return found if isinstance(found, dict) else None


def awaited(line: bytes) -> dict[str, Any] | None:
    """Return the essential parts of a line that `message` rejects as too large or too deep."""
    found = jsonrpc.read(line, _awaited)
    return msgspec.to_builtins(found) if found is not None else None


def torn_text(line: bytes) -> str:
    """Return the text of a piece with its lone surrogates, which `message` would replace."""
    return string(part(part(json.loads(line.decode("utf-8", "replace")), "event"), "delta"), "text")


def joined(text: str) -> tuple[str, str]:
    """Join surrogate pairs in a text and replace lone surrogates. Also returns a high surrogate at the end, if any."""
    half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    whole = text.removesuffix(half) if half else text
    return whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), half


def line(message: dict[str, Any]) -> bytes:
    try:
        return jsonrpc.encoded(message) + b"\n"
    except UnicodeEncodeError:
        # A lone surrogate in a user's text. Escaped, it is still valid JSON.
        return json.dumps(message).encode() + b"\n"


def string(value: Any, key: str) -> str:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def part(value: Any, key: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def items(value: Any, key: str) -> list[dict[str, Any]]:
    """Return the objects in a list, and skip other values."""
    found = value.get(key) if isinstance(value, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def whole(value: Any) -> int | None:
    """Return a count, or None. Bounded, because stores have 64-bit integers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 2**53 else None


def amount(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e12 else None
