"""The chat commands `/retry`, `/edit`, `/rewind`, `/fork` and `/plan`, which change or explain the history. Each is one
blocking call.

Above: conversation.py, which calls them in a thread. Below: the client, and the turn syntax of history_commands.py. The
session's events report the change; the outcome adds only what they don't report.
"""

from typing import Any, NamedTuple

from perdure.surfaces.cli.history_commands import message_of, split_turn, waits_to_begin
from perdure.surfaces.cli.plans import plan_words
from perdure.surfaces.cli.prompts import NotUnderstood
from perdure.surfaces.cli.rows import Row
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Client

Json = dict[str, Any]


class Outcome(NamedTuple):
    """A note for the user, text for the input, the session in which the chat continues, or rows, which the chat folds
    if there are many."""

    note: str = ""
    draft: str = ""
    session_id: str = ""
    rows: tuple[Row, ...] = ()


def retry(client: Client, session_id: str, line: str, agent: str | None) -> Outcome:
    session = client.whole_session(session_id)
    turn, text = _split(session, line)
    client.retry(session_id, turn["turn"], text=text or None, agent=agent, revision=session["revision"])
    return Outcome()


def edit(client: Client, session_id: str, line: str) -> Outcome:
    session = client.whole_session(session_id)
    turn, text = _split(session, line)
    number = turn["turn"]
    if not text:
        return Outcome("Edit the text, then press Enter.", f"/edit {number} {message_of(client, session_id, number)}")
    client.edit_message(session_id, turn["message_id"], text, revision=session["revision"])
    if waits_to_begin(turn):
        return Outcome("The turn has not started yet.")
    return Outcome(f"The answer stays. /retry {number} replaces it and all later turns.")


def rewind(client: Client, session_id: str, line: str) -> Outcome:
    turn = turn_number(line, "/rewind N")
    revision = client.session(session_id)["revision"]
    client.rewind(session_id, turn, revision=revision)
    return Outcome(as_typed(f"Rewound turns stay in the log: perdure show {session_id} --rewound"))


def fork(client: Client, session_id: str, line: str) -> Outcome:
    made = client.fork(session_id, turn_number(line, "/fork N, or /fork alone") if line else None)
    return Outcome(f"Switched to {made['id']}. {session_id} is unchanged.", session_id=made["id"])


def plan(client: Client, session_id: str, agent: str | None, fresh: bool) -> Outcome:
    return Outcome(plan_words(client.plan(session_id, agent=agent, fresh=fresh)))


def _split(session: Json, line: str) -> tuple[Json, str]:
    words = line.split(maxsplit=1)
    turn, left = split_turn(session, words)
    return turn, line if len(left) == len(words) else "".join(left)


def turn_number(line: str, usage: str) -> int:
    if not (line.isascii() and line.isdigit() and int(line)):
        raise NotUnderstood(f"Give a turn number: {usage}.")
    return int(line)
