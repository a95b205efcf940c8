"""The command line: `perdure`. One module per noun; here are only the list of commands and the exit codes.

Above: people and scripts. Below: client.py for all that a server does, server.py and rehearsal to start those.

Commands are imported when they are used, and what they need (rich, prompt_toolkit, the HTTP client) inside them, so
that `perdure --help` is there at once. Exit codes: 0 done, 1 refused or failed, 2 not understood, 3 no server
reachable, 130 interrupted.
"""

import difflib
import importlib
import itertools
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from perdure import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMPLETE_VARIABLE = "_PERDURE_COMPLETE"
SAY_SESSION = "Give the id of a session, a beginning of one, or `last`."
OK, REFUSED, USAGE, NO_SERVER, INTERRUPTED = 0, 1, 2, 3, 130

# Name, module, and the sentence of the overview, which must not cost the import of the module.
COMMANDS: dict[str, tuple[str, str]] = {
    "chat": ("chat", "Talk with an agent in this terminal."),
    "run": ("runs", "Run one prompt to its end, and write the answer."),
    "send": ("messages", "Send a message to a session, or to a new one."),
    "watch": ("messages", "Show what happens in a session, live."),
    "answer": ("prompts", "Answer a permission request or a question."),
    "abort": ("sessions", "Interrupt the running turn; the session stays usable."),
    "queue": ("queue", "List, edit and withdraw waiting messages."),
    "attachments": ("attachments", "List and download files that were sent with messages."),
    "model": ("options", "Show or set the model of a session."),
    "mode": ("options", "Show or set the mode of a session."),
    "config": ("options", "Show or set the model, the mode and other options of a session."),
    "jobs": ("jobs", "Schedule messages: list, add, show, edit, pause, resume, run and remove jobs."),
    "sessions": ("sessions", "List sessions."),
    "show": ("sessions", "Show one session."),
    "events": ("events", "Show what changes in all sessions, live."),
    "files": ("files", "List files in a session's working directory."),
    "rename": ("labels", "Give a session another title."),
    "label": ("labels", "Show or change the labels of sessions."),
    "archive": ("archive", "Put sessions away: lists leave them out."),
    "unarchive": ("archive", "Bring archived sessions back into the lists."),
    "stop": ("sessions", "End a session, or all."),
    "erase": ("archive", "Erase sessions for good."),
    "export": ("exporting", "Write a session's log or transcript, or sessions into a folder."),
    "import": ("importing", "Take sessions in from a folder."),
    "edit": ("histories", "Give a message of a session another text."),
    "rewind": ("histories", "Drop a turn and all after it from a conversation."),
    "retry": ("histories", "Re-run a turn, and write the answer."),
    "fork": ("histories", "Begin a session with the history of another one."),
    "explain": ("plans", "Say why a session is in its state, and what will happen to it."),
    "plan": ("plans", "Say what the next turn would do, and why."),
    "usage": ("spending", "Show what turns have cost."),
    "serve": ("serve", "Start the server."),
    "doctor": ("doctor", "Check this machine and the server."),
    "nodes": ("nodes", "List, drain, resume and remove nodes, and move sessions between them."),
    "migrate": ("migrate", "Move everything from SQLite to PostgreSQL, or back."),
    "agents": ("agents", "List, add and try agents."),
    "projects": ("projects", "List, add, show, edit and remove projects."),
    "reload": ("agents", "Take the agents as perdure.toml names them now."),
    "login": ("login", "Make a one-time link that signs a browser in."),
    "logins": ("login", "List browsers that are signed in, and sign them out."),
    "logout": ("login", "Sign a browser out, or all."),
    "mcp": ("mcp", "Offer sessions as tools to an MCP client, on stdin and stdout."),
    "rehearse": ("agents", "Run the rehearsal agent, which needs no model."),
    "completion": ("shell_completion", "Print the script that lets a shell complete commands."),
}
# Where a section of the overview begins.
SECTIONS: dict[str, str] = {
    "chat": "Talk with agents",
    "sessions": "Find and keep sessions",
    "edit": "Work on a conversation's history",
    "serve": "Run the server",
}

