"""`perdure agents`: list, add and test agents; `perdure reload`; and `perdure rehearse`, the built-in agent.

Above: people and scripts. Below: the client, agent_section.py and trial.py; rehearsal.
"""

import shlex
import shutil
from pathlib import Path

import click

from perdure.surfaces.cli.default_group import DefaultGroup
from perdure.surfaces.cli.output import print_json, print_table
from perdure.surfaces.cli.reach import Failure, Reach, reaching, sentence_of
from perdure.surfaces.cli.sessions import list_sessions
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Client, Json, Problem, Unreachable

TRIAL_TIMEOUT_S = 180.0


@click.group(
    name="agents",
    cls=DefaultGroup,
    default="show",
    invoke_without_command=True,
    subcommand_metavar="[NAME | COMMAND]",
)
@click.option("--all", "everything", is_flag=True, help="Also list agents in the catalogue that you can add.")
@reaching
@click.pass_context
def agents_command(ctx: click.Context, reach: Reach, everything: bool) -> None:
    """List, add and test agents.

    Without a command, lists all agents, and what to do if one is not ready. With NAME, shows that agent.
    """
    if ctx.invoked_subcommand is not None:
        return
    with reach.client() as client:
        agents = client.agents()
        known = client.catalogue() if everything else []
    if reach.as_json:
        print_json({"agents": agents, **({"catalogue": known} if everything else {})})
        return
    rows = [
        [agent["name"], agent["state"], agent["driver"], agent.get("version") or "", agent.get("reason") or ""]
        for agent in agents
    ]
    rows += [
        [
            entry["name"],
            "not added",
            entry["driver"],
            "",
            as_typed(f"{entry['title']}: perdure agents add {entry['name']}"),
        ]
        for entry in known
        if not entry["offered"]
    ]
    print_table(["agent", "state", "driver", "version", "what to do"], rows, "There are no agents.", wrap_last=True)


@agents_command.command("sessions", short_help="List an agent's sessions.")
@click.argument("name")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of sessions."
)
@reaching
def agent_sessions_command(reach: Reach, name: str, limit: int) -> None:
    """List an agent's sessions. Same as `perdure sessions --agent NAME`."""
    list_sessions(reach, limit, agent=name)


@agents_command.command("show")
@click.argument("name")
@reaching
def show_agent_command(reach: Reach, name: str) -> None:
    """Show one agent."""
    with reach.client() as client:
        agent = client.agent(name)
    if reach.as_json:
        print_json(agent)
        return
    modes = [mode["id"] for mode in (agent["modes"] or {}).get("availableModes", [])]
    models = [model["modelId"] for model in (agent["models"] or {}).get("availableModels", [])]
    rows = [
        ["state", agent["state"]],
        ["what to do", agent["reason"] or ""],
        ["driver", agent["driver"]],
        ["command", shlex.join(agent["command"])],
        ["version", agent["version"] or ""],
        ["modes", ", ".join(modes)],
        ["models", ", ".join(models)],
    ]
    print_table([name, ""], [row for row in rows if row[1]], "", wrap_last=True)


@agents_command.command("add")
@click.argument("name")
@click.option(
    "--command",
    "call",
    metavar="TEXT",
    help="Command that starts an agent that is not in the catalogue. It must speak ACP over stdio.",
)
@click.option(
    "--config",
    envvar="PERDURE_CONFIG",
    metavar="FILE",
    help="Configuration file. Defaults to perdure.toml in the data directory.",
)
@reaching
def add_agent_command(reach: Reach, name: str, call: str | None, config: str | None) -> None:
    """Add an agent to perdure.toml.

    NAME is an agent that `perdure agents --all` lists, or any name with --command. A running server loads the agent
    immediately.
    """
    from perdure.surfaces.cli import agent_section

    section = agent_section.of_command(name, _words(call)) if call is not None else _known_section(name)
    path = _config_path(reach, config)
    agent_section.append(path, name, section)
    taken = _reloaded(reach, name, path)
    if reach.as_json:
        print_json({"name": name, "path": str(path), "section": section, "taken": taken})
        return
    click.echo(f"Added to {path}:\n\n{section}")
    click.echo(
        as_typed(f"The server has loaded it. Test it with: perdure agents test {name}")
        if taken
        else "No running server has loaded it. A server that reads this file loads it when it starts."
    )


def _words(call: str) -> list[str]:
    try:
        words = shlex.split(call)
    except ValueError as error:
        raise click.UsageError(f"Can't parse --command: {error}.") from error
    if not words:
        raise click.UsageError("--command must not be empty.")
    return words


