"""Diffs in a terminal: exactly the change, at any width, without control characters."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from perdure.core.proposed_edits import hunks, lines_of
from perdure.surfaces.cli.diffs import NO_NEWLINE, FileDiff, counts, file_diffs
from perdure.surfaces.cli.rows import Row, fold_end, fold_middle, lay_out, visible
from perdure.surfaces.short_text import safe

SOME_LINES = ["a", "b", "\tc", "\t\td", "  e", "f  ", "", "é漢🙂", "\x1b[2Jg", "\u202eh", "-", "+", " ", "\\ x"]
texts = st.one_of(
    st.lists(st.sampled_from(SOME_LINES), max_size=20).map("\n".join),
    st.lists(st.sampled_from(SOME_LINES), max_size=20).map(lambda lines: "".join(f"{line}\n" for line in lines)),
    st.text(alphabet=st.characters(exclude_characters="\r"), max_size=60),
)
SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
SHOWN = re.compile(r"  +([0-9]+) ([-+ ])(.*)", re.DOTALL)


def shown_lines(text: str) -> list[str]:
    return [visible(line.removesuffix("\n")) for line in lines_of(text)]


def rebuilt(diff: FileDiff, old: str) -> list[str]:
    """The new lines, reconstructed from the old ones and the shown numbers and marks."""
    before, removed, added = shown_lines(old), set(), {}
    for row in diff.rows:
        if row.text in ("...", NO_NEWLINE) and row.style == "dim":
            continue
        found = SHOWN.fullmatch(row.gutter + row.text)
        assert found, row
        number, mark, text = int(found[1]), found[2], found[3]
        if mark == "-":
            assert before[number - 1] == text
            removed.add(number)
        elif mark == "+":
            added[number] = text
    assert (diff.added, diff.removed) == (len(added), len(removed))
    kept = iter([line for number, line in enumerate(before, 1) if number not in removed])
    size = len(before) - len(removed) + len(added)
    return [added[number] if number in added else next(kept) for number in range(1, size + 1)]


@given(texts, texts)
@example("a\n", "a")
@example("\ta\n", "    a\n")
def test_rows_show_exactly_the_change(old: str, new: str) -> None:
    [diff] = file_diffs([{"path": "a.py", "old_text": old, "new_text": new, "line": 1}])
    assert rebuilt(diff, old) == shown_lines(new)
    both = bool(old) and bool(new)
    noted = [row for row in diff.rows if row.text == NO_NEWLINE and row.style == "dim"]
    assert len(noted) == (both and old.endswith("\n") != new.endswith("\n"))


@given(texts, texts)
def test_a_change_in_several_places_has_the_numbers_of_the_file(old: str, new: str) -> None:
    """A separate hunk may pair lines differently than the whole file; the result is the same."""
    for placed in file_diffs(hunks("a", old, new)):
        assert rebuilt(placed, old) == shown_lines(new)


@given(texts, texts, st.integers(20, 130), st.booleans())
def test_at_any_width_lines_fit_and_keep_their_indentation_and_every_character(
    old: str, new: str, columns: int, colour: bool
) -> None:
    [diff] = file_diffs([{"path": "a.py", "old_text": old, "new_text": new, "line": 98}])
    for row in diff.rows:
        lines = lay_out([row], columns, colour=colour)
        bare = [SEQUENCE.sub("", line) for line in lines]
        assert colour or bare == lines
        assert all(cell_len(line) < columns for line in bare), bare
        assert all(safe(line) == line and "\t" not in line and "\n" not in line for line in bare), bare
        text = "".join(line[len(row.gutter) :] for line in bare)
        if row.spaces:
            assert "".join(re.sub("[→·]|\\\\u{[0-9a-f]+}", "", text).split()) == "".join(
                re.sub("\\\\u{[0-9a-f]+}", "", row.text).split()
            )
        elif row.text.isascii():
            assert text == row.text.expandtabs(4)
        else:
            assert text.split() == row.text.split()


def test_tabs_and_trailing_blanks_are_visible_if_nothing_else_changed() -> None:
    [diff] = file_diffs([{"path": "a", "old_text": "\tx = 1\ny\n", "new_text": "    x = 1\ny  \n", "line": 1}])
    assert lay_out(diff.rows, 80, colour=False) == ["  1 -→   x = 1", "  2 -y", "  1 +    x = 1", "  2 +y··"]
    assert lay_out(diff.rows, None, colour=False) == ["  1 -\tx = 1", "  2 -y", "  1 +    x = 1", "  2 +y  "]
    [plain] = file_diffs([{"path": "a", "old_text": "\tx = 1\n", "new_text": "\tx = 2\n", "line": 1}])
    assert lay_out(plain.rows, 80, colour=False) == ["  1 -    x = 1", "  1 +    x = 2"]


def test_windows_line_endings_are_shown_only_where_they_change() -> None:
    [same] = file_diffs([{"path": "a", "old_text": "x\r\ny\r\n", "new_text": "x\r\nz\r\n"}])
    assert [row.text for row in same.rows] == ["x", "y", "z"]
    [changed] = file_diffs([{"path": "a", "old_text": "x\ny\n", "new_text": "x\r\ny\n"}])
    assert [row.text for row in changed.rows] == ["x", "x\\u{d}", "y"]


def test_a_change_without_line_numbers_has_marks_and_no_empty_column() -> None:
    [diff] = file_diffs([{"path": "a", "old_text": "hello", "new_text": "goodbye"}])
    assert lay_out(diff.rows, 80, colour=False) == ["  -hello", "  +goodbye"]
    assert lay_out(diff.rows, 80, colour=True) == ["\x1b[31m  -hello\x1b[0m", "\x1b[32m  +goodbye\x1b[0m"]
    assert counts([{"path": "a", "old_text": "hello", "new_text": "goodbye"}]) == "+1 -1"
    assert counts([{"path": "a", "old_text": "x", "new_text": "x"}]) == ""


def test_a_replaced_file_with_unknown_old_text_says_so_before_its_new_text() -> None:
    entry = {"path": "a", "old_text": None, "new_text": "two\n"}
    [new], [there] = file_diffs([entry]), file_diffs([{**entry, "overwrites": True}])
    assert there.rows[1:] == new.rows and there.rows[0].text.startswith("The file exists.")


def test_a_long_line_wraps_with_an_empty_gutter() -> None:
    row = Row("x" * 50, "added", "  12 +")
    assert lay_out([row], 40, colour=False) == ["  12 +" + "x" * 33, "      " + "x" * 17]


@given(st.integers(0, 60), st.integers(0, 40), st.integers(0, 9), st.integers(0, 9))
def test_folding_says_how_many_lines_are_left_out(count: int, room: int, first: int, last: int) -> None:
    lines = [f"line {number}" for number in range(count)]
    shown = fold_end(lines, room)
    left_out = [line for line in shown if line.startswith("  ...")]
    assert len(shown) <= max(2, room) and (shown == lines) == (not left_out)
    if left_out:
        assert f"... {count - len(shown) + 1} more lines" in left_out[0] and shown[:-1] == lines[: len(shown) - 1]
    middle = fold_middle(lines, first, last, " (key)")
    if middle != lines:
        assert middle[first] == f"  ... {count - first - last} lines (key) ..."
        assert [*middle[:first], *middle[first + 1 :]] == lines[:first] + lines[count - last :]


@pytest.mark.parametrize("text", ["\x1b]0;title\x07", "\x9b31m", "a\rb", "\u202ereversed\u2066", "zero\u200bwidth"])
def test_invisible_characters_are_written_out(text: str) -> None:
    assert safe(visible(text)) == visible(text) != text and "\\u{" in visible(text)
