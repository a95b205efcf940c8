"""`perdure rename` and `perdure label`: change a session's title and labels.

Above: people and scripts. Below: the client. Both also work on ended sessions.
"""

from typing import Any

import click

from perdure.surfaces.cli.messages import given_text
from perdure.surfaces.cli.output import print_json, print_table
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.cli.several import each_session, find_sessions
from perdure.surfaces.short_text import one_line

Json = dict[str, Any]

TITLE_CHARS = 60


@click.command()
@click.argument("session")
@click.argument("words", nargs=-1, required=True, metavar="TITLE...")
@reaching
def rename_command(reach: Reach, session: str, words: tuple[str, ...]) -> None:
    """Change a session's title.

    SESSION is an id, a unique prefix of one, or `last`. If TITLE is `-`, reads stdin. Titles that the agent sets later
    don't replace yours.
    """
    title = " ".join(given_text(" ".join(words)).split())
    if not title:
        raise click.UsageError("TITLE must not be empty.")
    with reach.client() as client:
        renamed = client.change_session(find_session(client, session), title=title)
    if reach.as_json:
        print_json(renamed)
    else:
        click.echo(f"Renamed {renamed['id']} to: {one_line(renamed['title'], 200)}")


@click.command()
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@click.option("--add", "added", multiple=True, metavar="LABEL", help="Add this label. Repeatable.")
@click.option("--remove", "removed", multiple=True, metavar="LABEL", help="Remove this label. Repeatable.")
@click.option("--clear", is_flag=True, help="Remove all labels before adding those of --add.")
@reaching
def label_command(
    reach: Reach, sessions: tuple[str, ...], added: tuple[str, ...], removed: tuple[str, ...], clear: bool
) -> int:
    """Show or change the labels of sessions.

    SESSION is an id, a unique prefix of one, or `last`. Without an option, shows the labels.
    `perdure sessions --label LABEL` lists sessions with a label.
    """
    if any(not label.strip() for label in (*added, *removed)):
        raise click.UsageError("LABEL must not be empty.")
    if both := sorted(set(added) & set(removed)):
        raise click.UsageError(f"Can't both add and remove {both[0]!r}.")
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
        print_table(["session", "labels", "title"], rows, "Nothing changed.")
    return code
