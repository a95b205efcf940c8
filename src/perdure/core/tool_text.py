"""A tool as text in a transcript: a line that names it, and its result. Pure.

Above: transcript.py. Below: a turn's parts as view.py makes them, and line_comparison.py. Results have their full
length here; digest.py cuts them.
"""

from collections.abc import Iterator
from typing import Any

from perdure.core.line_comparison import compare, groups

OUTCOMES = {"denied": "denied, not done", "interrupted": "interrupted, perhaps not done"}


def tool_line(part: dict[str, Any]) -> str:
    name, title = part["name"], part["title"] or part["name"]
    # Many titles already start with the name.
    what = title if (title + " ").startswith((f"{name} ", f"{name}:")) else f"{name}: {title}"
    return f"[tool {what} ({OUTCOMES.get(part.get('outcome', ''), part['status'])})]"


def tool_result(part: dict[str, Any]) -> str:
    """The tool's changes, or else its output. Tools of a sub-agent have no result: its report covers them."""
    if part.get("parent_tool_id") is not None:
        return ""
    changed = part.get("diff") if part["status"] == "completed" and part.get("outcome") is None else None
    texts = [diff_text(entry) for entry in changed or []]
    return "\n".join(text for text in texts if text) or str(part.get("content") or "").strip("\n")


def diff_text(entry: dict[str, Any]) -> str:
    """A change to one file as a unified diff. Without line numbers, because the agent may report only a passage."""
    old, new = str(entry.get("old_text") or "").splitlines(), str(entry.get("new_text") or "").splitlines()
    if old == new:
        return ""
    path = entry.get("path") or "a file"
    before = path if entry.get("old_text") is not None else "/dev/null"
    return "\n".join([f"--- {before}", f"+++ {path}", *_compared(old, new)])


def _compared(old: list[str], new: list[str]) -> Iterator[str]:
    """The changed lines with some context, marked as in a unified diff, with `@@` before each group."""
    lines = list(compare(old, new))
    for first, last in groups(lines):
        yield "@@"
        yield from lines[first:last]
