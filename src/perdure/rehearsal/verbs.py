"""The verbs of the rehearsal agent, and the parser that finds them in a message.

Above: script.py performs the parsed verbs; the help is made from the same table. Below: nothing. It knows no protocol,
so every dialect of the rehearsal agent shares it.

A verb is the first word of a line, in lower case; blanks around the line are ignored. Other lines are comments, so a
message can explain itself. A verb with wrong arguments is answered with its usage: a script that silently did less
would prove nothing.
"""

import re
from typing import NamedTuple


class Verb(NamedTuple):
    """`pattern` matches all arguments. Its digit counts limit the numbers."""

    name: str
    arguments: str
    what: str
    pattern: str

    @property
    def usage(self) -> str:
        return f"{self.name} {self.arguments}".rstrip()


class Instruction(NamedTuple):
    """One parsed line. `arguments` is None if they are wrong; an omitted argument is an empty string."""

    verb: Verb
    arguments: tuple[str, ...] | None


_SECONDS = r"([0-9]{1,6}(?:\.[0-9]{1,3})?)"

_TABLE = (
    Verb("say", "TEXT", "answers TEXT, in several deltas", r"(.+)"),
    Verb(
        "stream",
        "N [MS]",
        "streams N deltas, `w0 `, `w1 ` ..., MS milliseconds apart",
        r"([0-9]{1,8})(?:\s+([0-9]{1,6}))?",
    ),
    Verb("think", "TEXT", "thinks TEXT", r"(.+)"),
    Verb("plan", "A; B; C", "shows a plan and completes its entries", r"(.*[^;\s].*)"),
    Verb("tool", "NAME [TEXT]", "calls a tool whose result is TEXT", r"(\S+)(?:\s+(.+))?"),
    Verb("edit", "PATH", "adds a line to a file inside the working directory, and shows the diff", r"(.+)"),
    Verb(
        "write",
        "PATH [A | B | C]",
        "writes a file with these lines, and shows the diff",
        r"(\S+)(?:\s(.*))?",
    ),
    Verb("remove", "PATH", "removes a file, as in a shell", r"(\S+)"),
    Verb("rename", "PATH TO", "renames a file, as in a shell", r"(\S+)\s+(\S+)"),
    Verb(
        "delegate",
        "NAME [TEXT]",
        "starts a sub-agent with a task; its tools list files and edit NAME.md",
        r"(\S+)(?:\s+(.+))?",
    ),
    Verb("permit", "NAME", "asks permission for a tool, reports the decision, and runs the tool if allowed", r"(\S+)"),
    Verb(
        "propose",
        "PATH [N]",
        "asks permission to add a line, or N lines, to a file, shows the diff, and adds them if allowed",
        r"(\S+)(?:\s+([0-9]{1,4}))?",
    ),
    Verb("ask", "QUESTION | A | B", "asks you a question, repeats the answer", r"([^|]*[^|\s][^|]*)((?:\|[^|]*)*)"),
    Verb("recall", "", "lists every user message in its context, including this one", r""),
    Verb("recite", "", "lists every message and answer in its context, in order", r""),
    Verb("sleep", "S", "stays silent for S seconds", _SECONDS),
    Verb("hang", "", "stays silent until interrupted", r""),
    Verb("crash", "[CODE]", "exits immediately, with code 1 or CODE", r"([0-9]{1,3})?"),
    Verb("garbage", "", "writes broken lines, then continues", r""),
    Verb("big", "BYTES", "writes one line of that size", r"([0-9]{1,9})"),
    Verb("stderr", "N", "writes N lines to stderr", r"([0-9]{1,8})"),
    Verb("spawn", "S", "starts a detached child process for S seconds, and prints its pid", _SECONDS),
    Verb("usage", "IN OUT", "reports token usage", r"([0-9]{1,12})\s+([0-9]{1,12})"),
    Verb("limit", "S", "fails with a usage limit that resets in S seconds", _SECONDS),
    Verb("reject-resume", "", "refuses the next resume or load of this session", r""),
    Verb("poison", "", "makes every later turn of this session fail as too long", r""),
)

VERBS: dict[str, Verb] = {verb.name: verb for verb in _TABLE}


def parse(message: str) -> list[Instruction]:
    """The instructions in a message, in order."""
    instructions: list[Instruction] = []
    # Only newlines end a line: splitlines() would also cut a TEXT at a form feed or U+2028.
    for line in message.split("\n"):
        word, _, rest = line.strip().partition(" ")
        verb = VERBS.get(word)
        if verb is not None:
            fits = re.fullmatch(verb.pattern, rest.strip(), re.DOTALL)
            instructions.append(Instruction(verb, tuple(group or "" for group in fits.groups()) if fits else None))
    return instructions


def misuse(verb: Verb) -> str:
    """The answer to a verb with wrong arguments."""
    return f"`{verb.name}` was not understood. Usage: `{verb.usage}` ({verb.what})."


def greeting(model: str, mode: str) -> str:
    """The answer to a message without verbs."""
    return f"""\
Hello! I am the **rehearsal agent** (`{model}`, mode `{mode}`). I have no model: I follow the lines of your \
message as a script. Try this:

```
think Let me see.
plan read; write; check
tool Bash hello from a tool
delegate reviewer Look at the notes
permit Deploy
stream 20 50
say All done.
```

`recall` lists what I remember, `ask Which one? | A | B` asks you a question, and \
{", ".join(f"`{name}`" for name in ("edit notes.txt", "sleep 5", "hang", "crash", "limit 30"))} \
show what work and failures look like."""


def table() -> str:
    """The verbs for the help text, one per line."""
    width = max(len(verb.usage) for verb in _TABLE)
    return "\n".join(f"  {verb.usage:<{width}}  {verb.what}" for verb in _TABLE)
