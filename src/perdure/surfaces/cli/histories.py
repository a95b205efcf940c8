"""`perdure edit`, `rewind`, `retry` and `fork`: a conversation that is changed, or goes on from an earlier place.

Above: people and scripts; chat uses the same ways to name a turn. Below: the client. A change is made for the history
that was looked at: if somebody was quicker, the server refuses it, so that what is said of it here is what was done.
"""

import sys
from collections.abc import Sequence
from typing import Any

import click

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.messages import SEND_PATIENCE_S, follow_turn, given_text, when_full_option
from perdure.surfaces.cli.output import print_json, print_paragraph
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.client import Client, WhenFull

Json = dict[str, Any]

NO_TURN = "There is no turn yet. Send a message first."


def last_turn(session: Json) -> Json:
    turns: list[Json] = session["turns"]
    if not turns:
        raise Failure(NO_TURN)
    return turns[-1]


def split_turn(session: Json, words: Sequence[str]) -> tuple[Json, Sequence[str]]:
    """The turn that is meant, and the words that are left: the first word names it by its number or its message's id;
    if it does neither, the last turn is meant."""
    if words:
        for turn in session["turns"]:
            if words[0] in (str(turn["turn"]), turn["message_id"]):
                return turn, words[1:]
        if words[0].isascii() and words[0].isdigit():
            raise Failure(f"There is no turn {words[0]}. `perdure show {session['id']}` lists the turns. (not_found)")
    return last_turn(session), words


def waits_to_begin(turn: Json) -> bool:
    return turn["context"] is None and turn["stop_reason"] is None


def dropped_from(session: Json, first: int) -> list[int]:
    return [turn["turn"] for turn in session["turns"] if turn["turn"] >= first]


def message_of(client: Client, session_id: str, turn: int) -> str:
    """The text that this turn was asked with."""
    found = next(entry for entry in client.transcript(session_id, turn)["turns"] if entry["turn"] == turn)
    return str((found["message"] or {}).get("text", ""))


@click.command()
@click.argument("session")
@click.argument("words", nargs=-1, metavar="[TURN] [TEXT...]")
@reaching
def edit_command(reach: Reach, session: str, words: tuple[str, ...]) -> None:
    """Give a message of a session another text.

    TURN is a turn's number or its message's id; without it the last turn is meant. TEXT `-` reads stdin; without TEXT
    your editor opens. What was answered stays: `perdure retry` re-runs the turn.
    """
    with reach.client() as client:
        session_id = find_session(client, session)
        before = client.whole_session(session_id)
        turn, rest = split_turn(before, words)
        text = given_text(" ".join(rest)) if rest else _edited(client, session_id, turn["turn"])
        if not text.strip():
            raise click.UsageError("Give a text.")
        changed = client.edit_message(session_id, turn["message_id"], text, revision=before["revision"])
    if reach.as_json:
        print_json(changed)
        return
    answer = f"Its answer stays; `perdure retry {session_id} {turn['turn']}` replaces it and all that follows."
    if waits_to_begin(turn):
        answer = "Its turn has not begun yet."
    print_paragraph(f"The message of turn {turn['turn']} has its new text. {answer}")


def _edited(client: Client, session_id: str, turn: int) -> str:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("Give a text, or `-` to read stdin.")
    text = message_of(client, session_id, turn)
    edited = click.edit(text, extension=".md")
    if edited is None or edited.rstrip("\n") == text.rstrip("\n"):
        raise Failure("Nothing was changed.")
    return edited.rstrip("\n")


@click.command()
@click.argument("session")
@click.argument("turn", type=click.IntRange(1))
@reaching
def rewind_command(reach: Reach, session: str, turn: int) -> None:
    """Drop a turn and all after it from a conversation.

    The agent forgets them as well. Nothing brings them back, but they stay in the log: `perdure show --rewound`.
    Files that the agent has changed stay as they are.
    """
    with reach.client() as client:
        session_id = find_session(client, session)
        before = client.whole_session(session_id)
        changed = client.rewind(session_id, turn, revision=before["revision"])
    if reach.as_json:
        print_json(changed)
        return
    dropped = dropped_from(before, turn)
    they = "It stays" if len(dropped) == 1 else "They stay"
    print_paragraph(f"{wording.dropped(dropped)} {they} in the log: `perdure show {session_id} --rewound`.")


@click.command()
@click.argument("session")
@click.argument("turn", type=click.IntRange(1), required=False)
@click.option("--text", help="Send this in place of the turn's message; `-` reads stdin.")
@click.option("--agent", help="The agent that takes it; the session goes on with it.")
@click.option("--fresh", "--fresh-session", is_flag=True, expose_value=False, help="As a retry always is.")
@when_full_option
@reaching
def retry_command(
    reach: Reach, session: str, turn: int | None, text: str | None, agent: str | None, when_full: WhenFull
) -> int:
    """Re-run a turn, and write the answer.

    Without TURN it is the last one. It and all after it are dropped, then its message is sent again, with the
    conversation replayed to the agent. With --json its events are written, one in a line. The exit code is 1 if it did
    not end well.
    """
    if text is not None:
        text = given_text(text)
        if not text.strip():
            raise click.UsageError("Give a text.")
    with reach.client() as client:
        session_id = find_session(client, session)
        before = client.whole_session(session_id)
        first = last_turn(before)["turn"] if turn is None else turn
        client.patience_s = SEND_PATIENCE_S
        how: Json = {"text": text, "agent": agent, "revision": before["revision"], "when_full": when_full}
        sent = client.retry(session_id, first, **how)
        if not reach.as_json:
            change = {"turn": first, "change": "retry"}
            click.echo(f"perdure: {wording.history_changed(change, dropped_from(before, first))}", err=True)
        return follow_turn(client, sent, as_json=reach.as_json)


@click.command()
@click.argument("session")
@click.argument("turn", type=click.IntRange(1), required=False)
@click.option("--agent", help="The new session's agent; by default the same.")
@reaching
def fork_command(reach: Reach, session: str, turn: int | None, agent: str | None) -> None:
    """Begin a session with the history of another one. Its id is printed.

    It has the turns up to and with TURN, or all. Both sessions work in the same directory.
    """
    with reach.client() as client:
        made = client.fork(find_session(client, session), turn, agent=agent)
    if reach.as_json:
        print_json(made)
    else:
        click.echo(made["id"])
