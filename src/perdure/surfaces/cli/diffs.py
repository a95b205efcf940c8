"""File changes as rows of a unified diff: line number if known, mark and text.

Above: tool_rows.py and patches.py. Below: core's line comparison, and rows.py. Pure. Rows show exactly the change:
indentation stays, no character is omitted, and whitespace is made visible in lines that would otherwise look the same.
"""

from itertools import groupby
from typing import Any, NamedTuple

from perdure.core.line_comparison import CONTEXT_LINES, compare, groups
from perdure.core.proposed_edits import lines_of
from perdure.surfaces.cli.rows import OTHER_SPACES, TAB_COLUMNS, Row, Style, visible

Json = dict[str, Any]

NO_NEWLINE = "\\ No newline at the end"
GAP = "..."
_STYLES: dict[str, Style] = {"+": "added", "-": "removed", " ": "plain"}


class FileDiff(NamedTuple):
    """The change of one file. `written`: the whole new text is known, and no old text."""

    path: str
    written: bool
    added: int
    removed: int
    rows: list[Row]

    @property
    def counts(self) -> str:
        return f"+{self.added} -{self.removed}" if self.added or self.removed else "no change"


class DiffLine(NamedTuple):
    """`mark` is `+`, `-`, a blank, or `\\` for the note about a missing newline."""

    mark: str
    text: str
    number: int | None


def file_diffs(entries: list[Json], context: int = CONTEXT_LINES) -> list[FileDiff]:
    """One diff for each file, in the order of the entries, with `context` lines around each change."""
    by_path = groupby(entries, lambda one: one.get("path"))
    return [_file(str(path or "a file"), list(group), context) for path, group in by_path]


def counts(entries: list[Json]) -> str:
    """The numbers of added and removed lines; empty if none."""
    files = file_diffs(entries)
    added, removed = sum(one.added for one in files), sum(one.removed for one in files)
    return f"+{added} -{removed}" if added or removed else ""


def _file(path: str, entries: list[Json], context: int) -> FileDiff:
    shown: list[list[DiffLine]] = []
    shift = added = removed = 0
    for entry in entries:
        old, new = _sides(entry)
        line = entry.get("line", 1 if entry.get("old_text") is None else None)
        marked = list(compare(old, new))
        numbered = _numbered(marked, line, shift, _lacking(old, new))
        shown += [[one for one, at in numbered if first <= at < last] for first, last in groups(marked, context)]
        shift += len(new) - len(old)
        added += sum(one[0] == "+" for one in marked)
        removed += sum(one[0] == "-" for one in marked)
    width = max((len(str(one.number)) for group in shown for one in group if one.number is not None), default=0)
    rows: list[Row] = []
    for group in shown:
        if rows:
            rows.append(Row(GAP, "dim", "  "))
        rows += rows_of(group, width)
    if any(entry.get("replace_all") for entry in entries):
        rows.append(Row("Every occurrence is replaced.", "dim", "  "))
    if any(entry.get("overwrites") for entry in entries):
        # First, because a long diff is folded after its first lines.
        rows.insert(0, Row("The file exists. Its whole content, which is not shown, is replaced.", "dim", "  "))
    written = all(entry.get("old_text") is None for entry in entries)
    return FileDiff(visible(path).replace("\n", " "), written, added, removed, rows)


def _sides(entry: Json) -> tuple[list[str], list[str]]:
    """Both texts as lines with line ends. If neither ends with a newline, or one is empty, a newline is added."""
    old, new = str(entry.get("old_text") or ""), str(entry.get("new_text") or "")
    if not (old.endswith("\n") and new) and not (new.endswith("\n") and old):
        old, new = (text + "\n" if text and not text.endswith("\n") else text for text in (old, new))
    sides = lines_of(old), lines_of(new)
    if all(line.endswith("\r\n") for side in sides for line in side):
        return [line[:-2] + "\n" for line in sides[0]], [line[:-2] + "\n" for line in sides[1]]
    return sides


def _lacking(old: list[str], new: list[str]) -> str:
    """The mark of the side whose last line lacks a newline, if the other side has one."""
    ends = [bool(side) and side[-1].endswith("\n") for side in (old, new)]
    return "" if ends[0] == ends[1] or not (old and new) else "+" if ends[0] else "-"


def _numbered(marked: list[str], line: int | None, shift: int, lacking: str) -> list[tuple[DiffLine, int]]:
    """Each line with its number, and its index in the comparison. Removed lines have their number before the change."""
    found: list[tuple[DiffLine, int]] = []
    at_new = line
    at_old = None if line is None else line - shift
    for at, one in enumerate(marked):
        mark, text = one[0], one[1:]
        found.append((DiffLine(mark, text.removesuffix("\n"), at_old if mark == "-" else at_new), at))
        if not text.endswith("\n") and lacking in ("-", "+") and mark == lacking:
            found.append((DiffLine("\\", NO_NEWLINE, None), at))
        at_old = None if at_old is None else at_old + (mark != "+")
        at_new = None if at_new is None else at_new + (mark != "-")
    return found


def rows_of(group: list[DiffLine], width: int) -> list[Row]:
    """One row for each line, with numbers of `width` digits."""
    rows: list[Row] = []
    for is_change, run in groupby(group, lambda one: one.mark != " "):
        lines = list(run)
        # Lines that would look the same on both sides.
        alike = set.intersection(*({_look(one.text) for one in lines if one.mark == mark} for mark in "-+"))
        for one in lines:
            number = "" if one.number is None else str(one.number)
            if one.mark == "\\":
                rows.append(Row(one.text, "dim", "  " + " " * width))
                continue
            text = one.text if is_change else one.text.removesuffix("\r")
            spaces = is_change and _look(one.text) in alike
            gutter = f"  {number:>{width}} {one.mark}" if width else f"  {one.mark}"
            rows.append(Row(visible(text), _STYLES[one.mark], gutter, spaces))
    return rows


def _look(text: str) -> str:
    """How a line looks without visible whitespace."""
    return OTHER_SPACES.sub(" ", text).expandtabs(TAB_COLUMNS).rstrip()
