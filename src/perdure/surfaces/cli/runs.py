"""`perdure run`: sends one prompt to an agent, prints the answer and ends the session.

Above: people and scripts. Below: the client, and follow_turn of messages.py. No person answers permission requests
during a run: grant permissions beyond the agent's own rules up front, with --allow.
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
@click.option("--agent", help="Agent to use.")
@placing
@click.option("--model", help="Model to use.")
@click.option("--mode", help="Mode to use.")
@click.option("--parent", metavar="SESSION", help="Parent session, below which the run is listed.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0), metavar="SECONDS", help="Stop the run after this time."
)
@click.option(
    "--allow",
    multiple=True,
    metavar="TOOL[:PATTERN]",
    help="Allow a tool; requests for any other tool are denied. Repeatable.",
)
@click.option(
    "--fresh",
    "--fresh-session",
    is_flag=True,
    expose_value=False,
    help="No effect: a run always starts without context.",
)
@when_full_option
@click.option("--message-id", help="Idempotency key: the same id never runs twice.")
@reaching
def run_command(
    reach: Reach, words: tuple[str, ...], allow: tuple[str, ...], wish: Wish, parent: str | None, **given: Any
) -> int | None:
    """Run one prompt and print the answer.

    The agent works in the current directory if the server is on this machine. Without TEXT, or with `-`, reads the
    prompt from stdin. The session ends afterwards; its history stays. With --json, prints the run as one JSON object.
    Exits 1 unless the run succeeds.
    """
    fields = {key: value for key, value in given.items() if value is not None}
    if allow:
        fields["permissions"] = [_rule(each) for each in allow]
    text = _text(words)
    with reach.client() as client:
        # Fail immediately if there is no server; wait for one that goes away later.
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
    """Wait for the run. Sending the same message id again returns the same run."""
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
            raise click.UsageError("Give a prompt as TEXT or on stdin.")
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    # Replace bytes that are not UTF-8 with marks instead of failing.
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if not text.strip():
        raise click.UsageError("Give a prompt as TEXT or on stdin.")
    return text


def _rule(given: str) -> dict[str, str]:
    tool, _, pattern = given.partition(":")
    return {"tool": tool, "pattern": pattern or "*", "action": "allow"}
