"""`perdure changes`: what a turn, or a whole session, changed in the repository.

Above: people and scripts; the chat, which shows the same summary. Below: the client; patches.py for the diff. In a
pipe, `--patch` prints the patch unchanged, so that `git apply` can read it. In a terminal, the diff has line numbers
and colours, and long files are folded.
"""

import os
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import click

from perdure.surfaces.cli import patches, wording
from perdure.surfaces.cli.output import print_json, size
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.cli.rows import Row, fold_end, lay_out, quoted, shown_path, visible
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Point
from perdure.surfaces.short_text import safe

Json = dict[str, Any]

FILE_LINES, SHOWN_LINES = 60, 600
"""How many lines of each file's diff, and of all diffs, are shown in a terminal."""
LISTED_FILES, LISTED_NOTES = 100, 10
ALL = " (--patch shows all)"
TOO_LONG = "The diff is too long, so files at its end are left out."
ONE_OF_THEM = f"{TOO_LONG} Give --file PATH to see one of them."
NO_CONTENT = "There is no snapshot of these changes, so the file's content is not known. (not_found)"
TOO_MANY = "There are too many changed files to list, so some are missing here."
MARKS = {"added": "A", "deleted": "D", "modified": "M", "renamed": "R", "copied": "C", "type_changed": "T"}


@click.command()
@click.argument("session")
@click.argument("turn", type=click.IntRange(1), required=False)
@click.option("--stat", "view", flag_value="stat", help="Only list the files.")
@click.option(
    "--patch", "view", flag_value="patch", help="Only print the whole diff. In a pipe, it is a patch for `git apply`."
)
@click.option("--name-only", "view", flag_value="names", help="Only print the files' names, one per line.")
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
    view: str | None,
    side: Point | None,
    paths: tuple[str, ...],
    ignore_whitespace: bool,
) -> None:
    """Show what a turn, or a whole session, changed in the repository.

    SESSION is an id, a unique prefix of one, or `last`. Without TURN, compares the files before the first turn with
    those after the last one. Lists the files and what else to know about them, then prints the diff. Outside a git
    repository, shows what the agent's edit tools reported.
    """
    if (reach.as_json + (view is not None) + (side is not None)) > 1:
        raise click.UsageError("Give only one of --json, --stat, --patch, --name-only and --content.")
    with reach.client() as client:
        session_id = find_session(client, session)
        changes = client.file_changes(session_id, turn, ignore_whitespace=ignore_whitespace)
        too_many = "" if _lists_all(changes) else TOO_MANY
        if paths:
            changes = only(changes, found_paths(paths, changes, changes["files"], "changes"))
        if reach.as_json:
            print_json(changes)
            return
        if side is not None:
            if len(changes["files"]) != 1 or not paths:
                raise click.UsageError("Give one file for --content: --file PATH.")
            if changes["source"] == "edits":
                raise Failure(NO_CONTENT)
            _print_content(client.file_content(session_id, _name_on(changes["files"][0], side), turn, side=side))
            return
        if view == "names":
            for file in changes["files"]:
                click.echo(shown_path(file["path"]) if sys.stdout.isatty() else quoted(file["path"]))
            if too_many:
                raise Failure(too_many)
            return
        if view != "patch":
            print_rows(summary(changes))
        missing = too_many if paths else ""
        if view != "stat" and changes["files"]:
            chosen = [file["path"] for file in changes["files"]] if paths else []
            patch = client.patch(session_id, turn, paths=chosen, ignore_whitespace=ignore_whitespace)
            _print_patch(patch.content, only=view == "patch", numbered=not ignore_whitespace)
            missing = ONE_OF_THEM if patch.truncated else missing
        if missing and view == "patch":
            # An incomplete patch must not look complete to a script.
            raise Failure(missing)
        if missing:
            click.echo(missing, err=True)


def found_paths(given: Sequence[str], changes: Json, known: Sequence[Json], there: str) -> list[str]:
    """The changed files that are meant: by their path in the repository, a folder, or a path on this machine. `there`
    says which files these are, for the error."""
    root = changes["directory"]
    paths = [file["path"] for file in known]
    found: dict[str, None] = {}
    for one in given:
        alike = _meant(one, root, set().union(*(names_of(file) for file in known)))
        matching = [
            file["path"] for file in known if any(_is_at(name, alike) or quoted(name) == one for name in names_of(file))
        ]
        if not matching:
            some = ", ".join(map(shown_path, paths[:LISTED_NOTES])) + (" ..." if len(paths) > LISTED_NOTES else "")
            what = f"{one!r} is not among the {there}. They are: {some}." if paths else f"There are no {there}."
            raise Failure(f"{what}{'' if _lists_all(changes) else f' {TOO_MANY}'} (not_found)")
        found |= dict.fromkeys(matching)
    return list(found)


