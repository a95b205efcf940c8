"""What the tables of endpoints are made of.

Above: routes.py and the tables of other programs' surfaces. Below: nothing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

POSITION = "The id of the last event that was seen. The Last-Event-ID header wins."


class Endpoint(NamedTuple):
    method: str
    path: str
    handler: Callable[..., Any]
    summary: str
    body: type | None = None
    query: dict[str, tuple[Any, str]] = {}
    answers: dict[int, Any] = {}
    """Status: a struct, a list of one, a media type, a tuple of these, or None for no body."""
    refusals: tuple[str, ...] = ()
