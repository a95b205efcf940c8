"""Images from agents, as events of bounded size. Pure.

Above: the content modules of the drivers, and imports. Below: events. An image of an uncommon type, or one that is too
large, becomes an event without data.
"""

import hashlib
import re
from typing import Any

from msgspec.structs import replace

from perdure.core.events import Image

KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")
IMAGE_MAX_CHARS = 1_400_000
"""About a megabyte, in base64."""
IMAGES_MAX = 20
"""Per tool; further images are dropped."""
MAX_SIZE = 2**53
UNKNOWN = "image/unknown"
_KIND = re.compile(r"image/[A-Za-z0-9.+-]{1,90}")
"""Shown to people and sent to agents unchanged, so it must not contain anything else."""
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def image(turn: int, mime_type: Any, data: Any, tool_id: str | None = None) -> Image | None:
    """An event for this image; None if it is not an image at all."""
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
    """An imported image event, limited to what `image` would have stored."""
    made = image(event.turn or 0, event.mime_type, event.data or "", event.tool_id)
    kind, kept = (made.mime_type, made.data or None) if made is not None else (UNKNOWN, None)
    size = made.size if made is not None and event.data else min(max(0, event.size), MAX_SIZE)
    return replace(event, mime_type=kind, size=size, data=kept)


def digest(event: Image) -> str:
    """Identifies an image, because agents repeat all images of a tool with each update."""
    text = f"{event.mime_type} {event.size} {event.data or ''}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
