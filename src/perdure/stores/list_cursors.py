"""Cursors for session lists: opaque text that says where the next page starts. Both stores sort by the same columns.

Above: sqlite_search.py and postgres_search.py. Below: base64 and JSON.
"""

import base64
import binascii
from typing import Annotated

import msgspec

from perdure.core.errors import Refused

NUMBER_MAX = 2**63 - 1
"""The largest integer of both databases."""


class ListCursor(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The last session of a page."""

    last_active_at: str
    session_key: Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]


def write_cursor(cursor: ListCursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def read_cursor(text: str) -> ListCursor:
    """Raises Refused."""
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(packed, type=ListCursor)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise Refused("invalid", "This cursor is not valid. Omit it to start with the first page.") from None
