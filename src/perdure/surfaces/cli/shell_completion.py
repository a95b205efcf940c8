"""Shell completion: `perdure completion` prints the script; values such as session ids come from the server.

Above: the shell, which runs `perdure` with `_PERDURE_COMPLETE` each time you press Tab. Below: click for commands and
options; the client for sessions, agents, projects and values. If the server does not answer within a second, its values
are left out. Errors are not shown.

Parameters are recognised by name: a command gets completion for session ids if its parameter is named `session`.
"""

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from perdure.surfaces.cli import COMPLETE_VARIABLE
from perdure.surfaces.cli.output import condition
from perdure.surfaces.cli.reach import Reach, find_session
from perdure.surfaces.client import Client
from perdure.surfaces.short_text import one_line

PATIENCE_S = 1.0
SESSIONS_SHOWN = 100
HELP_CHARS = 60
SHELLS = ("bash", "zsh", "fish")

Found = Iterable[tuple[str, str]]
"""Values, each with a short description."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def completion_command(shell: str | None) -> None:
    """Print a shell completion script.

    The default is the shell in $SHELL. To enable completion, add this to your shell's startup file:

    \b
    bash  ~/.bashrc                   eval "$(perdure completion bash)"
    zsh   ~/.zshrc                    eval "$(perdure completion zsh)"
    fish  ~/.config/fish/config.fish  perdure completion fish | source
    """
    from perdure.surfaces.cli import perdure

    name = shell or os.path.basename(os.environ.get("SHELL", ""))
    kind = get_completion_class(name) if name in SHELLS else None
    if kind is None:
        raise click.UsageError(f"Give a shell: {', '.join(SHELLS)}.")
    click.echo(kind.source_template % kind(perdure, {}, "perdure", COMPLETE_VARIABLE).source_vars())


class Known(click.types.StringParamType):
    """A string, completed with values from the server."""

    def __init__(self, look: Callable[[Client, click.Context], Found]) -> None:
        self._look = look

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        _fill_in_arguments(ctx)
        found = in_time(lambda: list(self._look(_client(ctx), ctx)))
        return [
            CompletionItem(value, help=one_line(words, HELP_CHARS) or None)
            for value, words in found
            if value.startswith(incomplete)
        ]


def _fill_in_arguments(ctx: click.Context) -> None:
    """If the value of an option is completed, click leaves out the arguments before it."""
    arguments = [one for one in ctx.command.params if isinstance(one, click.Argument) and one.nargs == 1]
    for argument, given in zip(arguments, ctx.args, strict=False):
        assert argument.name is not None
        if ctx.params.get(argument.name) is None:
            ctx.params[argument.name] = given


def in_time(look: Callable[[], list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """The values found within PATIENCE_S; none after a timeout or an error."""
    found: list[tuple[str, str]] = []

    def run() -> None:
        try:
            found.extend(look())
        except Exception:  # noqa: BLE001
            # An error message must not appear in the line that the user is typing.
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return [] if thread.is_alive() else found


def _client(ctx: click.Context) -> Client:
    """A client for the server that the options typed so far select."""
    given: dict[str, Any] = {}
    outer: click.Context | None = ctx
    while outer is not None:
        given = {key: outer.params[key] for key in ("data", "url", "token") if outer.params.get(key)} | given
        outer = outer.parent
    client = Reach(given.get("data"), given.get("url"), given.get("token"), False).client()
    client.answer_timeout_s = PATIENCE_S
    return client


def _sessions(client: Client, ctx: click.Context) -> Found:
    yield "last", "the most recently active session"
    for entry in client.sessions(limit=SESSIONS_SHOWN)["sessions"]:
        yield entry["id"], f"{condition(entry)}: {entry['title'] or 'Untitled'}"


def _agents(client: Client, ctx: click.Context) -> Found:
    return ((agent["name"], agent["state"].replace("_", " ")) for agent in client.agents())


def _catalogue(client: Client, ctx: click.Context) -> Found:
    return ((entry["name"], entry["title"]) for entry in client.catalogue() if not entry["offered"])


def _projects(client: Client, ctx: click.Context) -> Found:
    return ((project["id"], project["path"]) for project in client.projects())


def _jobs(client: Client, ctx: click.Context) -> Found:
    return ((job["id"], f"{job['state']}: {job['schedule']}") for job in client.jobs())


def _nodes(client: Client, ctx: click.Context) -> Found:
    return ((node["name"], node["state"]) for node in client.nodes())


def _sessions_of_jobs(client: Client, ctx: click.Context) -> Found:
    yield "new", "a new session for each run"
    yield "same", "one session for all runs"
    yield from _sessions(client, ctx)


def _labels(client: Client, ctx: click.Context) -> Found:
    named = [label for entry in client.sessions(limit=SESSIONS_SHOWN)["sessions"] for label in entry["labels"]]
    return ((label, "") for label in sorted(set(named)))


def _logins(client: Client, ctx: click.Context) -> Found:
    return ((one["id"], f"until {one['until'][:10]}") for one in client.logins())


def _session(client: Client, ctx: click.Context) -> dict[str, Any]:
    return client.session(find_session(client, ctx.params["session"]))


def _options(client: Client, ctx: click.Context) -> Found:
    options = _session(client, ctx)["config_options"] or []
    return ((str(option["id"]), str(option.get("name") or "")) for option in options)


def _values(client: Client, ctx: click.Context) -> Found:
    from perdure.surfaces.cli.config_options import values

    option = ctx.params.get("option") or ctx.command.name or ""
    return ((one.value, one.name) for one in values(_session(client, ctx), option))


def _turns(client: Client, ctx: click.Context) -> Found:
    return ((str(turn["turn"]), str(turn["agent"])) for turn in _session(client, ctx)["turns"])


def _prompts(client: Client, ctx: click.Context) -> Found:
    prompts = client.prompts(find_session(client, ctx.params["session"]))
    return ((prompt["prompt_id"], prompt["title"]) for prompt in prompts)


def _queued(client: Client, ctx: click.Context) -> Found:
    waiting = client.queue(find_session(client, ctx.params["session"]))
    return ((str(place), message["text"]) for place, message in enumerate(waiting, 1))


def _attachments(client: Client, ctx: click.Context) -> Found:
    from perdure.surfaces.cli.attachments import name_of

    found = client.attachments(find_session(client, ctx.params["session"]))
    return ((name_of(one), str(one.get("mime_type") or "")) for one in found)


def _changed_files(client: Client, ctx: click.Context) -> Found:
    from perdure.surfaces.cli.rows import quoted

    session_id = find_session(client, ctx.params["session"])
    changes = client.file_changes(session_id, ctx.params.get("turn"))
    return ((quoted(file["path"]), file["status"]) for file in changes["files"])


def _restorable(client: Client, ctx: click.Context) -> Found:
    from perdure.surfaces.cli.rows import quoted

    session_id = find_session(client, ctx.params["session"])
    found = client.restore(session_id, int(ctx.params["turn"]), preview=True)
    return ((quoted(file["path"]), file["change"]) for file in found["files"])


def _operations(client: Client, ctx: click.Context) -> Found:
    session_id = find_session(client, ctx.params["session"])
    operations = client.file_changes(session_id)["operations"]
    return ((one["operation_id"], one["message"]) for one in operations if one["undoable"])


def _nothing(client: Client, ctx: click.Context) -> Found:
    return ()


BY_NAME: dict[str, Callable[[Client, click.Context], Found]] = {
    "session": _sessions,
    "sessions": _sessions,
    "parent": _sessions,
    "agent": _agents,
    "project": _projects,
    "job": _jobs,
    "node": _nodes,
    "from_node": _nodes,
    "to_node": _nodes,
    "label": _labels,
    "labels": _labels,
    "added": _labels,
    "removed": _labels,
    "sign_ins": _logins,
    "operation": _operations,
    "option": _options,
    "value": _values,
    "turn": _turns,
    "prompt_id": _prompts,
    "message": _queued,
    "messages": _queued,
    "names": _attachments,
}
BY_COMMAND: dict[tuple[str, str], Callable[[Client, click.Context], Found]] = {
    ("agents add", "name"): _catalogue,
    ("agents sessions", "name"): _agents,
    ("agents show", "name"): _agents,
    ("agents test", "name"): _agents,
    ("answer", "option"): lambda client, ctx: (
        (option["option_id"], option["name"])
        for prompt in client.prompts(find_session(client, ctx.params["session"]))
        for option in prompt["options"]
    ),
    **{(f"jobs {command}", "session"): _sessions_of_jobs for command in ("add", "edit")},
    **{(command, "message"): _nothing for command in ("jobs add", "jobs edit", "commit", "merge")},
    ("changes", "paths"): _changed_files,
    ("commit", "paths"): _changed_files,
    ("discard", "file"): _changed_files,
    ("restore", "paths"): _restorable,
    ("send", "words"): lambda client, ctx: () if ctx.params.get("words") else _sessions(client, ctx),
}
FOLDERS = ("workdir", "folder", "data", "prefix")
FILES = (*FOLDERS, "path", "attach", "config", "output", "target", "token_file")


def with_completion(name: str, command: click.Command) -> click.Command:
    """Give a command's parameters completion from the server. Called only during completion."""
    for param in command.params:
        assert param.name is not None
        look = BY_COMMAND.get((name, param.name)) or BY_NAME.get(param.name)
        if param.name in FILES:
            param.type = click.Path(dir_okay=True, file_okay=param.name not in FOLDERS)
        elif look is not None and isinstance(param.type, click.types.StringParamType | click.IntRange):
            param.type = Known(look)
    for inner in getattr(command, "commands", {}).values():
        with_completion(f"{name} {inner.name}", inner)
    return command
