"""JSON-RPC 2.0 on lines: envelopes in and out, and JSON from strangers read without surprises.

Above: the protocols that use it (acp/). Below: msgspec. It keeps no state: which ids are open is the business of
the conversation, and the two sides number their requests apart, so that an agent's 0 is never ours.
Deliberately not here: batches, which no agent sends on stdio.
"""

import json
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from perdure.drivers.sentences import DETAIL_CHARS, plain

METHOD_NOT_FOUND = -32601
NEEDS_LOGIN = -32000
RESOURCE_NOT_FOUND = -32002

MAX_DEPTH_LEVELS = 128
"""Deeper values are refused: they decode here and then overflow whoever encodes them again."""

Id = int | str | float | None
T = TypeVar("T")

_NOTHING = Raw(b"")


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


_frame: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)
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
    """Any JSON value, or None if it is broken or nested beyond reason."""
    found = read(raw, _any)
    body = bytes(raw)
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH_LEVELS and _too_deep(found):
        return None
    return found


def failure(frame: Frame) -> Failure | None:
    """The error of a reply, or None if it is a result."""
    if not bytes(frame.error) or bytes(frame.error) == b"null":
        return None
    error = value(frame.error)
    raw = bytes(frame.error).decode("utf-8", "replace")[:DETAIL_CHARS]
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
    try:
        found = json.loads(body.decode("utf-8", "replace"))
        return _without_lone_surrogates(json.dumps(found, ensure_ascii=False, allow_nan=False))
    except (ValueError, RecursionError):
        return None


def _without_lone_surrogates(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH_LEVELS):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
