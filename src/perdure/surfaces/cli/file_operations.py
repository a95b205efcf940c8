"""`perdure restore`, `discard` and `undo`: change a session's files back.

Above: people and scripts; commits.py and the chat, which report operations in the same way. Below: the client. Nothing
is overwritten without a way back: the server takes a snapshot first, and `undo` returns to it. Files that somebody else
has changed are overwritten only if the user says so.
"""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import click

from perdure.surfaces.cli import patches, wording
from perdure.surfaces.cli.changed_paths import found_paths, place_of
from perdure.surfaces.cli.changes import FILE_LINES, LISTED_FILES, Number, diff_lines, print_lines, print_rows
from perdure.surfaces.cli.output import age, print_json, print_paragraph, print_table
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.cli.rows import Row, and_more, quoted, shown_path, visible
from perdure.surfaces.cli.terms import refusal, to_copy
from perdure.surfaces.client import Client, Files, Outside, Point, Problem

Json = dict[str, Any]

NOTHING_DONE = "Nothing was changed."
KEEP_OR_OVERWRITE = "\nAdd --outside keep to leave them as they are, or --outside overwrite."
TO_OVERWRITE = "\nTo discard the change anyway, add --outside overwrite."
OUTSIDE: tuple[Outside, ...] = get_args(Outside)
NEEDS_CHOICE = "A restore asks what to do with these files; outside a terminal, it needs --outside keep or overwrite."
BEFORE_PATHS = "Give the number of a turn before the paths."
TURNS_LISTED = "`perdure show SESSION` lists the turns."
HUNKS_LISTED = "In a terminal, `perdure changes SESSION` shows the numbers."
LETTERS: dict[str, Outside] = {choice[0]: choice for choice in OUTSIDE}
VERBS = {"create": "create", "write": "change", "delete": "delete"}
OUTSIDE_TOO = "Also changed by you or somebody else:"
MOST_PATHS = 10_000
"""The server accepts no more."""

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
@click.argument("turn", type=Number("turn number", BEFORE_PATHS))
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
    with reach.client() as client:
        session_id = find_session(client, session)
        wanted: list[str] | None = None
        asks = asks_first(reach, yes=yes)
        if paths or preview or asks:
            found = client.restore(session_id, turn, point=point, preview=True)
            if paths:
                wanted = _wanted(client, session_id, found, paths)
                found = _only(found, wanted)
            shown = _without_kept(found) if outside == "keep" else found
            if preview and reach.as_json:
                print_json(shown)
                return
            if preview or asks:
                print_rows(list(_preview_rows(shown, outside, asks=not preview)))
            if preview or (asks and not shown["files"]):
                return
            if asks:
                outside = _confirmed(shown, outside)
                # What was shown, and nothing that has changed since.
                seen = [file["path"] for file in found["files"]]
                wanted = seen if len(seen) <= MOST_PATHS else wanted
        with explained():
            done = client.restore(session_id, turn, point=point, paths=wanted, outside=outside)
    show_operation(done, session_id, as_json=reach.as_json)


