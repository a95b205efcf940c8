"""Pieces of a conversation as coloured text for a terminal: what is finished, and the tail that may still change.

Above: chat prints what is finished into the scrollback and keeps only the tail on its screen. Below: rich, and
blocks.py. Whole-message redraws cost twenty times as much for a long answer.
"""

import io
import time

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.blocks import Blocks
from perdure.surfaces.cli.narration import Answered, Asked, Began, Busy, Ended, Finished, Line, Piece, Said, Thought
from perdure.surfaces.cli.output import duration, safe

TONES = {"user": "bold", "tool": "cyan", "failed": "red", "note": "dim", "error": "red", "plan": "blue"}
MARKS = {"user": "You: ", "tool": "> ", "failed": "> ", "note": "", "error": "", "plan": ""}
MIN_REDRAW_S = 0.05
# The tail is drawn at most this part of the time, whatever one drawing takes.
DRAWING_SHARE = 0.2
TAIL_CHARS = 20_000


class Painter:
    """Takes pieces, gives ANSI text."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._blocks = Blocks()
        self._thinking = False
        self._doing: tuple[str, ...] = ()
        self._drawn = ""
        self._is_stale = False
        self._next_draw = 0.0

    def paint(self, piece: Piece) -> str:
        """What a piece finishes, ready for the scrollback."""
        finished = self._paint(piece)
        if finished:
            # What is finished must leave the tail at once, or it would stand there twice.
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
        if isinstance(piece, Asked):
            return finished + self._line(wording.prompt(piece.prompt), "yellow")
        if isinstance(piece, Answered):
            return finished + self._line(wording.resolved(piece.by, piece.outcome), "dim")
        if isinstance(piece, Finished):
            words = wording.finished(piece.stop_reason) or f"Turn {piece.turn}, {duration(piece.duration_ms)}"
            return (
                finished + self._line(words, "dim" if piece.stop_reason in ("end_turn", "cancelled") else "red") + "\n"
            )
        if isinstance(piece, Ended):
            return finished + self._line(f"The session ended ({piece.status}). /new begins another.", "yellow")
        if isinstance(piece, Began):
            return finished + "\n"
        return finished

    def finish(self) -> str:
        """The tail, as finished."""
        self._is_stale = True
        return "".join(self._block(block) for block in self._blocks.finish())

    def note(self, text: str, style: str = "dim") -> str:
        self._next_draw = 0.0
        return self.finish() + self._line(safe(text), style)

    def tail(self) -> str:
        """What may still change. Drawn again only if it did, and not too often."""
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
        """When the tail wants to be drawn again; None: it is as it should be."""
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
