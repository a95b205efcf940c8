"""The small, predictable changes to files that the rehearsal agent makes.

Above: script.py shows them as tool calls, those to a text with a diff. Below: the file system.
It never changes a file outside the working directory, not even through `..` or a symbolic link.
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
    """The edit that appends `count` lines `rehearsed N` to a file, where N numbers these lines."""
    try:
        target = _inside(workdir, path)
        old = _read(target)
    except (OSError, ValueError) as error:
        raise EditRefused(f"refused: {path}: {error}") from error
    number = 1 + sum(line.startswith("rehearsed ") for line in (old or "").splitlines())
    start = f"{old}\n" if old and not old.endswith("\n") else old or ""
    return Edit(target, old, start + "".join(f"rehearsed {number + more}\n" for more in range(count)))


def plan_text(workdir: str, path: str, text: str) -> Edit:
    """The edit that replaces the whole text of a file."""
    try:
        target = _inside(workdir, path)
        return Edit(target, _read(target), text)
    except (OSError, ValueError) as error:
        raise EditRefused(f"refused: {path}: {error}") from error


def make(edit: Edit, path: str) -> None:
    """Make a planned edit. Creates the file and its folders if necessary."""
    try:
        os.makedirs(os.path.dirname(edit.path), exist_ok=True)
        with open(edit.path, "w", encoding="utf-8", newline="") as file:
            file.write(edit.new)
    except (OSError, ValueError) as error:
        raise EditRefused(f"refused: {path}: {error}") from error


def remove(workdir: str, path: str) -> None:
    """Remove a file."""
    try:
        os.remove(_inside(workdir, path))
    except (OSError, ValueError) as error:
        raise EditRefused(f"refused: {path}: {error}") from error


def rename(workdir: str, path: str, to: str) -> None:
    """Rename a file. Creates the folders of the new name if necessary."""
    try:
        target = _inside(workdir, to)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(_inside(workdir, path), target)
    except (OSError, ValueError) as error:
        raise EditRefused(f"refused: {path}: {error}") from error


def _inside(workdir: str, path: str) -> str:
    root = os.path.realpath(workdir)
    target = os.path.realpath(os.path.join(root, path))
    if os.path.commonpath([root, target]) != root or target == root:
        raise EditRefused(f"refused: {path} is not a file inside the working directory")
    return target


def _read(path: str) -> str | None:
    if not os.path.exists(path):
        return None
    if os.path.getsize(path) > FILE_LIMIT_BYTES:
        raise ValueError(f"larger than {FILE_LIMIT_BYTES} bytes")
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()
