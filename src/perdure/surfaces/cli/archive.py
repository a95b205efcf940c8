"""`perdure archive`, `unarchive` and `erase`: hide sessions from lists, or delete them permanently.

Above: people and scripts. Below: the client. Archiving affects only the lists. Erasing can't be undone, so it asks for
confirmation; scripts pass --yes.
"""

import sys
from typing import Any

import click

from perdure.surfaces.cli.output import condition, print_json
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.cli.several import counted, each_session, find_sessions
from perdure.surfaces.client import Client, Problem
from perdure.surfaces.short_text import one_line

Json = dict[str, Any]

TITLE_CHARS = 60


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@reaching
def archive_command(reach: Reach, sessions: tuple[str, ...]) -> int:
    """Hide sessions from lists.

    SESSION is an id, a unique prefix of one, or `last`. You can continue an archived session. If it has a worktree of
    its own, that is removed unless something would be lost. `perdure sessions --archived` lists archived sessions.
    """
    return _set_archived(reach, sessions, True)


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@reaching
def unarchive_command(reach: Reach, sessions: tuple[str, ...]) -> int:
    """Show archived sessions in lists again.

    SESSION is an id or a unique prefix of one. `perdure sessions --archived` lists archived sessions.
    """
    return _set_archived(reach, sessions, False)


def _set_archived(reach: Reach, sessions: tuple[str, ...], archived: bool) -> int:
    with reach.client() as client:
        ids = find_sessions(client, sessions)
        done, code = each_session(ids, lambda session_id: client.change_session(session_id, archived=archived))
    if reach.as_json:
        print_json({"sessions": done})
    elif done:
        click.echo(f"{'Archived' if archived else 'Unarchived'} {counted(len(done))}.")
    return code


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation; required in scripts.")
@reaching
def erase_command(reach: Reach, sessions: tuple[str, ...], yes: bool) -> int:
    """Delete sessions permanently.

    SESSION is an id, a unique prefix of one, or `last`. Ends each session and deletes its history, attachments and
    scratch directory. Files in a project or in a directory that you chose stay. This can't be undone; `perdure archive`
    only hides a session.
    """
    with reach.client() as client:
        found = _found(client, sessions)
        if not yes:
            _confirm(list(found.values()))

        def erase(session_id: str) -> str:
            client.erase(session_id)
            return session_id

        done, code = each_session(list(found), erase)
    if reach.as_json:
        print_json({"erased": done})
    elif done:
        click.echo(f"Erased {counted(len(done))}.")
    return code


def _found(client: Client, given: tuple[str, ...]) -> dict[str, str]:
    """The session ids, and a line about each. A damaged session can still be erased."""
    found: dict[str, str] = {}
    for one in given:
        try:
            session = client.session(find_session(client, one))
        except Problem as problem:
            if problem.code != "damaged":
                raise
            found[one] = f"{one}  damaged"
        else:
            title = one_line(session["title"] or "Untitled", TITLE_CHARS)
            found[session["id"]] = f"{session['id']}  {condition(session)}  {title}"
    return found


def _confirm(lines: list[str]) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("Can't ask for confirmation: stdin is not a terminal. Use --yes to confirm.")
    for line in lines:
        click.echo(f"  {line}", err=True)
    if not click.confirm(f"Permanently delete {counted(len(lines))}?", default=False, err=True):
        raise Failure("Nothing was erased.")
