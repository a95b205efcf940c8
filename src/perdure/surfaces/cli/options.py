"""`perdure config`: the model, the mode and other options of a session's agent, shown or set; `model` and `mode` are
short forms.

Above: the command line. Below: the client. Which options and values there are is the agent's to say.
"""

from typing import Any

import click

from perdure.surfaces.cli.config_options import Value, current, values
from perdure.surfaces.cli.output import one_line, print_json, print_table, safe
from perdure.surfaces.cli.reach import Reach, find_session, reaching

Json = dict[str, Any]
NOTHING_KNOWN = "Its agent has not said yet what it offers: it does when it starts."


@click.command()
@click.argument("session")
@click.argument("option", required=False)
@click.argument("value", required=False)
@reaching
def config_command(reach: Reach, session: str, option: str | None, value: str | None) -> None:
    """Show or set the model, the mode and other options of a session.

    SESSION is an id, a unique beginning of one, or `last`. With OPTION and VALUE, sets one and says what is in force
    then; without them, lists all with the values that the agent knows.
    """
    if option is not None and value is None:
        raise click.UsageError("Give a VALUE too, or neither OPTION nor VALUE to list them.")
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
    """Show or set the model of a session.

    SESSION is an id, a unique beginning of one, or `last`. Without MODEL the models that the agent offers are listed,
    the one in use with a star. It is short for `perdure config SESSION model MODEL`.
    """
    _one_option(reach, session, "model", value)


@click.command()
@click.argument("session")
@click.argument("value", required=False, metavar="[MODE]")
@reaching
def mode_command(reach: Reach, session: str, value: str | None) -> None:
    """Show or set the mode of a session: what its agent may do without asking.

    SESSION is an id, a unique beginning of one, or `last`. Without MODE the modes that the agent offers are listed,
    the one in use with a star. It is short for `perdure config SESSION mode MODE`.
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
        click.echo(f"{option} is {answer['value']} now.")
    else:
        click.echo(f"{option} will be {answer['value']}: the agent is not running, and gets it when it starts.")


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
    """The values of an option, in groups or not."""
    found: list[str] = ["true", "false"] if option.get("type") == "boolean" else []
    for entry in option.get("options") or []:
        found += [str(inner.get("value")) for inner in entry.get("options") or [entry]]
    return found


def _typed(known: list[Json], option: str, value: str) -> str | bool:
    """A switch takes true and false, and everything else text."""
    is_switch = any(entry["id"] == option and entry.get("type") == "boolean" for entry in known)
    return value == "true" if is_switch and value in ("true", "false") else value