@click.command()
@click.argument("session")
@click.argument("file", metavar="PATH")
@click.option(
    "--turn",
    type=Number("turn number", TURNS_LISTED),
    help="Only what this turn changed; default: the whole session.",
)
@click.option(
    "--hunk",
    "hunks",
    type=Number("hunk number", HUNKS_LISTED),
    multiple=True,
    metavar="N",
    help="Only this hunk, with its number in `perdure changes` without -w. Repeatable.",
)
@click.option(
    "--outside",
    type=click.Choice(("overwrite",)),
    help="Without --turn, and if you or another program changed the file too: revert these changes with it.",
)
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation. Scripts need this or --json.")
@reaching
def discard_command(
    reach: Reach,
    session: str,
    file: str,
    turn: int | None,
    hunks: tuple[int, ...],
    outside: Literal["overwrite"] | None,
    yes: bool,
) -> None:
    """Revert the session's change to a file.

    SESSION is an id, a unique prefix of one, or `last`. Later changes to other lines of the file stay. Without --turn,
    the hunks that remain get new numbers. Shows the change and asks for confirmation, unless you give --yes or --json.
    `perdure undo` undoes it.
    """
    chosen, asks = sorted(set(hunks)), asks_first(reach, yes=yes)
    if outside is not None and turn is not None:
        raise click.UsageError("A turn's changes are only the session's. Leave out --outside or --turn.")
    with reach.client() as client:
        session_id = find_session(client, session)
        changes = client.file_changes(session_id, turn)
        where = "changes" if turn is None else f"changes of turn {turn}"
        [*others, name] = found_paths([file], changes, changes, where)
        if others:
            raise Failure(f"{shown_path(file)} is a folder with {len(others) + 1} changed files. Give one file.", 2)
        changed = next(one for one in changes["files"] if one["path"] == name)
        if not (yes or reach.as_json or asks):
            raise click.UsageError("Can't ask for confirmation: this is not a terminal. Use --yes to confirm.")
        is_mixed = turn is None and outside is None and _is_mixed(changed, changes)
        if is_mixed and not asks:
            raise Failure(f"{_mixed(changed)} (files_changed){TO_OVERWRITE}")
        change = _change(client, session_id, turn, name, chosen) if chosen or asks else None
        lines = diff_lines(change, chosen=chosen, most=FILE_LINES) if change is not None else []
        if asks:
            print_lines(lines)
            what = wording.counted(len(chosen), "hunk") if chosen else "this change"
            if is_mixed:
                print_paragraph(_mixed(changed))
                what, outside = f"{what} anyway", "overwrite"
            if not click.confirm(f"Discard {what}?", default=False, err=True):
                raise Failure(NOTHING_DONE)
        with explained(_overwrite):
            indexes = [number - 1 for number in chosen] or None
            new_id = changed["new_id"]
            done = client.discard(session_id, name, turn=turn, hunks=indexes, new_id=new_id, outside=outside)
    show_operation(done, session_id, as_json=reach.as_json)
    if reach.as_json or not done["undoable"]:
        return
    if not asks:
        print_lines(lines)
    if change is not None and turn is None and 0 < len(chosen) < len(change.hunks):
        again = to_copy(f"changes {session_id} --file {shlex.quote(quoted(name))}")
        print_paragraph(f"The other hunks have new numbers now. To see them:\n  {again}")


def _is_mixed(file: Json, changes: Json) -> bool:
    """Whether somebody else changed the file too, so that the server asks what to do."""
    return not {file["path"], file["old_path"]}.isdisjoint(one["path"] for one in changes["outside"])


def _mixed(file: Json) -> str:
    name = shown_path(file["path"])
    if file.get("only_outside"):
        return f"No turn of this session changed {name}. You or another program did, between two turns."
    words = f"You or another program also changed {name} between two turns, and these changes would be reverted too."
    return f"{words} To discard only what one turn changed, give --turn N."


def _overwrite(problem: Problem) -> str:
    return TO_OVERWRITE if problem.facts.get("choice") else ""


def _change(
    client: Client, session_id: str, turn: int | None, name: str, hunks: Sequence[int]
) -> patches.FilePatch | None:
    """The diff of a file, if it has these hunks. None if it can't be shown."""
    patch = client.patch(session_id, turn, paths=[name])
    files = patches.parsed(patch.content)
    if patch.truncated or len(files) != 1:
        return None
    count = len(files[0].hunks)
    if hunks and 0 < count < hunks[-1]:
        numbers = "--hunk 1" if count == 1 else "--hunk 1 or 2" if count == 2 else f"--hunk with a number up to {count}"
        raise Failure(f"{shown_path(name)} has {wording.counted(count, 'hunk')}. Give {numbers}.")
    return files[0]


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
        try:
            with explained():
                done = client.undo(session_id, operation or last_undoable(operations, session_id), outside=outside)
        except Problem as problem:
            if operation is None or problem.code != "not_found":
                raise
            raise Failure(f"{refusal(problem)} To list the operations:\n  {_list_command(session_id)}") from problem
    show_operation(done, session_id, as_json=reach.as_json)


def last_undoable(operations: Sequence[Json], session_id: str) -> str:
    """The newest operation that can be undone. Not an undo: undoing that would do the operation again."""
    for one in operations:
        if one["undoable"] and not one["undone"] and one["action"] != "undo":
            return str(one["operation_id"])
    actions = {one["action"] for one in operations if one["outcome"] == "done"}
    git = " A commit or merge can only be undone with git." if actions & {"commit", "merge"} else ""
    redo = f"\nTo redo an operation, undo its undo. The ids:\n  {_list_command(session_id)}"
    raise Failure(f"There is nothing to undo.{git} (not_found){redo if 'undo' in actions else ''}")


def _list_command(session_id: str) -> str:
    return to_copy(f"undo {session_id} --list")


