"""Reading what others send: bodies into structs, queries into values. A mistake becomes a sentence: what to do."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import Refused
from perdure.core.misfits import field_of, what_is_wrong
from perdure.surfaces.http.endpoint import MAX_LIMIT, MAX_POSITION

__all__ = ["MAX_LIMIT", "MAX_POSITION", "body_of", "flag", "position_of", "reply", "whole_number"]

T = TypeVar("T")
BODY_SLACK_BYTES = 64 * 1024
JSON_ESCAPE_FACTOR = 6
BASE64_FACTOR = 4 / 3
MAX_VALUES = 64 * 1024
"""In the lists and objects of a request, besides what may be text of its message."""
MEDIA = "application/json"


def _strictly(raw: bytearray, kind: type[T]) -> T:
    return msgspec.json.decode(raw, type=kind)


def _read(raw: bytearray, kind: type[T]) -> T:
    """In JSON 3.0 is a whole number as 3 is, and some programs write it so. To look for that costs time, so it is done
    only where something does not fit."""
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


async def body_of(
    request: Request, kind: type[T], *, limit_bytes: int | None = None, now: dict[str, Any] | None = None
) -> T:
    """The request's JSON as `kind`. An empty body is an empty object. Unknown fields are ignored; known ones that can't
    be set with this request are refused, unless they say what is so already (`now`)."""
    raw = await raw_body_of(request, limit_bytes or _usual_limit_bytes(request))
    _check_values(raw, request.app.state.max_message_bytes + MAX_VALUES)
    body = decoded(raw, kind, _read)
    elsewhere: dict[str, str] = getattr(kind, "elsewhere", {})
    if elsewhere:
        _refuse_elsewhere(decoded(raw, dict[str, msgspec.Raw]), elsewhere, now or {})
    return body


async def raw_body_of(request: Request, limit_bytes: int) -> bytearray:
    raw = bytearray()
    async for piece in request.stream():
        if len(raw) + len(piece) > limit_bytes:
            raise Refused("too_large", f"The request is larger than {limit_bytes} bytes.")
        raw += piece
    return raw


def decoded(raw: bytearray, kind: type[T], read: Callable[[bytearray, type[T]], T] = _strictly) -> T:
    try:
        return read(raw or bytearray(b"{}"), kind)
    except msgspec.ValidationError as error:
        facts = {"fields": [field]} if (field := field_of(error)) else {}
        raise Refused("invalid", f"The request does not fit: {what_is_wrong(error, kind)}.", **facts) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("invalid", f"The body is not valid JSON: {error}.") from error


def _refuse_elsewhere(given: dict[str, msgspec.Raw], elsewhere: dict[str, str], now: dict[str, Any]) -> None:
    for name, what_to_do in elsewhere.items():
        if name not in given:
            continue
        value, before = decoded(bytearray(given[name]), object), now.get(name)
        if value != before and bool(value or before):
            raise Refused("invalid", f"{name} can't be set with this request: {what_to_do}.", fields=[name])


def _check_values(raw: bytearray, limit: int) -> None:
    """A list of nothing takes thirty times the memory of its JSON. Each value begins with one of these characters, and
    the only long text, a message, has no more of them than bytes."""
    if len(raw) > limit and sum(raw.count(mark) for mark in (b",", b"[", b"{")) > limit:
        raise Refused("too_large", "The request has too many values in its lists.")


def _usual_limit_bytes(request: Request) -> int:
    """As much as a message may have, however it is written, with its attachments in base64."""
    known = request.app.state
    escaped = known.max_message_bytes * JSON_ESCAPE_FACTOR
    return int(escaped + known.max_attachment_bytes * BASE64_FACTOR + BODY_SLACK_BYTES)


def reply(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type=MEDIA)


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
    """(positions as text or None, epoch): from Last-Event-ID, which wins, or from `offset`, which may be a plain number
    of events and then is of no epoch."""
    given = request.headers.get("last-event-id")
    if given is None:
        given = request.query_params.get("offset")
    if given is None:
        return None, None
    text, dash, epoch = given.strip().partition("-")
    numbers = text.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= digits for part in numbers):
        raise Refused("invalid", "The position must be the id of an event, or a number of events to skip.")
    if dash and not (epoch.isascii() and epoch.isdigit() and len(epoch) <= 9):
        raise Refused("invalid", "The position must be the id of an event, or a number of events to skip.")
    if not dash and "last-event-id" not in request.headers:
        return text, None
    return text, int(epoch or 0)
