"""Rows for a terminal: text with a style and a gutter, wrapped to the width, coloured, and folded when there are many.

Above: diffs.py and review.py make rows; the chat, `answer`, `show`, `watch` and `send` print them. Below: rich's table
of character widths. Pure. Without a width (a pipe) nothing is wrapped and tabs stay tabs.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from rich.cells import cell_len, chop_cells

Style = Literal["plain", "heading", "added", "removed", "dim", "command", "failed"]

CHANGE_LINES = 8
"""So much of a change is shown after it was made."""
OUTPUT_FIRST_LINES, OUTPUT_LAST_LINES = 3, 3
"""So much of what a command printed."""
TAB_COLUMNS = 4
MIN_TEXT_COLUMNS = 8
COLOURS: dict[Style, str] = {
    "plain": "",
    "heading": "1;33",
    "added": "32",
    "removed": "31",
    "dim": "2",
    "command": "1",
    "failed": "31",
}
# Characters that can't be seen, that turn the direction of text round or that control a terminal: they could make a
# command or a change look like another one.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)

OTHER_SPACES = re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")


class Row(NamedTuple):
    """`gutter` is what precedes the text, and is left blank where the text goes on in the next line. With `spaces` tabs
    and blanks at the end are made visible: they are what the row is about. `words`: a sentence, which is broken between
    words."""

    text: str
    style: Style = "plain"
    gutter: str = ""
    spaces: bool = False
    words: bool = False


def visible(text: str) -> str:
    """Text in which every character can be seen; line ends and tabs are kept."""
    return _UNSEEN.sub(_code_point, text)


def _code_point(found: re.Match[str]) -> str:
    return f"\\u{{{ord(found[0]):x}}}"


def lay_out(rows: Sequence[Row], columns: int | None, *, colour: bool) -> list[str]:
    """Lines to print, each at most `columns` - 1 wide, so that no terminal wraps them itself."""
    return [line for row in rows for line in _lines(row, columns, colour)]


def fold_end(lines: Sequence[str], room: int, hint: str = "") -> list[str]:
    """The first lines, and how many more there are."""
    if len(lines) <= max(2, room):
        return list(lines)
    shown = max(1, room - 1)
    return [*lines[:shown], f"  ... {len(lines) - shown} more lines{hint}"]


def fold_middle(lines: Sequence[str], first: int, last: int, hint: str = "") -> list[str]:
    """The first and the last lines, and how many there are between them."""
    left_out = len(lines) - first - last
    if left_out < 2:
        return list(lines)
    return [*lines[:first], f"  ... {left_out} lines{hint} ...", *lines[len(lines) - last :]]


def _lines(row: Row, columns: int | None, colour: bool) -> Iterator[str]:
    if columns is None:
        yield f"{row.gutter}{row.text}".rstrip() if not row.text else row.gutter + row.text
        return
    width = max(MIN_TEXT_COLUMNS, columns - 1 - cell_len(row.gutter))
    gutter, blank = row.gutter, " " * cell_len(row.gutter)
    wrap = _wrapped_words if row.words else _wrapped
    for part in wrap(_expanded(row.text, row.spaces), width):
        yield _painted(gutter + part, row.style, colour)
        gutter = blank


def _painted(text: str, style: Style, colour: bool) -> str:
    return f"\x1b[{COLOURS[style]}m{text}\x1b[0m" if colour and COLOURS[style] and text else text


def _expanded(text: str, spaces: bool) -> str:
    """Tabs as blanks up to the next stop, counted from where the text begins."""
    if spaces:
        bare = text.rstrip(" ")
        text = OTHER_SPACES.sub(_code_point, bare) + "·" * (len(text) - len(bare))
    if "\t" not in text:
        return text
    parts: list[str] = []
    at = 0
    for part in re.split(r"(\t)", text):
        if part == "\t":
            part = ("→" if spaces else " ").ljust(TAB_COLUMNS - at % TAB_COLUMNS)
        at += cell_len(part)
        parts.append(part)
    return "".join(parts)


def _wrapped(text: str, width: int) -> list[str]:
    parts = chop_cells(text, width)
    shown = sum(map(len, parts))
    # What has no width of its own is left out otherwise.
    return [*parts, text[shown:]] if shown < len(text) or not parts else parts


def _wrapped_words(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines[-1:] = [*([lines[-1]] if lines[-1] else []), *_wrapped(word, width)]
    return lines
