"""`perdure queue`: the messages that wait for a running turn to end, listed, edited and withdrawn.

Above: people and scripts. Below: the client. A message is named by its place in the queue or by its id. Whoever names
it by its place means the message that the queue had there when the command looked.
"""

import sys
from typing import Any

import click

from perdure.surfaces.cli.default_group import DefaultGroup
from perdure.surfaces.cli.messages import given_text
from perdure.surfaces.cli.output import age, one_line, print_json, print_table
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.cli.terms import as_typed

Json = dict[str, Any]

TEXT_CHARS = 60
NOTHING_WAITS = "No message waits. `perdure send --queue` adds one while a turn runs."


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
    """List, edit and withdraw waiting messages.

    `perdure queue SESSION` lists them. SESSION is an id, a unique beginning of one, or `last`.
    """
    if ctx.invoked_subcommand is None:
        raise click.UsageError("Give a SESSION to list its queue: `perdure queue last`.")


@queue_command.command("list")
@click.argument("session")
@reaching
def list_command(reach: Reach, session: str) -> None:
    """List the messages that wait for the running turn to end."""
    with reach.client() as client:
        waiting = client.queue(find_session(client, session))
    show_queue(waiting, reach.as_json)


@queue_command.command("edit", short_help="Give a waiting message another text.")
@click.argument("session")
@click.argument("message")
@click.argument("words", nargs=-1, metavar="[TEXT...]")
@reaching
def edit_queued_command(reach: Reach, session: str, message: str, words: tuple[str, ...]) -> None:
    """Give a waiting message another text; its place in the queue stays.

    MESSAGE is its place in the queue (1 is next), its id, or a unique beginning of that. TEXT `-` reads stdin; without
    TEXT your editor opens.
    """
    with reach.client() as client:
        session_id = find_session(client, session)
        found = find_message(client.queue(session_id), message)
        text = given_text(" ".join(words)) if words else _edited(found["text"])
        if not text.strip():
            raise click.UsageError("Give a text.")
        waiting = client.edit_queued(session_id, found["message_id"], text)
    show_queue(waiting, reach.as_json)


@queue_command.command("withdraw")
@click.argument("session")
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@click.option("--all", "everything", is_flag=True, help="Every waiting message.")
@reaching
def withdraw_command(reach: Reach, session: str, messages: tuple[str, ...], everything: bool) -> None:
    """Withdraw waiting messages: they are not sent.

    MESSAGE is its place in the queue (1 is next), its id, or a unique beginning of that; several may be given. The
    texts of the withdrawn messages are printed, so that nothing is lost.
    """
    if everything == bool(messages):
        raise click.UsageError("Give a MESSAGE, or --all. `perdure queue SESSION` lists them.")
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
    """The message that is meant by its place, its id or a unique beginning of that."""
    if given.isascii() and given.isdigit() and 1 <= int(given) <= len(waiting):
        return waiting[int(given) - 1]
    exact = [message for message in waiting if message["message_id"] == given]
    found = exact or [message for message in waiting if message["message_id"].startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        raise Failure(f"{len(found)} waiting messages begin with {given!r}. Give more of the id.", 2)
    if not waiting:
        raise Failure("No message waits in this session; it may have been sent already. (not_found)")
    places = "1" if len(waiting) == 1 else f"1 to {len(waiting)}"
    raise Failure(f"No message {given!r} waits. Give its place ({places}) or its id. (not_found)")


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
        raise click.UsageError("Give a text, or `-` to read stdin.")
    edited = click.edit(text, extension=".md")
    if edited is None or edited.rstrip("\n") == text.rstrip("\n"):
        raise Failure("Nothing was changed.")
    return edited.rstrip("\n")
