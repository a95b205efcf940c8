"""The hunks of one file's patch, as git prints it, and taking some of them back.

Above: discarding parts of a change. Below: nothing. Works on bytes, as a patch may mix encodings and line ends. A line
ends with a newline only; a carriage return is part of it. There is no search for a place that fits: the hunks must come
from a patch to exactly this text.
"""

import re
from collections.abc import Collection, Sequence

import msgspec

_HEADER = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_FILE = b"diff --git "


class Hunk(msgspec.Struct, frozen=True):
    """A part of a patch. The lines include their newlines, if they have one."""

    old_start: int
    """The number of the first old line; if there is none, of the line before."""
    new_start: int
    old_lines: list[bytes]
    new_lines: list[bytes]


def hunks(patch: bytes) -> list[Hunk]:
    """The hunks of one file's patch. A binary file or a change of the mode has none. Raises ValueError if it is not a
    patch of one file."""
    lines = split_lines(patch)
    position = next((number for number, line in enumerate(lines) if line.startswith(b"@@")), len(lines))
    if sum(line.startswith(_FILE) for line in lines[:position]) > 1:
        raise ValueError("the patch has several files")
    found = []
    while position < len(lines):
        hunk, position = _hunk(lines, position)
        found.append(hunk)
    return found


def _hunk(lines: Sequence[bytes], position: int) -> tuple[Hunk, int]:
    """The hunk whose header is at a position, and the position after it."""
    header = _HEADER.match(lines[position])
    if header is None:
        raise ValueError(f"this is not the header of a hunk: {lines[position][:80]!r}")
    old_start, old_count, new_start, new_count = (1 if part is None else int(part) for part in header.groups())
    old: list[bytes] = []
    new: list[bytes] = []
    position += 1
    while (
        len(old) < old_count or len(new) < new_count or (lines[position : position + 1] and _is_note(lines[position]))
    ):
        if position == len(lines):
            raise ValueError("the last hunk is incomplete")
        sign, text = lines[position][:1], lines[position][1:]
        sides = {b" ": (old, new), b"-": (old,), b"+": (new,)}.get(sign)
        if _is_note(lines[position]):
            # "No newline at end of file": of the line before, on the sides that have it.
            sign = lines[position - 1][:1]
            for side in (old, new) if sign == b" " else (old,) if sign == b"-" else (new,):
                side[-1:] = [line.removesuffix(b"\n") for line in side[-1:]]
        elif sides is None:
            raise ValueError(f"a hunk has an unexpected line: {lines[position][:80]!r}")
        else:
            for side in sides:
                side.append(text)
        position += 1
    if (len(old), len(new)) != (old_count, new_count):
        raise ValueError("a hunk has more lines than its header says")
    return Hunk(old_start, new_start, old, new), position


def _is_note(line: bytes) -> bool:
    return line.startswith(b"\\")


def without(text: bytes, all_hunks: Sequence[Hunk], taken_back: Collection[int]) -> bytes:
    """The new text of a patch, with the old lines of some of its hunks, numbered from 0. Raises ValueError if the patch
    is not one to this text, IndexError if it has no such hunk."""
    lines = split_lines(text)
    for number in sorted(set(taken_back), reverse=True):
        if not 0 <= number < len(all_hunks):
            raise IndexError(number)
        hunk = all_hunks[number]
        # Without new lines, the number is that of the line before.
        start = hunk.new_start - 1 if hunk.new_lines else hunk.new_start
        end = start + len(hunk.new_lines)
        if lines[start:end] != hunk.new_lines:
            raise ValueError("the patch is not one to this text")
        lines[start:end] = hunk.old_lines
    return b"".join(lines)


def split_lines(text: bytes) -> list[bytes]:
    """The lines with their newlines. Only a newline ends a line, unlike in `splitlines`."""
    lines = [line + b"\n" for line in text.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
