"""Splits streaming Markdown into finished blocks and an unfinished tail. Pure.

Above: paint.py, which draws finished blocks once and redraws only the tail. Below: nothing.

A block ends at a blank line that is not followed by an indented line, or at the end of its fence. A fence of more than
`MAX_FENCE_LINES` is split into several with the same opening, to keep the tail small.
"""

import re

MAX_FENCE_LINES = 40

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


class Blocks:
    """Feed it text as it arrives. It returns blocks that are final."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest = ""
        self._fence = ""
        self._opening = ""
        self._blank = False

    @property
    def tail(self) -> str:
        """The unfinished block."""
        return "\n".join([*self._lines, self._rest])

    def feed(self, text: str) -> list[str]:
        lines = (self._rest + text).split("\n")
        self._rest = lines.pop()
        found: list[str] = []
        for line in lines:
            self._line(line, found)
        return found

    def finish(self) -> list[str]:
        """The rest, as finished blocks."""
        found = self.feed("\n") if self._rest else []
        self._cut(found)
        self._fence = ""
        return found

    def _line(self, line: str, found: list[str]) -> None:
        if self._fence:
            self._fenced(line, found)
            return
        if not line.strip():
            self._blank = True
            self._lines.append("")
            return
        if self._blank and not line.startswith(("  ", "\t")):
            self._cut(found)
        self._blank = False
        fence = _FENCE.match(line)
        if fence and not line.startswith("    ") and "`" not in fence[2]:
            self._fence, self._opening = fence[1], line
        self._lines.append(line)

    def _fenced(self, line: str, found: list[str]) -> None:
        self._lines.append(line)
        fence = _FENCE.match(line)
        if fence and fence[1].startswith(self._fence) and not fence[2].strip():
            self._fence = ""
            self._cut(found)
        elif len(self._lines) > MAX_FENCE_LINES:
            self._lines.append(self._fence)
            self._cut(found)
            self._lines = [self._opening]

    def _cut(self, found: list[str]) -> None:
        block = "\n".join(self._lines).strip("\n")
        self._lines, self._blank = [], False
        if block.strip():
            found.append(block)
