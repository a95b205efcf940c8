"""What the tables of endpoints are made of.

Above: routes.py and the tables of other programs' surfaces. Below: nothing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

MAX_LIMIT = 1_000
MAX_POSITION = 2**53
POSITION = "The id of the last event that was seen. The Last-Event-ID header wins."


# What the document says of values in a query.
ABSOLUTE = {"pattern": r"^/[^\u0000]*$"}
STATE = {"enum": ["accepted", "processing", "idle", "ended"]}
STATUS = {"enum": ["running", "completed", "stopped", "timed-out", "failed"]}
AT_POSITION = {"pattern": r"^[0-9]{1,15}(-[0-9]{1,9})?$"}
AT_POSITIONS = {"pattern": r"^[0-9]{1,15}(\.[0-9]{1,15})*(-[0-9]{1,9})?$"}
"""Of a stream of several sessions: each has one."""


def between(low: int, high: int = MAX_POSITION) -> dict[str, Any]:
    return {"minimum": low, "maximum": high}


class Endpoint(NamedTuple):
    method: str
    path: str
    handler: Callable[..., Any]
    summary: str
    body: type | None = None
    query: dict[str, tuple[Any, ...]] = {}
    """Name: its type, a sentence, and what else the document says of it, if anything. The handler checks the same, and
    refuses with a sentence of its own."""
    answers: dict[int, Any] = {}
    """Status: a struct, a list of one, a media type, a tuple of these, or None for no body."""
    refusals: tuple[str, ...] = ()
