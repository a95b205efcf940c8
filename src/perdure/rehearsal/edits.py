"""The small, predictable file edit of the rehearsal agent.

Above: script.py shows it as a tool call with a diff. Below: the file system.
It never edits a file outside the working directory, not even through `..` or a symbolic link.
"""

import os
from typing import NamedTuple

FILE_LIMIT_BYTES = 1_000_000
"""A rehearsal edits small text files; a larger one is a mistake."""


class Edit(NamedTuple):
    """`old` is None if the file did not exist."""

    path: str
    old: str | None
    new: str


class EditRefused(Exception):
    """The edit was not made; the message says why."""


def plan_line(workdir: str, path: str, count: int = 1) -> Edit:
    """The edit that `add_line` would make."""
    try:
        root = os.path.realpath(workdir)
        target = os.path.realpath(os.path.join(root, path))
        if os.path.commonpath([root, target]) != root or target == root:
            raise EditRefused(f"refused: {path} is not a file inside the working directory")
        old = _read(target)
        lines = (old or "").splitlines()
        number = 1 + sum(line.startswith("rehearsed ") for line in lines)
        start = f"{old}\n" if old and not old.endswith("\n") else old or ""
    except (OSError, ValueError) as error:
        raise EditRefused(f"refused: {path}: {error}") from error
    return Edit(target, old, start + "".join(f"rehearsed {number + more}\n" for more in range(count)))


def add_line(workdir: str, path: str, count: int = 1) -> Edit:
    """Append `count` lines `rehearsed N` to a file, where N numbers these lines. Creates the file if necessary."""
    edit = plan_line(workdir, path, count)
    try:
        os.makedirs(os.path.dirname(edit.path), exist_ok=True)
        with open(edit.path, "w", encoding="utf-8", newline="") as file:
            file.write(edit.new)
    except (OSError, ValueError) as error:
        raise EditRefused(f"refused: {path}: {error}") from error
    return edit


def _read(path: str) -> str | None:
    if not os.path.exists(path):
        return None
    if os.path.getsize(path) > FILE_LIMIT_BYTES:
        raise ValueError(f"larger than {FILE_LIMIT_BYTES} bytes")
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()
