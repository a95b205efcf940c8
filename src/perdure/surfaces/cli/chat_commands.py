"""What a line in a chat means: one of the chat's own commands, a message, or a mistake. And the text of /help.

Above: conversation.py, which does it, and completion.py, which offers it. Below: core's reading of an agent's commands.
The chat's own commands win over an agent's command of the same name; `//name` always reaches the agent's. Pure.
"""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from itertools import zip_longest
from textwrap import wrap
from typing import Any, NamedTuple

from perdure.core.slash_commands import SHAPE, called, names

Json = dict[str, Any]


class Command(NamedTuple):
    name: str
    usage: str
    help: str
    aliases: tuple[str, ...] = ()


OWN = (
    Command("help", "", "show these lines"),
    Command("model", "[NAME]", "list the models, or choose one by number or name"),
    Command("mode", "[NAME]", "list the modes, or choose one by number or name"),
    Command("agent", "[NAME]", "list the agents, or continue with another one"),
    Command("sessions", "[N or ID]", "list recent sessions, or open one (also /resume)", ("resume",)),
    Command("new", "", "begin a new session (also /clear)", ("clear",)),
    Command("queue", "TEXT", "send TEXT when the running turn is over"),
    Command("abort", "", "interrupt the running turn"),
    Command("retry", "[N] [TEXT]", "run turn N or the last one again; TEXT replaces its text"),
    Command("edit", "[N] [TEXT]", "change the message of turn N; without TEXT, in the input"),
    Command("rewind", "N", "drop turn N and all after it"),
    Command("fork", "[N]", "continue in a new session, with the turns up to N or all"),
    Command("fresh", "", "replay the conversation to the agent in the next turn"),
    Command("plan", "", "what the next turn would do, and why"),
    Command("skip", "", "give no answer to the open prompt"),
    Command("status", "", "the session's state, why, its agent and directory"),
    Command("quit", "", "leave; the agent continues (also /exit)", ("exit",)),
)
NAMES = {alias: command.name for command in OWN for alias in (command.name, *command.aliases)}
"""Maps each name that the chat keeps for itself to its command."""

KEYS = (
    ("Enter", "send"),
    ("Alt+Enter, Ctrl-J", "new line"),
    ("Tab", "complete a command, a name or a file"),
    ("Up, Down", "earlier lines, or choose a completion"),
    ("Esc, Ctrl-C", "take back what is queued; if nothing is, interrupt"),
    ("Ctrl-C twice, Ctrl-D", "leave; the agent continues"),
    ("Ctrl-O", "show all of what was folded"),
    ("Ctrl-V", "attach the clipboard's image; or paste an image's path"),
)
LISTED = 8
NARROWEST = 24
"""A second column with less room than this goes below the first."""
CLOSE = 0.75
"""How much a mistyped name must have in common with a command to be taken for it."""


class Own(NamedTuple):
    """A command of the chat."""

    name: str
    rest: str


class Message(NamedTuple):
    """What is sent to the agent. `command`: as far as is known here, one of its slash commands."""

    text: str
    command: bool = False


class Mistake(NamedTuple):
    sentence: str


def read(line: str, commands: Collection[str] | None, agent: str) -> Own | Message | Mistake:
    """What a line asks for. `commands` are the agent's; None if it has never said which it has."""
    word, _, rest = line.partition(" ")
    word = word.split("\n", 1)[0]
    name = word[1:]
    if not line.startswith("/"):
        return Message(line)
    if line.startswith("//"):
        return _escaped(line, commands, agent)
    if name in NAMES:
        return Own(NAMES[name], line[len(word) :].strip())
    if called(line, commands):
        return Message(line, commands is not None)
    if SHAPE.match(line) is None:
        return Message(line)
    alike = get_close_matches(name, [*NAMES, *(commands or ())], 2, CLOSE)
    if alike:
        return Mistake(f"There is no /{name}. Did you mean {' or '.join(f'/{one}' for one in alike)}?")
    if not rest.strip():
        return Mistake(f"Neither the chat nor {agent} has a command /{name}. /help lists those that there are.")
    return Message(line)


def _escaped(line: str, commands: Collection[str] | None, agent: str) -> Message | Mistake:
    if called(line[1:], commands):
        return Message(line[1:], commands is not None)
    name = _escaped_name(line)
    if name in NAMES:
        return Mistake(f"{agent} has no command /{name}. /{name} alone is the chat's own.")
    return Message(line)


def unescaped(line: str) -> str:
    """A line of a plain chat, which knows no agent's commands: with two slashes a name of the chat's own goes to the
    agent here too."""
    return line[1:] if line.startswith("//") and _escaped_name(line) in NAMES else line


def _escaped_name(line: str) -> str:
    return line[2:].split(maxsplit=1)[0] if line[2:].strip() else ""


def offered(commands: Sequence[Json] | None, agent: str) -> list[tuple[str, str]]:
    """Everything that can be entered after a slash, with a description."""
    found = [(f"/{command.name}", command.help) for command in OWN]
    for command in commands or ():
        for name in names([command]):
            about = " ".join(str(command.get("description") or "").split())
            found.append((f"/{spelled(name)}", f"{agent}: {about}" if about else agent))
    return found


def spelled(name: str) -> str:
    """How an agent's command is entered after the first slash: one that the chat has too needs a second one."""
    return f"/{name}" if name in NAMES else name


def help_text(commands: Sequence[Json] | None, agent: str, columns: int = 80) -> str:
    """All keys and commands, in two columns; what does not fit continues in the second one."""
    rows = [*KEYS, ("@path", "mention a file of the session's directory"), ("", "")]
    rows += [(f"/{command.name} {command.usage}".rstrip(), command.help) for command in OWN]
    width = max(len(entered) for entered, _ in rows)
    lines = [line for entered, what in rows for line in _two_columns(entered, width, what, columns - 1)]
    return "\n".join([*lines, "", agents_help(commands, agent)])


def _two_columns(left: str, width: int, right: str, columns: int) -> list[str]:
    room = columns - width - 2
    if room < NARROWEST:
        return [left, *wrap(f"    {right}", max(NARROWEST, columns), subsequent_indent="    ")] if left else [""]
    rest = wrap(right, room) or [""]
    return [f"{start:<{width}}  {text}".rstrip() for start, text in zip_longest([left], rest, fillvalue="")]


def agents_help(commands: Sequence[Json] | None, agent: str) -> str:
    """The agent's own commands, and the rule for names that the chat has too."""
    if commands is None:
        return f"{agent} has not said yet which slash commands it has. Any other /name is sent to it as it is."
    known = [f"/{spelled(name)}" for name in names(commands)]
    if not known:
        return f"{agent} has no slash commands."
    more = f" and {len(known) - LISTED} more (type / and press Tab)" if len(known) > LISTED else ""
    rule = "The chat's own commands come first: with two slashes, as in //status, a command goes to the agent."
    return f"Commands of {agent}: {', '.join(known[:LISTED])}{more}.\n{rule}"
