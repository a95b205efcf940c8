"""Renders pieces of a conversation as coloured text: finished text, and a tail that may still change.

Above: the chat, which prints finished text into the scrollback and redraws only the tail. Below: rich, and blocks.py.
Redrawing a whole long answer would cost twenty times as much.
"""

import io
import os
import shutil
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.blocks import Blocks
from perdure.surfaces.cli.narration import (
    Answered,
    Asked,
    Began,
    Busy,
    Changed,
    Details,
    Ended,
    Finished,
    Line,
    Piece,
    Said,
    Starts,
    Thought,
    Waits,
)
from perdure.surfaces.cli.output import duration
from perdure.surfaces.cli.prompts import choices
from perdure.surfaces.cli.rows import (
    CHANGE_LINES,
    OUTPUT_FIRST_LINES,
    OUTPUT_LAST_LINES,
    Row,
    fold_end,
    fold_middle,
    lay_out,
)
from perdure.surfaces.short_text import safe

TONES = {"user": "bold", "tool": "cyan", "failed": "red", "note": "dim", "error": "red", "plan": "blue"}
MARKS = {"user": "You: ", "tool": "> ", "failed": "> ", "note": "", "error": "", "plan": ""}
MIN_REDRAW_S = 0.05
# At most this share of the time is spent on drawing the tail.
DRAWING_SHARE = 0.2
TAIL_CHARS = 20_000
# Screen lines reserved for a prompt's choices, the status line, the input and earlier text.
PROMPT_RESERVED_LINES = 10
PROMPT_MIN_LINES = 6
FOLDED_MAX = 50
EXPAND_HINT = " (Ctrl-O shows all)"
CHAT_STOPS = {"failed": "The turn failed. /retry re-runs it."}
QUESTION_HINT = "Enter a number or your own text. /skip closes the question without an answer."


class _Folded(NamedTuple):
    rows: Sequence[Row]
    prompt: dict[str, Any] | None = None
    """The prompt that the rows belong to, while it is open."""


