"""`perdure run`: one prompt to an agent, its answer to stdout, and the session is closed.

Above: people and scripts. Below: the client, and the follower of messages.py. Nobody is there to be asked: what the
agent may do beyond its own rules is said beforehand, with --allow.
"""

import sys
from typing import Any

import click

from perdure.surfaces.cli.messages import (
    SEND_PATIENCE_S,
    STAYS_ACCEPTED,
    follow_turn,
    say_interrupted,
    say_what_it_waits_for,
    when_full_option,
)
from perdure.surfaces.cli.output import print_json
from perdure.surfaces.cli.places import Wish, choose, placing
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.client import Client, new_message_id


@click.command()
@click.argument("words", nargs=-1, metavar="[TEXT...]")
@click.option("--agent", help="The agent that takes it.")
@placing
@click.option("--model", help="The agent's model.")
@click.option("--mode", help="The agent's mode.")
@click.option("--parent", metavar="SESSION", help="The session that starts it, below which it is shown.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), metavar="SECONDS", help="Stop it after this long.")
@click.option(
    "--allow",
    multiple=True,
    metavar="TOOL[:PATTERN]",
    help="Let the agent use this tool; what is not allowed is denied.",
)
@click.option(
    "--fresh",
    "--fresh-session",
    is_flag=True,
    expose_value=False,
    help="No effect: a run always starts without context.",
)
@when_full_option
@click.option("--message-id", help="The same id again is the same run, and is done once.")
@reaching
def run_command(
    reach: Reach, words: tuple[str, ...], allow: tuple[str, ...], wish: Wish, parent: str | None, **given: Any
) -> int | None:
    """Run one prompt to its end, and write the answer.

    It works in the current directory if the server is on this machine. Without TEXT, or with `-`, stdin is the prompt.
    The session is closed afterwards, and its history stays. With --json the run is written as one JSON document. The
    exit code is 1 if it did not end well.
    """
    fields = {key: value for key, value in given.items() if value is not None}
    if allow:
        fields["permissions"] = [_rule(each) for each in allow]
    text = _text(words)
    with reach.client() as client:
        # Whether there is a server is said at once; one that goes away later is waited for.
        client.health()
        fields |= {"parent": find_session(client, parent)} if parent else {}
        place = choose(reach, client, wish)
        place.warn()
        fields |= place.fields
        client.patience_s = SEND_PATIENCE_S
        fields.setdefault("message_id", new_message_id())
        begun = client.begin_run(text, **fields)
        if not reach.as_json:
            return follow_turn(client, begun, answerable=False)
        return _wait(client, text, fields, begun)


def _wait(client: Client, text: str, fields: dict[str, Any], begun: dict[str, Any]) -> int:
    """The same message is the same run, so this waits for the one that was begun."""
    try:
        say_what_it_waits_for(begun)
        run = client.run(text, **fields)
    except KeyboardInterrupt:
        session_id = str(begun["session_id"])
        is_waiting = client.session(session_id)["state"] == "accepted"
        say_interrupted(session_id, STAYS_ACCEPTED if is_waiting else "The run continues")
        raise
    print_json(run)
    return 0 if run["stop_reason"] == "end_turn" else 1


def _text(words: tuple[str, ...]) -> str:
    text = " ".join(words)
    if text in ("", "-"):
        if not words and sys.stdin.isatty():
            raise click.UsageError("Give a text, or write it to stdin.")
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    # Bytes that are not UTF-8 can't be sent; they are shown as such instead of ending the command.
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if not text.strip():
        raise click.UsageError("Give a text, or write it to stdin.")
    return text


def _rule(given: str) -> dict[str, str]:
    tool, _, pattern = given.partition(":")
    return {"tool": tool, "pattern": pattern or "*", "action": "allow"}