def _known_section(name: str) -> str:
    from perdure.runtime.agents.catalogue import CATALOGUE
    from perdure.surfaces.cli import agent_section

    entry = CATALOGUE.get(name)
    if entry is None:
        raise Failure(
            f"There is no agent {name!r} in the catalogue. `perdure agents --all` lists all entries. Add any other "
            "agent with --command."
        )
    runner = entry.command[0]
    if shutil.which(runner) is None and not (entry.installed and shutil.which(entry.installed[0])):
        advice = {"npx": "Node.js", "uvx": "uv"}.get(runner, f"it ({entry.install})")
        click.echo(
            f"perdure: {runner} was not found on this machine. Install {advice} before you use the agent.", err=True
        )
    return agent_section.of_entry(entry)


def _config_path(reach: Reach, given: str | None) -> Path:
    return Path(given).expanduser().absolute() if given else reach.data / "perdure.toml"


def _reloaded(reach: Reach, name: str, path: Path) -> bool:
    """Reload the running server's agents. Returns whether it has this one; not if it reads another file."""
    from perdure.config import load

    wanted = (name, load(path).agents[name].command)
    try:
        with reach.client() as client:
            return any((agent["name"], agent["command"]) == wanted for agent in client.reload_agents())
    except Unreachable:
        return False
    except Problem as problem:
        click.echo(f"perdure: {sentence_of(problem)}", err=True)
        return False


@click.command()
@reaching
def reload_command(reach: Reach) -> None:
    """Reload the agents from perdure.toml, without a restart.

    Running turns continue with the old settings of their agent. To change any other setting, restart the server;
    running turns survive a restart.
    """
    with reach.client() as client:
        before = {agent["name"]: agent["command"] for agent in client.agents()}
        agents = client.reload_agents()
    if reach.as_json:
        print_json({"agents": agents})
        return
    after = {agent["name"]: agent["command"] for agent in agents}
    changes = [
        *(f"added {name}" for name in after if name not in before),
        *(f"changed {name}" for name in after if name in before and after[name] != before[name]),
        *(f"removed {name}" for name in before if name not in after),
    ]
    said = ", ".join(changes) or "no agent or command has changed"
    click.echo(f"Reloaded: {said}. The server has {len(agents)} agent{'' if len(agents) == 1 else 's'}.")


@agents_command.command("test")
@click.argument("name")
@click.option("--turn", "text", metavar="TEXT", help="Also send this message, and show the answer.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=1), default=TRIAL_TIMEOUT_S, help="Timeout in seconds."
)
@click.option(
    "--config",
    envvar="PERDURE_CONFIG",
    metavar="FILE",
    help="Configuration file. Defaults to perdure.toml in the data directory.",
)
@reaching
def test_agent_command(reach: Reach, name: str, text: str | None, timeout_s: float, config: str | None) -> int:
    """Start an agent and check that it opens a session.

    Uses the running server if it has the agent. Otherwise starts a temporary server, so you can also test an agent in
    the catalogue before you add it. Permission requests are denied. Exits 1 if the test fails.
    """
    from perdure.surfaces.cli.trial import Trial, own_server

    def tried(client: Client, agent: Json) -> int:
        trial = Trial(client, agent, (lambda line: None) if reach.as_json else click.echo, timeout_s)
        worked = trial.run(text)
        if reach.as_json:
            print_json(trial.result)
        return 0 if worked else 1

    with reach.client() as client:
        agent = _known_to_server(reach, client, name)
        if agent is not None:
            return tried(client, agent)
    if not reach.as_json:
        click.echo("using a temporary server")
    with own_server(_trial_config(name, _config_path(reach, config))) as client:
        return tried(client, client.agent(name))


def _known_to_server(reach: Reach, client: Client, name: str) -> Json | None:
    try:
        return client.agent(name)
    except Unreachable:
        if reach.names_a_server:
            raise
    except Problem as problem:
        if problem.code != "not_found":
            raise
    return None


def _trial_config(name: str, path: Path) -> str:
    """The user's configuration if it has the agent, else the catalogue's section, unless the agent needs none."""
    from perdure.config import ConfigError, load
    from perdure.runtime.agents.catalogue import CATALOGUE
    from perdure.surfaces.cli import agent_section

    try:
        if name in load(path).agents:
            return path.read_text("utf-8")
    except (ConfigError, OSError) as error:
        raise Failure(str(error)) from error
    entry = CATALOGUE.get(name)
    return agent_section.of_entry(entry) if entry is not None and not entry.is_always_offered else ""


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def rehearse_command(arguments: tuple[str, ...]) -> int:
    """Run the rehearsal agent, which is scripted and needs no model."""
    from perdure import rehearsal

    return rehearsal.main(arguments)
