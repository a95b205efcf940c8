"""Where lines of a file are after a change. Pure.

Above: the verbs for comments. Below: nothing.
"""

import re

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def touched(patch: bytes, lines: tuple[int, int]) -> tuple[int, int] | None:
    """Where the lines from `lines[0]` to `lines[1]` are after this patch of one file, which has no context lines. None
    if the patch changes or removes one of them."""
    first, last = lines
    if b"\ndeleted file mode" in patch:
        return None
    shift = 0
    for match in _HUNK.finditer(patch):
        at, count, added = int(match[1]), _number(match[2]), _number(match[4])
        # Without old lines, the new ones come after line `at`.
        begin, end = (at + 1, at) if count == 0 else (at, at + count - 1)
        if begin > last:
            break
        if count == 0 and begin <= first:
            shift += added
        elif end < first:
            shift += added - count
        else:
            return None
    return first + shift, last + shift


def replacement(patch: bytes, lines: tuple[int, int]) -> tuple[int, int]:
    """Where these lines are after the patch or, if it changes them, the lines that replace them. Without a replacement,
    the lines around the place."""
    first, last = (_after(patch, line) for line in lines)
    return min(first), max(last)


def _after(patch: bytes, line: int) -> tuple[int, int]:
    shift = 0
    for match in _HUNK.finditer(patch):
        at, count, new_at, added = int(match[1]), _number(match[2]), int(match[3]), _number(match[4])
        if count == 0 or at > line:
            if at >= line:
                break
            shift += added
        elif at <= line < at + count:
            return (new_at, new_at + added - 1) if added else (max(1, new_at), new_at + 1)
        else:
            shift += added - count
    return line + shift, line + shift


def _number(found: bytes | None) -> int:
    return 1 if found is None else int(found)
