"""A tool as an agent reads it in a transcript: a line that names it, and below it what came of it.

Above: transcript.py. Below: a turn's parts as view.py makes them. The whole result is given here, however long it is;
digest.py cuts it to size. Pure, and nearly linear in the length of the texts: a rewritten file must not cost seconds.
"""

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Any

OUTCOMES = {"denied": "denied, not done", "interrupted": "interrupted, perhaps not done"}
COMPARED_LINES = 500
"""A longer passage without a line that both have once is not compared: all of the old one is shown as removed, all of
the new as added."""
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
    return "\n".join([f"--- {before}", f"+++ {path}", *_compared(old, new)])


def _compared(old: list[str], new: list[str]) -> Iterator[str]:
    """The lines that differ and a few around them, marked as in a unified diff, with `@@` before each group."""
    lines = list(_marked(old, new))
    shown: set[int] = set()
    for number, line in enumerate(lines):
        if line[0] != " ":
            shown.update(range(max(0, number - CONTEXT_LINES), min(len(lines), number + CONTEXT_LINES + 1)))
    for number in sorted(shown):
        if number - 1 not in shown:
            yield "@@"
        yield lines[number]


def _marked(old: list[str], new: list[str]) -> Iterator[str]:
    """Every line of both. They are cut at their anchors, and the passages between these are compared."""
    first_old = first_new = 0
    for at_old, at_new in [*_anchors(old, new), (len(old), len(new))]:
        yield from _passage(old[first_old:at_old], new[first_new:at_new])
        yield from (f" {line}" for line in old[at_old : at_old + 1])
        first_old, first_new = at_old + 1, at_new + 1


def _passage(old: list[str], new: list[str]) -> Iterator[str]:
    if max(len(old), len(new)) > COMPARED_LINES:
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)
        return
    for tag, old_from, old_to, new_from, new_to in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if tag == "equal":
            yield from (f" {line}" for line in old[old_from:old_to])
        else:
            yield from (f"-{line}" for line in old[old_from:old_to])
            yield from (f"+{line}" for line in new[new_from:new_to])


def _anchors(old: list[str], new: list[str]) -> list[tuple[int, int]]:
    """Places of lines that both have exactly once, in the same order in both: the longest such chain, as in a patience
    diff. Lines that the two begin and end with in common are anchors too."""
    shorter = min(len(old), len(new))
    first = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    last = next((i for i in range(shorter - first) if old[-1 - i] != new[-1 - i]), shorter - first)
    head = [(i, i) for i in range(first)]
    tail = [(len(old) - i, len(new) - i) for i in range(last, 0, -1)]
    middle = new[first : len(new) - last]
    places = {line: first + i for line, i in _once(middle).items()}
    common = [(i, places[line]) for line, i in _once(old[first : len(old) - last]).items() if line in places]
    chain = _rising([at_new for _, at_new in common])
    return [*head, *((first + common[i][0], common[i][1]) for i in chain), *tail]


def _once(lines: list[str]) -> dict[str, int]:
    counts = Counter(lines)
    return {line: i for i, line in enumerate(lines) if counts[line] == 1}


def _rising(numbers: list[int]) -> list[int]:
    """Which of these numbers make the longest rising chain."""
    lows: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for i, number in enumerate(numbers):
        length = bisect_left(lows, number)
        before.append(ends[length - 1] if length else -1)
        lows[length : length + 1] = [number]
        ends[length : length + 1] = [i]
    chain: list[int] = []
    i = ends[-1] if ends else -1
    while i >= 0:
        chain.append(i)
        i = before[i]
    return chain[::-1]
