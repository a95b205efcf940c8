"""`perdure changes`: what a turn, or a whole session, changed in the repository.

Above: people and scripts; the chat, which shows the same summary. Below: the client; patches.py for the diff. In a
pipe, `--patch` prints the patch unchanged, so that `git apply` can read it. In a terminal, the diff has line numbers
and colours, and long files are folded.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from perdure.surfaces.cli import patches, wording
from perdure.surfaces.cli.changed_paths import LISTED_NAMES, TOO_MANY, lists_all, only
from perdure.surfaces.cli.output import print_json, size
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.cli.rows import Row, and_more, fold_end, lay_out, quoted, shown_path, visible
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Client, Point
from perdure.surfaces.short_text import safe

Json = dict[str, Any]

FILE_LINES, SHOWN_LINES = 60, 600
"""How many lines of each file's diff, and of all diffs, are shown in a terminal."""
LISTED_FILES = 100
ALL = " (--patch shows all)"
TOO_LONG = "The diff is too long, so files at its end are left out."
ONE_OF_THEM = f"{TOO_LONG} Give --file PATH to see one of them."
NO_CONTENT = "There is no snapshot of these changes, so the file's content is not known. (not_found)"
REPORTED = "These are the changes that the agent's edit tools reported."
NOT_REPORTED = "Those of shell commands are not known."
NO_BINARY = (
    "The contents of binary files are missing, because there is no snapshot of them. `git apply` can't read the patch."
)
NOT_WHOLE = "Changes in whitespace are left out of this patch, so `git apply` may refuse it."
LEFT_OUT = "Left out, because no turn of the session changed them:"
SEE_ONE = " To see one: --file PATH."
OUTSIDE = "changed by you or another program"
NOT_FINAL = "The turn is still running, so its changes are not final."
# A line of a file begins with a space, a sign or a backslash.
_LACKING = re.compile(rb"^Binary files .* differ$", re.MULTILINE)
MARKS = {"added": "A", "deleted": "D", "modified": "M", "renamed": "R", "type_changed": "T"}


