"""A user's terminal: a shell in tmux, typed keys, and what it shows. Screens can be saved as text.

Above: the first minutes. Below: tmux, on its own socket. Every wait is bounded.
"""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.harness import eventually

COLUMNS, LINES = 100, 30
WAIT_S = 90.0
COMMAND_LIMIT_S = 20.0
PROMPT = "$ "
Sought = str | re.Pattern[str] | Callable[[str], bool]


class Tmux:
    """`recording` is the folder for saved screens, in order: as plain text, and with colours for `less -R`."""

    def __init__(self, socket: Path, env: dict[str, str], cwd: Path, recording: Path) -> None:
        self._socket = socket
        self._env = env
        self._recording = recording
        self._kept = 0
        recording.mkdir(parents=True, exist_ok=True)
        for old in recording.glob("[0-9][0-9]-*"):
            old.unlink()
        shell = f"env PS1='{PROMPT}' bash --norc --noprofile"
        self._run("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), "-c", str(cwd), shell)
        self.wait_shell()

    def close(self) -> None:
        self._run("kill-server")

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments],
            env=self._env, capture_output=True, text=True, timeout=COMMAND_LIMIT_S,
        )  # fmt: skip
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    # What a person does ----------------------------------------------------------------------------------------------

    def type(self, text: str) -> None:
        self._run("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """Keys by their tmux names: Enter, C-c, Escape."""
        self._run("send-keys", *keys)

    def enter(self, line: str) -> None:
        """Type a line, and press Enter once it appears in the input."""
        self.type(line)
        end = line[-20:]
        self.wait(lambda screen: squeezed(end) in squeezed(screen))
        self.press("Enter")

    def enter_lines(self, *lines: str) -> None:
        """Type a message of several lines."""
        for line in lines[:-1]:
            self.type(line)
            self.press("C-j")
        self.enter(lines[-1])

    def clear(self) -> None:
        """Clear the shell's screen and its scrollback, so that `everything` starts here."""
        self.press("C-l")
        # Wait before clearing the history: the shell may be slow, and cleared text goes there.
        self.wait(lambda screen: screen.strip() == PROMPT.strip())
        self._run("clear-history")

    def wait_shell(self) -> str:
        """Wait for the shell's prompt."""
        return self.wait(lambda screen: screen.rstrip().split("\n")[-1] == PROMPT.strip())

    # What a person sees ----------------------------------------------------------------------------------------------

    @property
    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    @property
    def everything(self) -> str:
        """The screen and the scrollback, with wrapped lines joined."""
        return self._run("capture-pane", "-p", "-J", "-S", "-")

    def wait(self, *what: Sought, limit_s: float = WAIT_S) -> str:
        """Wait until all of this is on the screen, and return the screen, which may be half drawn before."""

        def look() -> str | None:
            screen = self.screen
            return None if _missing(what, screen) else screen

        def account() -> str:
            screen = self.screen
            return f"{_missing(what, screen)} on the screen:\n{screen}"

        found: str = eventually(look, account, limit_s)
        return found

    def keep(self, name: str) -> str:
        """Add the screen to the recording."""
        self._kept += 1
        screen = self.screen
        stem = f"{self._kept:02}-{name}"
        (self._recording / f"{stem}.txt").write_text(screen)
        (self._recording / f"{stem}.ansi").write_text(self._run("capture-pane", "-p", "-e"))
        return screen


def _missing(what: tuple[Sought, ...], screen: str) -> list[Sought]:
    return [one for one in what if not _is_seen(one, screen)]


def _is_seen(one: Sought, screen: str) -> bool:
    if isinstance(one, str):
        return one in screen
    return one.search(screen) is not None if isinstance(one, re.Pattern) else one(screen)


def squeezed(text: str) -> str:
    """The text without spaces and line breaks, because long lines wrap anywhere."""
    return re.sub(r"\s", "", text)
