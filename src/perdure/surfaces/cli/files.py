"""`perdure files`: what is in a session's working directory, also where that is on another machine."""

import click

from perdure.surfaces.cli.output import print_json, safe
from perdure.surfaces.cli.reach import Reach, find_session, reaching

MOST = 200


@click.command()
@click.argument("session")
@click.argument("letters", required=False)
@click.option("--limit", type=click.IntRange(1, MOST), default=MOST, show_default=True, help="At most this many.")
@reaching
def files_command(reach: Reach, session: str, letters: str | None, limit: int) -> None:
    """List files in a session's working directory.

    SESSION is an id, a unique beginning of one, or `last`. With LETTERS only files whose paths contain them.
    """
    with reach.client() as client:
        found = client.files(find_session(client, session), letters or "", limit=limit)
    if reach.as_json:
        print_json({"files": found})
        return
    for path in found:
        click.echo(safe(path))
    if not found:
        click.echo("No such file in the working directory.", err=True)
