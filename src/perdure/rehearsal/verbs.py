"""The verbs that the rehearsal agent obeys, and how a message is read for them.

Above: script.py performs what is parsed here; the help and the friendly answer are made from the same table.
Below: nothing. It knows no protocol: every dialect of the rehearsal agent shares it.

A verb is the first word of a line, in small letters; blanks around the line don't matter. Lines that begin with
anything else are remarks and are ignored, so a message may explain itself. A verb whose arguments do not fit is
not ignored: it is answered with how it is used, since a script that silently does less would prove nothing.
"""

import re
from typing import NamedTuple


class Verb(NamedTuple):
    """`pattern` matches the whole of the arguments; its digit counts are the limits of each number."""

    name: str
    arguments: str
    what: str
    pattern: str

    @property
    def usage(self) -> str:
        return f"{self.name} {self.arguments}".rstrip()


class Instruction(NamedTuple):
    """One line to obey. `arguments` is None if they do not fit; a part that was left out is an empty string."""

    verb: Verb
    arguments: tuple[str, ...] | None


_SECONDS = r"([0-9]{1,6}(?:\.[0-9]{1,3})?)"

_TABLE = (
    Verb("say", "TEXT", "answers TEXT, in several deltas", r"(.+)"),
    Verb("stream", "N [MS]", "N deltas, `w0 `, `w1 ` ..., MS milliseconds apart", r"([0-9]{1,8})(?:\s+([0-9]{1,6}))?"),
    Verb("think", "TEXT", "a thought", r"(.+)"),
    Verb("plan", "A; B; C", "a plan whose entries it then completes", r"(.*[^;\s].*)"),
    Verb("tool", "NAME [TEXT]", "a tool call whose result is TEXT", r"(\S+)(?:\s+(.+))?"),
    Verb("edit", "PATH", "adds a line to a file inside the working directory, and shows the diff", r"(.+)"),
    Verb(
        "delegate",
        "NAME [TEXT]",
        "a sub-agent with a task, whose own tools list files and edit NAME.md",
        r"(\S+)(?:\s+(.+))?",
    ),
    Verb("permit", "NAME", "asks permission for a tool, says what was decided, goes on accordingly", r"(\S+)"),
    Verb(
        "propose",
        "PATH [N]",
        "asks permission to add a line, or N lines, to a file, shows the diff, and adds them if allowed",
        r"(\S+)(?:\s+([0-9]{1,4}))?",
    ),
    Verb("ask", "QUESTION | A | B", "asks the person, repeats the answer", r"([^|]*[^|\s][^|]*)((?:\|[^|]*)*)"),
    Verb("recall", "", "lists every user message that its context holds, this one included", r""),
    Verb("recite", "", "lists every message and every answer that its context holds, in order", r""),
    Verb("sleep", "S", "silent for S seconds", _SECONDS),
    Verb("hang", "", "silent until interrupted", r""),
    Verb("crash", "[CODE]", "exits at once, with 1 or CODE", r"([0-9]{1,3})?"),
    Verb("garbage", "", "writes broken lines, then goes on", r""),
    Verb("big", "BYTES", "one line of that size", r"([0-9]{1,9})"),
    Verb("stderr", "N", "writes N lines to stderr", r"([0-9]{1,8})"),
    Verb("spawn", "S", "starts a child in its own session that lives S seconds, says its pid", _SECONDS),
    Verb("usage", "IN OUT", "reports usage in tokens", r"([0-9]{1,12})\s+([0-9]{1,12})"),
    Verb("limit", "S", "fails: the usage limit resets in S seconds", _SECONDS),
    Verb("reject-resume", "", "the next resume or load of this session is refused", r""),
    Verb("poison", "", "every later turn of this session fails as over-long", r""),
)

VERBS: dict[str, Verb] = {verb.name: verb for verb in _TABLE}


def parse(message: str) -> list[Instruction]:
    """The instructions in a message, in order."""
    instructions: list[Instruction] = []
    # Only real newlines end a line: splitlines() would also cut a TEXT at a form feed or U+2028.
    for line in message.split("\n"):
        word, _, rest = line.strip().partition(" ")
        verb = VERBS.get(word)
        if verb is not None:
            fits = re.fullmatch(verb.pattern, rest.strip(), re.DOTALL)
            instructions.append(Instruction(verb, tuple(group or "" for group in fits.groups()) if fits else None))
    return instructions


def misuse(verb: Verb) -> str:
    """What is said of a verb whose arguments do not fit."""
    return f"`{verb.name}` was not understood. It is used like this: `{verb.usage}` ({verb.what})."


def greeting(model: str, mode: str) -> str:
    """The friendly answer to a message without verbs."""
    return f"""\
Hello! I am the **rehearsal agent** (`{model}`, mode `{mode}`). I have no model: I do what the lines of your \
message tell me. Try this:

```
think Let me see.
plan read; write; check
tool Bash hello from a tool
delegate reviewer Look at the notes
permit Deploy
stream 20 50
say All done.
```

`recall` lists what I remember, `ask Which one? | A | B` asks you something, and \
{", ".join(f"`{name}`" for name in ("edit notes.txt", "sleep 5", "hang", "crash", "limit 30"))} \
show how work and trouble look."""


def table() -> str:
    """The verbs for a person at a terminal, one per line."""
    width = max(len(verb.usage) for verb in _TABLE)
    return "\n".join(f"  {verb.usage:<{width}}  {verb.what}" for verb in _TABLE)
