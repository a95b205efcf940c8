"""`perdure login`, a link that signs a browser in; `logins`, those that are signed in; `logout`, which ends that."""

import sys

import click

from perdure.surfaces.cli.output import print_json, print_table
from perdure.surfaces.cli.reach import Failure, Reach, reaching
from perdure.surfaces.client import Client

NOBODY = "No browser is signed in. `perdure login` prints a link that signs one in."


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
        if sys.stdout.isatty():
            click.echo("Open it in a browser. It works once, for ten minutes.", err=True)


@click.group(name="logins", invoke_without_command=True)
@reaching
@click.pass_context
def logins_command(ctx: click.Context, reach: Reach) -> None:
    """List browsers that are signed in, and sign them out."""
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
@click.option("--all", "everything", is_flag=True, help="Every browser that is signed in.")
@reaching
def revoke_command(reach: Reach, sign_ins: tuple[str, ...], everything: bool) -> None:
    """Sign browsers out.

    SIGN_IN is an id that `perdure logins` lists, or a unique beginning of one. What the browser watches is closed at
    once. With --all, sign-in links that nobody has opened yet stop working too.
    """
    _sign_out(reach, sign_ins, everything)


@click.command()
@click.argument("sign_ins", nargs=-1, metavar="[SIGN_IN]...")
@click.option("--all", "everything", is_flag=True, help="Every browser that is signed in.")
@reaching
def logout_command(reach: Reach, sign_ins: tuple[str, ...], everything: bool) -> None:
    """Sign a browser out, or all.

    SIGN_IN is an id that `perdure logins` lists, or a unique beginning of one. What the browser watches is closed at
    once. With --all, sign-in links that nobody has opened yet stop working too.
    """
    _sign_out(reach, sign_ins, everything)


def _sign_out(reach: Reach, sign_ins: tuple[str, ...], everything: bool) -> None:
    if everything and sign_ins:
        raise click.UsageError("Give a sign-in, or --all.")
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
        click.echo(f"Ended {ended} sign-in{'' if ended == 1 else 's'}.")


def find_logins(client: Client, given: tuple[str, ...]) -> list[str]:
    """The ids that are meant; all are looked up before one is ended."""
    known = client.logins()
    signed_in = ", ".join(f"{one['id']} (until {one['until'][:10]})" for one in known) or "nobody"
    if not given:
        raise Failure(f"Give a sign-in, or --all. Signed in: {signed_in}.", 2)
    found: list[str] = []
    for start in given:
        matching = [one["id"] for one in known if one["id"].startswith(start)]
        if not matching:
            raise Failure(
                f"There is no sign-in {start!r}; it may have ended already. Signed in: {signed_in}. (not_found)"
            )
        if len(matching) > 1:
            raise Failure(f"{len(matching)} sign-ins begin with {start!r}. Give more of the id.", 2)
        found += [matching[0]] if matching[0] not in found else []
    return found
