"""Names for error messages: how the user types a command, and what its options are called.

Above: reach.py, for every error; commands that suggest another command. Below: the running command's parameters. Option
names come from the running command, so a message never names an option that the command does not have.
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
"""API fields whose option has a different name."""

UNAUTHORIZED = (
    "The server needs its token. Set --token or PERDURE_TOKEN. On the server's machine, the token is in the file "
    "`token` in the data directory."
)
NOT_OURS = "The response is not from a Perdure server. Check --url, and any proxy in between."
RUNNING, ACCEPTED = "A turn is running.", "A message is waiting for a slot."
BUSY = "Wait until it ends, or interrupt it with `perdure abort SESSION`."
BUSY_IN_CHAT = "Wait until it ends, or interrupt it with Esc or /abort."
BUSY_SENDING = (
    "Send with --queue to wait until it ends, or with --interrupt to stop it; or run `perdure abort SESSION`."
)

RELOAD, READ_AGAIN = "Reload the changes.", "`perdure changes SESSION` shows them as they are now."
"""What the server says to the page, and what that is on the command line."""

_SESSION = "perdure.session"
_COMMAND = re.compile(r"(?<![\w./-])(?<!run )perdure(?= -{0,2}[a-z])")


def as_typed(text: str) -> str:
    """The text with commands as the user types them: `./run perdure ...` in a checkout."""
    typed = program()
    return text if typed == "perdure" else _COMMAND.sub(lambda _: typed, text)


def to_copy(command: str) -> str:
    """A command that works when copied: as the user types it, with the --data and --url given to this command. Omits
    the token, which must not get into the shell's history."""
    context = click.get_current_context(silent=True)
    given: dict[str, str] = {}
    while context is not None:
        for name in ("data", "url"):
            if context.params.get(name) and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                given.setdefault(name, f"--{name} {shlex.quote(str(context.params[name]))}")
        context = context.parent
    return " ".join([program(), *given.values(), command])


def remember_session(session_id: str) -> None:
    """Of the sessions that the running command has found, error messages name the last one."""
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[_SESSION] = session_id


def naming_session(text: str) -> str:
    """The text with the running command's session in the commands that it suggests."""
    context = click.get_current_context(silent=True)
    found = context.meta.get(_SESSION) if context is not None else None
    return text if found is None else text.replace(" SESSION`", f" {found}`")


def refusal(problem: Problem, *, in_chat: bool = False) -> str:
    """The server's error in this command's terms, with the error code to search for. A chat may show another session
    than the one that it began with, so it names none."""
    command = _running()
    sends = command is not None and any(parameter.name == "when_busy" for parameter in command.params)
    what = ACCEPTED if problem.facts.get("state") == "accepted" else RUNNING
    sentences = {"unauthorized": UNAUTHORIZED, "unknown": NOT_OURS}
    # An operation on files is refused for the turn of another session, which the server names.
    if "operation_id" not in problem.facts:
        sentences["turn_active"] = f"{what} {BUSY_IN_CHAT if in_chat else BUSY_SENDING if sends else BUSY}"
    sentence = reworded(problem, sentences, option_of).replace(RELOAD, READ_AGAIN)
    return f"{sentence if in_chat else naming_session(sentence)} ({problem.code})"


def option_of(field: str) -> str:
    """The running command's name for an API field. In a chat, which has no options, the plain word."""
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
    """Whether the user gave --url."""
    context = click.get_current_context(silent=True)
    if context is None:
        return False
    return bool(context.params.get("url") or (context.find_root().obj or {}).get("url"))


def _running() -> click.Command | None:
    context = click.get_current_context(silent=True)
    return context.command if context is not None else None
