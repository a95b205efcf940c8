"""`perdure edit`, `rewind`, `retry` and `fork`: change a conversation, or continue it from an earlier turn.

Above: people and scripts; the chat identifies turns in the same way. Below: the client. Optimistic concurrency: each
change carries the revision that the command read. If the history has changed since, the server refuses the change, so
the printed result is always accurate. With `--files restore`, the server changes history and files together or not at
all.
"""

import sys
from collections.abc import Sequence
from typing import Any

import click

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.editor import edited
from perdure.surfaces.cli.file_operations import check_outside, explained, files_option, outside_option
from perdure.surfaces.cli.messages import SEND_PATIENCE_S, follow_turn, given_text, when_full_option
from perdure.surfaces.cli.output import print_json, print_paragraph
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.cli.rows import visible
from perdure.surfaces.cli.terms import to_copy
from perdure.surfaces.client import Client, Files, Outside, WhenFull

Json = dict[str, Any]

NAMED = 5
"""How many files that were left alone are named."""
NO_TURN = "There are no turns yet. Send a message first."


def last_turn(session: Json) -> Json:
    turns: list[Json] = session["turns"]
    if not turns:
        raise Failure(NO_TURN)
    return turns[-1]


def split_turn(session: Json, words: Sequence[str]) -> tuple[Json, Sequence[str]]:
    """The turn and the remaining words. The first word may be a turn number or a message id; otherwise it is the last
    turn."""
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
    """The text of the turn's message."""
    found = next(entry for entry in client.transcript(session_id, turn)["turns"] if entry["turn"] == turn)
    return str((found["message"] or {}).get("text", ""))


@click.command()
@click.argument("session")
@click.argument("words", nargs=-1, metavar="[TURN] [TEXT...]")
@files_option
@outside_option
@reaching
def edit_command(reach: Reach, session: str, words: tuple[str, ...], files: Files, outside: Outside | None) -> None:
    """Change the text of a message.

    SESSION is an id, a unique prefix of one, or `last`. TURN is a turn number or a message id; the default is the last
    turn. If TEXT is `-`, reads stdin. Without TEXT, opens your editor. The answer stays; `perdure retry` re-runs the
    turn.
    """
    check_outside(files, outside)
    with reach.client() as client:
        session_id = find_session(client, session)
        before = client.whole_session(session_id)
        turn, rest = split_turn(before, words)
        text = given_text(" ".join(rest)) if rest else _edited(client, session_id, turn["turn"])
        if not text.strip():
            raise click.UsageError("Give a TEXT.")
        how: Json = {"revision": before["revision"], "files": files, "outside": outside}
        with explained():
            changed = client.edit_message(session_id, turn["message_id"], text, **how)
    if reach.as_json:
        print_json(changed)
        return
    answer = f"The answer stays. `perdure retry {session_id} {turn['turn']}` replaces it and all later turns."
    if waits_to_begin(turn):
        answer = "The turn has not started yet."
    print_paragraph(f"Changed the message of turn {turn['turn']}. {answer}{_restored(changed, session_id)}")


def _edited(client: Client, session_id: str, turn: int) -> str:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("Give a TEXT, or `-` to read stdin.")
    text = message_of(client, session_id, turn)
    found = edited(text, ".md")
    if found is None or found.rstrip("\n") == text.rstrip("\n"):
        raise Failure("Nothing changed.")
    return found.rstrip("\n")


@click.command()
@click.argument("session")
@click.argument("turn", type=click.IntRange(1))
@files_option
@outside_option
@reaching
def rewind_command(reach: Reach, session: str, turn: int, files: Files, outside: Outside | None) -> None:
    """Remove a turn and all later turns from a conversation.

    SESSION is an id, a unique prefix of one, or `last`. The agent no longer sees the removed turns. This can't be
    undone, but the turns stay in the log; `perdure show --rewound` prints them. The files stay as they are, unless you
    give --files restore.
    """
    check_outside(files, outside)
    with reach.client() as client:
        session_id = find_session(client, session)
        before = client.whole_session(session_id)
        with explained():
            changed = client.rewind(session_id, turn, revision=before["revision"], files=files, outside=outside)
    if reach.as_json:
        print_json(changed)
        return
    dropped = dropped_from(before, turn)
    they = "It stays" if len(dropped) == 1 else "They stay"
    words = f"{wording.dropped(dropped)} {they} in the log: `perdure show {session_id} --rewound`."
    print_paragraph(words + _restored(changed, session_id))


def _restored(answer: Json, session_id: str) -> str:
    """What became of the files, if they were to be restored."""
    done = answer.get("operation")
    if done is None:
        return ""
    said = [visible(done["message"])]
    if skipped := done["skipped"]:
        names = ", ".join(visible(one["path"]) for one in skipped[:NAMED])
        more = f" and {len(skipped) - NAMED} more" if len(skipped) > NAMED else ""
        said.append(f"Left as {'it is' if len(skipped) == 1 else 'they are'}: {names}{more}.")
    if done["undoable"]:
        said.append(f"To change the files back:\n  {to_copy(f'undo {session_id} ' + done['operation_id'])}")
    return " " + " ".join(said)


@click.command()
@click.argument("session")
@click.argument("turn", type=click.IntRange(1), required=False)
@click.option("--text", help="Send this text instead of the turn's message; `-` reads stdin.")
@click.option("--agent", help="Agent to send to. Later messages go to it too.")
@click.option(
    "--fresh",
    "--fresh-session",
    is_flag=True,
    expose_value=False,
    help="No effect: a retry always restarts the agent's context.",
)
@when_full_option
@files_option
@outside_option
@reaching
def retry_command(
    reach: Reach,
    session: str,
    turn: int | None,
    text: str | None,
    agent: str | None,
    when_full: WhenFull,
    files: Files,
    outside: Outside | None,
) -> int:
    """Re-run a turn and print the answer.

    SESSION is an id, a unique prefix of one, or `last`. Without TURN, re-runs the last turn. Removes the turn and
    all later turns from the conversation, replays the rest to the agent, and sends the message again. With --json,
    prints the turn's events, one per line. Exits 1 unless the turn succeeds.
    """
    check_outside(files, outside)
    if text is not None:
        text = given_text(text)
        if not text.strip():
            raise click.UsageError("--text must not be empty.")
    with reach.client() as client:
        session_id = find_session(client, session)
        before = client.whole_session(session_id)
        first = last_turn(before)["turn"] if turn is None else turn
        client.patience_s = SEND_PATIENCE_S
        how: Json = {"text": text, "agent": agent, "revision": before["revision"], "when_full": when_full}
        with explained():
            sent = client.retry(session_id, first, files=files, outside=outside, **how)
        if not reach.as_json:
            change = {"turn": first, "change": "retry"}
            said = wording.history_changed(change, dropped_from(before, first)) + _restored(sent, session_id)
            click.echo(f"perdure: {said}", err=True)
        return follow_turn(client, sent, as_json=reach.as_json)


@click.command()
@click.argument("session")
@click.argument("turn", type=click.IntRange(1), required=False)
@click.option("--agent", help="Agent of the new session. Defaults to the same agent.")
@reaching
def fork_command(reach: Reach, session: str, turn: int | None, agent: str | None) -> None:
    """Start a session with the history of another. Prints the new session's id.

    SESSION is an id, a unique prefix of one, or `last`. The new session has the turns up to and including TURN, or all
    turns. Both sessions work in the same directory.
    """
    with reach.client() as client:
        made = client.fork(find_session(client, session), turn, agent=agent)
    if reach.as_json:
        print_json(made)
    else:
        click.echo(made["id"])
