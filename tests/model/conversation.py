"""A model request, independent of any API: the messages, the tools that ran since, and the tools offered.

Above: script.py derives the answer from it; log.py compares with it. Below: perdure.core.transcript_text, which reads
the transcripts that Perdure sends to an agent. Each dialect creates one from its own kind of request. Everything is
read from the request itself, so the same request gets the same answer from any server, after any restart. It knows what
agents add to the user's text, because tests ask what the user wrote.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from perdure.core.transcript_text import unwrap


class Said(NamedTuple):
    """A text with the user role, as the agent sent it."""

    text: str


class Called(NamedTuple):
    """The model called a tool."""

    name: str


class Returned(NamedTuple):
    """A tool's result."""

    text: str


Item = Said | Called | Returned

_ADDED = re.compile(
    r"<(system-reminder|environment_context|user_instructions|session_context|skills_instructions|permissions"
    r"|local-command-caveat|local-command-stdout|local-command-stderr|command-name|command-message|command-args"
    r"|task-notification|total_tokens|turn_aborted|current_datetime)\b[^>]*>.*?</\1\b[^>]*>\s*",
    re.DOTALL,
)
_MARKERS = re.compile(
    r"\[Request interrupted by user[^\]]*\]|Continue from where you left off\.|\(no content\)"
    r"|# AGENTS\.md instructions.*",
    re.DOTALL,
)
STEERED = "The user sent a new message while you were working:\n"
_STEERED_END = "\n\nThis is how Claude Code surfaces messages"


class Conversation(NamedTuple):
    """`texts` are the user's, newest last. `calls` and `results` are those since the newest text. `form` is the JSON
    schema that the answer must match, if the agent requests one, for example for a title or a choice of model."""

    texts: list[str]
    calls: int
    results: list[str]
    tools: dict[str, Any]
    form: Any = None

    @property
    def script(self) -> str:
        """The text to obey: the newest one, without a transcript in front of it."""
        return unwrap(self.texts[-1])[1] if self.texts else ""

    @property
    def user_texts(self) -> list[str]:
        """Everything that the user wrote, with the entries of a transcript one by one."""
        found: list[str] = []
        for text in self.texts:
            entries, message = unwrap(text)
            found += [entry.text for entry in entries if entry.role == "user"]
            found.append(message)
        return found


def conversation(items: Iterable[Item], tools: dict[str, Any], form: Any = None) -> Conversation:
    texts: list[str] = []
    calls, results = 0, list[str]()
    for item in items:
        if isinstance(item, Said):
            text = own_words(item.text)
            if text:
                texts.append(text)
                calls, results = 0, []
        elif isinstance(item, Called):
            calls += 1
        else:
            results.append(item.text)
    return Conversation(texts, calls, results, tools, form)


def own_words(text: str) -> str:
    """A text without what the agent added; empty if nothing in it is the user's."""
    _, found, steered = text.partition(STEERED)
    text = steered.partition(_STEERED_END)[0] if found else text
    rest = _ADDED.sub("", text)
    # Trim only a changed text: what a user sent is compared exactly.
    text = text if rest == text else rest.strip()
    return "" if not text.strip() or _MARKERS.fullmatch(text.strip()) else text
