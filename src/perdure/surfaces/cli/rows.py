"""Rows for a terminal: text with a style and a gutter, wrapped to the width, coloured, and folded if there are many.

Above: diffs.py and tool_rows.py, which create rows; the chat, `answer`, `show`, `watch` and `send`, which print them.
Below: rich's table of character widths. Pure. Without a width (a pipe), nothing is wrapped and tabs stay tabs.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from rich.cells import cell_len, chop_cells

Style = Literal["plain", "heading", "added", "removed", "dim", "command", "failed"]

CHANGE_LINES = 8
"""How many lines of a finished change are shown."""
OUTPUT_FIRST_LINES, OUTPUT_LAST_LINES = 3, 3
"""How many lines of a command's output are shown."""
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
# Invisible, bidi and control characters. They could make a command or a change look like a different one.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)

OTHER_SPACES = re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_ESCAPED = {"\a": "a", "\b": "b", "\t": "t", "\n": "n", "\v": "v", "\f": "f", "\r": "r", '"': '"', "\\": "\\"}
_UNESCAPED = {letter.encode(): character.encode() for character, letter in _ESCAPED.items()}
_ESCAPE = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')


class Row(NamedTuple):
    """`gutter` precedes the text, and is blank on continuation lines. With `spaces`, tabs and trailing blanks are made
    visible. With `words`, the text wraps between words."""

    text: str
    style: Style = "plain"
    gutter: str = ""
    spaces: bool = False
    words: bool = False


def visible(text: str) -> str:
    """The text with invisible characters as code points; line ends and tabs stay."""
    return _UNSEEN.sub(_code_point, text)


def quoted(path: str) -> str:
    """The path on one line: if it contains control characters, in quotes, as git prints it."""
    if not _CONTROL.search(path):
        return path
    escaped = (
        f"\\{_ESCAPED[char]}" if char in _ESCAPED else f"\\{ord(char):03o}" if _CONTROL.match(char) else char
        for char in path
    )
    return f'"{"".join(escaped)}"'


def unquoted(name: str) -> str:
    """The path that git prints in quotes. Any other name, and one that is not UTF-8, is returned as it is."""
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):
        return name
    try:
        return _ESCAPE.sub(_unescaped, name[1:-1].encode()).decode()
    except UnicodeError:
        return name


def _unescaped(found: "re.Match[bytes]") -> bytes:
    what = found[1]
    return bytes([int(what, 8) & 0xFF]) if len(what) == 3 else _UNESCAPED[what]


def shown_path(path: str) -> str:
    """The path as part of a row, of which it can't make two."""
    return visible(quoted(path))


def _code_point(found: re.Match[str]) -> str:
    return f"\\u{{{ord(found[0]):x}}}"


def lay_out(rows: Sequence[Row], columns: int | None, *, colour: bool) -> list[str]:
    """Lines to print, each at most `columns` - 1 wide, so the terminal does not wrap them."""
    return [line for row in rows for line in _lines(row, columns, colour)]


def and_more(count: int, hint: str = "") -> list[Row]:
    """A row that says how many are not listed."""
    return [Row(f"... and {count} more{hint}", "dim", "  ", words=True)] if count > 0 else []


def fold_end(lines: Sequence[str], room: int, hint: str = "", *, left: int = 0) -> list[str]:
    """The first lines, and how many more there are: those given, and `left`."""
    if len(lines) + left <= max(2, room):
        return list(lines)
    shown = max(1, room - 1)
    return [*lines[:shown], f"  ... {len(lines) - shown + left} more lines{hint}"]


def fold_middle(lines: Sequence[str], first: int, last: int, hint: str = "") -> list[str]:
    """The first and last lines, and how many were left out between them."""
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
    """Expand tabs to the next tab stop, counted from the start of the text."""
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
    # chop_cells drops trailing characters without a width.
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
