"""Reads requests and writes JSON replies: bodies into structs, query parameters into values, the verbs of the server.

Above: the handlers. Below: starlette and msgspec. Invalid input is refused with a message that says what to send.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import Refused
from perdure.core.validation import field_of, what_is_wrong
from perdure.runtime.verbs.sessions import Sessions
from perdure.surfaces.http.endpoint import MAX_POSITION

T = TypeVar("T")
BODY_SLACK_BYTES = 64 * 1024
JSON_ESCAPE_FACTOR = 6
BASE64_FACTOR = 4 / 3
MAX_VALUES = 64 * 1024
"""Values in the lists and objects of a request, in addition to one per byte of the longest message."""
MEDIA = "application/json"
BAD_POSITION = "The position must be the id of an event, or the number of events to skip."


def verbs(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.sessions
    return sessions


def reply(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type=MEDIA)


# Bodies ---------------------------------------------------------------------------------------------------------------


async def body_of(
    request: Request, kind: type[T], *, limit_bytes: int | None = None, now: dict[str, Any] | None = None
) -> T:
    """Decode the JSON body as `kind`. An empty body counts as an empty object. Unknown fields are ignored, so new
    clients work with old servers. Fields in `kind.refused_fields` exist but can't be set with this request: they are
    refused with a hint, unless they have their current value (`now`), so a client can send back what it has read."""
    raw = await raw_body_of(request, limit_bytes or _usual_limit_bytes(request))
    _check_values(raw, request.app.state.max_message_bytes + MAX_VALUES)
    body = decoded(raw, kind, _read)
    refused_fields: dict[str, str] = getattr(kind, "refused_fields", {})
    if refused_fields:
        _check_fields(decoded(raw, dict[str, msgspec.Raw]), refused_fields, now or {})
    return body


async def raw_body_of(request: Request, limit_bytes: int) -> bytearray:
    raw = bytearray()
    async for piece in request.stream():
        if len(raw) + len(piece) > limit_bytes:
            raise Refused("too_large", f"The request is larger than {limit_bytes} bytes.")
        raw += piece
    return raw


def _strictly(raw: bytearray, kind: type[T]) -> T:
    return msgspec.json.decode(raw, type=kind)


def decoded(raw: bytearray, kind: type[T], read: Callable[[bytearray, type[T]], T] = _strictly) -> T:
    try:
        return read(raw or bytearray(b"{}"), kind)
    except msgspec.ValidationError as error:
        facts = {"fields": [field]} if (field := field_of(error)) else {}
        raise Refused("invalid", f"The request is not valid: {what_is_wrong(error, kind)}.", **facts) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("invalid", f"The body is not valid JSON: {error}.") from error


def _read(raw: bytearray, kind: type[T]) -> T:
    """Accept 3.0 as the integer 3: in JSON they are the same number, and some programs write it that way. Converting
    is slow, so it is done only after strict decoding has failed."""
    try:
        return _strictly(raw, kind)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
        try:
            return msgspec.convert(_whole(msgspec.json.decode(raw)), kind)
        except msgspec.ValidationError:
            raise error from None


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_POSITION:
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return value


def _check_fields(given: dict[str, msgspec.Raw], refused_fields: dict[str, str], now: dict[str, Any]) -> None:
    for name, what_to_do in refused_fields.items():
        if name not in given:
            continue
        value, before = decoded(bytearray(given[name]), object), now.get(name)
        if value != before and bool(value or before):
            raise Refused("invalid", f"{name} can't be set with this request: {what_to_do}.", fields=[name])


def _check_values(raw: bytearray, limit: int) -> None:
    """Refuse a body with too many values: a list of nulls takes thirty times the memory of its JSON. Every value
    follows one of these three characters, and a message has at most as many of them as bytes."""
    if len(raw) > limit and sum(raw.count(mark) for mark in (b",", b"[", b"{")) > limit:
        raise Refused("too_large", "The request has too many values in its lists.")


def _usual_limit_bytes(request: Request) -> int:
    """Room for the longest message with every character escaped, and for its attachments in base64."""
    known = request.app.state
    escaped = known.max_message_bytes * JSON_ESCAPE_FACTOR
    return int(escaped + known.max_attachment_bytes * BASE64_FACTOR + BODY_SLACK_BYTES)


# Query parameters -----------------------------------------------------------------------------------------------------


def whole_number(request: Request, name: str, default: int, *, low: int = 0, high: int = MAX_POSITION) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isascii() or not given.isdigit() or not low <= int(given[:17]) <= high or len(given) > 17:
        raise Refused("invalid", f"{name} must be a whole number from {low} to {high}.", fields=[name])
    return int(given)


def flag(request: Request, name: str) -> bool:
    given = request.query_params.get(name, "false").lower()
    if given not in ("true", "false", "1", "0"):
        raise Refused("invalid", f"{name} must be true or false.", fields=[name])
    return given in ("true", "1")


def position_of(request: Request, digits: int = 17) -> tuple[str | None, int | None]:
    """The positions as text, and their epoch, from the Last-Event-ID header or else from `offset`. A plain number in
    `offset` counts events and has no epoch. Without a position, both are None."""
    given = request.headers.get("last-event-id")
    if given is None:
        given = request.query_params.get("offset")
    if given is None:
        return None, None
    text, dash, epoch = given.strip().partition("-")
    numbers = text.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= digits for part in numbers):
        raise Refused("invalid", BAD_POSITION)
    if dash and not (epoch.isascii() and epoch.isdigit() and len(epoch) <= 9):
        raise Refused("invalid", BAD_POSITION)
    if not dash and "last-event-id" not in request.headers:
        return text, None
    return text, int(epoch or 0)
