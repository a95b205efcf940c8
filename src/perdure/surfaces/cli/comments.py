"""`perdure review`: comments on changed lines, which the agent gets as one message.

Above: people and scripts. Below: the client. The server adds the commented lines to the message, and records what the
next turn did with them.
"""

import re
from collections.abc import Sequence
from typing import Any

import click

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.changed_paths import found_paths
from perdure.surfaces.cli.messages import SEND_PATIENCE_S, confirm, follow_turn, given_text, queued
from perdure.surfaces.cli.output import print_json, print_table
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.cli.rows import shown_path
from perdure.surfaces.client import WhenBusy

Json = dict[str, Any]

_PLACE = re.compile(r"(.+):([1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?")
SAY_PLACE = "Give the place as PATH:LINE or PATH:FIRST-LAST, such as src/app.py:12-15."

Given = Sequence[tuple[str, str]]
"""Places, each with the text of the comment."""


@click.command()
@click.argument("session")
@click.option(
    "-c", "--comment", "comments", type=(str, str), multiple=True, metavar="PATH:LINE[-LAST] TEXT",
    help="A comment on a line, or on several, as they are after the change. Repeatable.",
)  # fmt: skip
@click.option(
    "--old", "old_comments", type=(str, str), multiple=True, metavar="PATH:LINE[-LAST] TEXT",
    help="A comment on removed lines, with their numbers before the change. Repeatable.",
)  # fmt: skip
@click.option("--turn", type=click.IntRange(1), help="The lines are those of this turn; default: the whole session.")
@click.option("--text", default="", help="Text before the comments; `-` reads stdin.")
@click.option("--agent", help="Agent to send to. Later messages go to it too.")
@click.option("--queue", "when_busy", flag_value="queue", help="If a turn is running: send when it ends.")
@click.option("--interrupt", "when_busy", flag_value="interrupt", help="If a turn is running: interrupt it.")
@click.option("--message-id", help="Idempotency key: the same id is never sent twice.")
@click.option(
    "--wait", is_flag=True, help="Wait for the turn to end and print the answer. Exits 1 unless the turn succeeds."
)
@reaching
def review_command(
    reach: Reach,
    session: str,
    comments: Given,
    old_comments: Given,
    turn: int | None,
    text: str,
    agent: str | None,
    when_busy: WhenBusy | None,
    message_id: str | None,
    wait: bool,
) -> int | None:
    """Send comments on changed lines to the agent, or list them.

    SESSION is an id, a unique prefix of one, or `last`. The agent gets all comments as one message, with the lines that
    they are about. Prints the session id. Without comments, lists those sent so far and their states.
    """
    written = [*(_read(one, "new") for one in comments), *(_read(one, "old") for one in old_comments)]
    if text and not written:
        raise click.UsageError("Give a comment with -c. To send only a text, use `perdure send`.")
    if turn is not None and not written:
        raise click.UsageError("--turn needs a comment: -c or --old.")
    with reach.client() as client:
        session_id = find_session(client, session)
        changes = client.file_changes(session_id, turn)
        if not written:
            _list(changes["comments"], reach.as_json)
            return None
        where = "changes" if turn is None else f"changes of turn {turn}"
        for comment in written:
            [comment["path"], *_] = found_paths([comment["path"]], changes, changes, where)
            comment |= {"turn": turn} if turn is not None else {}
        client.patience_s = SEND_PATIENCE_S if wait else 0.0
        how: Json = {"agent": agent, "when_busy": when_busy or "reject", "message_id": message_id}
        sent = client.review(session_id, written, given_text(text), **how)
        if not wait:
            confirm(sent, reach.as_json)
            return None
        return follow_turn(client, sent, as_json=reach.as_json, said=queued(sent) if sent["turn"] is None else "")


def _read(given: tuple[str, str], side: str) -> Json:
    place, text = given
    found = _PLACE.fullmatch(place)
    if found is None:
        raise click.UsageError(f"{place!r} has no line. {SAY_PLACE}")
    first, last = int(found[2]), int(found[3] or found[2])
    if last < first:
        raise click.UsageError(f"{place!r} ends before it begins. {SAY_PLACE}")
    if not text.strip():
        raise click.UsageError(f"The comment on {place} is empty.")
    comment: Json = {"path": found[1], "side": side, "line": first, "text": given_text(text)}
    return comment | ({"end_line": last} if last > first else {})


def _list(comments: list[Json], as_json: bool) -> None:
    if as_json:
        print_json({"comments": comments})
        return
    rows = [
        [
            _place(one),
            "" if one["sent_turn"] is None else str(one["sent_turn"]),
            one["state"],
            wording.short(one["text"]),
        ]
        for one in comments
    ]
    empty = "There are no comments yet. Send one with `perdure review SESSION -c PATH:LINE TEXT`."
    print_table(["place", "sent in turn", "state", "comment"], rows, empty, wrap_last=True)


def _place(comment: Json) -> str:
    first, last = comment["line"], comment["end_line"] or comment["line"]
    removed = " (removed)" if comment["side"] == "old" else ""
    turn = "" if comment["turn"] is None else f" of turn {comment['turn']}"
    return f"{shown_path(comment['path'])}:{first}" + (f"-{last}" if last > first else "") + turn + removed
