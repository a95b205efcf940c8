"""One row of the HTTP API: an `Endpoint`, and the parts that several rows share.

Above: the modules of the nouns, each with a list of its endpoints, and openapi.py. Below: nothing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

MAX_LIMIT = 1_000
MAX_POSITION = 2**53

SESSION = "/api/sessions/{session_id}"
POSITION = "Id of the last event you received. The Last-Event-ID header takes precedence."
PAGE_SIZE = "Page size, 1 to 1,000; default 50."
NEXT_PAGE = "The `next_cursor` of the previous page."

# JSON Schema for query parameters.
ABSOLUTE = {"pattern": r"^/[^\u0000]*$"}
STATE = {"enum": ["accepted", "processing", "idle", "ended"]}
STATUS = {"enum": ["running", "completed", "stopped", "timed-out", "failed"]}
AT_POSITION = {"pattern": r"^[0-9]{1,15}(-[0-9]{1,9})?$"}
AT_POSITIONS = {"pattern": r"^[0-9]{1,15}(\.[0-9]{1,15})*(-[0-9]{1,9})?$"}
"""A stream of several sessions has one position per session."""


def between(low: int, high: int = MAX_POSITION) -> dict[str, Any]:
    return {"minimum": low, "maximum": high}


QueryFields = dict[str, tuple[Any, ...]]
"""By name: type, description and, optionally, a JSON Schema. The schema is documentation; the handler checks values and
refuses bad ones with its own message."""


class Endpoint(NamedTuple):
    method: str
    path: str
    """Ids chosen by people or agents can contain slashes and are declared as `{name:path}`. Session ids can't."""
    handler: Callable[..., Any]
    """Its name is the operation id in the OpenAPI document."""
    summary: str
    body: type | None = None
    query: QueryFields = {}
    answers: dict[int, Any] = {}
    """By status: a struct, a list of a struct, a media type, a tuple of these, or None for an empty body."""
    refusals: tuple[str, ...] = ()
    """Error codes, besides those that any request can get."""