# What people of other tools type, and what they mean here.
MEANT: dict[str, str] = {
    **dict.fromkeys(("ls", "list", "ps"), "sessions"),
    **dict.fromkeys(("rm", "delete", "remove", "purge"), "erase"),
    **dict.fromkeys(("logs", "log", "tail", "follow"), "watch"),
    **dict.fromkeys(("attach", "resume", "continue", "open"), "chat"),
    **dict.fromkeys(("new", "create", "start"), "send --new"),
    **dict.fromkeys(("exec", "prompt", "ask"), "run"),
    **dict.fromkeys(("cancel", "interrupt"), "abort"),
    **dict.fromkeys(("kill", "end", "close"), "stop"),
    **dict.fromkeys(("mv", "title"), "rename"),
    **dict.fromkeys(("tag", "labels"), "label"),
    **dict.fromkeys(("auth", "signin", "sign-in"), "login"),
    **dict.fromkeys(("undo", "reset", "revert"), "rewind"),
    **dict.fromkeys(("cost", "stats"), "usage"),
    **dict.fromkeys(("set", "options"), "config"),
    **dict.fromkeys(("status", "info", "inspect"), "show"),
    **dict.fromkeys(("server", "up", "daemon"), "serve"),
    **dict.fromkeys(("search", "find", "grep"), "sessions --query WORDS"),
    **dict.fromkeys(("cron", "crontab", "schedule", "schedules", "timer", "timers"), "jobs"),
    **dict.fromkeys(("prompts", "approve", "allow", "deny", "permissions"), "answer"),
    **dict.fromkeys(("node", "cluster", "servers"), "nodes"),
    "version": "--version",
    "help": "--help",
}


class Formatter(click.HelpFormatter):
    """Help that names commands as they are typed here."""

    def write_text(self, text: str) -> None:
        super().write_text(_as_typed(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(name, _as_typed(what)) for name, what in rows], col_max, col_spacing)


def _as_typed(text: str) -> str:
    if program() == "perdure":
        return text  # without the import
    from perdure.surfaces.cli.terms import as_typed

    return as_typed(text)


# Every command makes contexts of this class, so that no command has to name it.
click.Context.formatter_class = Formatter


class Commands(click.Group):
    """The group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"perdure.surfaces.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        if COMPLETE_VARIABLE in os.environ:
            from perdure.surfaces.cli.shell_completion import with_completion

            return with_completion(cmd_name, command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = [MEANT[name]] if name in MEANT else difflib.get_close_matches(name, COMMANDS, 3, 0.7)
        hint = (
            f"Did you mean {' or '.join(f'`perdure {one}`' for one in near)}?"
            if near
            else "`perdure --help` lists all."
        )
        raise click.UsageError(f"No such command {name!r}. {hint}", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list["CompletionItem"]:
        """Names and sentences from the table above: asking each command would import them all."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=what) for name, (_, what) in COMMANDS.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        starts = [*(list(COMMANDS).index(first) for first in SECTIONS), len(COMMANDS)]
        rows = [(name.ljust(width), what) for name, (_, what) in COMMANDS.items()]
        for heading, (start, end) in zip(SECTIONS.values(), itertools.pairwise(starts), strict=True):
            with formatter.section(heading):
                formatter.write_dl(rows[start:end])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--data", envvar="PERDURE_DATA", metavar="DIR", help="The server's data directory.")
@click.option("--url", envvar="PERDURE_URL", help="Where the server is; on the same machine it is found without.")
@click.option("--token", envvar="PERDURE_TOKEN", help="The server's token; on the same machine it is found without.")
@click.version_option(__version__, prog_name="perdure", message="%(prog)s %(version)s")
@click.pass_context
def perdure(ctx: click.Context, data: str | None, url: str | None, token: str | None) -> None:
    """Durable conversations with coding agents."""
    ctx.obj = {"data": data, "url": url, "token": token}


def program() -> str:
    """How this program was started, for sentences that name a command: `./run perdure` in a checkout."""
    return os.environ.get("PERDURE_PROGRAM") or "perdure"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. The answer is an exit code."""
    try:
        answer = perdure.main(args=None if argv is None else list(argv), prog_name=program(), standalone_mode=False)
        sys.stdout.flush()
        return answer if isinstance(answer, int) else OK
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.ClickException as error:
        if isinstance(error, click.MissingParameter) and error.param and error.param.name == "session":
            error = click.MissingParameter(SAY_SESSION, ctx=error.ctx, param=error.param)
        if isinstance(error, click.UsageError):
            from perdure.surfaces.cli.output import paragraph

            # It is shown after this word.
            shown = paragraph(f"Error: {error.format_message()}", sys.stderr)
            error = click.UsageError(shown.removeprefix("Error: "), error.ctx)
        error.show()
        return error.exit_code
    except BrokenPipeError:
        # The reader of a pipe has gone (`| head`). Nothing more can be said there, at the exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
