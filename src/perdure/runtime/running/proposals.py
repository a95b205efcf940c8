"""Compares edits that wait for permission with the current files, to add line numbers and context to their diffs.

Above: the runner, before it records a permission request. Below: proposed_edits.py and the working directory. Reads
only regular text files inside the working directory, up to a size limit: the agent chooses the path, and must not be
able to expose files that it may not read.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.core.events import PendingPrompt
from perdure.core.proposed_edits import place

FILE_MAX_BYTES = 512 * 1024
PLACE_TIMEOUT_S = 5.0
"""A slow read, for example from a hung network file system, must not delay the permission request for longer."""


async def with_context(observations: Sequence[Any], workdir: str) -> Sequence[Any]:
    """Add line numbers to the diffs of permission requests whose files can be read."""
    if not any(isinstance(one, PendingPrompt) and one.diff for one in observations):
        return observations
    # Comparing a long file takes time, and must not delay other sessions.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PLACE_TIMEOUT_S):
            return await asyncio.to_thread(lambda: [_placed(one, workdir) for one in observations])
    return observations


def _placed(observation: Any, workdir: str) -> Any:
    if not isinstance(observation, PendingPrompt) or not observation.diff:
        return observation
    diff = place(observation.diff, lambda path: text_of(path, workdir))
    return msgspec.structs.replace(observation, diff=[_marked(entry, workdir) for entry in diff])


def _marked(entry: dict[str, Any], workdir: str) -> dict[str, Any]:
    """Mark an edit that overwrites an existing file that was not read: it must not look like a new file."""
    path = entry.get("path")
    is_whole = entry.get("old_text") is None and isinstance(path, str)
    return {**entry, "overwrites": True} if is_whole and os.path.lexists(os.path.join(workdir, str(path))) else entry


def text_of(path: str, workdir: str) -> str | None:
    """The content of a text file inside the working directory; None if it isn't one, is too large or can't be read."""
    try:
        root = Path(workdir).resolve(strict=True)
        place = (root / path).resolve(strict=True)
        if not place.is_relative_to(root):
            return None
        # Don't block on a pipe or a device.
        file = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(file, "rb") as opened:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_size > FILE_MAX_BYTES:
                return None
            data = opened.read(FILE_MAX_BYTES + 1)
        return data.decode("utf-8") if len(data) <= FILE_MAX_BYTES and b"\0" not in data else None
    except (OSError, ValueError, RuntimeError):
        return None
