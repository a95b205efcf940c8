"""Output of commands: JSON for programs, tables and short figures for people.

Above: every command. Below: click, and rich if stdout is a wide terminal. Piped output has plain columns and never a
colour code. Text from agents and files is sanitized before it reaches a terminal.
"""

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import click

from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.short_text import safe

WIDE_COLUMNS = 72
GAP_COLUMNS = 3
LAST_COLUMNS = 16
PARAGRAPH_COLUMNS = 100


def safe_bytes(text: bytes) -> bytes:
    return safe(text.decode("utf-8", "replace")).encode("utf-8", "replace")


def print_json(value: Any) -> None:
    if sys.stdout.isatty():
        # JSON escapes C0 controls, but neither C1 nor bidi controls.
        click.echo(safe(json.dumps(value, ensure_ascii=False, indent=2)))
    else:
        click.echo(json.dumps(value, ensure_ascii=False))


def print_paragraph(text: str) -> None:
    click.echo(paragraph(text, sys.stdout))


def paragraph(text: str, stream: TextIO) -> str:
    """The text with commands as the user types them. For a terminal it is sanitized and wrapped; line breaks and
    indented lines stay."""
    text = as_typed(text)
    if not stream.isatty():
        return text
    lines = safe(text).split("\n")
    return "\n".join(line if line.startswith(" ") else wrapped(line, stream) for line in lines)


def wrapped(text: str, stream: TextIO, indent: int = 0) -> str:
    """The text, wrapped between words to the terminal's width. All lines but the first are indented. In a pipe it stays
    unchanged."""
    if not stream.isatty():
        return text
    columns = max(20, min(PARAGRAPH_COLUMNS, shutil.get_terminal_size().columns) - indent)
    lines = textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False)
    return ("\n" + " " * indent).join(lines)


def print_raw(line: bytes) -> None:
    """Print a JSON line as the server sent it; sanitized for a terminal."""
    sys.stdout.buffer.write((safe_bytes(line) if sys.stdout.isatty() else line) + b"\n")
    sys.stdout.buffer.flush()


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    empty: str,
    *,
    figures_from: int | None = None,
    wrap_last: bool = False,
) -> None:
    """Print a table, or `empty` on stderr if there are no rows. Columns from `figures_from` on hold numbers: they are
    right-aligned and never cut. With `wrap_last` the last column wraps; otherwise text that does not fit is cut. In a
    terminal too narrow for that, it goes below the others."""
    if not rows:
        click.echo(as_typed(empty), err=True)
        return
    cells = [[safe(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [headings, *cells]) for column in range(len(headings))]
    columns = shutil.get_terminal_size().columns
    needed = WIDE_COLUMNS if figures_from is None else sum(widths) + GAP_COLUMNS * len(widths)
    figures_from = len(headings) if figures_from is None else figures_from
    if sys.stdout.isatty() and columns >= needed:
        room = columns - sum(widths[:-1]) - GAP_COLUMNS * (len(widths) - 1)
        # Only the last column shrinks, as long as enough of it stays visible.
        least = widths[:-1] if room >= LAST_COLUMNS else []
        _rich_table(headings, cells, figures_from, least, wrap_last)
        return
    if sys.stdout.isatty() and wrap_last and sum(widths) + GAP_COLUMNS * len(widths) > columns:
        _stacked(cells)
        return
    for row in [[heading.upper() for heading in headings], *cells]:
        padded = [
            cell.ljust(width) if number < figures_from else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(padded).rstrip())


def _stacked(cells: Sequence[Sequence[str]]) -> None:
    """Rows for a narrow terminal: the first cell, which people copy, on a line of its own."""
    for first, *middle, last in cells:
        click.echo(first)
        for line in ("  ".join(filter(None, middle)), last):
            if line:
                click.echo("  " + wrapped(line, sys.stdout, indent=2))


def _rich_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    figures_from: int,
    least: Sequence[int],
    wrap_last: bool,
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(headings):
        # People copy the first column, so it is never cut.
        justify: Literal["left", "right"] = "left" if number < figures_from else "right"
        wraps = wrap_last and number == len(headings) - 1
        table.add_column(
            heading,
            no_wrap=not wraps,
            overflow="ellipsis" if number and not wraps else "fold",
            justify=justify,
            min_width=least[number] if number < len(least) else None,
        )
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console(highlight=False).print(table)


_STYLES = {
    "waiting for you": "yellow",
    "asks you": "yellow",
    "working": "cyan",
    "waiting": "dim",
    "failed": "red",
    "problem": "red",
    "warning": "yellow",
}


def duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return ""
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, seconds = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count: float) -> str:
    """A human-readable size in bytes."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def seconds_since(stamp: str) -> float:
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds())


def age(stamp: str | None) -> str:
    """How long ago, in one unit."""
    if not stamp:
        return ""
    past_s = seconds_since(stamp)
    for limit_s, unit_s, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if past_s < limit_s:
            return f"{int(past_s // unit_s)} {unit} ago"
    return f"{int(past_s // 86400)} d ago"


def condition(session: dict[str, Any]) -> str:
    """The session's state in words for people."""
    if session.get("pending_prompts"):
        return "waiting for you"
    if session["state"] == "accepted":
        return "waiting"
    if session["state"] == "processing":
        return "working"
    return str(session["status"]) if session["state"] == "ended" else "idle"
