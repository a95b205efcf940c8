"""The command line's own words: how a command is typed here, and what its options are called.

Above: reach.py, for every error; commands that suggest another one. Below: the running command's parameters. What an
option is called is asked of the command itself, so that a sentence never names one that it does not have.
"""

import re
import shlex

import click
from click.core import ParameterSource

from perdure.surfaces.cli import program
from perdure.surfaces.client import Problem
from perdure.surfaces.refusals import reworded

OPTIONS = {
    "attachments": "--attach",
    "config_id": "OPTION",
    "group_by": "--by",
    "labels": "--label",
    "message_id": "--message-id",
    "option_id": "--option",
    "permissions": "--allow",
    "session_id": "SESSION",
    "timeout_s": "--timeout",
    "value": "VALUE",
    "when_busy": "--queue or --interrupt",
    "workdir": "--workdir",
}
"""Fields of the API whose options are not called the same."""

UNAUTHORIZED = (
    "The server asks for its token. Give it with --token, or in PERDURE_TOKEN; on the server's machine it is in the "
    "file `token` of the data directory."
)
NOT_OURS = "What answers there is not a Perdure server. Check --url, and what is between here and the server."
RUNNING, ACCEPTED = "A turn is running.", "A message waits to begin."
BUSY = "Wait for its end, or interrupt it with `perdure abort SESSION`."
BUSY_SENDING = (
    "Send with --queue to wait for its end or with --interrupt to stop it, or end it with `perdure abort SESSION`."
)

_COMMAND = re.compile(r"(?<![\w./-])(?<!run )perdure(?= -{0,2}[a-z])")


def as_typed(text: str) -> str:
    """The text with its commands as they are typed here: `./run perdure ...` in a checkout."""
    typed = program()
    return text if typed == "perdure" else _COMMAND.sub(lambda _: typed, text)


def to_copy(command: str) -> str:
    """A command that works when it is copied: as it is typed here, and with the options that this command was given to
    say which server is meant. The token is left out: it must not be in the shell's history."""
    context = click.get_current_context(silent=True)
    given: dict[str, str] = {}
    while context is not None:
        for name in ("data", "url"):
            if context.params.get(name) and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                given.setdefault(name, f"--{name} {shlex.quote(str(context.params[name]))}")
        context = context.parent
    return " ".join([program(), *given.values(), command])


def refusal(problem: Problem) -> str:
    """What the server refused, in this command's own words, and the code to search for."""
    command = _running()
    sends = command is not None and any(parameter.name == "when_busy" for parameter in command.params)
    what = ACCEPTED if problem.facts.get("state") == "accepted" else RUNNING
    sentences = {
        "unauthorized": UNAUTHORIZED,
        "unknown": NOT_OURS,
        "turn_active": f"{what} {BUSY_SENDING if sends else BUSY}",
    }
    return f"{reworded(problem, sentences, option_of)} ({problem.code})"


def option_of(field: str) -> str:
    """What the running command calls a field of the API. In a chat, where a line is no command, it is a plain word."""
    command = _running()
    names = {parameter.name: _name(parameter) for parameter in command.params} if command is not None else {}
    typed = OPTIONS.get(field)
    if typed is None or (typed.isupper() and typed not in names.values()):
        typed = names.get(field)
    return field.replace("_", " ") if typed is None else typed


def _name(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name.strip("[].")


def names_url() -> bool:
    """Whether the person said where the server is."""
    context = click.get_current_context(silent=True)
    if context is None:
        return False
    return bool(context.params.get("url") or (context.find_root().obj or {}).get("url"))


def _running() -> click.Command | None:
    context = click.get_current_context(silent=True)
    return context.command if context is not None else None