def only(changes: Json, paths: Sequence[str]) -> Json:
    """The changes to these files."""
    files = [file for file in changes["files"] if file["path"] in paths]
    counts = {name: sum(file[name] or 0 for file in files) for name in ("added", "removed")}
    return {**changes, **counts, "files": files, "file_count": len(files)}


def _lists_all(changes: Json) -> bool:
    return (changes["file_count"] or 0) <= len(changes["files"])


def names_of(file: Json) -> set[str]:
    """A file's name, and its earlier name if it was renamed."""
    return {file["path"], file.get("old_path") or file["path"]}


def _name_on(file: Json, side: Point) -> str:
    """Before a change that renamed it, a file has its earlier name."""
    return str((side == "before" and file["old_path"]) or file["path"])


def _meant(given: str, root: str, known: Collection[str]) -> str:
    """The path in the repository. If there is none as given, it is a path on this machine."""
    plain = given.removeprefix("./").rstrip("/") or "."
    if os.path.isabs(given) or not any(_is_at(name, plain) for name in known):
        there = os.path.realpath(os.path.dirname(os.path.abspath(given)))
        inside = os.path.relpath(os.path.join(there, os.path.basename(os.path.abspath(given))), root)
        return plain if inside.startswith("..") else inside
    return plain


def _is_at(name: str, path: str) -> bool:
    return path == "." or name == path or name.startswith(path + "/")


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
    if (more := changes["file_count"] or len(files)) > len(shown):
        rows.append(Row(f"... and {max(more, len(files)) - len(shown)} more", "dim", "  "))
    return rows + [Row(visible(note), "dim", words=True) for note in notes(changes)]


def headline(changes: Json) -> str:
    who = "The session" if changes["turn"] is None else f"Turn {changes['turn']}"
    repository = changes.get("repository") or {}
    where = f" on branch {repository['branch']}" if repository.get("branch") else ""
    if changes["state"] == "unavailable" and not changes["files"]:
        return f"The changes of {who[0].lower()}{who[1:]} are not known. {changes['reason'] or ''}".rstrip()
    verb = "has changed" if changes["state"] == "running" else "changed"
    if not changes["files"]:
        return f"{who} {verb} no files{where}."
    count = max(changes["file_count"] or 0, len(changes["files"]))
    so_far = " so far" if changes["state"] == "running" else ""
    return f"{who} {verb} {wording.files(count)}{so_far}{where}: +{changes['added'] or 0} -{changes['removed'] or 0}"


def notes(changes: Json) -> Iterator[str]:
    """Whatever the list of files doesn't show."""
    is_known = changes["state"] != "unavailable" or changes["files"]
    if changes["reason"] and is_known:
        yield changes["reason"]
    elif changes["source"] == "edits":
        yield "These are the changes that the agent's edit tools reported. Those of shell commands are not known."
    changed = [one for one in changes["left_alone"] if one.get("changed")]
    if lost := [f"{shown_path(one['path'])} ({one['reason'].rstrip('.')})" for one in changed]:
        yield _listed("Changed, but not recorded:", lost)
    if left := len(changes["left_alone"]) - len(lost):
        yield f"Not part of the snapshots: {wording.files(left)}, such as large ones. --json lists them."
    if changes["outside"]:
        paths = [shown_path(one["path"]) for one in changes["outside"]]
        yield _listed("Changed by somebody else between turns:", paths)
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
    if not _lists_all(changes):
        yield "There are too many changed files to list; the counts include all of them."


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
    figures += ["also changed by somebody else"] if file.get("outside") else []
    return "  ".join(figures)


def _listed(start: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED_NOTES} more" if len(names) > LISTED_NOTES else ""
    return f"{start} {', '.join(names[:LISTED_NOTES])}{more}."


# Output -----------------------------------------------------------------------------------------------------------


def print_rows(found: Sequence[Row]) -> None:
    """Print rows to stdout: wrapped and coloured in a terminal, plain in a pipe."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    colour = columns is not None and not os.environ.get("NO_COLOR")
    for line in lay_out([row._replace(text=as_typed(row.text)) for row in found], columns, colour=colour):
        click.echo(line, color=colour)


def _print_content(content: bytes) -> None:
    if sys.stdout.isatty():
        click.echo(safe(content.decode("utf-8", "replace")), nl=False)
        return
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _print_patch(patch: bytes, *, only: bool, numbered: bool) -> None:
    """With `only`, in full; in a pipe, unchanged."""
    if not sys.stdout.isatty():
        if not only:
            click.echo("")
        sys.stdout.flush()
        sys.stdout.buffer.write(patch)
        sys.stdout.buffer.flush()
        return
    colour = not os.environ.get("NO_COLOR")
    lines: list[str] = []
    for file in patches.parsed(patch):
        shown = lay_out(patches.rows(file, numbered=numbered), shutil.get_terminal_size().columns, colour=colour)
        lines += ["", *(shown if only else fold_end(shown, FILE_LINES, ALL))]
    click.echo("\n".join(lines if only else fold_end(lines, SHOWN_LINES, ALL)), color=colour)
