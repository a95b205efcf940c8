"""What a model request says, in no API's words: who said what, which tools ran since, which are offered.

Above: script.py decides the answer from it; log.py compares by it. Below: perdure.core.transcript_text, which reads
the transcripts that Perdure hands to an agent. Each dialect makes one from its own kind of request.
Everything is read from the request itself, so the same request gets the same answer from any server, after any
restart. It deliberately knows what agents mix into the user's words on their own account, since a test asks what the
person said.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from perdure.core.transcript_text import unwrap


class Said(NamedTuple):
    """A text in the user's name, as the agent sent it."""

    text: str


class Called(NamedTuple):
    """The model called a tool."""

    name: str


class Returned(NamedTuple):
    """A tool's answer."""

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
    """`texts` are the user's, newest last. `calls` and `results` are those since the newest text.

    `form` is the JSON schema that the answer must fit, if the agent asks for such a one: a title, a choice of model.
    """

    texts: list[str]
    calls: int
    results: list[str]
    tools: dict[str, Any]
    form: Any = None

    @property
    def script(self) -> str:
        """What is to be obeyed: the newest text, out of the transcript that it may stand behind."""
        return unwrap(self.texts[-1])[1] if self.texts else ""

    @property
    def user_texts(self) -> list[str]:
        """Everything that the person said, the entries of a transcript one by one."""
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
    """A text without what the agent added to it; empty if nothing of it is the person's."""
    _, found, steered = text.partition(STEERED)
    text = steered.partition(_STEERED_END)[0] if found else text
    rest = _ADDED.sub("", text)
    # Only a text that was changed is trimmed: what a person sent is compared exactly.
    text = text if rest == text else rest.strip()
    return "" if not text.strip() or _MARKERS.fullmatch(text.strip()) else text
