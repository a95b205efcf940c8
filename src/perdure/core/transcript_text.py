"""The text format in which an agent receives turns that its native session lacks: `wrap` writes it, `unwrap` reads it.

Above: transcript.py wraps messages; the rehearsal agent unwraps them to know what it was sent.
Below: only the standard library, so the rehearsal agent imports it quickly.

The text is written for language models, and can be read back exactly: `unwrap(wrap(entries, message))` is
`(entries, message)` for any text. Which turns to send is decided elsewhere (scope.py, digest.py).

    This is the conversation so far. ...                 an opening sentence, by which `unwrap` recognises the format

    <note>...</note>                                     only if there is a note
    <conversation kind="transcript">
    <user turn="1">...</user>
    <assistant turn="1" agent="claude">...</assistant>
    </conversation>

    ## New message

    the message, unchanged, to the end

Inside the tags, text that looks like one of these tags gets a backslash after its `<` (text that already has
backslashes there gets one more), so no text can pass for a message or answer of someone else.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

Role = Literal["user", "assistant"]
Kind = Literal["transcript", "catch-up"]


class Entry(NamedTuple):
    """One message or answer. `note` describes it (`interrupted`, ...) and is not part of the text."""

    role: Role
    turn: int
    agent: str
    text: str
    note: str = ""


RECOGNISED_CHARS = 40
LEAST_CHARS = 12
"""How much of an opening sentence is enough to recognise it: inside a longer text, and as the whole text."""

_OPENINGS: dict[Kind, str] = {
    "transcript": (
        "This is the conversation so far. Your own session does not hold it: take it as what was said before,"
        " and answer only the new message at the end."
    ),
    "catch-up": (
        "These turns were added to our conversation since you last answered, some of them by other agents."
        " Your own session does not hold them: take them as what was said before,"
        " and answer only the new message at the end."
    ),
}
_OPENING_WITHOUT_TURNS = "The new message is at the end; what stands before it is for your information."
_HEADING = "## New message\n\n"

_TAG_LIKE = re.compile(r"<(\\*/?(?:conversation|user|assistant|note)\b)", re.IGNORECASE)
_ESCAPED = re.compile(r"<\\(\\*/?(?:conversation|user|assistant|note)\b)", re.IGNORECASE)
# At most 18 digits: a longer number is not a turn, and Python refuses to parse numbers with thousands of digits.
_OPEN_TAG = re.compile(
    r'<(?P<role>user|assistant) turn="(?P<turn>-?[0-9]{1,18})"'
    r'(?: agent="(?P<agent>[^"]*)")?(?: note="(?P<note>[^"]*)")?>\n'
)
_CONVERSATION = re.compile(r'<conversation kind="(?:transcript|catch-up)">\n')
_FRAME_TAG = re.compile(r'</?conversation\b|<(?:user|assistant) turn="|</?note>')
_CLOSE_CONVERSATION = "</conversation>\n\n"
_NOTE, _CLOSE_NOTE = "<note>\n", "\n</note>\n\n"

_ATTRIBUTE_ESCAPES = (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;"), ("\n", "&#10;"), ("\r", "&#13;"))


def wrap(entries: Sequence[Entry], message: str, *, note: str = "", kind: Kind = "transcript") -> str:
    """The input with `entries` and then `message`. Without entries and note, it is the message itself."""
    if not entries and not note and unwrap(message) == ([], message):
        return message
    parts = [_OPENINGS[kind] if entries else _OPENING_WITHOUT_TURNS, "\n\n"]
    if note:
        parts += [_NOTE, _escape(note), _CLOSE_NOTE]
    if entries:
        parts.append(f'<conversation kind="{kind}">\n')
        parts += [_entry_text(entry) for entry in entries]
        parts.append(_CLOSE_CONVERSATION)
    parts += [_HEADING, message]
    return "".join(parts)


def unwrap(text: str) -> tuple[list[Entry], str]:
    """The entries and the message of an input. An input that `wrap` did not make is only a message."""
    position = _after_opening(text)
    if position is None:
        return [], text
    if text.startswith(_NOTE, position):
        end = text.find(_CLOSE_NOTE, position)
        if end < 0:
            return [], text
        position = end + len(_CLOSE_NOTE)
    entries: list[Entry] = []
    if opened := _CONVERSATION.match(text, position):
        position = opened.end()
        while not text.startswith(_CLOSE_CONVERSATION, position):
            tag = _OPEN_TAG.match(text, position)
            close = f"\n</{tag['role']}>\n" if tag else ""
            end = text.find(close, tag.end()) if tag else -1
            if tag is None or end < 0:
                return [], text
            entries.append(_entry(tag, text[tag.end() : end]))
            position = end + len(close)
        position += len(_CLOSE_CONVERSATION)
    if not text.startswith(_HEADING, position):
        return [], text
    return entries, text[position + len(_HEADING) :]


def is_framing(text: str) -> bool:
    """Whether this text is or contains framing that `wrap` adds to a message. The text may be cut anywhere."""
    flat = " ".join(text.split()).rstrip(".… ")
    openings = (*_OPENINGS.values(), _OPENING_WITHOUT_TURNS, _HEADING)
    return bool(_FRAME_TAG.search(text)) or any(
        opening[:RECOGNISED_CHARS].strip() in flat or (len(flat) >= LEAST_CHARS and opening.startswith(flat))
        for opening in openings
    )


def _after_opening(text: str) -> int | None:
    for opening in (*_OPENINGS.values(), _OPENING_WITHOUT_TURNS):
        if text.startswith(opening + "\n\n"):
            return len(opening) + 2
    return None


def _entry_text(entry: Entry) -> str:
    agent = f' agent="{_escape_attribute(entry.agent)}"' if entry.agent else ""
    note = f' note="{_escape_attribute(entry.note)}"' if entry.note else ""
    return f'<{entry.role} turn="{entry.turn}"{agent}{note}>\n{_escape(entry.text)}\n</{entry.role}>\n'


def _entry(tag: re.Match[str], body: str) -> Entry:
    role: Role = "user" if tag["role"] == "user" else "assistant"
    agent, note = _unescape_attribute(tag["agent"] or ""), _unescape_attribute(tag["note"] or "")
    return Entry(role, int(tag["turn"]), agent, _ESCAPED.sub(r"<\1", body), note)


def _escape(text: str) -> str:
    return _TAG_LIKE.sub(r"<\\\1", text)


def _escape_attribute(value: str) -> str:
    for plain, escaped in _ATTRIBUTE_ESCAPES:
        value = value.replace(plain, escaped)
    return value


def _unescape_attribute(value: str) -> str:
    for plain, escaped in reversed(_ATTRIBUTE_ESCAPES):
        value = value.replace(escaped, plain)
    return value
