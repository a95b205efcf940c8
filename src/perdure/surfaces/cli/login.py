"""`perdure login`, a link that signs a browser in, and `perdure logout`, which ends sign-ins."""

import click

from perdure.surfaces.cli.output import print_json
from perdure.surfaces.cli.reach import Failure, Reach, reaching


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


@click.command()
@click.argument("sign_in", required=False)
@click.option("--all", "everything", is_flag=True, help="Every browser that is signed in.")
@reaching
def logout_command(reach: Reach, sign_in: str | None, everything: bool) -> None:
    """Sign a browser out, or all.

    What it watches is closed at once. With --all, sign-in links that nobody has opened yet stop working too.
    """
    if everything and sign_in is not None:
        raise click.UsageError("Give a sign-in, or --all.")
    with reach.client() as client:
        if everything:
            ended = client.end_logins()
        elif sign_in is not None:
            client.end_login(sign_in)
            ended = 1
        else:
            there_are = ", ".join(f"{one['id']} (until {one['until'][:10]})" for one in client.logins()) or "none"
            raise Failure(f"Give a sign-in, or --all. Signed in: {there_are}.", 2)
    if reach.as_json:
        print_json({"ended": ended})
    else:
        click.echo(f"Ended {ended} sign-in{'' if ended == 1 else 's'}.")
