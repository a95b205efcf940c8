"""`perdure restore`, `discard` and `undo`: change a session's files back.

Above: people and scripts; commits.py and the chat, which report operations in the same way. Below: the client. Nothing
is overwritten without a way back: the server takes a snapshot first, and `undo` returns to it. Files that somebody else
has changed are overwritten only if the user says so.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.changes import LISTED_FILES, found_paths, print_rows
from perdure.surfaces.cli.output import age, print_json, print_paragraph, print_table
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.cli.rows import Row, shown_path, visible
from perdure.surfaces.cli.terms import refusal
from perdure.surfaces.client import Files, Outside, Point, Problem

Json = dict[str, Any]

NOTHING_DONE = "Nothing was changed."
KEEP_OR_OVERWRITE = "\nAdd --outside keep to leave them as they are, or --outside overwrite."
OUTSIDE = ("keep", "overwrite")
LETTERS: dict[str, Outside] = {"k": "keep", "o": "overwrite"}
VERBS = {"create": "create", "write": "change", "delete": "delete"}

outside_option = click.option(
    "--outside",
    type=click.Choice(OUTSIDE),
    help="If you or somebody else changed some of the files: keep or overwrite these.",
)
files_option = click.option(
    "--files",
    type=click.Choice(("keep", "restore")),
    default="keep",
    show_default=True,
    help="Keep the files as they are, or restore them to before the turn.",
)


@click.command()
@click.argument("session")
@click.argument("turn", type=click.IntRange(1))
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--after", is_flag=True, help="Restore the files to after the turn instead of before it.")
@click.option("--preview", is_flag=True, help="Only list the files that would change.")
@outside_option
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation in a terminal.")
@reaching
def restore_command(
    reach: Reach,
    session: str,
    turn: int,
    paths: tuple[str, ...],
    after: bool,
    preview: bool,
    outside: Outside | None,
    yes: bool,
) -> None:
    """Restore files to the state before a turn.

    SESSION is an id, a unique prefix of one, or `last`. Without PATH, restores all files that differ. The conversation
    does not change; to restore both, use `perdure rewind --files restore`. In a terminal, lists the files and asks for
    confirmation. `perdure undo` undoes it.
    """
    point: Point = "after" if after else "before"
    asks = not (yes or reach.as_json) and sys.stdin.isatty() and sys.stdout.isatty()
    with reach.client() as client:
        session_id = find_session(client, session)
        wanted: list[str] | None = None
        if paths or preview or asks:
            found = client.restore(session_id, turn, point=point, preview=True)
            if paths:
                changes = client.file_changes(session_id, turn)
                wanted = found_paths(paths, changes, found["files"], f"files that differ from {point} turn {turn}")
                found = _only(found, wanted)
            if preview and reach.as_json:
                print_json(found)
                return
            if preview or asks:
                print_rows(list(_preview_rows(found)))
            if preview or (asks and not found["files"]):
                return
            if asks:
                outside = _confirmed(found, outside)
        with explained():
            done = client.restore(session_id, turn, point=point, paths=wanted, outside=outside)
    show_operation(done, session_id, as_json=reach.as_json)


@click.command()
@click.argument("session")
@click.argument("file", metavar="PATH")
@click.option("--turn", type=click.IntRange(1), help="Only what this turn changed; default: the whole session.")
@click.option(
    "--hunk",
    "hunks",
    type=click.IntRange(1),
    multiple=True,
    metavar="N",
    help="Only this hunk, with its number in `perdure changes` without -w. Repeatable.",
)
@reaching
def discard_command(reach: Reach, session: str, file: str, turn: int | None, hunks: tuple[int, ...]) -> None:
    """Revert the session's change to a file.

    SESSION is an id, a unique prefix of one, or `last`. Later changes to other lines of the file stay. `perdure undo`
    undoes it.
    """
    with reach.client() as client:
        session_id = find_session(client, session)
        changes = client.file_changes(session_id, turn)
        where = "changes" if turn is None else f"changes of turn {turn}"
        [*others, name] = found_paths([file], changes, changes["files"], where)
        if others:
            raise Failure(f"{file!r} is a folder with {len(others) + 1} changed files. Give one file.", 2)
        new_id = next(one["new_id"] for one in changes["files"] if one["path"] == name)
        chosen = [number - 1 for number in hunks] or None
        with explained():
            done = client.discard(session_id, name, turn=turn, hunks=chosen, new_id=new_id)
    show_operation(done, session_id, as_json=reach.as_json)


@click.command()
@click.argument("session")
@click.argument("operation", required=False)
@outside_option
@click.option("--list", "lists", is_flag=True, help="Only list the operations.")
@reaching
def undo_command(reach: Reach, session: str, operation: str | None, outside: Outside | None, lists: bool) -> None:
    """Undo a restore or discard.

    SESSION is an id, a unique prefix of one, or `last`. OPERATION is an id that --list prints; default: the last
    operation that can be undone. To redo an operation, give the id of its undo.
    """
    with reach.client() as client:
        session_id = find_session(client, session)
        operations = client.file_changes(session_id)["operations"] if lists or operation is None else []
        if lists:
            _list_operations(operations, reach.as_json)
            return
        with explained():
            done = client.undo(session_id, operation or last_undoable(operations), outside=outside)
    show_operation(done, session_id, as_json=reach.as_json)


def last_undoable(operations: Sequence[Json]) -> str:
    """The newest operation that can be undone. Not an undo: undoing that would do the operation again."""
    for one in operations:
        if one["undoable"] and not one["undone"] and one["action"] != "undo":
            return str(one["operation_id"])
    raise Failure("There is nothing to undo. A commit or merge can only be undone with git. (not_found)")


def show_operation(done: Json, session_id: str, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    print_paragraph(" ".join(outcome_words(done, session_id)))
    print_rows(skipped_rows(done["skipped"]))


def outcome_words(done: Json, session_id: str) -> Iterator[str]:
    """What was done, and how to undo it."""
    message = visible(done["message"]).replace("\n", " ")
    yield message + (f" ({done['commit'][:10]})" if done.get("commit") else "")
    if done["undoable"]:
        what = "Redo" if done["action"] == "undo" else "Undo"
        yield f"{what} it with `perdure undo {session_id} {done['operation_id']}`."


def skipped_rows(skipped: Sequence[Json]) -> list[Row]:
    """The files that were left as they are."""
    if not skipped:
        return []
    return [Row(f"{wording.files(len(skipped)).capitalize()} left unchanged:"), *_reasons(skipped)]


def check_outside(files: Files, outside: Outside | None) -> None:
    if outside is not None and files != "restore":
        raise click.UsageError("--outside needs --files restore.")


def _choice(problem: Problem) -> str:
    return KEEP_OR_OVERWRITE if problem.facts.get("choice") else ""


@contextmanager
def explained(hint: Callable[[Problem], str] = _choice) -> Iterator[None]:
    """Name the files in a refusal, and the option that helps."""
    try:
        yield
    except Problem as problem:
        if found := in_the_way(problem):
            raise Failure(found + hint(problem)) from problem
        raise


def in_the_way(problem: Problem) -> str:
    """The refusal with its files; empty if it names none."""
    found = [one if isinstance(one, dict) else {"path": one} for one in problem.facts.get("outside") or []]
    found += [{"path": one} for one in problem.facts.get("files") or []]
    if not found:
        return ""
    return "\n".join([refusal(problem), *(f"  {row.text}" for row in _reasons(found))])


def _reasons(found: Sequence[Json]) -> list[Row]:
    rows = [
        Row(shown_path(one["path"]) + (f"  {visible(one['reason'])}" if one.get("reason") else ""), gutter="  ")
        for one in found[:LISTED_FILES]
    ]
    return rows + ([Row(f"... and {len(found) - len(rows)} more", gutter="  ")] if len(found) > len(rows) else [])


def _only(preview: Json, paths: Sequence[str]) -> Json:
    """The preview of a restore of these files."""
    files = [file for file in preview["files"] if file["path"] in paths]
    outside = [one for one in preview["outside"] if one["path"] in paths]
    return {**preview, "files": files, "file_count": len(files), "outside": outside}


def _preview_rows(preview: Json) -> Iterator[Row]:
    files, where = preview["files"], f"{preview['point']} turn {preview['turn']}"
    if not files:
        yield Row(f"The files are already as {where}.")
        return
    yield Row(f"Restoring to {where} changes {wording.files(preview['file_count'])}:", "command")
    for file in files[:LISTED_FILES]:
        yield Row(shown_path(file["path"]), gutter=f"  {VERBS[file['change']]:<6}  ")
    if (more := preview["file_count"] - LISTED_FILES) > 0:
        yield Row(f"... and {more} more", gutter="  ")
    if preview["outside"]:
        yield Row("Changed by you or somebody else, not by this session:", "failed")
        yield from _reasons(preview["outside"])
    if preview["left_alone"]:
        yield Row("Not in the snapshots, so they stay as they are:")
        yield from _reasons(preview["left_alone"])
    if preview["head_moved"]:
        yield Row(preview["head_moved"], words=True)


def _confirmed(preview: Json, outside: Outside | None) -> Outside | None:
    """What to do with files that were changed outside, once the user has agreed."""
    count = preview["file_count"]
    if preview["outside"] and outside is None:
        question = "Keep the files that the session did not change (k), overwrite them (o), or cancel (c)?"
        letter = click.prompt(question, type=click.Choice([*LETTERS, "c"]), default="c", show_choices=False, err=True)
        if letter == "c":
            raise Failure(NOTHING_DONE)
        outside = LETTERS[letter]
    kept = len(preview["outside"]) if outside == "keep" else 0
    if count == kept:
        raise Failure(f"No other file differs. {NOTHING_DONE}")
    if not click.confirm(f"Restore {wording.files(count - kept)}?", default=False, err=True):
        raise Failure(NOTHING_DONE)
    return outside


def _list_operations(operations: list[Json], as_json: bool) -> None:
    if as_json:
        print_json({"operations": operations})
        return
    rows = [
        [one["operation_id"], one["action"], age(one["at"]), _state(one), wording.short(one["message"])]
        for one in operations
    ]
    empty = "No files of this session were restored, discarded, committed or merged."
    print_table(["operation", "action", "when", "", "result"], rows, empty, wrap_last=True)


def _state(operation: Json) -> str:
    if operation["outcome"] != "done":
        return str(operation["outcome"])
    return "undone" if operation["undone"] else "can be undone" if operation["undoable"] else ""
