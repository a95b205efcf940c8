"""JSON-RPC 2.0 on lines: envelopes in and out, and JSON from strangers read without surprises.

Above: the protocols that use it (acp/). Below: msgspec. It keeps no state: which ids are open is the business of
the conversation, and the two sides number their requests apart, so that an agent's 0 is never ours.
Deliberately not here: batches, which no agent sends on stdio.
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
"""Deeper values are refused: they decode here and then overflow whoever encodes them again."""
MAX_PARTS = 250_000
"""Strings, commas and opening brackets. A value of more is refused: few bytes that come may be a hundred in memory."""
MEND_BYTES = 64 * 1024

Id = int | str | float | None
T = TypeVar("T")

_NOTHING = Raw(b"")
_MARKS = (b",", b"[", b"{")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+"?', re.DOTALL)
"""Also one that has no end: else each later quote would be tried, up to the end."""
_HALVES = re.compile(rb"\\(?:\\(?:\\\\)*|(u[dD][89a-fA-F][0-9a-fA-F]{2}(?:\\u[dD][89a-fA-F][0-9a-fA-F]{2})*))")
"""Halves of emojis in a row (with a group), or escaped backslashes, behind which there are none. The first character is
plain, so that it is searched for fast."""
_LONE = re.compile("[\ud800-\udfff]+")


class Frame(Struct):
    """One message with its parts still unread: most lines are updates of which two strings are wanted."""

    method: str | None = None
    id: Id | UnsetType = UNSET
    params: Raw = _NOTHING
    result: Raw = _NOTHING
    error: Raw = _NOTHING


class Failure(Struct):
    """An error reply, as far as it can be believed."""

    code: int = 0
    message: str = ""
    details: str = ""
    raw: str = ""
    """As it came."""

    @property
    def text(self) -> str:
        """Most agents say "Internal error" and put the reason in `data.details`."""
        return f"{self.message}: {self.details}" if self.message and self.details else self.message or self.details

    @property
    def sentence(self) -> str:
        """What people are shown."""
        return plain(self.text)


class _Told(Struct):
    """An error whose other fields can't be read."""

    code: int = 0
    message: str = "The agent's error can't be read."


_frame: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)
_told: msgspec.json.Decoder[_Told] = msgspec.json.Decoder(_Told)
_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode


def decode(line: bytes) -> Frame | None:
    """The envelope, or None if the line is not one."""
    return read(line, _frame)


def read(raw: bytes | Raw, decoder: "msgspec.json.Decoder[T]") -> T | None:
    """What `decoder` makes of it, or None; never an exception.

    A second try with mended text: JavaScript agents cut text between the two halves of an emoji and send each as a
    lone surrogate, which strict readers refuse together with all the rest of the line.
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
    """Any JSON value, or None if it is broken, nested beyond reason or made of more parts than memory is given to."""
    body = bytes(raw)
    if len(body) > MAX_PARTS and _too_many(body):
        return None
    found = read(body, _any)
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH_LEVELS and _too_deep(found):
        return None
    return found


def failure(frame: Frame) -> Failure | None:
    """The error of a reply, or None if it is a result."""
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
    """JSON of a value that came from JSON."""
    return _encode(value)


def _line(message: dict[str, Any]) -> bytes:
    try:
        return _encode(message) + b"\n"
    except UnicodeEncodeError:
        # A person's text with a lone surrogate: it must reach the agent, less that character.
        text = json.dumps(message, ensure_ascii=False)
        return _without_lone_surrogates(text) + b"\n"


def _mended(body: bytes) -> bytes | None:
    """With U+FFFD for halves of emojis and for what is not UTF-8. In bytes: as text it may be four times as long."""
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
    """Whether it has too many parts. What is inside strings is no part, but is cheaper to count than to tell apart."""
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
