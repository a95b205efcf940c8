"""`perdure files`: list files in a session's working directory, even if it is on another machine."""

import click

from perdure.surfaces.cli.output import print_json
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.short_text import safe

MOST = 200


@click.command()
@click.argument("session")
@click.argument("letters", required=False)
@click.option("--limit", type=click.IntRange(1, MOST), default=MOST, show_default=True, help="Maximum number of files.")
@reaching
def files_command(reach: Reach, session: str, letters: str | None, limit: int) -> None:
    """List files in a session's working directory.

    SESSION is an id, a unique prefix of one, or `last`. With LETTERS, lists only files whose path contains them.
    """
    with reach.client() as client:
        found = client.files(find_session(client, session), letters or "", limit=limit)
    if reach.as_json:
        print_json({"files": found})
        return
    for path in found:
        click.echo(safe(path))
    if not found:
        click.echo("No files found in the working directory.", err=True)
