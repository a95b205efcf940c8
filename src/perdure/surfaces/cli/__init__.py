"""The command line: `perdure`. One module per noun; here are only the list of commands and the exit codes.

Above: people and scripts. Below: client.py for all that a server does, server.py and rehearsal to start those.

Commands are imported when they are used, and what they need (rich, prompt_toolkit, the HTTP client) inside them, so
that `perdure --help` is there at once. Exit codes: 0 done, 1 refused or failed, 2 not understood, 3 no server
reachable, 130 interrupted.
"""

import importlib
import os
import sys
from collections.abc import Sequence

import click

from perdure import __version__

OK, REFUSED, USAGE, NO_SERVER, INTERRUPTED = 0, 1, 2, 3, 130

# Name, module, and the sentence of the overview, which must not cost the import of the module.
COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("serve", "Start the server."),
    "chat": ("chat", "Talk with an agent in this terminal."),
    "run": ("runs", "Run one prompt to its end, and write the answer."),
    "send": ("messages", "Send a message to a session, or to a new one."),
    "watch": ("messages", "Show what happens in a session, live."),
    "sessions": ("sessions", "List sessions."),
    "show": ("sessions", "Show one session."),
    "config": ("options", "Show or set the model, the mode and other options of a session."),
    "edit": ("histories", "Give a message of a session another text."),
    "rewind": ("histories", "Drop a turn and all after it from a conversation."),
    "retry": ("histories", "Have a turn worked again, and write the answer."),
    "fork": ("histories", "Begin a session with the history of another one."),
    "explain": ("plans", "Say why a session is in its state, and what will happen to it."),
    "plan": ("plans", "Say what the next turn would do, and why."),
    "usage": ("spending", "Show what turns have cost."),
    "answer": ("prompts", "Answer a permission request or a question."),
    "abort": ("sessions", "Interrupt the running turn; the session stays usable."),
    "stop": ("sessions", "End a session, or all."),
    "agents": ("agents", "List, add and try agents."),
    "projects": ("projects", "List, add and remove projects."),
    "export": ("exporting", "Write a session's log or transcript, or sessions into a folder."),
    "import": ("importing", "Take sessions in from a folder."),
    "mcp": ("mcp", "Offer sessions as tools to an MCP client, on stdin and stdout."),
    "rehearse": ("agents", "Run the rehearsal agent, which needs no model."),
    "doctor": ("doctor", "Check this machine and the server."),
    "login": ("login", "Make a one-time link that signs a browser in."),
    "logout": ("login", "Sign a browser out, or all."),
}


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
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--data", envvar="PERDURE_DATA", metavar="DIR", help="The server's data directory.")
@click.option("--url", envvar="PERDURE_URL", help="Where the server is; found by itself on the same machine.")
@click.option("--token", envvar="PERDURE_TOKEN", help="The server's token; found by itself on the same machine.")
@click.version_option(__version__, prog_name="perdure", message="%(prog)s %(version)s")
@click.pass_context
def perdure(ctx: click.Context, data: str | None, url: str | None, token: str | None) -> None:
    """Durable conversations with coding agents."""
    ctx.obj = {"data": data, "url": url, "token": token}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. The answer is an exit code."""
    try:
        answer = perdure.main(args=None if argv is None else list(argv), prog_name="perdure", standalone_mode=False)
        sys.stdout.flush()
        return answer if isinstance(answer, int) else OK
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        # The reader of a pipe has gone (`| head`). Nothing more can be said there, at the exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
