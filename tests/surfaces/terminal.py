"""A terminal for tests: a program in a pseudo-terminal, and what a user would see.

Above: the chat's tests. Below: pty. It understands the few sequences that the chat uses (movement, erasing, wrapping,
scrolling) and keeps the scrollback, so a test can count how often a text appears. Every wait is bounded.
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

COLUMNS, LINES = 100, 30
WAIT_S = 40.0
_SEQUENCE = re.compile(
    rb"\x1b\[([?<>=]?)([0-9;]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Za-z0-9]|\x1b[=>78cDEHM]"
)


class Display:
    """Rows of characters, with the scrollback."""

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.rows: list[list[str]] = [[" "] * COLUMNS for _ in range(LINES)]
        self.row = self.column = 0
        self._rest = b""

    @property
    def text(self) -> str:
        return "\n".join([*self.gone, *("".join(row).rstrip() for row in self.rows)])

    def feed(self, data: bytes) -> None:
        data = self._rest + data
        self._rest = b""
        position = 0
        while position < len(data):
            if data[position] == 0x1B:
                match = _SEQUENCE.match(data, position)
                if match is None:
                    self._rest = data[position:]
                    return
                self._sequence(match)
                position = match.end()
                continue
            end = position + 1
            while end < len(data) and data[end] != 0x1B:
                end += 1
            piece = data[position:end]
            if end == len(data):
                # A character may be split between two reads.
                keep = next((n for n in (1, 2, 3) if len(piece) >= n and piece[-n] >= 0xC0), 0)
                if keep and keep < (2 if piece[-keep] < 0xE0 else 3 if piece[-keep] < 0xF0 else 4):
                    self._rest, piece = piece[-keep:], piece[:-keep]
            for character in piece.decode("utf-8", "replace"):
                self._put(character)
            position = end

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self._down()
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character >= " ":
            if self.column >= COLUMNS:
                self.column = 0
                self._down()
            self.rows[self.row][self.column] = character
            self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == LINES:
            self.row -= 1
            self.gone.append("".join(self.rows.pop(0)).rstrip())
            self.rows.append([" "] * COLUMNS)

    def _sequence(self, match: re.Match[bytes]) -> None:
        if match[3] is None or match[1]:
            return
        kind = match[3].decode()
        numbers = [int(part) for part in match[2].split(b";") if part]
        count = max(1, numbers[0]) if numbers else 1
        if kind == "A":
            self.row = max(0, self.row - count)
        elif kind == "B":
            self.row = min(LINES - 1, self.row + count)
        elif kind == "C":
            self.column = min(COLUMNS - 1, self.column + count)
        elif kind == "D":
            self.column = max(0, min(self.column, COLUMNS - 1) - count)
        elif kind == "G":
            self.column = count - 1
        elif kind == "H":
            self.row = min(LINES, count) - 1
            self.column = (numbers[1] if len(numbers) > 1 else 1) - 1
        elif kind == "J":
            self._erase_line(numbers[0] if numbers else 0)
            for row in range(self.row + 1, LINES):
                self.rows[row] = [" "] * COLUMNS
        elif kind == "K":
            self._erase_line(numbers[0] if numbers else 0)

    def _erase_line(self, how: int) -> None:
        first, last = (0 if how else self.column), (self.column + 1 if how == 1 else COLUMNS)
        self.rows[self.row][first:last] = [" "] * len(self.rows[self.row][first:last])


class Terminal:
    """A program in a terminal. Use it as a context manager, which kills the program at the end."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: Path, *, signals: bool = False) -> None:
        """With `signals`, Ctrl-C sends a signal, for programs that don't read keys."""
        self._master, slave = pty.openpty()
        if signals:
            # The first terminal that a session leader opens becomes its controlling terminal.
            argv = ["sh", "-c", 'exec "$@" <>"$0" >&0 2>&0', os.ttyname(slave), *argv]
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.display = Display()
        # Set by parallel test runs; they would override this terminal's size.
        env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=cwd, start_new_session=True
        )
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(10)
        os.close(self._master)

    @property
    def text(self) -> str:
        return self.display.text

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def enter(self, line: str) -> None:
        self.type(line + "\r")

    def wait(self, what: str | Callable[[str], bool], limit_s: float = WAIT_S) -> str:
        """Wait until this is on the screen."""
        deadline = time.monotonic() + limit_s
        seen = what if callable(what) else lambda text: what in text
        while not seen(self.text):
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"never seen: {what}\n{self.text}"
            assert self._read(left_s), f"ended before {what} was seen\n{self.text}"
        return self.text

    def wait_end(self, limit_s: float = WAIT_S) -> int:
        deadline = time.monotonic() + limit_s
        while self._read(max(0.0, deadline - time.monotonic())):
            assert time.monotonic() < deadline, f"did not end\n{self.text}"
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def _read(self, limit_s: float) -> bool:
        """Read output. Returns False when the program has ended."""
        if not select.select([self._master], [], [], limit_s)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.display.feed(data)
        return bool(data)
