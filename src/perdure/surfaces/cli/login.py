"""`perdure login`: a link that signs a browser in."""

import click

from perdure.surfaces.cli.output import print_json
from perdure.surfaces.cli.reach import Reach, reaching


@click.command()
@reaching
def login_command(reach: Reach) -> None:
    """Make a one-time link that signs a browser in.

    The link works once, for ten minutes.
    """
    with reach.client() as client:
        link = client.login_link()
    if reach.as_json:
        print_json({"url": link})
    else:
        click.echo(link)
