"""JSON-RPC 2.0 over lines: encoding and decoding of messages, with safe parsing of untrusted JSON.

Above: the protocols that use it (acp/). Below: msgspec. It has no state: the conversation tracks open requests. Each
side has its own request ids, so an agent's 0 is not our 0. Not supported, on purpose: batches, which no agent sends on
stdio.
"""

import codecs
import json
import re
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from perdure.drivers.sentences import DETAIL_CHARS, plain

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
NEEDS_LOGIN = -32000
RESOURCE_NOT_FOUND = -32002

MAX_DEPTH_LEVELS = 128
"""Deeper values are rejected: they decode here, but overflow the stack of code that encodes them again."""
MAX_PARTS = 250_000
"""Limit on strings, commas and opening brackets. Values with more are rejected: a few bytes of JSON may take a hundred
in memory."""
MEND_BYTES = 64 * 1024

Id = int | str | float | None
T = TypeVar("T")

_NOTHING = Raw(b"")
_MARKS = (b",", b"[", b"{")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+"?', re.DOTALL)
"""Also matches an unterminated string: otherwise the regex would try every later quote, each up to the end."""
_HALVES = re.compile(rb"\\(?:\\(?:\\\\)*|(u[dD][89a-fA-F][0-9a-fA-F]{2}(?:\\u[dD][89a-fA-F][0-9a-fA-F]{2})*))")
"""A run of escaped surrogates (with a group), or escaped backslashes, which can't start one. Begins with a literal
character, which makes the search fast."""
_LONE = re.compile("[\ud800-\udfff]+")


class Frame(Struct):
    """One message with undecoded parts, because most lines are updates of which only two strings are needed."""

    method: str | None = None
    id: Id | UnsetType = UNSET
    params: Raw = _NOTHING
    result: Raw = _NOTHING
    error: Raw = _NOTHING


class Failure(Struct):
    """An error reply, with invalid parts left out."""

    code: int = 0
    message: str = ""
    details: str = ""
    raw: str = ""
    """The error as received."""

    @property
    def text(self) -> str:
        """Message and details. Most agents say "Internal error" and put the reason in `data.details`."""
        return f"{self.message}: {self.details}" if self.message and self.details else self.message or self.details

    @property
    def sentence(self) -> str:
        """The text to show to people."""
        return plain(self.text)


class _Told(Struct):
    """An error whose other fields are unreadable."""

    code: int = 0
    message: str = "The agent's error is unreadable."


_frame: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)
_told: msgspec.json.Decoder[_Told] = msgspec.json.Decoder(_Told)
_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode


def decode(line: bytes) -> Frame | None:
    """Decode the envelope. Returns None if the line is not a JSON-RPC message."""
    return read(line, _frame)


def read(raw: bytes | Raw, decoder: "msgspec.json.Decoder[T]") -> T | None:
    """Decode `raw`. Returns None if that fails, and never raises.

    Retries with repaired text: JavaScript agents split text between the two surrogates of an emoji and send each one
    alone, for which strict decoders reject the whole line.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        return None
    except (ValueError, RecursionError):
        mended = _mended(bytes(raw))
    if mended is None:
        return None
    try:
        return decoder.decode(mended)
    except (ValueError, RecursionError):
        return None


def value(raw: bytes | Raw) -> Any:
    """Decode any JSON value. Returns None if it is invalid, too deep or has too many parts."""
    body = bytes(raw)
    if len(body) > MAX_PARTS and _too_many(body):
        return None
    found = read(body, _any)
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH_LEVELS and _too_deep(found):
        return None
    return found


def failure(frame: Frame) -> Failure | None:
    """Return the error of a reply, or None if it is a result."""
    if not bytes(frame.error) or bytes(frame.error) == b"null":
        return None
    error = value(frame.error)
    raw = bytes(frame.error).decode("utf-8", "replace")[:DETAIL_CHARS]
    if error is None:
        told = read(frame.error, _told) or _Told()
        return Failure(code=told.code, message=told.message, raw=raw)
    if not isinstance(error, dict):
        return Failure(message=str(error), raw=raw)
    code, message, data = error.get("code"), error.get("message"), error.get("data")
    details = data.get("details") if isinstance(data, dict) else data
    return Failure(
        code=code if isinstance(code, int) else 0,
        message=message if isinstance(message, str) else "",
        details=details if isinstance(details, str) else "",
        raw=raw,
    )


def request(id: int, method: str, params: dict[str, Any]) -> bytes:
    return _line({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def notification(method: str, params: dict[str, Any]) -> bytes:
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def result(id: Id, result: dict[str, Any]) -> bytes:
    return _line({"jsonrpc": "2.0", "id": id, "result": result})


def error(id: Id, code: int, message: str) -> bytes:
    return _line({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})


def encoded(value: Any) -> bytes:
    """Encode a value that was decoded from JSON."""
    return _encode(value)


def _line(message: dict[str, Any]) -> bytes:
    try:
        return _encode(message) + b"\n"
    except UnicodeEncodeError:
        # A user's text with a lone surrogate. Send it with that character replaced.
        text = json.dumps(message, ensure_ascii=False)
        return _without_lone_surrogates(text) + b"\n"


def _mended(body: bytes) -> bytes | None:
    """Replace lone surrogates and invalid UTF-8 with U+FFFD. Works on bytes, because text may take four times as much
    memory. Returns None if nothing changed."""
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = (body[start : start + MEND_BYTES] for start in range(0, len(body), MEND_BYTES))
    valid = b"".join([*(reader.decode(piece).encode() for piece in pieces), reader.decode(b"", True).encode()])
    mended = _HALVES.sub(_joined, valid) if b"\\ud" in valid or b"\\uD" in valid else valid
    return mended if mended != body else None


def _joined(halves: re.Match[bytes]) -> bytes:
    if not halves[1]:
        return halves[0]
    whole: str = json.loads(b'"%b"' % halves[0])
    return _LONE.sub(lambda lone: "\ufffd" * len(lone[0]), whole).encode()


def _without_lone_surrogates(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _too_many(body: bytes) -> bool:
    """Return whether it has too many parts. Counts all marks first, which is cheap, then without those in strings."""
    if sum(body.count(mark) for mark in (b'"', *_MARKS)) <= MAX_PARTS:
        return False
    rest, strings = _STRING.subn(b"", body, MAX_PARTS + 1)
    return strings + sum(rest.count(mark) for mark in _MARKS) > MAX_PARTS


def _too_deep(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH_LEVELS):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in (dict, list)
        ]
        if not level:
            return False
    return True
