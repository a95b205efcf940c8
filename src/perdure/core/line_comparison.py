"""Compares two texts line by line, as for a unified diff. Pure.

Above: tool_text.py, proposed_edits.py and the terminal's diffs. Below: nothing. Nearly linear in the length of the
texts, so that a rewritten file does not take seconds.
"""

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

COMPARED_LINES = 500
"""A longer passage without an anchor (a line that occurs exactly once in both texts) is not compared: all old lines are
shown as removed, all new ones as added."""
COMPARED_PAIRS = COMPARED_LINES**2
"""The total budget of compared pairs of lines. Passages beyond it are treated like overlong ones: many passages of
repeated lines would otherwise take seconds."""
CONTEXT_LINES = 3


def groups(lines: Sequence[str], context: int = CONTEXT_LINES) -> list[tuple[int, int]]:
    """The ranges of compared lines that differ, with some context: the first line, and the one after the last."""
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
    """Every line of both texts, prefixed with a blank if it is in both, `-` if only in the old, `+` if only in the new.

    The texts are split at their anchors, and the passages between are compared."""
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
    """The positions of lines that occur exactly once in both texts: the longest chain in the same order, as in a
    patience diff. The common first and last lines are anchors too."""
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
    """The indices of the longest increasing subsequence."""
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
