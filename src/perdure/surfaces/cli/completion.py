"""Completion in the chat's input: slash commands, their arguments, and files after an @.

Above: screen.py, which shows the completions. Below: callables of the conversation. Those that query the server may
block, so a thread calls them. This module knows neither sessions nor the server.
"""

import os
import re
from collections.abc import Callable, Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

MOST = 100
_COMMAND = re.compile(r"/\S*")
_VALUE = re.compile(r"/(\w+) +(\S*)")
_FILE = re.compile(r'(?:^|.*\s)@(?:"([^"]*)|([^\s@"]*))', re.DOTALL)

Offered = list[tuple[str, str]]
"""Text to insert, each with a description."""


class ChatCompleter(Completer):
    def __init__(
        self, commands: Callable[[], Offered], values: Callable[[str], Offered], files: Callable[[str], list[str]]
    ) -> None:
        self._commands, self._values, self._files = commands, values, files

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if _COMMAND.fullmatch(text):
            yield from _matching(text, self._commands())
        elif (value := _VALUE.fullmatch(text)) is not None:
            yield from _matching(value[2], self._values(value[1]))
        elif (file := _FILE.fullmatch(text)) is not None:
            written = file[1] if file[1] is not None else file[2]
            typed = len(text) - file.start(1 if file[1] is not None else 2) + (2 if file[1] is not None else 1)
            for path in self._files(written)[:MOST]:
                yield Completion(mention(path), -typed, display=path)


def _matching(word: str, offered: Offered) -> Iterable[Completion]:
    """Matches that start with the word, then those that contain it; none if the word is complete."""
    lower = word.lower()
    first = [one for one in offered if one[0].lower().startswith(lower)]
    later = [one for one in offered if one not in first and lower.strip("/") and lower.strip("/") in one[0].lower()]
    if [one[0] for one in first] != [word]:
        for value, about in [*first, *later][:MOST]:
            yield Completion(f"{value} ", -len(word), display=value, display_meta=about)


def mention(path: str) -> str:
    """A file mention in the syntax that Claude Code understands too. A folder stays open for further completion."""
    quoted = f'"{path}"' if re.search(r"\s", path) else path
    return f"@{quoted}" if path.endswith("/") else f"@{quoted} "


def local_files(root: str, written: str) -> list[str]:
    """Completions of a path below `root`, for a session that does not exist yet."""
    folder, _, start = written.rpartition("/")
    try:
        with os.scandir(os.path.join(root, folder)) as entries:
            found = [(entry.name, entry.is_dir()) for entry in entries if entry.name.startswith(start)]
    except OSError:
        return []
    shown = [(name, is_dir) for name, is_dir in sorted(found) if start.startswith(".") or not name.startswith(".")]
    return [f"{folder}/{name}".removeprefix("/") + "/" * is_dir for name, is_dir in shown]
