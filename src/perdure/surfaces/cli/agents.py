"""`perdure agents`: what there is, what could be, and whether it works; and `perdure rehearse`, which is shipped."""

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
@click.option("--all", "everything", is_flag=True, help="Also those that are known and could be added.")
@reaching
@click.pass_context
def agents_command(ctx: click.Context, reach: Reach, everything: bool) -> None:
    """List, add and try agents.

    With a NAME only that one. An agent that is not ready says what to do.
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
    print_table(["agent", "state", "driver", "version", "what to do"], rows, "There is no agent.", wrap_last=True)


@agents_command.command("sessions", short_help="List the sessions of one agent.")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most this many.")
@reaching
def agent_sessions_command(reach: Reach, name: str, limit: int) -> None:
    """List the sessions of one agent: the same as `perdure sessions --agent NAME`."""
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
@click.option("--command", "call", metavar="TEXT", help="How an agent that is not known is started, as ACP over stdio.")
@click.option(
    "--config", envvar="PERDURE_CONFIG", metavar="FILE", help="By default perdure.toml in the data directory."
)
@reaching
def add_agent_command(reach: Reach, name: str, call: str | None, config: str | None) -> None:
    """Add an agent to perdure.toml.

    NAME is one that `perdure agents --all` lists, or any with --command. A running server takes it at once.
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
        as_typed(f"The server has it. Try it with: perdure agents test {name}")
        if taken
        else "No server took it yet: the next start will, if it reads this file."
    )


def _words(call: str) -> list[str]:
    try:
        words = shlex.split(call)
    except ValueError as error:
        raise click.UsageError(f"--command can't be read: {error}.") from error
    if not words:
        raise click.UsageError("Give --command a program.")
    return words


def _known_section(name: str) -> str:
    from perdure.runtime.agents.catalogue import CATALOGUE
    from perdure.surfaces.cli import agent_section

    entry = CATALOGUE.get(name)
    if entry is None:
        raise Failure(
            f"No agent {name!r} is known. `perdure agents --all` lists those that are; add any other with --command."
        )
    runner = entry.command[0]
    if shutil.which(runner) is None and not (entry.installed and shutil.which(entry.installed[0])):
        advice = {"npx": "Node.js", "uvx": "uv"}.get(runner, f"it ({entry.install})")
        click.echo(f"perdure: {runner} was not found here. Install {advice} before you use it.", err=True)
    return agent_section.of_entry(entry)


def _config_path(reach: Reach, given: str | None) -> Path:
    return Path(given).expanduser().absolute() if given else reach.data / "perdure.toml"


def _reloaded(reach: Reach, name: str, path: Path) -> bool:
    """Whether a running server has it now. One that reads another file has not."""
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
    """Take the agents as perdure.toml names them now, without a restart.

    Running turns go on with the agent as it was when they began. All other settings are read at the start: restart the
    server to change them. Running turns outlive that too.
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
    said = ", ".join(changes) or "the agents and their commands are the same"
    click.echo(f"Reloaded: {said}. The server has {len(agents)} agent{'' if len(agents) == 1 else 's'}.")


@agents_command.command("test")
@click.argument("name")
@click.option("--turn", "text", metavar="TEXT", help="Also send it this message, and show the answer.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=TRIAL_TIMEOUT_S, help="In seconds.")
@click.option(
    "--config", envvar="PERDURE_CONFIG", metavar="FILE", help="By default perdure.toml in the data directory."
)
@reaching
def test_agent_command(reach: Reach, name: str, text: str | None, timeout_s: float, config: str | None) -> int:
    """Start an agent for real, and see whether it opens a session.

    Through the running server if that has it; else with a server of its own, in a temporary directory, also before it
    is added. What it asks for is denied. Exit code 0 if all went well.
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
        click.echo("with a server of its own")
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
    """The person's own file if it has the agent; else the catalogue's section. Claude Code is there without."""
    from perdure.config import ConfigError, load
    from perdure.runtime.agents.catalogue import CATALOGUE, CLAUDE
    from perdure.surfaces.cli import agent_section

    try:
        if name in load(path).agents:
            return path.read_text("utf-8")
    except (ConfigError, OSError) as error:
        raise Failure(str(error)) from error
    entry = CATALOGUE.get(name)
    return agent_section.of_entry(entry) if entry is not None and entry is not CLAUDE else ""


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def rehearse_command(arguments: tuple[str, ...]) -> int:
    """Run the rehearsal agent, which needs no model."""
    from perdure import rehearsal

    return rehearsal.main(arguments)
