"""`perdure commit` and `perdure merge`: keep a session's changes in git.

Above: people and scripts. Below: the client, and the words for operations in file_operations.py. The server runs git
without hooks and signatures, and touches no file, index entry or branch but those that belong to the change.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.changes import LISTED_FILES, LISTED_NOTES, MARKS, found_paths, print_rows
from perdure.surfaces.cli.file_operations import NOTHING_DONE, explained, show_operation
from perdure.surfaces.cli.messages import given_text
from perdure.surfaces.cli.output import print_json
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.cli.rows import Row, shown_path, visible
from perdure.surfaces.client import Problem, Strategy

Json = dict[str, Any]

NOT_COMMITTED = "Not committed, so not merged. Add --commit-message MESSAGE to commit and merge:"
ONLY_UNCOMMITTED = "It is not committed."
"""The server's reason for each file if a merge is refused because nothing is committed."""


@click.command()
@click.argument("session")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-m", "--message", help="Commit message; `-` reads stdin. Default: opens your editor.")
@reaching
def commit_command(reach: Reach, session: str, paths: tuple[str, ...], message: str | None) -> None:
    """Commit a session's changes to the current branch.

    SESSION is an id, a unique prefix of one, or `last`. Without PATH, commits all files that the session changed and
    that are not committed yet. Other changes and your index stay as they are. Hooks don't run.
    """
    text = _written() if message is None else given_text(message)
    if not text.strip():
        raise click.UsageError("Give a commit message: -m MESSAGE.")
    with reach.client() as client:
        session_id = find_session(client, session)
        wanted = None
        if paths:
            changes = client.file_changes(session_id)
            found = found_paths(paths, changes, changes["files"], "changes of the session")
            renamed = {file["path"]: file["old_path"] for file in changes["files"] if file["old_path"]}
            wanted = [name for path in found for name in (renamed.get(path), path) if name is not None]
        with explained():
            done = client.commit(session_id, text, wanted)
    show_operation(done, session_id, as_json=reach.as_json)


@click.command()
@click.argument("session")
@click.option("--rebase", "strategy", flag_value="rebase", help="Rebase the branch instead of creating a merge commit.")
@click.option("--preview", is_flag=True, help="Only show what would be merged, and any conflicts.")
@click.option("-m", "--message", help="Message of the merge commit.")
@click.option("--commit-message", metavar="TEXT", help="Commit uncommitted files first, with this message.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation in a terminal.")
@reaching
def merge_command(
    reach: Reach,
    session: str,
    strategy: str | None,
    preview: bool,
    message: str | None,
    commit_message: str | None,
    yes: bool,
) -> None:
    """Merge the branch of a session's worktree into the branch that it comes from.

    SESSION is an id, a unique prefix of one, or `last`. It must work in its own worktree: start it with `--workspace
    worktree`. Uncommitted files are not merged, unless you give --commit-message. If both branches changed the same
    lines, nothing is merged, and the files are listed. In a terminal, shows what would be merged and asks for
    confirmation.
    """
    how: Strategy = "rebase" if strategy else "merge"
    asks = not (yes or reach.as_json) and sys.stdin.isatty() and sys.stdout.isatty()
    with reach.client() as client:
        session_id = find_session(client, session)
        if preview or asks:
            found = client.merge(session_id, strategy=how, preview=True)
            if preview and reach.as_json:
                print_json(found)
                return
            print_rows(list(_preview_rows(found, committing=commit_message is not None)))
            if preview:
                return
            if found["blocked"] or found["conflicts"]:
                raise Failure(NOTHING_DONE)
            question = f"Merge {found['branch']} into {found['base']}?"
            # Without commits, the server says what to do.
            can_merge = found["ahead"] or commit_message is not None
            if can_merge and not click.confirm(question, default=False, err=True):
                raise Failure(NOTHING_DONE)
        with explained(_commit_first):
            done = client.merge(session_id, strategy=how, message=message, commit_message=commit_message)
    show_operation(done, session_id, as_json=reach.as_json)


def _commit_first(problem: Problem) -> str:
    reasons = {one["reason"] for one in problem.facts.get("outside") or []}
    return "\nAdd --commit-message MESSAGE." if reasons == {ONLY_UNCOMMITTED} else ""


def _written() -> str:
    """A message from the user's editor."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("Give a commit message: -m MESSAGE, or `-m -` to read stdin.")
    return (click.edit("", extension=".md") or "").strip()


def _preview_rows(preview: Json, *, committing: bool) -> Iterator[Row]:
    branch, base = preview["branch"], preview["base"] or "where it started"
    ahead = wording.counted(preview["ahead"], "commit")
    behind = f", {preview['behind']} behind" if preview["behind"] else ""
    yield Row(f"{branch} is {ahead} ahead of {base}{behind}.", "command", words=True)
    for one in preview["commits"][:LISTED_NOTES]:
        yield Row(visible(f"{one['commit'][:10]}  {wording.short(one['subject'])}"), gutter="  ")
    if (more := len(preview["commits"]) - LISTED_NOTES) > 0:
        yield Row(f"... and {wording.counted(more, 'more commit')}", gutter="  ")
    for file in preview["files"][:LISTED_FILES]:
        yield Row(shown_path(file["path"]), gutter=f"  {MARKS.get(file['status'], 'M')}  ")
    if (more := len(preview["files"]) - LISTED_FILES) > 0:
        yield Row(f"... and {more} more", gutter="  ")
    if preview["uncommitted"]:
        yield Row("Committed first:" if committing else NOT_COMMITTED, words=True)
        yield from _paths(preview["uncommitted"])
    if preview["conflicts"]:
        yield Row("Both branches changed the same lines of:", "failed")
        yield from _paths(preview["conflicts"])
    if preview["blocked"]:
        yield Row(visible(preview["blocked"]), "failed", words=True)


def _paths(paths: Sequence[str]) -> Iterator[Row]:
    yield from (Row(shown_path(path), gutter="  ") for path in paths[:LISTED_FILES])
    if (more := len(paths) - LISTED_FILES) > 0:
        yield Row(f"... and {more} more", gutter="  ")
