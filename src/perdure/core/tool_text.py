"""A tool as an agent reads it in a transcript: a line that names it, and below it what came of it.

Above: transcript.py. Below: a turn's parts as view.py makes them. The whole result is given here, however long it is;
digest.py cuts it to size. Pure, and nearly linear in the length of the texts: a rewritten file must not cost seconds.
"""

import difflib
from typing import Any

OUTCOMES = {"denied": "denied, not done", "interrupted": "interrupted, perhaps not done"}
COMPARED_LINES = 500
"""Longer passages are not compared line by line: all of the old one is shown as removed, all of the new as added."""
CONTEXT_LINES = 3


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
    return "\n".join([f"--- {before}", f"+++ {path}", *_compared(*_around_the_change(old, new))])


def _around_the_change(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    """Both without what they have in common at the beginning and at the end, but for a few lines of it."""
    shorter = min(len(old), len(new))
    first = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    last = next((i for i in range(shorter - first) if old[-1 - i] != new[-1 - i]), shorter - first)
    first, last = max(0, first - CONTEXT_LINES), max(0, last - CONTEXT_LINES)
    return old[first : len(old) - last], new[first : len(new) - last]


def _compared(old: list[str], new: list[str]) -> list[str]:
    if max(len(old), len(new)) > COMPARED_LINES:
        return [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    lines = list(difflib.unified_diff(old, new, n=CONTEXT_LINES, lineterm=""))[2:]
    return ["@@" if line.startswith("@@") else line for line in lines]
