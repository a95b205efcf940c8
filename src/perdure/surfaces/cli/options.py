"""`perdure config`: the model, the mode and other options of a session's agent, shown or set.

Above: the command line. Below: the client. Which options and values there are is the agent's to say.
"""

from typing import Any

import click

from perdure.surfaces.cli.output import one_line, print_json, print_table
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
    if reach.as_json:
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