def show_operation(done: Json, session_id: str, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    print_paragraph(" ".join(outcome_words(done, session_id)))
    print_rows(skipped_rows(done["skipped"]))


def outcome_words(done: Json, session_id: str) -> Iterator[str]:
    """What was done, and how to undo it."""
    message = str(done["message"])
    for path in (one["path"] for one in [*done["files"], *done["skipped"]]):
        if quoted(path) != path:
            message = message.replace(path, quoted(path))
    yield visible(message).replace("\n", " ") + (f" ({done['commit'][:10]})" if done.get("commit") else "")
    if done["undoable"]:
        # On a line of its own: half of it would undo another operation.
        what = "redo" if done["action"] == "undo" else "undo"
        command = to_copy(f"undo {session_id} {done['operation_id']}")
        yield f"To {what} it:\n  {command}"


def skipped_rows(skipped: Sequence[Json]) -> list[Row]:
    """The files that were left as they are."""
    if not skipped:
        return []
    return [Row(f"{wording.files(len(skipped)).capitalize()} left unchanged:"), *path_rows(skipped)]


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
    return "\n".join([refusal(problem), *(f"  {row.text}" for row in path_rows(found))])


def path_rows(found: Sequence[Json]) -> list[Row]:
    """Files, each with the reason if there is one."""
    rows = [
        Row(shown_path(one["path"]) + (f"  {visible(one['reason'])}" if one.get("reason") else ""), gutter="  ")
        for one in found[:LISTED_FILES]
    ]
    return rows + and_more(len(found) - len(rows))


def asks_first(reach: Reach, *, yes: bool) -> bool:
    return not (yes or reach.as_json) and sys.stdin.isatty() and sys.stdout.isatty()


def _wanted(client: Client, session_id: str, preview: Json, given: Sequence[str]) -> list[str] | None:
    """The files to restore. If no file differs, the paths as given, for which the server says so."""
    changes, where = client.file_changes(session_id, preview["turn"]), f"{preview['point']} turn {preview['turn']}"
    if preview["files"]:
        return found_paths(given, changes, preview, f"files that differ from {where}")
    places = [place_of(one, changes, ()) for one in given]
    return None if "." in places else places


def _only(preview: Json, paths: Sequence[str] | None) -> Json:
    """The preview of a restore of these files."""
    if paths is None:
        return preview
    files = [file for file in preview["files"] if file["path"] in paths]
    outside = [one for one in preview["outside"] if one["path"] in paths]
    return {**preview, "files": files, "file_count": len(files), "outside": outside}


def _without_kept(preview: Json) -> Json:
    """The preview of a restore that keeps what was changed outside."""
    kept = {one["path"] for one in preview["outside"]}
    files = [file for file in preview["files"] if file["path"] not in kept]
    return {**preview, "files": files, "file_count": len(files)}


def changed_rows(files: Sequence[Json], count: int) -> list[Row]:
    """What becomes of each file."""
    shown = files[:LISTED_FILES]
    rows = [Row(shown_path(file["path"]), gutter=f"  {VERBS[file['change']]:<6}  ") for file in shown]
    return rows + and_more(count - len(shown))


def _preview_rows(preview: Json, outside: Outside | None, *, asks: bool) -> Iterator[Row]:
    files, where = preview["files"], f"{preview['point']} turn {preview['turn']}"
    if not files:
        yield Row(f"The {'other ' if preview['outside'] else ''}files are already as {where}.")
    else:
        yield Row(f"Restoring to {where} changes {wording.files(preview['file_count'])}:", "command")
        yield from changed_rows(files, preview["file_count"])
    if preview["outside"]:
        words = "Kept, because you or somebody else changed them:" if outside == "keep" else OUTSIDE_TOO
        yield Row(words, "failed")
        yield from path_rows(preview["outside"])
        if files and outside is None and not asks:
            yield Row(NEEDS_CHOICE, words=True)
    if not files:
        return
    if preview["left_alone"]:
        yield Row("Not in the snapshots, so they stay as they are:")
        yield from path_rows(preview["left_alone"])
    if preview["head_moved"]:
        yield Row(preview["head_moved"], words=True)


def _confirmed(preview: Json, outside: Outside | None) -> Outside | None:
    """What to do with files that were changed outside, once the user has agreed."""
    if preview["outside"] and outside is None:
        question = "Keep these files (k), overwrite them (o), or cancel (c)?"
        letter = click.prompt(question, type=click.Choice([*LETTERS, "c"]), default="c", show_choices=False, err=True)
        if letter == "c":
            raise Failure(NOTHING_DONE)
        outside = LETTERS[letter]
        preview = _without_kept(preview) if outside == "keep" else preview
    if not preview["files"]:
        raise Failure(f"No other file differs. {NOTHING_DONE}")
    if not click.confirm(f"Restore {wording.files(preview['file_count'])}?", default=False, err=True):
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
