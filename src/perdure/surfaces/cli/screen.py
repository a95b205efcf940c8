"""The chat's terminal: unfinished text (the tail), queued messages, status line, input and completions.

Above: conversation.py, which shows text and receives lines. Below: prompt_toolkit. Finished text goes into the
terminal's own scrollback; the screen owns only the last lines. It deliberately knows nothing about sessions.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, ThreadedCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

INPUT_LINES = 10
# Terminal lines reserved for the input and the status line.
RESERVED_LINES = 6
COMPLETION_COLUMNS = 22
COMPLETION_LINES = 8
ESCAPE_WAIT_S = 0.2


class Screen:
    """`on_line` gets the entered line; `on_interrupt` gets True for Ctrl-C and False for Esc; `on_expand` is Ctrl-O and
    `on_clipboard` Ctrl-V. `on_paste` returns what the input shows for a paste, and `kept` what the history stores for a
    line. `waiting` returns the lines below the tail."""

    def __init__(
        self,
        *,
        on_line: Callable[[str], None],
        on_interrupt: Callable[[bool], None],
        on_expand: Callable[[], None],
        on_paste: Callable[[str], str],
        on_clipboard: Callable[[], None],
        tail: Callable[[], str],
        waiting: Callable[[], list[str]],
        status: Callable[[], str],
        mark: Callable[[], str],
        kept: Callable[[str], str],
        completer: Completer,
        history: Path | None,
    ) -> None:
        self._on_line, self._on_interrupt = on_line, on_interrupt
        self._on_expand = on_expand
        self._on_paste, self._on_clipboard, self._kept = on_paste, on_clipboard, kept
        self._tail = tail
        self._stashed: str | None = None
        self.buffer = Buffer(
            multiline=True,
            history=_history(history),
            completer=ThreadedCompleter(completer),
            complete_while_typing=True,
            on_text_changed=self._forget_tab,
        )
        self.buffer.on_completions_changed += self._choose_first
        self._is_tab_pending = False
        """Tab was pressed, and no completion has arrived yet."""
        waiting_window = Window(
            FormattedTextControl(lambda: [("class:waiting italic", "\n".join(waiting()))]), dont_extend_height=True
        )
        status_line = Window(FormattedTextControl(lambda: [("class:status", status())]), height=1)
        entry = Window(
            BufferControl(self.buffer, input_processors=[BeforeInput(mark)]),
            height=Dimension(min=1, max=INPUT_LINES),
            wrap_lines=True,
            dont_extend_height=True,
        )
        tail_window = Window(FormattedTextControl(self._tail_text), dont_extend_height=True)
        self.app: Application[None] = Application(
            layout=Layout(
                HSplit(
                    [
                        tail_window,
                        ConditionalContainer(waiting_window, Condition(lambda: bool(waiting()))),
                        status_line,
                        entry,
                        ConditionalContainer(
                            Window(FormattedTextControl(self._completions), dont_extend_height=True),
                            Condition(lambda: bool(self.buffer.complete_state)),
                        ),
                    ]
                ),
                focused_element=entry,
            ),
            key_bindings=self._keys(),
            output=_output(),
            color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
            min_redraw_interval=0.02,
            refresh_interval=1.0,
            erase_when_done=True,
        )
        self.app.ttimeoutlen = self.app.timeoutlen = ESCAPE_WAIT_S

    @property
    def columns(self) -> int:
        return shutil.get_terminal_size().columns

    @property
    def draft(self) -> str:
        return self.buffer.text

    @draft.setter
    def draft(self, text: str) -> None:
        self.buffer.text = text
        self.buffer.cursor_position = len(text)

    def give_back(self, text: str) -> None:
        """Insert text before the draft, even while the draft is stashed."""
        before = self._stashed if self._stashed is not None else self.draft
        joined = f"{text}\n{before}" if before.strip() else text
        if self._stashed is not None:
            self._stashed = joined
        else:
            self.draft = joined

    def insert(self, text: str) -> None:
        self.buffer.insert_text(text)

    def stash_draft(self) -> None:
        """Put the draft aside while a prompt needs an answer."""
        if self._stashed is None:
            self._stashed, self.draft = self.draft, ""

    def restore_draft(self) -> None:
        if self._stashed is not None:
            self.draft, self._stashed = self._stashed, None

    def show(self, text: str) -> None:
        """Print finished text above.

        Not with `run_in_terminal`, which leaves raw mode for a moment: keys typed then would be echoed, lose their
        Enter, or become a signal.
        """
        if not text:
            return
        if self.app.is_running:
            self.app.renderer.erase()
        self.app.output.write_raw(text.replace("\n", "\r\n"))
        self.app.output.flush()
        self.redraw()

    def redraw(self) -> None:
        self.app.invalidate()

    def leave(self) -> None:
        if self.app.is_running and not self.app.is_done:
            self.app.exit()

    def fail(self, error: BaseException) -> None:
        """End the chat with this error. Otherwise a bug would leave a chat that hangs."""
        if self.app.is_running and not self.app.is_done:
            self.app.exit(exception=error)

    def _tail_text(self) -> AnyFormattedText:
        lines = self._tail().split("\n")
        room = max(3, shutil.get_terminal_size().lines - RESERVED_LINES)
        return ANSI("\n".join(lines[-room:])) if any(lines) else ""

    def _completions(self) -> StyleAndTextTuples:
        """Some completions around the selected one, and how many more there are."""
        state = self.buffer.complete_state
        found, chosen = (state.completions, state.complete_index) if state else ([], None)
        first = max(0, min((chosen or 0) - COMPLETION_LINES // 2, len(found) - COMPLETION_LINES))
        lines: StyleAndTextTuples = []
        for number, one in list(enumerate(found))[first : first + COMPLETION_LINES]:
            about = one.display_meta_text
            text = f"  {one.display_text:<{COMPLETION_COLUMNS}} {about}" if about else f"  {one.display_text}"
            lines += [("reverse" if number == chosen else "", text[: self.columns - 1]), ("", "\n")]
        more = len(found) - COMPLETION_LINES
        return [*lines, ("", f"  {more} more: keep typing, or press Down")] if more > 0 else lines[:-1]

    def _forget_tab(self, _: Buffer) -> None:
        self._is_tab_pending = False

    def _choose_first(self, _: Buffer) -> None:
        state = self.buffer.complete_state
        if self._is_tab_pending and state is not None and state.completions:
            self._is_tab_pending = False
            if state.complete_index is None:
                self.buffer.complete_next()

    def _enter(self) -> None:
        text = self.buffer.text
        # Store pasted text instead of its placeholder, which means nothing in another chat.
        if text.strip():
            self.buffer.history.append_string(self._kept(text))
        self.buffer.reset()
        self._on_line(text)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            self._enter()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            self.buffer.insert_text("\n")

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            self._on_interrupt(True)

        @keys.add("escape")
        def _(event: KeyPressEvent) -> None:
            if self.buffer.complete_state:
                self.buffer.cancel_completion()
            else:
                self._on_interrupt(False)

        @keys.add("tab")
        def _(event: KeyPressEvent) -> None:
            if self.buffer.complete_state:
                self.buffer.complete_next()
            else:
                self._is_tab_pending = True
                # Does nothing if a search that started while typing is still running; its result is used then.
                self.buffer.start_completion(select_first=True)

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            self.buffer.insert_text(self._on_paste(event.data))

        @keys.add("c-v")
        def _(event: KeyPressEvent) -> None:
            self._on_clipboard()

        @keys.add("c-o")
        def _(event: KeyPressEvent) -> None:
            self._on_expand()

        @keys.add("c-d")
        def _(event: KeyPressEvent) -> None:
            if not self.buffer.text:
                self.leave()

        return keys


def _output() -> Vt100_Output:
    """Never queries the terminal: a late reply would end up in the input."""
    output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
    output.enable_cpr = False
    return output


def _history(path: Path | None) -> History:
    if path is None or not path.parent.is_dir():
        return InMemoryHistory()
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