class Painter:
    """Turns pieces into ANSI text."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._blocks = Blocks()
        self._thinking = False
        self._doing: tuple[str, ...] = ()
        self._drawn = ""
        self._is_stale = False
        self._next_draw = 0.0
        self._folded: deque[_Folded] = deque(maxlen=FOLDED_MAX)
        self._is_apart = True
        """Whether the last painted line is empty."""

    def paint(self, piece: Piece) -> str:
        """The text that this piece finishes, ready for the scrollback."""
        finished = self._paint(piece)
        if isinstance(piece, Line) and piece.tone == "user" and not self._is_apart:
            finished = "\n" + finished
        if finished:
            self._is_apart = finished.endswith("\n\n")
            # Redraw the tail immediately, or finished text would appear twice.
            self._next_draw = 0.0
        return finished

    def _paint(self, piece: Piece) -> str:
        if isinstance(piece, Said | Thought):
            return self._text(safe(piece.text), isinstance(piece, Thought))
        if isinstance(piece, Busy):
            self._doing, self._is_stale = piece.doing, True
            return ""
        finished = self.finish()
        if isinstance(piece, Line):
            return finished + self._line(MARKS[piece.tone] + safe(piece.text), TONES[piece.tone])
        if isinstance(piece, Waits):
            return finished + self._line(safe(piece.why), TONES["note"])
        if isinstance(piece, Starts):
            return finished + self._line(wording.BEGINS, TONES["note"])
        if isinstance(piece, Details):
            return finished + self._details(piece)
        if isinstance(piece, Changed):
            return finished + self._line(f"{piece.words} (/changes {piece.turn})", TONES["note"])
        if isinstance(piece, Asked):
            room = max(PROMPT_MIN_LINES, shutil.get_terminal_size().lines - PROMPT_RESERVED_LINES)
            lines = self._lay_out(piece.rows)
            shown = fold_end(lines, room, EXPAND_HINT)
            return finished + self._fold(lines, shown, _Folded(piece.rows, piece.prompt)) + self._choices(piece.prompt)
        if isinstance(piece, Answered):
            self._forget_prompt(piece.prompt_id)
            return finished + self._line(safe(wording.resolved(piece.by, piece.outcome, piece.reason)), "dim")
        if isinstance(piece, Finished):
            words = (
                CHAT_STOPS.get(piece.stop_reason)
                or wording.finished(piece.stop_reason, began=piece.began)
                or f"Turn {piece.turn}, {duration(piece.duration_ms)}"
            )
            return (
                finished + self._line(words, "dim" if piece.stop_reason in ("end_turn", "cancelled") else "red") + "\n"
            )
        if isinstance(piece, Ended):
            return finished + self._line(f"The session ended ({piece.status}). /new starts another.", "yellow")
        if isinstance(piece, Began):
            return finished + "\n"
        return finished

    def expand(self) -> str:
        """The full text of the last folded rows, with choices if they belong to an open prompt."""
        if not self._folded:
            return self.note("Nothing is folded.")
        folded = self._folded.pop()
        text = self.finish() + _joined(self._lay_out(folded.rows))
        return text + (self._choices(folded.prompt) if folded.prompt is not None else "")

    def _choices(self, prompt: dict[str, Any]) -> str:
        if prompt["kind"] == "question":
            return self._line(QUESTION_HINT, "dim")
        return "\n" + _joined(self._lay_out(choices(prompt)))

    def _details(self, piece: Details) -> str:
        lines = self._lay_out(piece.rows)
        if piece.ends:
            shown = fold_middle(lines, OUTPUT_FIRST_LINES, OUTPUT_LAST_LINES, EXPAND_HINT)
        else:
            shown = fold_end(lines, CHANGE_LINES, EXPAND_HINT)
        return self._fold(lines, shown, _Folded(piece.rows))

    def _fold(self, lines: list[str], shown: list[str], folded: _Folded) -> str:
        if shown != lines:
            self._folded.append(folded)
        return _joined(shown)

    def _forget_prompt(self, prompt_id: str) -> None:
        for number, folded in enumerate(self._folded):
            if folded.prompt is not None and folded.prompt["prompt_id"] == prompt_id:
                self._folded[number] = folded._replace(prompt=None)

    def _lay_out(self, rows: Sequence[Row]) -> list[str]:
        return lay_out(rows, max(20, self.columns), colour=not os.environ.get("NO_COLOR"))

    def finish(self) -> str:
        """Finish the tail and return it."""
        self._is_stale = True
        return "".join(self._block(block) for block in self._blocks.finish())

    def note(self, text: str, style: str = "dim") -> str:
        self._next_draw = 0.0
        self._is_apart = False
        return self.finish() + self._line(safe(text), style)

    def tail(self) -> str:
        """The text that may still change. Redrawn only if it changed, and not too often."""
        now = time.monotonic()
        if self._is_stale and now >= self._next_draw:
            self._is_stale = False
            text = self._blocks.tail.strip("\n")[-TAIL_CHARS:]
            self._drawn = self._block(text).rstrip("\n") if text else ""
            if self._doing:
                doing = "".join(self._line(f"… {name}", "cyan") for name in self._doing)
                self._drawn = f"{self._drawn}\n{doing}".strip("\n")
            spent_s = time.monotonic() - now
            self._next_draw = now + max(MIN_REDRAW_S, spent_s / DRAWING_SHARE)
        return self._drawn

    @property
    def redraw_in_s(self) -> float | None:
        """In how many seconds the tail needs a redraw; None if it is up to date."""
        return max(0.0, self._next_draw - time.monotonic()) if self._is_stale else None

    def _text(self, text: str, thinking: bool) -> str:
        finished = self.finish() if thinking != self._thinking else ""
        self._thinking = thinking
        self._is_stale = True
        return finished + "".join(self._block(block) for block in self._blocks.feed(text))

    def _block(self, text: str) -> str:
        if self._thinking:
            return self._render(Padding(Text(text, style="dim italic"), (0, 0, 0, 2))) + "\n"
        return self._render(Markdown(text)) + "\n"

    def _line(self, text: str, style: str) -> str:
        return self._render(Text(text, style=style))

    def _render(self, what: RenderableType) -> str:
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, width=max(20, self.columns - 1), highlight=False)
        console.print(what)
        return file.getvalue()


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
