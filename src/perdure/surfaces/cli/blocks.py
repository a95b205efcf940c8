"""Markdown that is still being written, cut into finished blocks and a tail. Pure.

Above: paint.py draws the finished blocks once and only the tail again and again. Below: nothing.

A block ends at a blank line that no indented line follows, or with its fence. A fence that grows beyond
`MAX_FENCE_LINES` is cut into several with the same opening, so that the tail stays small.
"""

import re

MAX_FENCE_LINES = 40

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


class Blocks:
    """Feed it text as it comes; it gives back the blocks that will not change any more."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest = ""
        self._fence = ""
        self._opening = ""
        self._blank = False

    @property
    def tail(self) -> str:
        """The block that is being written."""
        return "\n".join([*self._lines, self._rest])

    def feed(self, text: str) -> list[str]:
        lines = (self._rest + text).split("\n")
        self._rest = lines.pop()
        found: list[str] = []
        for line in lines:
            self._line(line, found)
        return found

    def finish(self) -> list[str]:
        """All that is left."""
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
