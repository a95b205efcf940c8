"""The chat commands `/changes`, `/restore`, `/undo` and `/commit`. Each is one blocking call.

Above: conversation.py, which calls them in a thread. Below: the client, and the words of changes.py. The session's
events report what an operation has done, so the outcome adds only what they don't report.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perdure.surfaces.cli import patches
from perdure.surfaces.cli.changes import TOO_LONG, marked_patches, summary
from perdure.surfaces.cli.chat_history import Outcome, turn_number
from perdure.surfaces.cli.file_operations import in_the_way, last_undoable, skipped_rows
from perdure.surfaces.cli.prompts import NotUnderstood
from perdure.surfaces.cli.rows import Row
from perdure.surfaces.client import Client, Outside, Problem

Json = dict[str, Any]

RESTORE = "/restore N"
CHOICES: dict[str, Outside] = {"keep": "keep", "overwrite": "overwrite"}
TO_CHOOSE = "\nAdd `keep` to leave them as they are, or `overwrite`: {} keep"


def changes(client: Client, session_id: str, line: str) -> Outcome:
    turn = turn_number(line, "/changes N, or /changes for the whole session") if line else None
    found = client.file_changes(session_id, turn)
    rows = summary(found)
    if found["files"]:
        patch = client.patch(session_id, turn)
        for file in marked_patches(patch.content, found):
            rows += patches.rows(file)
        if patch.truncated:
            words = f"{TOO_LONG} `perdure changes {session_id} --file PATH` shows one of them."
            rows.append(Row(words, "failed", words=True))
    return Outcome(rows=tuple(rows))


def restore(client: Client, session_id: str, line: str) -> Outcome:
    number, _, choice = line.partition(" ")
    turn = turn_number(number, f"{RESTORE} restores the files to before turn N")
    outside = _choice(choice, f"{RESTORE} keep")
    with _explained(f"/restore {turn}"):
        done = client.restore(session_id, turn, outside=outside)
    return Outcome("/undo undoes it." if done["undoable"] else "", rows=tuple(skipped_rows(done["skipped"])))


def undo(client: Client, session_id: str, choice: str) -> Outcome:
    outside = _choice(choice, "/undo keep")
    with _explained("/undo"):
        last = last_undoable(client.file_changes(session_id)["operations"], session_id)
        done = client.undo(session_id, last, outside=outside)
    return Outcome(rows=tuple(skipped_rows(done["skipped"])))


def commit(client: Client, session_id: str, message: str) -> Outcome:
    if not message:
        raise NotUnderstood("Give a commit message: /commit MESSAGE.")
    with _explained("/commit MESSAGE"):
        done = client.commit(session_id, message)
    return Outcome(rows=tuple(skipped_rows(done["skipped"])))


def _choice(given: str, usage: str) -> Outside | None:
    if given and given not in CHOICES:
        raise NotUnderstood(f"{given!r} must be `keep` or `overwrite`: {usage}.")
    return CHOICES.get(given)


@contextmanager
def _explained(command: str) -> Iterator[None]:
    """Name the files in a refusal, and how to choose."""
    try:
        yield
    except Problem as problem:
        if found := in_the_way(problem):
            hint = TO_CHOOSE.format(command) if problem.facts.get("choice") else ""
            raise NotUnderstood(found + hint) from problem
        raise
