"""`perdure config` shows and sets a session's options; `perdure model` and `perdure mode` are short forms.

Above: the command line. Below: the client. The agent defines which options and values exist.
"""

from typing import Any

import click

from perdure.surfaces.cli.config_options import Value, current, values
from perdure.surfaces.cli.output import print_json, print_table
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.short_text import one_line, safe

Json = dict[str, Any]
NOTHING_KNOWN = "Not known yet: the agent reports its options when it starts."


@click.command()
@click.argument("session")
@click.argument("option", required=False)
@click.argument("value", required=False)
@reaching
def config_command(reach: Reach, session: str, option: str | None, value: str | None) -> None:
    """Show or set a session's model, mode and other options.

    SESSION is an id, a unique prefix of one, or `last`. With OPTION and VALUE, sets that option and prints the value
    in effect. Without them, lists all options with the values that the agent offers.
    """
    if option is not None and value is None:
        raise click.UsageError("Give a VALUE for the OPTION, or leave out both to list all options.")
    with reach.client() as client:
        session_id = find_session(client, session)
        known = client.session(session_id)["config_options"] or []
        if option is None or value is None:
            _show(known, reach.as_json)
            return
        answer = client.set_config(session_id, option, _typed(known, option, value))
    _tell(option, answer, reach.as_json)


@click.command()
@click.argument("session")
@click.argument("value", required=False, metavar="[MODEL]")
@reaching
def model_command(reach: Reach, session: str, value: str | None) -> None:
    """Show or set a session's model.

    SESSION is an id, a unique prefix of one, or `last`. Without MODEL, lists the models that the agent offers; a star
    marks the current one. Short for `perdure config SESSION model MODEL`.
    """
    _one_option(reach, session, "model", value)


@click.command()
@click.argument("session")
@click.argument("value", required=False, metavar="[MODE]")
@reaching
def mode_command(reach: Reach, session: str, value: str | None) -> None:
    """Show or set a session's mode: what its agent may do without asking.

    SESSION is an id, a unique prefix of one, or `last`. Without MODE, lists the modes that the agent offers; a star
    marks the current one. Short for `perdure config SESSION mode MODE`.
    """
    _one_option(reach, session, "mode", value)


def _one_option(reach: Reach, session: str, option: str, value: str | None) -> None:
    with reach.client() as client:
        session_id = find_session(client, session)
        if value is not None:
            answer = client.set_config(session_id, option, value)
            _tell(option, answer, reach.as_json)
            return
        shown = client.session(session_id)
    in_use, offered = current(shown, option), values(shown, option)
    if reach.as_json:
        listed = [{"value": one.value, "name": one.name} for one in offered]
        print_json({option: in_use, f"{option}s": listed})
        return
    if in_use is not None and all(one.value != in_use for one in offered):
        offered = [Value(in_use), *offered]
    if not offered:
        click.echo(NOTHING_KNOWN, err=True)
    width = max((len(safe(one.value)) for one in offered), default=0)
    for one in offered:
        mark = "*" if one.value == in_use else " "
        named = one_line(one.name, 60) if one.name != one.value else ""
        click.echo(f"{mark} {safe(one.value).ljust(width)}  {named}".rstrip())


def _tell(option: str, answer: Json, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    elif answer["applied"]:
        click.echo(f"Set {option} to {answer['value']}.")
    else:
        click.echo(f"Set {option} to {answer['value']}. It takes effect when the agent starts.")


def _show(known: list[Json], as_json: bool) -> None:
    if as_json:
        print_json({"config_options": known})
        return
    rows = [
        [str(option["id"]), one_line(str(option.get("currentValue", "")), 40), ", ".join(_values(option))]
        for option in known
    ]
    print_table(["option", "value", "values"], rows, NOTHING_KNOWN)


def _values(option: Json) -> list[str]:
    """The values of an option; they may be in groups."""
    found: list[str] = ["true", "false"] if option.get("type") == "boolean" else []
    for entry in option.get("options") or []:
        found += [str(inner.get("value")) for inner in entry.get("options") or [entry]]
    return found


def _typed(known: list[Json], option: str, value: str) -> str | bool:
    """A boolean option takes true or false; every other option takes text."""
    is_switch = any(entry["id"] == option and entry.get("type") == "boolean" for entry in known)
    return value == "true" if is_switch and value in ("true", "false") else value
