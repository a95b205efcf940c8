"""A person's terminal: a shell in tmux, keys that are typed into it, and what it shows. Screens can be kept as text.

Above: the first minutes. Below: tmux, on a socket of its own. Every wait is bounded.
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
    """`recording` is the folder that gets the screens, in the order in which they were kept: as plain text, and with
    their colours for `less -R`."""

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
        """Keys by the names that tmux has for them: Enter, C-c, Escape."""
        self._run("send-keys", *keys)

    def enter(self, line: str) -> None:
        """Type a line, and send it once it is seen in the input."""
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
        """Clear the shell's screen and forget what has scrolled out, so that `everything` begins here."""
        self.press("C-l")
        # Before the history goes: the shell may take its time, and what it clears goes there.
        self.wait(lambda screen: screen.strip() == PROMPT.strip())
        self._run("clear-history")

    def wait_shell(self) -> str:
        """Until the shell waits for a command."""
        return self.wait(lambda screen: screen.rstrip().split("\n")[-1] == PROMPT.strip())

    # What a person sees ----------------------------------------------------------------------------------------------

    @property
    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    @property
    def everything(self) -> str:
        """The screen and what has scrolled out of it, with wrapped lines joined."""
        return self._run("capture-pane", "-p", "-J", "-S", "-")

    def wait(self, *what: Sought, limit_s: float = WAIT_S) -> str:
        """The screen, as soon as all of this is on it: a screen may be looked at while it is drawn."""

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
    """Without spaces and line breaks: a long line wraps where it must."""
    return re.sub(r"\s", "", text)
