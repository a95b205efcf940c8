"""A tool as an agent reads it in a transcript: a line that names it, and below it what came of it.

Above: transcript.py. Below: a turn's parts as view.py makes them, and line_comparison.py. The whole result is given
here, however long it is; digest.py cuts it to size. Pure.
"""

from collections.abc import Iterator
from typing import Any

from perdure.core.line_comparison import compare, groups

OUTCOMES = {"denied": "denied, not done", "interrupted": "interrupted, perhaps not done"}


def tool_line(part: dict[str, Any]) -> str:
    name, title = part["name"], part["title"] or part["name"]
    # A title often begins with the name already.
    what = title if (title + " ").startswith((f"{name} ", f"{name}:")) else f"{name}: {title}"
    return f"[tool {what} ({OUTCOMES.get(part.get('outcome', ''), part['status'])})]"


def tool_result(part: dict[str, Any]) -> str:
    """What the tool changed, or else what it said. A sub-agent's own tools are left to its report."""
    if part.get("parent_tool_id") is not None:
        return ""
    changed = part.get("diff") if part["status"] == "completed" and part.get("outcome") is None else None
    texts = [diff_text(entry) for entry in changed or []]
    return "\n".join(text for text in texts if text) or str(part.get("content") or "").strip("\n")


def diff_text(entry: dict[str, Any]) -> str:
    """A change of one file as a unified diff without line numbers: an agent may report a passage or the whole file."""
    old, new = str(entry.get("old_text") or "").splitlines(), str(entry.get("new_text") or "").splitlines()
    if old == new:
        return ""
    path = entry.get("path") or "a file"
    before = path if entry.get("old_text") is not None else "/dev/null"
    return "\n".join([f"--- {before}", f"+++ {path}", *_compared(old, new)])


def _compared(old: list[str], new: list[str]) -> Iterator[str]:
    """The lines that differ and a few around them, marked as in a unified diff, with `@@` before each group."""
    lines = list(compare(old, new))
    for first, last in groups(lines):
        yield "@@"
        yield from lines[first:last]
