"""What a proposed edit would change in the current file: hunks with line numbers and context. Pure.

Above: runtime/running/proposals.py, which reads the files; the Claude driver and the terminal's diffs.
Below: line_comparison.py. An agent that asks for permission often reports only the passage that it replaces, or the
whole new file. A person needs to see the difference.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any

from perdure.core.line_comparison import compare, groups

Diff = list[dict[str, Any]]


def place(diff: Diff, text_of: Callable[[str], str | None]) -> Diff:
    """The same change, with line numbers and context if the file can be read and the change applies to it.

    `text_of` returns a file's text, or None if it can't be read. Entries that already have a line number don't change.
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
    """One entry per hunk; `line` is the hunk's first line in the new text."""
    marked = list(compare(lines_of(old), lines_of(new)))
    found: Diff = []
    line, at = 1, 0
    for first, last in groups(marked):
        line += sum(one[0] != "-" for one in marked[at:first])
        at = first
        found.append(_hunk(path, marked[first:last], line))
    return found or [{"path": path, "old_text": "", "new_text": ""}]


def lines_of(text: str) -> list[str]:
    """Lines including their line ends. Only `\\n` ends a line, as in a unified diff."""
    lines = text.split("\n")
    return [*(line + "\n" for line in lines[:-1]), *lines[-1:]] if lines[-1] else [line + "\n" for line in lines[:-1]]


def _applied(entries: Diff, text: str) -> tuple[str, str] | None:
    """The file before and after all edits; None if one of them doesn't apply."""
    passages = [str(entry.get("old_text") or "") for entry in entries]
    if "\r\n" in text and not any("\r\n" in passage for passage in passages):
        # Agents report passages of a file with CRLF line ends with plain `\n`.
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
