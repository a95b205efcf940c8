"""Compares two texts line by line, as for a unified diff. Pure.

Above: tool_text.py, proposed_edits.py and the terminal's diffs. Below: nothing. The number of changed lines is minimal,
except for very large texts, for which it is close to that: a rewritten file must not take seconds.

1. Lines that are only in one text are set aside, because they are changed in any case; the rest becomes numbers.
2. The rest is compared exactly, row by row, with one bit for each old line (Hyyro's algorithm). Python's long integers
   make this a hundred times as fast as a search for the shortest edit.
3. If the rest is large, it is first divided at its anchors, rare lines that occur equally often in both texts, as in a
   patience diff. A passage without anchors that is too large even for bits is divided into halves.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from math import isqrt
from typing import NamedTuple

CONTEXT_LINES = 3
EXACT_PAIRS = 10_000**2
"""A passage with more pairs of an old and a new line is first divided at its anchors."""
ANCHOR_OCCURRENCES = 4
"""How often an anchor may occur in a passage."""
COMPARED_PAIRS = 10 * EXACT_PAIRS
"""The most pairs that are compared in two texts, which takes about half a second."""
HALVED_PAIRS = 1_000**2
"""The size of the parts into which passages are divided beyond that."""


class _Passage(NamedTuple):
    """A part of both texts: from the first line up to the one after the last."""

    old: int
    old_end: int
    new: int
    new_end: int

    @property
    def pairs(self) -> int:
        return (self.old_end - self.old) * (self.new_end - self.new)


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
    In a change, the removed lines come first."""
    first_old = first_new = 0
    for at_old, at_new, count in _moved_down(old, new, _equal_runs(old, new)):
        yield from (f"-{line}" for line in old[first_old:at_old])
        yield from (f"+{line}" for line in new[first_new:at_new])
        yield from (f" {line}" for line in old[at_old : at_old + count])
        first_old, first_new = at_old + count, at_new + count


def _equal_runs(old: Sequence[str], new: Sequence[str]) -> list[list[int]]:
    """The runs of equal lines in order: where each starts in both texts, and its length. The last one is at the end of
    both, and may be empty."""
    either = {*old} & {*new}
    at_old = [i for i, line in enumerate(old) if line in either]
    at_new = [i for i, line in enumerate(new) if line in either]
    numbers: dict[str, int] = {}
    shared_old = [numbers.setdefault(old[i], len(numbers)) for i in at_old]
    shared_new = [numbers.setdefault(new[i], len(numbers)) for i in at_new]
    runs: list[list[int]] = []
    for i, j in _Search(shared_old, shared_new).equal():
        if runs and at_old[i] - runs[-1][0] == at_new[j] - runs[-1][1] == runs[-1][2]:
            runs[-1][2] += 1
        else:
            runs.append([at_old[i], at_new[j], 1])
    return [*runs, [len(old), len(new), 0]]


def _moved_down(old: Sequence[str], new: Sequence[str], runs: list[list[int]]) -> Iterator[tuple[int, int, int]]:
    """The runs with each pure insertion or removal as far down as it can be: an added function then has its own last
    line, and not that of the function before it."""
    start_old = start_new = length = 0
    for at_old, at_new, count in runs:
        end_old, end_new = start_old + length, start_new + length
        moved = 0
        if (at_old == end_old) != (at_new == end_new):
            text, first, after = (old, end_old, at_old) if at_new == end_new else (new, end_new, at_new)
            while moved < count and text[first + moved] == text[after + moved]:
                moved += 1
        length += moved
        # A run that was passed completely no longer separates two changes. The last one may be empty.
        if moved < count or not count:
            yield start_old, start_new, length
            start_old, start_new, length = at_old + moved, at_new + moved, count - moved
    yield start_old, start_new, length


