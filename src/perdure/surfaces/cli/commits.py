"""`perdure commit` and `perdure merge`: keep a session's changes in git.

Above: people and scripts. Below: the client, and the words for operations in file_operations.py. The server runs git
without hooks and signatures, and touches no file, index entry or branch but those that belong to the change.
"""

import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.changed_paths import found_paths, lists_all
from perdure.surfaces.cli.changes import LISTED_FILES, MARKS, print_rows
from perdure.surfaces.cli.editor import edited
from perdure.surfaces.cli.file_operations import NOTHING_DONE, asks_first, explained, path_rows, show_operation
from perdure.surfaces.cli.messages import given_text
from perdure.surfaces.cli.output import print_json
from perdure.surfaces.cli.reach import Failure, Reach, failure_of, find_session, reaching
from perdure.surfaces.cli.rows import Row, and_more, shown_path, visible
from perdure.surfaces.cli.terms import BUSY, RUNNING, naming_session, to_copy
from perdure.surfaces.client import Problem, Strategy, Unreachable
from perdure.surfaces.short_text import safe

Json = dict[str, Any]

LISTED_COMMITS = 10
NO_WORKTREE = (
    "This session works in the directory itself, so there is nothing to merge. To start one with its own worktree: "
    "`perdure send --new --workspace worktree TEXT`. (conflict)"
)
NOT_COMMITTED = "Not committed, so not merged. Add --commit-message MESSAGE to commit and merge:"
ONLY_UNCOMMITTED = "It is not committed."
"""The server's reason for each file if a merge is refused because nothing is committed."""
KEPT_PREFIX = "perdure-commit-"
EDITING = "Write the commit message above. Lines that start with # are left out."


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
    text = None if message is None else given_text(message)
    if text is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("Give a commit message: -m MESSAGE, or `-m -` to read stdin.")
    if text is not None and not text.strip():
        raise click.UsageError("Give a commit message: -m MESSAGE.")
    with reach.client() as client:
        session_id = find_session(client, session)
        wanted = None
        changes = client.file_changes(session_id) if paths or text is None else {}
        if paths:
            found = found_paths(paths, changes, changes, "changes of the session")
            renamed = {file["path"]: file["old_path"] for file in changes["files"] if file["old_path"]}
            wanted = [name for path in found for name in (renamed.get(path), path) if name is not None]
        written = text or _written(changes, wanted)
        with _keeping(written if text is None else None, session_id, paths), explained():
            done = client.commit(session_id, written, wanted)
    show_operation(done, session_id, as_json=reach.as_json)


@click.command()
@click.argument("session")
@click.option("--rebase", "strategy", flag_value="rebase", help="Rebase the branch instead of creating a merge commit.")
@click.option("--preview", is_flag=True, help="Only show what would be merged, and any conflicts.")
@click.option("-m", "--message", help="Message of the merge commit. Not used if the branch can be fast-forwarded.")
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
    if message is not None and strategy:
        raise click.UsageError("--rebase creates no merge commit, so leave out --message.")
    for option, text in (("--message", message), ("--commit-message", commit_message)):
        if text is not None and not text.strip():
            raise click.UsageError(f"{option} must not be empty.")
    asks = asks_first(reach, yes=yes)
    with reach.client() as client:
        session_id = find_session(client, session)
        if client.session(session_id, limit=1)["worktree"] is None:
            raise Failure(NO_WORKTREE)
        if preview or asks:
            found = client.merge(session_id, strategy=how, commit_message=commit_message, preview=True)
            if preview and reach.as_json:
                print_json(found)
                return
            print_rows(list(_preview_rows(found, commit_message)))
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


