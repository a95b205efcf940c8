"""`perdure agents`, and `perdure rehearse`, the agent that is shipped."""

import click

from perdure.surfaces.cli.output import print_json, print_table
from perdure.surfaces.cli.reach import Failure, Reach, reaching


@click.command()
@click.argument("name", required=False)
@reaching
def agents_command(reach: Reach, name: str | None) -> None:
    """List the agents of the server.

    With a NAME only that one. An agent that is not ready says what to do.
    """
    with reach.client() as client:
        agents = client.agents()
    if name is not None:
        agents = [agent for agent in agents if agent["name"] == name]
        if not agents:
            raise Failure(f"There is no agent {name!r}. `perdure agents` lists them. (not_found)")
    if reach.as_json:
        print_json(agents[0] if name is not None else {"agents": agents})
        return
    rows = [
        [agent["name"], agent["state"], agent["driver"], agent.get("version") or "", agent.get("reason") or ""]
        for agent in agents
    ]
    print_table(["agent", "state", "driver", "version", "what to do"], rows, "There is no agent.")


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def rehearse_command(arguments: tuple[str, ...]) -> int:
    """Run the rehearsal agent, which needs no model."""
    from perdure import rehearsal

    return rehearsal.main(arguments)