class _Search:
    """Finds the lines that stay. Works on numbers for the lines, each of which is in both texts."""

    def __init__(self, old: list[int], new: list[int]) -> None:
        self._old, self._new = old, new
        self._stay_old, self._stay_new = bytearray(len(old)), bytearray(len(new))
        self._left = COMPARED_PAIRS

    def equal(self) -> Iterator[tuple[int, int]]:
        """The positions of the lines that stay, in both texts."""
        undone = [_Passage(0, len(self._old), 0, len(self._new))]
        while undone:
            passage = self._without_ends(undone.pop())
            if passage.pairs > EXACT_PAIRS and (anchors := self._anchors(passage)):
                undone += self._between(passage, anchors)
            elif passage.pairs > max(self._left, HALVED_PAIRS):
                undone += _halves(passage)
            elif passage.pairs:
                self._left -= passage.pairs
                self._compare(passage)
        stay_old = (i for i, stays in enumerate(self._stay_old) if stays)
        stay_new = (j for j, stays in enumerate(self._stay_new) if stays)
        return zip(stay_old, stay_new, strict=True)

    def _stay(self, old: int, new: int) -> None:
        self._stay_old[old] = self._stay_new[new] = 1

    def _without_ends(self, passage: _Passage) -> _Passage:
        """The passage without its common first and last lines, which stay."""
        old, old_end, new, new_end = passage
        while old < old_end and new < new_end and self._old[old] == self._new[new]:
            self._stay(old, new)
            old, new = old + 1, new + 1
        while old < old_end and new < new_end and self._old[old_end - 1] == self._new[new_end - 1]:
            old_end, new_end = old_end - 1, new_end - 1
            self._stay(old_end, new_end)
        return _Passage(old, old_end, new, new_end)

    def _anchors(self, passage: _Passage) -> list[tuple[int, int]]:
        """The positions of the rarest lines that occur equally often in both parts, if they are rare: the longest chain
        in the same order."""
        old, new = self._old[passage.old : passage.old_end], self._new[passage.new : passage.new_end]
        counts_old, counts_new = Counter(old), Counter(new)
        alike = [line for line, count in counts_old.items() if counts_new[line] == count]
        rarest = min((counts_old[line] for line in alike), default=0)
        wanted = {line for line in alike if counts_old[line] == rarest <= ANCHOR_OCCURRENCES}
        places: dict[int, list[int]] = {}
        for j, line in enumerate(new):
            if line in wanted:
                places.setdefault(line, []).append(j)
        following = {line: iter(found) for line, found in places.items()}
        common = [(i, next(following[line])) for i, line in enumerate(old) if line in wanted]
        chain = (common[one] for one in _rising([j for _, j in common]))
        return [(passage.old + i, passage.new + j) for i, j in chain]

    def _between(self, passage: _Passage, anchors: list[tuple[int, int]]) -> list[_Passage]:
        """Keeps the anchors, and returns the passages between them."""
        between: list[_Passage] = []
        old, new = passage.old, passage.new
        for at_old, at_new in anchors:
            self._stay(at_old, at_new)
            between.append(_Passage(old, at_old, new, at_new))
            old, new = at_old + 1, at_new + 1
        return [*between, _Passage(old, passage.old_end, new, passage.new_end)]

    def _compare(self, passage: _Passage) -> None:
        """Keeps a longest common subsequence of both parts."""
        rows = _Rows(self._old[passage.old : passage.old_end], self._new[passage.new : passage.new_end])
        old, new = passage.old_end - passage.old, passage.new_end - passage.new
        while old and new:
            # From the end: a set bit says that the old line adds nothing to what both have in common up to here.
            if rows[new] >> (old - 1) & 1:
                old -= 1
            elif rows[new - 1] >> (old - 1) & 1:
                old, new = old - 1, new - 1
                self._stay(passage.old + old, passage.new + new)
            else:
                new -= 1


class _Rows:
    """The rows of the table of longest common subsequences: one for each number of new lines, with a bit for each old
    line. To save memory, only some rows are kept, and those after them are computed again when they are needed."""

    def __init__(self, old: list[int], new: list[int]) -> None:
        self._new = new
        self._all = (1 << len(old)) - 1
        self._places = dict.fromkeys(new, 0)
        for i, line in enumerate(old):
            if line in self._places:
                self._places[line] |= 1 << i
        self._step = isqrt(len(new)) + 1
        self._kept = [self._all]
        self._block, self._first = [self._all], 0
        for first in range(0, len(new), self._step):
            self._kept.append(self._after(self._kept[-1], first)[-1])

    def _after(self, row: int, first: int) -> list[int]:
        """This row, and those after each of the next new lines."""
        rows = [row]
        for line in self._new[first : first + self._step]:
            in_both = row & self._places[line]
            row = ((row + in_both) | (row - in_both)) & self._all
            rows.append(row)
        return rows

    def __getitem__(self, count: int) -> int:
        """The row after so many new lines."""
        if not self._first <= count < self._first + len(self._block):
            number = count // self._step
            self._first = number * self._step
            self._block = self._after(self._kept[number], self._first)
        return self._block[count - self._first]


def _halves(passage: _Passage) -> list[_Passage]:
    old, old_end, new, new_end = passage
    middle_old, middle_new = (old + old_end) // 2, (new + new_end) // 2
    return [_Passage(old, middle_old, new, middle_new), _Passage(middle_old, old_end, middle_new, new_end)]


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