class Number(click.IntRange):
    """A positive number. The error for any other value includes `hint`, in which {} is replaced by that value."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(1)
        self._what, self._hint = what, hint

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            name = shlex.quote(str(value))
            raise click.UsageError(f"{name} is not a {self._what}. {self._hint.format(name)}", ctx) from None


@click.command()
@click.argument("session")
@click.argument("turn", type=Number("turn number", "For a file, use: --file {}"), required=False)
@click.option("--stat", is_flag=True, help="Only list the files.")
@click.option(
    "--patch", "diff", is_flag=True, help="Only print the whole diff. In a pipe, it is a patch for `git apply`."
)
@click.option("--name-only", "names", is_flag=True, help="Only print the files' names, one per line.")
@click.option(
    "--content",
    "side",
    type=click.Choice(("before", "after")),
    help="Only print the file given with --file, as it was before or after the change.",
)
@click.option("--file", "paths", multiple=True, metavar="PATH", help="Only this file or folder. Repeatable.")
@click.option("-w", "--ignore-whitespace", is_flag=True, help="Leave out changes in whitespace.")
@reaching
def changes_command(
    reach: Reach,
    session: str,
    turn: int | None,
    stat: bool,
    diff: bool,
    names: bool,
    side: Point | None,
    paths: tuple[str, ...],
    ignore_whitespace: bool,
) -> None:
    """Show what a turn, or a whole session, changed in the repository.

    SESSION is an id, a unique prefix of one, or `last`. Without TURN, compares the files before the first turn with
    those after the last one. Lists the files and what else to know about them, then prints the diff. Outside a git
    repository, shows what the agent's edit tools reported.
    """
    if (reach.as_json + stat + diff + names + (side is not None)) > 1:
        raise click.UsageError("Give only one of --json, --stat, --patch, --name-only and --content.")
    with reach.client() as client:
        session_id = find_session(client, session)
        changes = client.file_changes(session_id, turn, ignore_whitespace=ignore_whitespace)
        too_many = "" if lists_all(changes) else TOO_MANY
        if paths:
            changes = only(changes, paths)
        if reach.as_json:
            print_json(changes)
            return
        if side is not None:
            if len(changes["files"]) != 1 or not paths:
                raise click.UsageError("Give one file for --content: --file PATH.")
            if changes["source"] == "edits":
                raise Failure(NO_CONTENT)
            name = _name_on(changes["files"][0], side)
            _print_content(client.file_content(session_id, name, turn, side=side), name)
            return
        alone = diff or names
        others = _others(changes) if alone and not paths else []
        if others:
            changes = {**changes, "files": [file for file in changes["files"] if not file.get("only_outside")]}
        missing = too_many if paths or names or others else ""
        if names:
            for file in changes["files"]:
                click.echo(shown_path(file["path"]) if sys.stdout.isatty() else quoted(file["path"]))
        elif not diff:
            print_rows(summary(changes))
        if not (stat or names) and changes["files"]:
            chosen = [file["path"] for file in changes["files"]] if paths or others else []
            missing = _print_diff(client, changes, chosen, alone=diff, ignore_whitespace=ignore_whitespace) or missing
        if others:
            click.echo(_listed(LEFT_OUT, [shown_path(file["path"]) for file in others]) + SEE_ONE, err=True)
        if alone and (lost := not_recorded(changes)):
            missing = f"{missing}\n{lost}".lstrip()
        if missing and alone:
            # What is incomplete must not look complete to a script.
            raise Failure(missing)
        if missing:
            click.echo(missing, err=True)


def _others(changes: Json) -> list[Json]:
    """The files that no turn of the session changed."""
    return [file for file in changes["files"] if file.get("only_outside")]


def _name_on(file: Json, side: Point) -> str:
    """Before a change that renamed it, a file has its earlier name."""
    return str((side == "before" and file["old_path"]) or file["path"])


# Rows -------------------------------------------------------------------------------------------------------------


def summary(changes: Json) -> list[Row]:
    """The files with their counts, and what else to know."""
    files = changes["files"]
    rows = [Row(headline(changes), "command", words=True)]
    shown = files[:LISTED_FILES]
    width = max((len(_name(file)) for file in shown), default=0)
    rows += [
        Row(f"{_name(file):<{width}}  {_figures(file)}".rstrip(), gutter=f"  {MARKS[file['status']]}  ")
        for file in shown
    ]
    every = f" (`perdure changes {_which(changes)} --name-only` lists them)"
    rows += and_more(max(changes["file_count"] or 0, len(files)) - len(shown), every)
    return rows + [Row(visible(note), "dim", words=True) for note in notes(changes)]


def _which(changes: Json) -> str:
    """The arguments of the command that shows these changes."""
    return str(changes["session_id"]) + ("" if changes["turn"] is None else f" {changes['turn']}")


def headline(changes: Json) -> str:
    who = "The session" if changes["turn"] is None else f"Turn {changes['turn']}"
    repository = changes.get("repository") or {}
    where = f" on branch {repository['branch']}" if repository.get("branch") else ""
    if repository.get("detached") and repository["head"]:
        where = f" at detached {repository['head'][:10]}"
    if changes["state"] == "unavailable" and not changes["files"]:
        return f"The changes of {who[0].lower()}{who[1:]} are not known. {changes['reason'] or ''}".rstrip()
    verb = "has changed" if changes["state"] == "running" else "changed"
    others = _others(changes)
    count = max(changes["file_count"] or 0, len(changes["files"])) - len(others)
    so_far = " so far" if changes["state"] == "running" else ""
    if not count:
        return f"{who} {verb} no files{so_far}{where}."
    added, removed = ((changes[name] or 0) - sum(file[name] or 0 for file in others) for name in ("added", "removed"))
    return f"{who} {verb} {wording.files(count)}{so_far}{where}: +{added} -{removed}"


def notes(changes: Json) -> Iterator[str]:
    """Whatever the list of files doesn't show."""
    if changes["state"] == "running":
        yield NOT_FINAL
    is_known = changes["state"] != "unavailable" or changes["files"]
    if changes["reason"] and is_known:
        yield changes["reason"]
    if REPORTED in (changes["reason"] or ""):
        yield NOT_REPORTED
    elif changes["source"] == "edits":
        yield f"{REPORTED} {NOT_REPORTED}"
    if lost := not_recorded(changes):
        yield lost
    if left := len([one for one in changes["left_alone"] if not one.get("changed")]):
        names = f"`perdure changes {_which(changes)} --json` lists {'it' if left == 1 else 'them'}."
        yield f"Not part of the snapshots: {wording.files(left)}, such as large ones. {names}"
    marked = {file["path"] for file in changes["files"] if file["outside"]}
    if more := [shown_path(one["path"]) for one in changes["outside"] if one["path"] not in marked]:
        when = "" if changes["turn"] is None else " before this turn"
        yield _listed(f"{OUTSIDE.capitalize()}{when}:", more)
    for other in changes["shared_with"]:
        title = f' "{wording.short(other["title"])}"' if other.get("title") else ""
        yield f"Session {other['session_id']}{title} worked in the same directory, so its changes may be among these."
    for other in changes["elsewhere"]:
        reason = f" {other['reason']}" if other.get("reason") else ""
        where = f"Changed in {shown_path(other['directory'])}, of which there is no diff:"
        yield _listed(where, [shown_path(path) for path in other["files"]]) + reason
    if (changes.get("repository") or {}).get("in_progress"):
        yield f"The repository is in the middle of a {changes['repository']['in_progress']}."
    if changes.get("worktree"):
        yield worktree_words(changes["worktree"], changes["session_id"])
    if not lists_all(changes):
        yield "There are too many changed files to list; the counts include all of them."


def not_recorded(changes: Json) -> str:
    """The files that were changed, but that no snapshot has; empty if there are none."""
    lost = [one for one in changes["left_alone"] if one.get("changed")]
    names = [f"{shown_path(one['path'])} ({one['reason'].rstrip('.')})" for one in lost]
    return _listed("Changed, but not recorded:", names) if names else ""


