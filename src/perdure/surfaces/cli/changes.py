"""What `/retry`, `/edit`, `/rewind`, `/fork` and `/plan` do in a chat. Each is one blocking call for a thread.

Above: conversation.py, which has the screen. Below: the client, and histories.py's ways to name a turn. The session's
events tell what was changed; here is said only what they don't say.
"""

from typing import Any, NamedTuple

from perdure.surfaces.cli.histories import message_of, split_turn, waits_to_begin
from perdure.surfaces.cli.plans import plan_words
from perdure.surfaces.cli.prompts import NotUnderstood
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Client

Json = dict[str, Any]


class Outcome(NamedTuple):
    """A note for the person, what is put into the input, or the session that the chat goes on in."""

    note: str = ""
    draft: str = ""
    session_id: str = ""


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
        return Outcome("Change the text, then press Enter.", f"/edit {number} {message_of(client, session_id, number)}")
    client.edit_message(session_id, turn["message_id"], text, revision=session["revision"])
    if waits_to_begin(turn):
        return Outcome("Its turn has not begun yet.")
    return Outcome(f"Its answer stays. /retry {number} replaces it and all that follows.")


def rewind(client: Client, session_id: str, line: str) -> Outcome:
    turn = _number(line, "/rewind N")
    revision = client.session(session_id)["revision"]
    client.rewind(session_id, turn, revision=revision)
    return Outcome(as_typed(f"What was dropped stays in the log: perdure show {session_id} --rewound"))


def fork(client: Client, session_id: str, line: str) -> Outcome:
    made = client.fork(session_id, _number(line, "/fork N, or /fork alone") if line else None)
    return Outcome(f"This is {made['id']} now; {session_id} stays as it is.", session_id=made["id"])


def plan(client: Client, session_id: str, agent: str | None, fresh: bool) -> Outcome:
    return Outcome(plan_words(client.plan(session_id, agent=agent, fresh=fresh)))


def _split(session: Json, line: str) -> tuple[Json, str]:
    words = line.split(maxsplit=1)
    turn, left = split_turn(session, words)
    return turn, line if len(left) == len(words) else "".join(left)


def _number(line: str, usage: str) -> int:
    if not (line.isascii() and line.isdigit() and int(line)):
        raise NotUnderstood(f"Give the number of a turn: {usage}.")
    return int(line)
