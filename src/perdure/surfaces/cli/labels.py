"""`perdure rename` and `perdure label`: the title and the labels under which people find a session again.

Above: people and scripts. Below: the client. Both work on sessions that have ended too.
"""

from typing import Any

import click

from perdure.surfaces.cli.messages import given_text
from perdure.surfaces.cli.output import one_line, print_json, print_table
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.cli.several import each_session, find_sessions

Json = dict[str, Any]

TITLE_CHARS = 60


@click.command()
@click.argument("session")
@click.argument("words", nargs=-1, required=True, metavar="TITLE...")
@reaching
def rename_command(reach: Reach, session: str, words: tuple[str, ...]) -> None:
    """Give a session another title.

    SESSION is an id, a unique beginning of one, or `last`. TITLE `-` reads stdin. The agent's own titles don't replace
    yours.
    """
    title = " ".join(given_text(" ".join(words)).split())
    if not title:
        raise click.UsageError("Give a TITLE with at least one letter.")
    with reach.client() as client:
        renamed = client.change_session(find_session(client, session), title=title)
    if reach.as_json:
        print_json(renamed)
    else:
        click.echo(f"Renamed {renamed['id']} to: {one_line(renamed['title'], 200)}")


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@click.option("--add", "added", multiple=True, metavar="LABEL", help="Add this label; repeatable.")
@click.option("--remove", "removed", multiple=True, metavar="LABEL", help="Remove this label; repeatable.")
@click.option("--clear", is_flag=True, help="Remove all labels, before --add.")
@reaching
def label_command(
    reach: Reach, sessions: tuple[str, ...], added: tuple[str, ...], removed: tuple[str, ...], clear: bool
) -> int:
    """Show or change the labels of sessions.

    SESSION is an id, a unique beginning of one, or `last`; several may be given. Without an option their labels are
    shown. `perdure sessions --label LABEL` finds them again.
    """
    if any(not label.strip() for label in (*added, *removed)):
        raise click.UsageError("A LABEL needs at least one letter.")
    if both := sorted(set(added) & set(removed)):
        raise click.UsageError(f"Add or remove {both[0]!r}, not both.")
    with reach.client() as client:

        def labelled(session_id: str) -> Json:
            now = client.session(session_id)
            if not (added or removed or clear):
                return now
            kept = [] if clear else [label for label in now["labels"] if label not in removed]
            wanted = list(dict.fromkeys([*kept, *added]))
            return now if wanted == now["labels"] else client.change_session(session_id, labels=wanted)

        found, code = each_session(find_sessions(client, sessions), labelled)
    if reach.as_json:
        print_json({"sessions": found})
    else:
        rows = [
            [entry["id"], ", ".join(entry["labels"]) or "-", one_line(entry["title"] or "", TITLE_CHARS)]
            for entry in found
        ]
        print_table(["session", "labels", "title"], rows, "Nothing was changed.")
    return code
