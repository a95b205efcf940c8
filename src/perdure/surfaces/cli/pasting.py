"""Pastes into the chat's input: long text becomes a placeholder; files become attachments or mentions.

Above: screen.py, which reports pastes, and conversation.py, which sends their content. Below: files on this machine,
and clipboard programs. A placeholder is ordinary text in the input, so the user can move and delete it.
"""

import base64
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from perdure.surfaces.cli.completion import mention
from perdure.surfaces.client import attached

Json = dict[str, Any]

FOLD_LINES = 6
FOLD_CHARS = 2_000
ECHO_LINES = 12
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
PATHS_MAX_CHARS = 4_000
SENT_KEPT = 100
CLIPBOARD_TIMEOUT_S = 3.0
CLIPBOARD = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
"""Programs that write the clipboard's image to stdout; the first one installed is used."""


class Entry(NamedTuple):
    """A line of input: its full text, how the input showed it, and its attachments."""

    text: str
    shown: str = ""
    attachments: tuple[Json, ...] = ()


class Pastes:
    """The placeholders of one chat, and the pasted content behind each."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._files: dict[str, Json] = {}
        self._sent: dict[str, Entry] = {}

    def fold(self, text: str) -> str:
        """The text itself, or a placeholder if it is long."""
        lines = text.rstrip("\n").count("\n") + 1
        if lines < FOLD_LINES and len(text) < FOLD_CHARS:
            return text
        what = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        return self._mark(f"pasted {what}", self._texts, text)

    def attach(self, attachment: Json) -> str:
        kind = "image" if str(attachment["mime_type"]).startswith("image/") else "file"
        return self._mark(f"{kind} {attachment['name']}", self._files, attachment)

    def expand(self, draft: str) -> Entry:
        """The draft with its pastes put back. The placeholder of an attachment stays, to show where it belongs."""
        text = draft
        for mark, whole in self._texts.items():
            text = text.replace(mark, whole)
        attachments = [attachment for mark, attachment in self._files.items() if mark in draft]
        return Entry(text, draft, tuple(attachments))

    def remember(self, message_id: str, entry: Entry) -> None:
        """Remember a sent message, so that a withdrawn one returns to the input as it was entered."""
        self._sent[message_id] = entry
        for oldest in list(self._sent)[:-SENT_KEPT]:
            del self._sent[oldest]

    def entered(self, message_id: str, text: str) -> str:
        """How the input showed a message. A long message from another client is folded."""
        sent = self._sent.get(message_id)
        return sent.shown if sent is not None and sent.shown else self.fold(text)

    def echo(self, text: str) -> str:
        """A message as the stream shows it: with its placeholders, or else shortened."""
        sent = (one.shown for one in reversed(self._sent.values()) if one.text == text != one.shown and one.shown)
        return next(sent, None) or shortened(text)

    def _mark(self, label: str, kept: dict[str, Any], value: Any) -> str:
        number = 1
        while (mark := f"[{label}]" if number == 1 else f"[{label} #{number}]") in kept and kept[mark] != value:
            number += 1
        kept[mark] = value
        return mark

    def paste(self, text: str, *, is_local: bool) -> str:
        """What the input shows for a paste. `is_local`: the agent sees this machine's files."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        found = paths_in(text)
        if not found:
            return self.fold(text)
        marks = []
        for path in found:
            is_picture = path.suffix.lower() in PICTURES
            try:
                marks.append(mention(str(path)) if is_local and not is_picture else f"{self.attach(attached(path))} ")
            except OSError:
                return text
        return "".join(marks)


def paths_in(text: str) -> list[Path]:
    """The files that a paste consists of; empty if it is anything else. For a dropped file, terminals paste its
    absolute path, quoted or with backslashes, or a file:// URL."""
    if len(text) > PATHS_MAX_CHARS or not re.match(r"\s*['\"]?(/|~/|file://)", text):
        return []
    try:
        words = shlex.split(text)
    except ValueError:
        return []
    whole = Path(text.strip()).expanduser()
    if _is_file(whole):
        return [whole]
    paths = [Path(unquote(word[7:]) if word.startswith("file://") else word).expanduser() for word in words]
    return paths if all(path.is_absolute() and _is_file(path) for path in paths) else []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def clipboard_image() -> Json | str:
    """The clipboard's image as an attachment, or an error message. Blocks for a moment."""
    tool = next((command for command in CLIPBOARD if shutil.which(command[0])), None)
    instead = "Paste the path of an image file instead, or drop the file here."
    if tool is None:
        return f"To paste an image, install wl-paste (Wayland), xclip (X11) or pngpaste (macOS). {instead}"
    try:
        done = subprocess.run(tool, capture_output=True, timeout=CLIPBOARD_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{tool[0]} could not read the clipboard: {error}. {instead}"
    if done.returncode or not done.stdout:
        return f"There is no image in the clipboard. {instead}"
    return {"name": "clipboard.png", "mime_type": "image/png", "data": base64.b64encode(done.stdout).decode()}


def shortened(text: str) -> str:
    """The beginning of a long message, and how many lines follow."""
    lines = text.split("\n")
    if len(lines) <= ECHO_LINES:
        return text
    kept = lines[: ECHO_LINES // 2]
    return "\n".join([*kept, f"[{len(lines) - len(kept)} more lines]"])
