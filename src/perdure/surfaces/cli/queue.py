"""`perdure queue`: list, edit and withdraw messages that are queued behind a running turn.

Above: people and scripts. Below: the client. A message is identified by its position in the queue or by its id. A
position is resolved once, when the command reads the queue.
"""

import sys
from typing import Any

import click

from perdure.surfaces.cli.default_group import DefaultGroup
from perdure.surfaces.cli.editor import edited
from perdure.surfaces.cli.messages import given_text
from perdure.surfaces.cli.output import age, print_json, print_table
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.short_text import one_line

Json = dict[str, Any]

TEXT_CHARS = 60
NOTHING_WAITS = "The queue is empty. `perdure send --queue` adds a message while a turn is running."


@click.group(
    name="queue",
    cls=DefaultGroup,
    default="list",
    aliases={"ls": "list", "remove": "withdraw", "rm": "withdraw"},
    invoke_without_command=True,
    subcommand_metavar="[SESSION | COMMAND]",
)
@reaching
@click.pass_context
def queue_command(ctx: click.Context, reach: Reach) -> None:
    """List, edit and withdraw queued messages.

    `perdure queue SESSION` lists them. SESSION is an id, a unique prefix of one, or `last`.
    """
    if ctx.invoked_subcommand is None:
        raise click.UsageError("Give a SESSION to list its queue: `perdure queue last`.")


@queue_command.command("list")
@click.argument("session")
@reaching
def list_command(reach: Reach, session: str) -> None:
    """List messages that are waiting for the running turn to end."""
    with reach.client() as client:
        waiting = client.queue(find_session(client, session))
    show_queue(waiting, reach.as_json)


@queue_command.command("edit", short_help="Change the text of a queued message.")
@click.argument("session")
@click.argument("message")
@click.argument("words", nargs=-1, metavar="[TEXT...]")
@reaching
def edit_queued_command(reach: Reach, session: str, message: str, words: tuple[str, ...]) -> None:
    """Change the text of a queued message. It keeps its position.

    MESSAGE is a position in the queue (1 is next), a message id, or a unique prefix of one. If TEXT is `-`, reads
    stdin. Without TEXT, opens your editor.
    """
    with reach.client() as client:
        session_id = find_session(client, session)
        found = find_message(client.queue(session_id), message)
        text = given_text(" ".join(words)) if words else _edited(found["text"])
        if not text.strip():
            raise click.UsageError("Give a TEXT.")
        waiting = client.edit_queued(session_id, found["message_id"], text)
    show_queue(waiting, reach.as_json)


@queue_command.command("withdraw")
@click.argument("session")
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@click.option("--all", "everything", is_flag=True, help="Withdraw all queued messages.")
@reaching
def withdraw_command(reach: Reach, session: str, messages: tuple[str, ...], everything: bool) -> None:
    """Withdraw queued messages, so that they are not sent.

    MESSAGE is a position in the queue (1 is next), a message id, or a unique prefix of one. Prints the text of each
    withdrawn message.
    """
    if everything == bool(messages):
        raise click.UsageError("Give a MESSAGE or --all. `perdure queue SESSION` lists the messages.")
    with reach.client() as client:
        session_id = find_session(client, session)
        waiting = client.queue(session_id)
        withdrawn = waiting if everything else [find_message(waiting, message) for message in messages]
        for each in withdrawn:
            client.unqueue(session_id, each["message_id"])
    if reach.as_json:
        print_json({"withdrawn": withdrawn})
        return
    if not withdrawn:
        click.echo(as_typed(NOTHING_WAITS), err=True)
    for each in withdrawn:
        click.echo(f"Withdrew: {one_line(each['text'], 2000)}")


def find_message(waiting: list[Json], given: str) -> Json:
    """Find a message by its position, its id or a unique prefix of the id."""
    if given.isascii() and given.isdigit() and 1 <= int(given) <= len(waiting):
        return waiting[int(given) - 1]
    exact = [message for message in waiting if message["message_id"] == given]
    found = exact or [message for message in waiting if message["message_id"].startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        raise Failure(f"{len(found)} message ids start with {given!r}. Give more of the id.", 2)
    if not waiting:
        raise Failure("The queue is empty. The message may have been sent already. (not_found)")
    places = "1" if len(waiting) == 1 else f"1 to {len(waiting)}"
    raise Failure(f"There is no queued message {given!r}. Give its position ({places}) or its id. (not_found)")


def show_queue(waiting: list[Json], as_json: bool) -> None:
    if as_json:
        print_json({"queue": waiting})
        return
    rows = [
        [
            str(place),
            message["message_id"],
            age(message["queued_at"]),
            "interrupts" if message["first"] else "",
            str(len(message["attachments"]) or ""),
            one_line(message["text"], TEXT_CHARS),
        ]
        for place, message in enumerate(waiting, 1)
    ]
    print_table(["", "message", "queued", "", "files", "text"], rows, NOTHING_WAITS)


def _edited(text: str) -> str:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("Give a TEXT, or `-` to read stdin.")
    written = edited(text, ".md")
    if written is None or written.rstrip("\n") == text.rstrip("\n"):
        raise Failure("Nothing changed.")
    return written.rstrip("\n")
