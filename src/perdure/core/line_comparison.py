"""Two texts compared line by line, as for a unified diff.

Above: tool_text.py, proposed_edits.py and the terminal's diffs. Below: nothing. Pure, and nearly linear in the length
of the texts: a rewritten file must not cost seconds.
"""

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

COMPARED_LINES = 500
"""A longer passage without a line that both have once is not compared: all of the old one is shown as removed, all of
the new as added."""
COMPARED_PAIRS = COMPARED_LINES**2
"""Pairs of an old and a new line that are compared in all. What comes after is shown like a passage that is too long:
many passages of lines that repeat would otherwise take seconds."""
CONTEXT_LINES = 3


def groups(lines: Sequence[str], context: int = CONTEXT_LINES) -> list[tuple[int, int]]:
    """Where the compared lines differ, with a few lines around: the first line and the one after the last of each."""
    found: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        if line[0] == " ":
            continue
        first, last = max(0, number - context), min(len(lines), number + context + 1)
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def compare(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Every line of both, after a blank if both have it, `-` if only the old text has it, `+` if only the new one.

    They are cut at their anchors, and the passages between these are compared."""
    first_old = first_new = 0
    left = COMPARED_PAIRS
    for at_old, at_new in [*_anchors(old, new), (len(old), len(new))]:
        removed, added = old[first_old:at_old], new[first_new:at_new]
        pairs = len(removed) * len(added)
        if pairs and pairs <= left and max(len(removed), len(added)) <= COMPARED_LINES:
            left -= pairs
            yield from _passage(removed, added)
        else:
            yield from _replaced(removed, added)
        yield from (f" {line}" for line in old[at_old : at_old + 1])
        first_old, first_new = at_old + 1, at_new + 1


def _passage(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for tag, old_from, old_to, new_from, new_to in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if tag == "equal":
            yield from (f" {line}" for line in old[old_from:old_to])
        else:
            yield from _replaced(old[old_from:old_to], new[new_from:new_to])


def _replaced(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Places of lines that both have exactly once, in the same order in both: the longest such chain, as in a patience
    diff. Lines that the two begin and end with in common are anchors too."""
    shorter = min(len(old), len(new))
    first = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    last = next((i for i in range(shorter - first) if old[-1 - i] != new[-1 - i]), shorter - first)
    head = [(i, i) for i in range(first)]
    tail = [(len(old) - i, len(new) - i) for i in range(last, 0, -1)]
    middle = new[first : len(new) - last]
    places = {line: first + i for line, i in _once(middle).items()}
    common = [(i, places[line]) for line, i in _once(old[first : len(old) - last]).items() if line in places]
    chain = _rising([at_new for _, at_new in common])
    return [*head, *((first + common[i][0], common[i][1]) for i in chain), *tail]


def _once(lines: Sequence[str]) -> dict[str, int]:
    counts = Counter(lines)
    return {line: i for i, line in enumerate(lines) if counts[line] == 1}


def _rising(numbers: list[int]) -> list[int]:
    """Which of these numbers make the longest rising chain."""
    lows: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for i, number in enumerate(numbers):
        length = bisect_left(lows, number)
        before.append(ends[length - 1] if length else -1)
        lows[length : length + 1] = [number]
        ends[length : length + 1] = [i]
    chain: list[int] = []
    i = ends[-1] if ends else -1
    while i >= 0:
        chain.append(i)
        i = before[i]
    return chain[::-1]
