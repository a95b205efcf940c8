"""The verbs that the scripted model obeys, and how they are parsed from a user's text.

Above: script.py turns the steps into the acts of one answer. Below: nothing. They resemble the rehearsal agent's verbs:
the first word of a line, in lower case. Other lines are ignored, and a verb with invalid arguments is answered with its
usage. The code is deliberately separate from the rehearsal agent's: that one plays an agent, this one plays the model
behind a real agent, and each must be able to prove the other wrong.
"""

import json
import re
from typing import Any, NamedTuple

_SECONDS = r"([0-9]{1,6}(?:\.[0-9]{1,3})?)"

VERBS: dict[str, tuple[str, str]] = {
    # name: its usage, and the pattern of its arguments
    "say": ("say TEXT", r"(.+)"),
    "spell": ('spell ["A", "B"]', r"(\[.*\])"),
    "stream": ("stream N [MS]", r"([0-9]{1,8})(?:\s+([0-9]{1,6}))?"),
    "think": ("think TEXT", r"(.+)"),
    "bash": ("bash COMMAND", r"(.+)"),
    "write": ("write PATH TEXT", r"(\S+)\s+(.+)"),
    "read": ("read PATH", r"(.+)"),
    "ask": ("ask QUESTION | A | B", r"([^|]*[^|\s][^|]*)((?:\|[^|]*)+)"),
    "tool": ("tool NAME JSON", r"(\S+)(?:\s+(\{.*\}))?"),
    "together": ('together ["bash A", "bash B"]', r"(\[.*\])"),
    "result": ("result", r""),
    "recall": ("recall", r""),
    "fail": ("fail CODE [TIMES]", r"([45][0-9]{2})(?:\s+([0-9]{1,4}))?"),
    "limit": ("limit S", _SECONDS),
    "cut": ("cut [TIMES]", r"([0-9]{1,4})?"),
    "stall": ("stall [S]", _SECONDS + "?"),
    "slow": ("slow S", _SECONDS),
    "hang": ("hang", r""),
    "big": ("big BYTES", r"([0-9]{1,9})"),
    "usage": ("usage IN OUT", r"([0-9]{1,12})\s+([0-9]{1,12})"),
}

CALLING = frozenset({"bash", "write", "read", "ask", "tool", "together"})
"""The verbs that end an answer with tool calls: one, or several `together`. The script continues with the results."""


class Step(NamedTuple):
    """One line to obey. `arguments` is None if they are invalid; an omitted part is an empty string."""

    verb: str
    arguments: tuple[str, ...] | None

    @property
    def calls(self) -> int:
        """The number of tools it calls."""
        if self.verb not in CALLING or self.arguments is None:
            return 0
        return len(self.parts) if self.verb == "together" else 1

    @property
    def parts(self) -> "list[Step]":
        """The calls that are made together."""
        return parse("\n".join(json.loads((self.arguments or ("[]",))[0])))

    @property
    def usage(self) -> str:
        return VERBS[self.verb][0]


def parse(text: str) -> list[Step]:
    """The steps of a script, in order."""
    steps: list[Step] = []
    for line in text.split("\n"):
        word, _, rest = line.strip().partition(" ")
        if word in VERBS:
            steps.append(Step(word, _arguments(word, rest.strip())))
    return steps


def _arguments(word: str, text: str) -> tuple[str, ...] | None:
    fits = re.fullmatch(VERBS[word][1], text, re.DOTALL)
    if fits is None:
        return None
    arguments = tuple(group or "" for group in fits.groups())
    if word == "tool":
        return arguments if _json(arguments[1] or "{}") is not None else None
    if word in ("spell", "together"):
        pieces = _json(arguments[0]) or [None]
        fits_all = all(isinstance(piece, str) for piece in pieces)
        return arguments if fits_all and (word == "spell" or _all_call(pieces)) else None
    return arguments


def _all_call(lines: list[str]) -> bool:
    return all(step.calls and step.verb != "together" for step in parse("\n".join(lines)))


def _json(text: str) -> Any:
    """None if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None
