"""Edits that wait for permission, shown against the files as they are: with line numbers and what is around them.

Above: the runner, before a permission request is recorded. Below: proposed_edits.py and the working directory. Only
regular text files inside the working directory are read, and only up to a limit: an agent names the path, and must not
learn or show through it what it may not read.
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
"""A file that is not read by then, as on a network file system that hangs, must not keep a person from deciding."""


async def with_context(observations: Sequence[Any], workdir: str) -> Sequence[Any]:
    """The same observations; diffs of permission requests have line numbers where the file could be read."""
    if not any(isinstance(one, PendingPrompt) and one.diff for one in observations):
        return observations
    # Comparing a long file takes a moment, which other sessions must not wait for.
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
    """A file that is there and was not read must not look like a new one: all of it would be replaced."""
    path = entry.get("path")
    is_whole = entry.get("old_text") is None and isinstance(path, str)
    return {**entry, "overwrites": True} if is_whole and os.path.lexists(os.path.join(workdir, str(path))) else entry


def text_of(path: str, workdir: str) -> str | None:
    """A text file inside the working directory; None if it is not one, is too long or can't be read."""
    try:
        root = Path(workdir).resolve(strict=True)
        place = (root / path).resolve(strict=True)
        if not place.is_relative_to(root):
            return None
        # A pipe or a device must not keep us waiting.
        file = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(file, "rb") as opened:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_size > FILE_MAX_BYTES:
                return None
            data = opened.read(FILE_MAX_BYTES + 1)
        return data.decode("utf-8") if len(data) <= FILE_MAX_BYTES and b"\0" not in data else None
    except (OSError, ValueError, RuntimeError):
        return None
