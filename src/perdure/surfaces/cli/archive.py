"""`perdure archive`, `unarchive` and `erase`: sessions that are put away, and sessions that are gone for good.

Above: people and scripts. Below: the client. Archiving changes nothing but the lists; erasing can't be undone, so
people are asked and scripts say --yes.
"""

import sys
from typing import Any

import click

from perdure.surfaces.cli.output import condition, one_line, print_json
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.cli.several import counted, each_session, find_sessions
from perdure.surfaces.client import Client, Problem

Json = dict[str, Any]

TITLE_CHARS = 60


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@reaching
def archive_command(reach: Reach, sessions: tuple[str, ...]) -> int:
    """Put sessions away: lists leave them out.

    SESSION is an id, a unique beginning of one, or `last`; several may be given. Nothing else changes: an archived
    session can be continued, and `perdure sessions --archived` lists it.
    """
    return _set_archived(reach, sessions, True)


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@reaching
def unarchive_command(reach: Reach, sessions: tuple[str, ...]) -> int:
    """Bring archived sessions back into the lists.

    SESSION is an id or a unique beginning of one; several may be given. `perdure sessions --archived` lists them.
    """
    return _set_archived(reach, sessions, False)


def _set_archived(reach: Reach, sessions: tuple[str, ...], archived: bool) -> int:
    with reach.client() as client:
        ids = find_sessions(client, sessions)
        done, code = each_session(ids, lambda session_id: client.change_session(session_id, archived=archived))
    if reach.as_json:
        print_json({"sessions": done})
    elif done:
        click.echo(f"{'Archived' if archived else 'Brought back'} {counted(len(done))}.")
    return code


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@click.option("-y", "--yes", is_flag=True, help="Erase without asking; scripts need it.")
@reaching
def erase_command(reach: Reach, sessions: tuple[str, ...], yes: bool) -> int:
    """Erase sessions for good: end them, and delete all that is kept of them.

    SESSION is an id, a unique beginning of one, or `last`; several may be given. Their history, their attachments and
    their scratch directories are deleted. Files in a project or in a directory that you chose stay. Nothing can bring
    an erased session back; `perdure archive` only puts it away.
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
    """The sessions that are meant, and a line about each. What can't be read any more can still be erased."""
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
        raise click.UsageError("Nobody can be asked here. Give --yes to erase without asking.")
    for line in lines:
        click.echo(f"  {line}", err=True)
    if not click.confirm(f"Erase {counted(len(lines))} for good?", default=False, err=True):
        raise Failure("Nothing was erased.")
