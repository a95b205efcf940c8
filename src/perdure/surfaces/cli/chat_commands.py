"""Parses a line of the chat: one of the chat's own commands, a message, or a mistake. Also the text of /help.

Above: conversation.py, which runs it, and completion.py. Below: core's parser for an agent's slash commands. The chat's
own commands take precedence over an agent's command of the same name; `//name` always reaches the agent. Pure.
"""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from itertools import zip_longest
from textwrap import wrap
from typing import Any, NamedTuple

from perdure.core.slash_commands import SHAPE, called, names

Json = dict[str, Any]


class ChatCommand(NamedTuple):
    name: str
    usage: str
    help: str
    aliases: tuple[str, ...] = ()


OWN = (
    ChatCommand("help", "", "show this help"),
    ChatCommand("model", "[NAME]", "list the models, or choose one by number or name"),
    ChatCommand("mode", "[NAME]", "list the modes, or choose one by number or name"),
    ChatCommand("agent", "[NAME]", "list the agents, or switch to another one"),
    ChatCommand("sessions", "[N or ID]", "list recent sessions, or open one (also /resume)", ("resume",)),
    ChatCommand("new", "", "start a new session (also /clear)", ("clear",)),
    ChatCommand("queue", "TEXT", "send TEXT when the running turn ends"),
    ChatCommand("abort", "", "interrupt the running turn"),
    ChatCommand("retry", "[N] [TEXT]", "re-run turn N, or the last one; TEXT replaces the message"),
    ChatCommand("edit", "[N] [TEXT]", "change the message of turn N; without TEXT, edit it here"),
    ChatCommand("rewind", "N", "remove turn N and all later turns"),
    ChatCommand("fork", "[N]", "continue in a new session with the turns up to N, or all"),
    ChatCommand("changes", "[N]", "show which files turn N, or the whole session, changed"),
    ChatCommand("restore", "N", "restore the files to before turn N"),
    ChatCommand("undo", "", "undo the last restore or discard"),
    ChatCommand("commit", "MESSAGE", "commit the session's changes"),
    ChatCommand("fresh", "", "restart the agent's context with the next message"),
    ChatCommand("plan", "", "show what context the next turn would get, and why"),
    ChatCommand("skip", "", "close the open prompt without an answer"),
    ChatCommand("status", "", "show the session's state, agent and directory"),
    ChatCommand("quit", "", "leave; the agent continues (also /exit)", ("exit",)),
)
NAMES = {alias: command.name for command in OWN for alias in (command.name, *command.aliases)}
"""Maps each name and alias to its chat command."""

KEYS = (
    ("Enter", "send"),
    ("Alt+Enter, Ctrl-J", "insert a new line"),
    ("Tab", "complete a command, a name or a file"),
    ("Up, Down", "recall earlier lines, or choose a completion"),
    ("Esc, Ctrl-C", "withdraw queued messages; if there are none, interrupt"),
    ("Ctrl-C twice, Ctrl-D", "leave; the agent continues"),
    ("Ctrl-O", "show the rest of a folded change or output"),
    ("Ctrl-V", "attach the image in the clipboard"),
)
LISTED = 8
NARROWEST = 24
"""If the second column has less room than this, it goes below the first."""
CLOSE = 0.75
"""How similar a mistyped name must be to a command to be suggested."""


class Own(NamedTuple):
    """A command of the chat."""

    name: str
    rest: str


class Message(NamedTuple):
    """A message to the agent. `command`: it is known to be one of the agent's slash commands."""

    text: str
    command: bool = False


class Mistake(NamedTuple):
    sentence: str


def read(line: str, commands: Collection[str] | None, agent: str) -> Own | Message | Mistake:
    """Parse a line. `commands` are the agent's slash commands; None if unknown."""
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
        return Mistake(f"Neither the chat nor {agent} has a command /{name}. /help lists all commands.")
    return Message(line)


def _escaped(line: str, commands: Collection[str] | None, agent: str) -> Message | Mistake:
    if called(line[1:], commands):
        return Message(line[1:], commands is not None)
    name = _escaped_name(line)
    if name in NAMES:
        return Mistake(f"{agent} has no command /{name}. Use /{name} for the chat's own command.")
    return Message(line)


def unescaped(line: str) -> str:
    """A line of a plain chat without its escape: `//name` goes to the agent as `/name` if the chat has a command of
    that name."""
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
    """An agent's command as entered after the first slash: it needs a second slash if the chat has one of that name."""
    return f"/{name}" if name in NAMES else name


def help_text(commands: Sequence[Json] | None, agent: str, columns: int = 80) -> str:
    """All keys and commands in two columns. The second column wraps."""
    rows = [*KEYS, ("@path", "mention a file in the session's directory"), ("", "")]
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
    """The agent's slash commands, and the rule for names that the chat has too."""
    if commands is None:
        return f"The slash commands of {agent} are not known yet. Any other /name is sent to it unchanged."
    known = [f"/{spelled(name)}" for name in names(commands)]
    if not known:
        return f"{agent} has no slash commands."
    more = f" and {len(known) - LISTED} more (type / and press Tab)" if len(known) > LISTED else ""
    rule = "If the chat and the agent share a name, use two slashes for the agent's command, as in //status."
    return f"Commands of {agent}: {', '.join(known[:LISTED])}{more}.\n{rule}"