def worktree_words(worktree: Json, session_id: str) -> str:
    """The branch of a session's worktree compared with the one that it comes from."""
    if worktree.get("missing"):
        return f"The session's worktree {worktree['path']} no longer exists."
    branch, base = worktree["branch"], worktree["base"] or worktree["base_commit"][:10]
    if worktree.get("ahead") is None:
        return f"The session works in its own worktree, on branch {branch} from {base}."
    facts = [f"{wording.counted(worktree['ahead'], 'commit')} ahead of {base}"]
    facts += [f"{worktree['behind']} behind"] if worktree["behind"] else []
    facts += [f"{wording.files(worktree['dirty'])} not committed"] if worktree["dirty"] else []
    commit = " --commit-message MESSAGE" if worktree["dirty"] else ""
    merge = f" To merge it: `perdure merge {session_id}{commit}`." if worktree["ahead"] or worktree["dirty"] else ""
    return f"The session works in its own worktree. Its branch {branch} is {', '.join(facts)}.{merge}"


def _name(file: Json) -> str:
    path = shown_path(file["path"])
    return f"{shown_path(file['old_path'])} -> {path}" if file.get("old_path") else path


def _figures(file: Json) -> str:
    figures = [] if file["added"] is None else [f"+{file['added']} -{file['removed']}"]
    if file["binary"]:
        sizes = [size(count) for count in (file.get("old_size"), file.get("new_size")) if count is not None]
        figures = ["binary", *([" -> ".join(sizes)] if sizes else [])]
    if file.get("old_mode") and file.get("new_mode") and file["old_mode"] != file["new_mode"]:
        figures.append(f"mode {file['old_mode']} -> {file['new_mode']}")
    figures += ["committed"] if file.get("committed") else []
    figures += [mark] if (mark := _outside(file)) else []
    return "  ".join(figures)


def _outside(file: Json) -> str:
    """Who else changed the file, if anybody did."""
    if not file["outside"]:
        return ""
    return OUTSIDE if file.get("only_outside") else f"also {OUTSIDE}"


def marked_patches(patch: bytes, changes: Json) -> Iterator[patches.FilePatch]:
    """The files of a patch. Those that somebody else changed say so."""
    marks = {quoted(file["path"]): mark for file in changes["files"] if (mark := _outside(file))}
    for file in patches.parsed(patch):
        yield file._replace(notes=[*file.notes, *filter(None, [marks.get(file.path)])])


def _listed(start: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED_NAMES} more" if len(names) > LISTED_NAMES else ""
    return f"{start} {', '.join(names[:LISTED_NAMES])}{more}."


# Output -----------------------------------------------------------------------------------------------------------


def print_rows(found: Sequence[Row]) -> None:
    """Print rows to stdout: wrapped and coloured in a terminal, plain in a pipe."""
    print_lines(_laid_out([row._replace(text=as_typed(row.text)) for row in found]))


def print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo(line, color=_colours())


def diff_lines(
    file: patches.FilePatch,
    *,
    numbered: bool = True,
    chosen: Sequence[int] = (),
    most: int | None = None,
    hint: str = "",
) -> list[str]:
    """The diff of a file, or of the hunks with these numbers. With `most`, it is folded."""
    rows = patches.rows(file, numbered=numbered, chosen=chosen, most=most)
    lines = _laid_out(rows)
    return lines if most is None else fold_end(lines, most, hint, left=file.row_count(chosen) - len(rows))


def _laid_out(rows: Sequence[Row]) -> list[str]:
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return lay_out(rows, columns, colour=_colours())


def _colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _print_content(content: bytes, name: str) -> None:
    if sys.stdout.isatty():
        if b"\0" in content:
            raise Failure(f"{shown_path(name)} is a binary file. To save it, add `> FILE` to the command.")
        click.echo(safe(content.decode("utf-8", "replace")), nl=False)
        return
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _print_diff(client: Client, changes: Json, paths: list[str], *, alone: bool, ignore_whitespace: bool) -> str:
    """Print the diff of these paths, or of all. Returns what it lacks."""
    for_programs = alone and not sys.stdout.isatty()
    how: Json = {"paths": paths, "ignore_whitespace": ignore_whitespace, "binary": for_programs}
    patch = client.patch(changes["session_id"], changes["turn"], **how)
    _print_patch(patch.content, changes, alone=alone, numbered=not ignore_whitespace)
    if for_programs and ignore_whitespace:
        click.echo(NOT_WHOLE, err=True)
    if patch.truncated:
        return ONE_OF_THEM
    return NO_BINARY if for_programs and _LACKING.search(patch.content) else ""


def _print_patch(patch: bytes, changes: Json, *, alone: bool, numbered: bool) -> None:
    """If it is printed alone, in full; in a pipe, unchanged."""
    if not sys.stdout.isatty():
        if not alone:
            click.echo("")
        sys.stdout.flush()
        sys.stdout.buffer.write(patch)
        sys.stdout.buffer.flush()
        return
    lines: list[str] = []
    for file in marked_patches(patch, changes):
        lines += ["", *diff_lines(file, numbered=numbered, most=None if alone else FILE_LINES, hint=ALL)]
    click.echo("\n".join(lines if alone else fold_end(lines, SHOWN_LINES, ALL)), color=_colours())
