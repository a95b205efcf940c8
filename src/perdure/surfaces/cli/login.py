"""`perdure login`, `logins` and `logout`: sign in browsers, list them and sign them out.

Above: people. Below: the client.
"""

import sys

import click

from perdure.surfaces.cli.output import print_json, print_table
from perdure.surfaces.cli.reach import Failure, Reach, reaching
from perdure.surfaces.client import Client

NOBODY = "No browser is signed in. `perdure login` prints a link that signs one in."


@click.command()
@reaching
def login_command(reach: Reach) -> None:
    """Print a one-time link that signs in a browser.

    The link works once and expires after ten minutes.
    """
    with reach.client() as client:
        link = client.login_link()
    if reach.as_json:
        print_json({"url": link})
    else:
        click.echo(link)
        if sys.stdout.isatty():
            click.echo("Open it in a browser. It works once and expires after ten minutes.", err=True)


@click.group(name="logins", invoke_without_command=True)
@reaching
@click.pass_context
def logins_command(ctx: click.Context, reach: Reach) -> None:
    """List signed-in browsers, and sign them out."""
    if ctx.invoked_subcommand is not None:
        return
    with reach.client() as client:
        found = client.logins()
    if reach.as_json:
        print_json({"logins": found})
        return
    rows = [[one["id"], one["until"][:16].replace("T", " ")] for one in found]
    print_table(["sign-in", "until"], rows, NOBODY)


@logins_command.command("revoke")
@click.argument("sign_ins", nargs=-1, metavar="[SIGN_IN]...")
@click.option("--all", "everything", is_flag=True, help="Sign out all browsers.")
@reaching
def revoke_command(reach: Reach, sign_ins: tuple[str, ...], everything: bool) -> None:
    """Sign out browsers. Same as `perdure logout`.

    SIGN_IN is an id that `perdure logins` lists, or a unique prefix of one. Open streams of the browser end
    immediately. --all also invalidates unused sign-in links.
    """
    _sign_out(reach, sign_ins, everything)


@click.command()
@click.argument("sign_ins", nargs=-1, metavar="[SIGN_IN]...")
@click.option("--all", "everything", is_flag=True, help="Sign out all browsers.")
@reaching
def logout_command(reach: Reach, sign_ins: tuple[str, ...], everything: bool) -> None:
    """Sign out one browser, or all.

    SIGN_IN is an id that `perdure logins` lists, or a unique prefix of one. Open streams of the browser end
    immediately. --all also invalidates unused sign-in links.
    """
    _sign_out(reach, sign_ins, everything)


def _sign_out(reach: Reach, sign_ins: tuple[str, ...], everything: bool) -> None:
    if everything and sign_ins:
        raise click.UsageError("Give a SIGN_IN or --all, not both.")
    with reach.client() as client:
        if everything:
            ended = client.end_logins()
        else:
            found = find_logins(client, sign_ins)
            for login_id in found:
                client.end_login(login_id)
            ended = len(found)
    if reach.as_json:
        print_json({"ended": ended})
    else:
        click.echo(f"Signed out {ended} browser{'' if ended == 1 else 's'}.")


def find_logins(client: Client, given: tuple[str, ...]) -> list[str]:
    """Resolve all ids before the first browser is signed out."""
    known = client.logins()
    signed_in = ", ".join(f"{one['id']} (until {one['until'][:10]})" for one in known) or "none"
    if not given:
        raise Failure(f"Give a SIGN_IN or --all. Signed in: {signed_in}.", 2)
    found: list[str] = []
    for start in given:
        matching = [one["id"] for one in known if one["id"].startswith(start)]
        if not matching:
            raise Failure(f"There is no sign-in {start!r}; it may have expired. Signed in: {signed_in}. (not_found)")
        if len(matching) > 1:
            raise Failure(f"{len(matching)} sign-in ids start with {start!r}. Give more of the id.", 2)
        found += [matching[0]] if matching[0] not in found else []
    return found
