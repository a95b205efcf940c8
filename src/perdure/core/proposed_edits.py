"""What an edit would change in the file as it is now: hunks with line numbers and a few lines around them.

Above: runtime/proposals.py, which reads the files. Below: line_comparison.py. Pure. An agent that asks for permission
often names only the passage that it replaces, or the whole of what it writes; a person decides on the difference.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any

from perdure.core.line_comparison import compare, groups

Diff = list[dict[str, Any]]


def place(diff: Diff, text_of: Callable[[str], str | None]) -> Diff:
    """The same change, with line numbers and context where the file is known and the change fits it.

    `text_of` gives a file's text, None if it can't be read. Entries that already have a line number stay as they are.
    """
    placed: Diff = []
    for path, group in groupby(diff, lambda entry: entry.get("path")):
        entries = list(group)
        text = text_of(path) if isinstance(path, str) and not any("line" in entry for entry in entries) else None
        after = _applied(entries, text) if text is not None else None
        if after is None:
            placed += entries
        else:
            placed += hunks(str(path), *after)
    return placed


def hunks(path: str, old: str, new: str) -> Diff:
    """One entry per changed place; `line` is where it begins in the new text."""
    marked = list(compare(lines_of(old), lines_of(new)))
    found: Diff = []
    line, at = 1, 0
    for first, last in groups(marked):
        line += sum(one[0] != "-" for one in marked[at:first])
        at = first
        found.append(_hunk(path, marked[first:last], line))
    return found or [{"path": path, "old_text": "", "new_text": ""}]


def lines_of(text: str) -> list[str]:
    """Lines with their line ends: only `\\n` ends one, as in a unified diff."""
    lines = text.split("\n")
    return [*(line + "\n" for line in lines[:-1]), *lines[-1:]] if lines[-1] else [line + "\n" for line in lines[:-1]]


def _applied(entries: Diff, text: str) -> tuple[str, str] | None:
    """The file before and after all edits; None if one of them does not fit."""
    passages = [str(entry.get("old_text") or "") for entry in entries]
    if "\r\n" in text and not any("\r\n" in passage for passage in passages):
        # Agents name passages of such a file with plain line ends.
        text = text.replace("\r\n", "\n") if all(passages) else text
    after = text
    for entry in entries:
        old, new = entry.get("old_text"), str(entry.get("new_text") or "")
        if old is None or old == after:
            after = new
        elif old and (after.count(old) == 1 or (entry.get("replace_all") and old in after)):
            after = after.replace(old, new)
        else:
            return None
    return text, after


def _hunk(path: str, lines: list[str], line: int) -> dict[str, Any]:
    return {
        "path": path,
        "old_text": "".join(one[1:] for one in lines if one[0] != "+"),
        "new_text": "".join(one[1:] for one in lines if one[0] != "-"),
        "line": line,
    }
