"""Completion in a shell: `perdure completion` prints the script, and names that only the server knows are asked for.

Above: the shell, which runs `perdure` with `_PERDURE_COMPLETE` for each press of the tab key. Below: click, which knows
commands and options, and the client for sessions, agents, projects and values. A completion never keeps anybody
waiting: what the server has not said within a second is left out, and no error is shown.

Parameters are recognised by their names, so that a command has nothing to do but call its session `session`.
"""

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from perdure.surfaces.cli import COMPLETE_VARIABLE
from perdure.surfaces.cli.output import condition, one_line
from perdure.surfaces.cli.reach import Reach, find_session
from perdure.surfaces.client import Client

PATIENCE_S = 1.0
SESSIONS_SHOWN = 100
HELP_CHARS = 60
SHELLS = ("bash", "zsh", "fish")

Found = Iterable[tuple[str, str]]
"""Values, and a few words about each."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def completion_command(shell: str | None) -> None:
    """Print the script that lets a shell complete commands.

    Without SHELL it is that of $SHELL. Load it where your shell starts: `eval "$(perdure completion bash)"` in
    ~/.bashrc, `eval "$(perdure completion zsh)"` in ~/.zshrc, or `perdure completion fish | source` in
    ~/.config/fish/config.fish.
    """
    from perdure.surfaces.cli import perdure

    name = shell or os.path.basename(os.environ.get("SHELL", ""))
    kind = get_completion_class(name) if name in SHELLS else None
    if kind is None:
        raise click.UsageError(f"Name a shell: {', '.join(SHELLS)}.")
    click.echo(kind.source_template % kind(perdure, {}, "perdure", COMPLETE_VARIABLE).source_vars())


class Known(click.types.StringParamType):
    """A text, completed with what the server knows."""

    def __init__(self, look: Callable[[Client, click.Context], Found]) -> None:
        self._look = look

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = in_time(lambda: list(self._look(_client(ctx), ctx)))
        return [
            CompletionItem(value, help=one_line(words, HELP_CHARS) or None)
            for value, words in found
            if value.startswith(incomplete)
        ]


def in_time(look: Callable[[], list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """What was found within the time that a person waits for a completion; nothing if it failed."""
    found: list[tuple[str, str]] = []

    def run() -> None:
        try:
            found.extend(look())
        except Exception:  # noqa: BLE001
            # Whatever it is, it must not be written into the line that somebody types.
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return [] if thread.is_alive() else found


def _client(ctx: click.Context) -> Client:
    """The server that the words typed so far name."""
    given: dict[str, Any] = {}
    outer: click.Context | None = ctx
    while outer is not None:
        given = {key: outer.params[key] for key in ("data", "url", "token") if outer.params.get(key)} | given
        outer = outer.parent
    client = Reach(given.get("data"), given.get("url"), given.get("token"), False).client()
    client.answer_timeout_s = PATIENCE_S
    return client


def _sessions(client: Client, ctx: click.Context) -> Found:
    yield "last", "the session that was active last"
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
    **{(f"jobs {command}", "message"): lambda client, ctx: () for command in ("add", "edit")},
    ("send", "words"): lambda client, ctx: () if ctx.params.get("words") else _sessions(client, ctx),
}
FILES = ("workdir", "path", "attach", "config", "output", "target", "folder", "data", "token_file")


def with_completion(name: str, command: click.Command) -> click.Command:
    """The same command, whose parameters complete what the server knows. Only called while a shell completes."""
    for param in command.params:
        assert param.name is not None
        look = BY_COMMAND.get((name, param.name)) or BY_NAME.get(param.name)
        if param.name in FILES:
            param.type = click.Path(dir_okay=True, file_okay=param.name not in ("workdir", "folder", "data"))
        elif look is not None and isinstance(param.type, click.types.StringParamType | click.IntRange):
            param.type = Known(look)
    for inner in getattr(command, "commands", {}).values():
        with_completion(f"{name} {inner.name}", inner)
    return command
