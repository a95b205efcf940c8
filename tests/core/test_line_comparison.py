"""The comparison of two texts: correct and minimal for any small texts, close to minimal and fast for large ones."""

import difflib
import random
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.core.line_comparison import compare, groups

texts = st.integers(1, 10).flatmap(lambda kinds: st.lists(st.sampled_from("abcdefghij"[:kinds]), max_size=40))
LARGE = 20_000


def kept(old: list[str], new: list[str]) -> int:
    """How many lines stay. Also checks that both texts can be read from the comparison."""
    marked = list(compare(old, new))
    assert [line[1:] for line in marked if line[0] in " -"] == old
    assert [line[1:] for line in marked if line[0] in " +"] == new
    return sum(line[0] == " " for line in marked)


def longest_common(old: list[str], new: list[str]) -> int:
    """The length of the longest common subsequence, computed from the definition."""
    row = [0] * (len(new) + 1)
    for line in old:
        above, row = row, [0]
        for j, other in enumerate(new):
            row.append(above[j] + 1 if line == other else max(above[j + 1], row[j]))
    return row[-1]


def edited(lines: list[str], chance: random.Random, share: float) -> list[str]:
    """The lines with this share of them removed, and as many other lines of the same text inserted."""
    found = [line for line in lines if chance.random() > share]
    for _ in range(int(share * len(lines))):
        found.insert(chance.randrange(len(found) + 1), chance.choice(lines))
    return found


@given(texts, texts)
@example(["u", "a", "a", "a", "a"], ["a", "a", "a", "a", "u"])
def test_a_comparison_of_small_texts_is_exact_and_minimal(old: list[str], new: list[str]) -> None:
    assert kept(old, new) == longest_common(old, new)


@given(texts, texts)
def test_removed_lines_come_before_added_ones_in_each_change(old: list[str], new: list[str]) -> None:
    marks = "".join(line[0] for line in compare(old, new))
    assert "+-" not in marks


@given(texts, texts)
def test_a_pure_insertion_is_as_far_down_as_possible(old: list[str], new: list[str]) -> None:
    marked = list(compare(old, new))
    for first, last in groups(marked, 0):
        if {line[0] for line in marked[first:last]} == {"+"} and last < len(marked):
            assert marked[first][1:] != marked[last][1:], marked


def test_an_added_function_has_its_own_last_line() -> None:
    old = ["def one() {", "  1", "}", "", "def three() {", "  3", "}"]
    new = [*old[:4], "def two() {", "  2", "}", "", *old[4:]]
    assert [line for line in compare(old, new) if line[0] == "+"] == ["+def two() {", "+  2", "+}", "+"]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.02, 0.2, 0.6]), st.integers(300, 1500))
def test_a_long_comparison_has_no_more_changes_than_difflib(seed: int, share: float, size: int) -> None:
    chance = random.Random(seed)
    old = [f"line {chance.randrange(size)}" if chance.random() < 0.7 else "" for _ in range(size)]
    new = edited(old, chance, share)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    assert kept(old, new) >= sum(block.size for block in matcher.get_matching_blocks())


def few_changes(size: int) -> tuple[list[str], list[str]]:
    chance = random.Random(1)
    old = [f"line {chance.randrange(size // 4)}" for _ in range(size)]
    return old, edited(old, chance, 0.05)


def repeated_lines(size: int) -> tuple[list[str], list[str]]:
    chance = random.Random(2)
    return chance.choices("abcdefghijklmnopqrstuvwxyz", k=size), chance.choices("abcdefghijklmnopqrstuvwxyz", k=size)


def rewritten(size: int) -> tuple[list[str], list[str]]:
    """Nothing in common but blank lines and braces."""
    common = ["", "}", "    return", "else:"]
    old, new = ([common[i // 3 % 4] if i % 3 else f"{name} {i}" for i in range(size)] for name in ("old", "new"))
    return old, random.Random(3).sample(new, size)


def shuffled(size: int) -> tuple[list[str], list[str]]:
    old = [f"line {i}" for i in range(size)]
    return old, random.Random(4).sample(old, size)


each_large = pytest.mark.parametrize("texts_of", [few_changes, repeated_lines, rewritten, shuffled])


@each_large
def test_the_time_grows_hardly_faster_than_the_texts(texts_of: Callable[[int], tuple[list[str], list[str]]]) -> None:
    def spent(size: int) -> float:
        old, new = texts_of(size)
        began = time.process_time()
        kept(old, new)
        return time.process_time() - began

    small = min(spent(LARGE) for _ in range(2))
    large = min(spent(4 * LARGE) for _ in range(2))
    # A quadratic comparison would take sixteen times as long.
    assert large < 10 * small and large < 3


def test_the_counts_of_a_large_change_are_those_of_the_change() -> None:
    old = [f"line {i % 5000}" for i in range(LARGE)]
    new = [*old[:2_000], *(f"new {i}" for i in range(3_000)), *old[4_000:]]
    marked = list(compare(old, new))
    assert sum(line[0] == "+" for line in marked) == 3_000
    assert sum(line[0] == "-" for line in marked) == 2_000


def test_a_moved_block_of_a_large_text_is_removed_once_and_added_once() -> None:
    old = [f"line {i // 2}" for i in range(LARGE)]
    new = [*old[7_000:], *old[:7_000]]
    assert kept(old, new) == LARGE - 7_000


def test_large_texts_with_few_different_lines_stay_close_to_the_minimum() -> None:
    """Two random texts of two letters have about 81 % in common."""
    chance = random.Random(5)
    assert kept(chance.choices("ab", k=LARGE), chance.choices("ab", k=LARGE)) > 0.77 * LARGE
