"""The command line: `perdure`. One module per noun; this one has only the list of commands and the exit codes.

Above: people and scripts. Below: client.py for requests to the server; server.py and rehearsal, which commands start.

The module of a command is imported when the command runs, and heavy dependencies (rich, prompt_toolkit, the HTTP
client) inside its functions. This keeps `perdure --help` fast. Exit codes: 0 success, 1 refused or failed, 2 invalid
arguments, 3 no server reachable, 130 interrupted.
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
SAY_SESSION = "Give a session id, a unique prefix of one, or `last`."
OK, REFUSED, USAGE, NO_SERVER, INTERRUPTED = 0, 1, 2, 3, 130

# Name, module, and the sentence in the overview. It is here so that `perdure --help` imports no command.
COMMANDS: dict[str, tuple[str, str]] = {
    "chat": ("chat", "Chat with an agent in this terminal."),
    "run": ("runs", "Run one prompt and print the answer."),
    "send": ("messages", "Send a message to a session, or start a new session with it."),
    "watch": ("messages", "Follow a session live."),
    "answer": ("prompts", "Answer a permission request or a question."),
    "abort": ("sessions", "Interrupt the running turn. The session stays open."),
    "queue": ("queue", "List, edit and withdraw queued messages."),
    "attachments": ("attachments", "List and download files attached to messages."),
    "model": ("options", "Show or set a session's model."),
    "mode": ("options", "Show or set a session's mode."),
    "config": ("options", "Show or set a session's model, mode and other options."),
    "jobs": ("jobs", "Schedule messages: list, add, show, edit, pause, resume, run and remove jobs."),
    "sessions": ("sessions", "List sessions."),
    "show": ("sessions", "Show one session."),
    "events": ("events", "Follow changes in all sessions live."),
    "files": ("files", "List files in a session's working directory."),
    "directories": ("directories", "List directories on the server to work in, with their branch and changes."),
    "rename": ("labels", "Change a session's title."),
    "label": ("labels", "Show or change the labels of sessions."),
    "archive": ("archive", "Hide sessions from lists."),
    "unarchive": ("archive", "Show archived sessions in lists again."),
    "stop": ("sessions", "End a session, or all sessions."),
    "erase": ("archive", "Delete sessions permanently."),
    "export": ("exporting", "Export a session's log or transcript, or sessions to a folder."),
    "import": ("importing", "Import sessions from a folder."),
    "edit": ("history_commands", "Change the text of a message."),
    "rewind": ("history_commands", "Remove a turn and all later turns from a conversation."),
    "retry": ("history_commands", "Re-run a turn and print the answer."),
    "fork": ("history_commands", "Start a session with the history of another."),
    "explain": ("plans", "Explain a session's state, and what happens next."),
    "plan": ("plans", "Show what context the next turn would get, and why."),
    "usage": ("spending", "Show what turns have used: tokens, cost and time."),
    "changes": ("changes", "Show what a turn, or a whole session, changed in the repository."),
    "review": ("comments", "Send comments on changed lines to the agent, or list them."),
    "restore": ("file_operations", "Restore files to the state before a turn."),
    "discard": ("file_operations", "Revert the session's change to a file."),
    "undo": ("file_operations", "Undo a restore or discard."),
    "commit": ("commits", "Commit a session's changes to the current branch."),
    "merge": ("commits", "Merge the branch of a session's worktree into the branch that it comes from."),
    "serve": ("serve", "Start the server."),
    "doctor": ("doctor", "Check this machine and the server."),
    "nodes": ("nodes", "List, drain, resume and remove nodes; move sessions between them."),
    "migrate": ("migrate", "Move all data from SQLite to PostgreSQL, or back."),
    "agents": ("agents", "List, add and test agents."),
    "projects": ("projects", "List, add, show, edit and remove projects."),
    "reload": ("agents", "Reload the agents from perdure.toml."),
    "login": ("login", "Print a one-time link that signs in a browser."),
    "logins": ("login", "List signed-in browsers, and sign them out."),
    "logout": ("login", "Sign out one browser, or all."),
    "mcp": ("mcp", "Run an MCP server on stdin and stdout."),
    "rehearse": ("agents", "Run the rehearsal agent, which is scripted and needs no model."),
    "completion": ("shell_completion", "Print a shell completion script."),
}
# Sections of the overview, by their first command.
SECTIONS: dict[str, str] = {
    "chat": "Talk to agents",
    "sessions": "Manage sessions",
    "edit": "Change and inspect a conversation",
    "changes": "Review and keep changes to files",
    "serve": "Run the server",
}

# Command names from other tools, and their equivalent here.
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
    **dict.fromkeys(("diff", "patch"), "changes"),
    **dict.fromkeys(("reset", "revert", "checkout", "rollback"), "restore"),
    **dict.fromkeys(("comment", "comments"), "review"),
    **dict.fromkeys(("cost", "stats"), "usage"),
    **dict.fromkeys(("set", "options"), "config"),
    **dict.fromkeys(("status", "info", "inspect"), "show"),
    **dict.fromkeys(("server", "up", "daemon"), "serve"),
    **dict.fromkeys(("search", "find", "grep"), "sessions --query WORDS"),
    **dict.fromkeys(("cron", "crontab", "schedule", "schedules", "timer", "timers"), "jobs"),
    **dict.fromkeys(("prompts", "approve", "allow", "deny", "permissions"), "answer"),
    **dict.fromkeys(("node", "cluster", "servers"), "nodes"),
    **dict.fromkeys(("dirs", "folders", "directory", "cd"), "directories"),
    "version": "--version",
    "help": "--help",
}


class Formatter(click.HelpFormatter):
    """Help text in which commands appear as the user types them, such as `./run perdure` in a checkout."""

    def write_text(self, text: str) -> None:
        super().write_text(_as_typed(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(name, _as_typed(what)) for name, what in rows], col_max, col_spacing)


def _as_typed(text: str) -> str:
    if program() == "perdure":
        return text  # avoids the import
    from perdure.surfaces.cli.terms import as_typed

    return as_typed(text)


# Set on the base class, so no command has to name the formatter.
click.Context.formatter_class = Formatter


class Commands(click.Group):
    """A group that imports a command's module on first use."""

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
            else "`perdure --help` lists all commands."
        )
        raise click.UsageError(f"No such command {name!r}. {hint}", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list["CompletionItem"]:
        """Names and help from COMMANDS: asking each command would import them all."""
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
@click.option("--url", envvar="PERDURE_URL", help="Server URL; found automatically on the same machine.")
@click.option("--token", envvar="PERDURE_TOKEN", help="Server token; found automatically on the same machine.")
@click.version_option(__version__, prog_name="perdure", message="%(prog)s %(version)s")
@click.pass_context
def perdure(ctx: click.Context, data: str | None, url: str | None, token: str | None) -> None:
    """Durable conversations with coding agents."""
    ctx.obj = {"data": data, "url": url, "token": token}


def program() -> str:
    """How the user started this program, for messages that name a command: `./run perdure` in a checkout."""
    return os.environ.get("PERDURE_PROGRAM") or "perdure"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
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

            # Wrapped with the prefix that `show` adds, so that the first line is not too long.
            shown = paragraph(f"Error: {error.format_message()}", sys.stderr)
            error = click.UsageError(shown.removeprefix("Error: "), error.ctx)
        error.show()
        return error.exit_code
    except BrokenPipeError:
        # The reader of the pipe is gone (`| head`). Redirect stdout, or the flush at exit would fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
