"""Reading what others send: bodies into structs, queries into values. A mistake becomes a sentence: what to do."""

from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.core.errors import Refused
from perdure.core.misfits import what_is_wrong

T = TypeVar("T")
BODY_SLACK_BYTES = 64 * 1024
JSON_ESCAPE_FACTOR = 6
BASE64_FACTOR = 4 / 3
MAX_POSITION = 2**53
MAX_LIMIT = 1_000
MEDIA = "application/json"


async def body_of(request: Request, kind: type[T], *, limit_bytes: int | None = None) -> T:
    """The request's JSON as `kind`. An empty body is an empty object. Unknown fields are ignored."""
    limit = limit_bytes or _usual_limit_bytes(request)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise Refused("too_large", f"The request is larger than {limit} bytes.")
        pieces.append(piece)
    raw = b"".join(pieces)
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise Refused("invalid", f"The body does not fit: {what_is_wrong(error, kind)}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("invalid", f"The body is not valid JSON: {error}.") from error


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
        raise Refused("invalid", f"{name} must be a whole number from {low} to {high}.")
    return int(given)


def flag(request: Request, name: str) -> bool:
    given = request.query_params.get(name, "false").lower()
    if given not in ("true", "false", "1", "0"):
        raise Refused("invalid", f"{name} must be true or false.")
    return given in ("true", "1")


def position_of(request: Request) -> tuple[str | None, int | None]:
    """(positions as text or None, epoch): from Last-Event-ID, which wins, or from `offset`, which may be a plain number
    of events and then is of no epoch."""
    given = request.headers.get("last-event-id")
    if given is None:
        given = request.query_params.get("offset")
    if given is None:
        return None, None
    text, dash, epoch = given.strip().partition("-")
    numbers = text.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 17 for part in numbers):
        raise Refused("invalid", "The position must be the id of an event, or a number of events to skip.")
    if dash and not (epoch.isascii() and epoch.isdigit() and len(epoch) <= 9):
        raise Refused("invalid", "The position must be the id of an event, or a number of events to skip.")
    if not dash and "last-event-id" not in request.headers:
        return text, None
    return text, int(epoch or 0)
