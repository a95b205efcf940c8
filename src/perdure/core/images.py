"""Pictures that agents show, made into events of a bounded size.

Above: the content of each driver, and imports. Below: core events. Pure; what is not a picture of a common kind, or is
too large, is named and not kept.
"""

import hashlib
import re
from typing import Any

from msgspec.structs import replace

from perdure.core.events import Image

KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")
IMAGE_MAX_CHARS = 1_400_000
"""A megabyte, in base64."""
IMAGES_MAX = 20
"""Of one tool; any more are dropped."""
MAX_SIZE = 2**53
UNKNOWN = "image/unknown"
_KIND = re.compile(r"image/[A-Za-z0-9.+-]{1,90}")
"""Agents and people see it unchanged, so it may not say anything else."""
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def image(turn: int, mime_type: Any, data: Any, tool_id: str | None = None) -> Image | None:
    """None if it is no picture at all."""
    if not isinstance(data, str) or not isinstance(mime_type, str) or not mime_type.startswith("image/"):
        return None
    kept = mime_type in KINDS and len(data) <= IMAGE_MAX_CHARS and _BASE64.fullmatch(data) is not None
    return Image(
        turn=turn,
        mime_type=mime_type if _KIND.fullmatch(mime_type) else UNKNOWN,
        size=len(data.rstrip("=")) * 3 // 4,
        data=data if kept else None,
        tool_id=tool_id,
    )


def checked(event: Image) -> Image:
    """One that was not made here, with nothing in it that `image` would not have kept."""
    made = image(event.turn or 0, event.mime_type, event.data or "", event.tool_id)
    kind, kept = (made.mime_type, made.data or None) if made is not None else (UNKNOWN, None)
    size = made.size if made is not None and event.data else min(max(0, event.size), MAX_SIZE)
    return replace(event, mime_type=kind, size=size, data=kept)


def digest(event: Image) -> str:
    """By which a picture is known again: agents repeat all that a tool gave with each update."""
    text = f"{event.mime_type} {event.size} {event.data or ''}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
