"""Slash commands of an agent: which of them a message calls, and why they can't follow a replay. Pure.

Above: turns.py, which plans turns, and transcript.py, which composes inputs. Below: the session's state and the facts
about its agent. Agents recognise a command only at the very start of an input. A replay puts the conversation there,
so Perdure refuses the command, which would otherwise arrive as plain text.
"""

import re
from collections.abc import Collection, Iterable
from typing import Any

from perdure.core.resume import AgentFacts
from perdure.core.state import Session

SHAPE = re.compile(r"/([\w:.-]+)(?:\s|$)")
"""Matches a command but not a path: `/review it`, but not `/etc/hosts is wrong`."""

REPORTED_AS = "available_commands"
"""The `config_id` under which an agent reports its commands."""
REFUSED = "command_refused"
"""The code of a turn that failed because its command could not reach the agent as a command."""


def names(commands: Iterable[Any]) -> tuple[str, ...]:
    """The names in a list reported by an agent, without the leading slash that some agents add."""
    found = (command.get("name") for command in commands if isinstance(command, dict))
    return tuple(name.lstrip("/") for name in found if isinstance(name, str) and name.strip("/ "))


def known(state: Session, agent: str, facts: AgentFacts | None) -> tuple[str, ...] | None:
    """An agent's commands: those it reported in this session, else those it last reported anywhere. None if it has
    never run."""
    own = state.commands if agent == state.agent else state.choices.get(agent, {}).get("commands")
    return names(own or ()) or (facts.commands if facts is not None else None)


def called(text: str, commands: Collection[str] | None) -> str:
    """The name of the command that this text calls; empty if it is ordinary text. If the agent's commands are unknown,
    anything that looks like a command counts."""
    text = text.lstrip()
    if not text.startswith("/"):
        return ""
    if commands is None:
        found = SHAPE.match(text)
        return found.group(1) if found is not None else ""
    # A name may have several words (`memory show`) or a folder (`nested/review`).
    fitting = [name for name in commands if text[1 : 1 + len(name)] == name and not text[1 + len(name) :][:1].strip()]
    return max(fitting, key=len, default="")


def sentence(name: str, agent: str, *, is_known: bool = True, is_retry: bool = False) -> str:
    """Why the command is not sent, and what to do."""
    what = "is" if is_known else "looks like"
    why = "a retry" if is_retry else "this turn"
    instead = "Rewind to before it, send an ordinary message" if is_retry else "Send an ordinary message first"
    words = (
        f"/{name} {what} a command of {agent}, but {why} has to replay the conversation to {agent}, and the command "
    )
    words += f"would arrive as plain text. {instead}, then send /{name}."
    return words if is_known else f"{words} If you mean it as text, begin with another word."