@contextmanager
def _keeping(message: str | None, session_id: str, paths: Sequence[str]) -> Iterator[None]:
    """If the commit is refused: say why, then where the message from the editor is."""
    try:
        yield
    except (Problem, Unreachable, Failure, KeyboardInterrupt) as error:
        if message is None:
            raise
        if isinstance(error, KeyboardInterrupt):
            click.echo(_kept(message, session_id, paths), err=True)
            raise
        failure = error if isinstance(error, Failure) else failure_of(error)
        raise Failure(failure.message, failure.exit_code, after=_kept(message, session_id, paths)) from error


def _kept(message: str, session_id: str, paths: Sequence[str]) -> str:
    """Save the message of a commit that was refused. Returns how to use it."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", prefix=KEPT_PREFIX, suffix=".txt", delete=False
        ) as file:
            file.write(message + "\n")
    except OSError:
        return f"Your commit message was:\n\n{safe(message)}\n"
    command = to_copy(" ".join(["commit", session_id, *map(shlex.quote, paths), "-m - <", shlex.quote(file.name)]))
    return f"Your commit message is in {file.name}. To commit with it:\n  {command}"


def _written(changes: Json, wanted: Sequence[str] | None) -> str:
    """A message from the user's editor, which opens only if there is something to commit."""
    if changes["state"] == "running":
        raise Failure(naming_session(f"{RUNNING} {BUSY} (turn_active)"))
    if changes["repository"] is None and changes["source"] in ("edits", "none"):
        where = shown_path(changes["workdir"])
        raise Failure(f"{where} is not in a git repository, so nothing can be committed. (no_repository)")
    # A file that is given may have changed since the session's last turn.
    files = [one for one in changes["files"] if (_is_waiting(one) if wanted is None else one["path"] in wanted)]
    if not files and lists_all(changes):
        raise Failure("This session has no uncommitted changes. (conflict)")
    branch = (changes["repository"] or {}).get("branch")
    listed = [f"  {MARKS[file['status']]}  {shown_path(file['path'])}" for file in files[:LISTED_FILES]]
    listed += [f"  {row.text}" for row in and_more(len(files) - LISTED_FILES)]
    about = [EDITING, "", f"Files to commit{f' to {branch}' if branch else ''}:", *listed]
    given = edited("\n" + "".join(f"# {line}".rstrip() + "\n" for line in about), ".txt") or ""
    text = "\n".join(line for line in given.splitlines() if not line.startswith("#")).strip()
    if not text:
        raise Failure("Nothing was committed: the message is empty.")
    return text


def _is_waiting(file: Json) -> bool:
    return not file["committed"] and not file.get("only_outside")


def _preview_rows(preview: Json, commit_message: str | None) -> Iterator[Row]:
    branch, base = preview["branch"], preview["base"] or "where it started"
    ahead = wording.counted(preview["ahead"], "commit")
    behind = f", {preview['behind']} behind" if preview["behind"] else ""
    yield Row(f"{branch} is {ahead} ahead of {base}{behind}.", "command", words=True)
    for one in preview["commits"][:LISTED_COMMITS]:
        yield Row(visible(f"{one['commit'][:10]}  {wording.short(one['subject'])}"), gutter="  ")
    yield from and_more(len(preview["commits"]) - LISTED_COMMITS, " commits")
    for file in preview["files"][:LISTED_FILES]:
        yield Row(shown_path(file["path"]), gutter=f"  {MARKS.get(file['status'], 'M')}  ")
    yield from and_more(len(preview["files"]) - LISTED_FILES)
    if preview["uncommitted"]:
        first = None if commit_message is None else f'Committed first, as "{wording.short(commit_message)}":'
        yield Row(visible(first or NOT_COMMITTED), words=True)
        yield from path_rows([{"path": path} for path in preview["uncommitted"]])
    if preview["conflicts"]:
        yield Row("Both branches changed the same lines of:", "failed")
        yield from path_rows([{"path": path} for path in preview["conflicts"]])
        other = preview["base"] or "the other branch"
        yield Row(visible(f"Ask the agent to merge {other} into its branch, then try again."), words=True)
    if preview["blocked"]:
        yield Row(visible(preview["blocked"]), "failed", words=True)
