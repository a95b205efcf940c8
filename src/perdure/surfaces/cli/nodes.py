"""`perdure nodes`: the servers that share one database.

Above: people and scripts. Below: the client. Draining and moving can be undone; removing can't, so it asks for
confirmation, and scripts pass --yes. A node is identified by its name, or by its id if names are not unique.
"""

import sys
from collections import Counter
from typing import Any

import click

from perdure.surfaces.cli.job_wording import span
from perdure.surfaces.cli.output import print_json, print_paragraph, print_table
from perdure.surfaces.cli.reach import Failure, Reach, reaching
from perdure.surfaces.cli.several import counted, find_sessions
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Client
from perdure.surfaces.short_text import one_line

Json = dict[str, Any]

LABELS_CHARS = 60
EITHER = "Give the sessions to move, or --from NODE for all sessions of a node."


class NodesGroup(click.Group):
    """Accepts command names from other tools."""

    aliases = {"ls": "list", "rm": "remove", "undrain": "resume", "uncordon": "resume", "cordon": "drain"}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))


@click.group(name="nodes", cls=NodesGroup, invoke_without_command=True, subcommand_metavar="[COMMAND]")
@reaching
@click.pass_context
def nodes_command(ctx: click.Context, reach: Reach) -> None:
    """List, drain, resume and remove nodes; move sessions between them.

    Nodes are servers that share one PostgreSQL database. A server that uses SQLite is the only node. NODE is a name, or
    an id if names are not unique. Without a command, lists all nodes.
    """
    if ctx.invoked_subcommand is None:
        list_nodes(reach)


@nodes_command.command("list")
@reaching
def list_command(reach: Reach) -> None:
    """List all nodes. Same as `perdure nodes`."""
    list_nodes(reach)


def list_nodes(reach: Reach) -> None:
    with reach.client() as client:
        nodes = client.nodes()
    if reach.as_json:
        print_json({"nodes": nodes})
        return
    print_table(*node_table(nodes), "There are no nodes.")
    for node in nodes:
        if advice := advice_on(node):
            print_paragraph(f"{node['name']}: {advice}")


def node_table(nodes: list[Json]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows. Shows ids only if names are not unique, and no column that is empty for all nodes."""
    names = Counter(node["name"] for node in nodes)
    has_twins = any(number > 1 for number in names.values())
    headings = ["name", "id", "state", "sessions", "running", "version", "address", "labels"]
    rows = [
        [
            node["name"],
            node["id"] if has_twins else "",
            state_words(node, len(nodes)),
            str(node["sessions"]),
            f"{node['running']} of {node['slots']}" if node["slots"] else str(node["running"]),
            node["version"] or "",
            node["url"] or "",
            one_line(", ".join(node["labels"]), LABELS_CHARS),
        ]
        for node in nodes
    ]
    shown = [number for number in range(len(headings)) if any(row[number] for row in rows)]
    return [headings[number] for number in shown], [[row[number] for number in shown] for row in rows]


def state_words(node: Json, number: int) -> str:
    """The state; marks the node that answers if there are several."""
    if node["state"] == "silent":
        return f"silent for {span(node['last_seen_s'] or 0.0)}".removesuffix(" for ")
    return f"{node['state']}, this node" if node["this"] and number > 1 else str(node["state"])


def advice_on(node: Json) -> str:
    """What to do about a node that is not running; empty if nothing is needed."""
    if node["state"] not in ("silent", "dead") or not node["sessions"]:
        return ""
    if node["workdirs"] == "shared":
        return ""
    waits = f"{counted(node['sessions'])} {'is' if node['sessions'] == 1 else 'are'} waiting for this node."
    return f"{waits} Restart it, or move them with `perdure nodes move --from {node['name']} --to NODE`."


@nodes_command.command("drain")
@click.argument("node")
@reaching
def drain_command(reach: Reach, node: str) -> None:
    """Stop starting new turns on a node. Running turns finish there.

    Waiting messages start on other nodes that can run them. `perdure nodes resume` undoes this.
    """
    with reach.client() as client:
        drained = client.drain_node(node)
    if reach.as_json:
        print_json(drained)
        return
    running = (
        "No turns are running there." if not drained["running"] else f"{_turns(drained['running'])} still running."
    )
    click.echo(as_typed(f"Draining {drained['name']}. {running} Undo with `perdure nodes resume {node}`."))


@nodes_command.command("resume")
@click.argument("node")
@reaching
def resume_command(reach: Reach, node: str) -> None:
    """Resume a draining node, so that it starts turns again."""
    with reach.client() as client:
        resumed = client.resume_node(node)
    if reach.as_json:
        print_json(resumed)
    else:
        click.echo(f"Resumed {resumed['name']}.")


@nodes_command.command("remove")
@click.argument("node")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation; required in scripts.")
@reaching
def remove_command(reach: Reach, node: str, yes: bool) -> None:
    """Remove a node that will not return.

    Its sessions then have no node. When one of them has work to do, a node that can run it takes it over. Directories
    on the removed machine are not moved. A running node can't be removed: stop it first.
    """
    with reach.client() as client:
        if not yes:
            _confirm(client, node)
        removed = client.remove_node(node)
    if reach.as_json:
        print_json(removed)
        return
    without = f"{counted(removed['sessions'])} now {'has' if removed['sessions'] == 1 else 'have'} no node."
    click.echo(f"Removed {removed['name']}. {without}")


def _confirm(client: Client, given: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("Can't ask for confirmation: stdin is not a terminal. Use --yes to confirm.")
    nodes = client.nodes()
    found = [node for node in nodes if node["id"] == given] or [node for node in nodes if node["name"] == given]
    if len(found) != 1:
        return  # the server reports the error
    node = found[0]
    click.echo(f"  {node['name']}  {state_words(node, len(nodes))}  {node['url'] or ''}".rstrip(), err=True)
    if node["sessions"]:
        click.echo(f"  {counted(node['sessions'])} will have no node until another node takes over.", err=True)
    if not click.confirm(f"Permanently remove {node['name']}?", default=False, err=True):
        raise Failure("Nothing was removed.")


@nodes_command.command("move")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("--from", "from_node", metavar="NODE", help="Move all sessions of this node that have not ended.")
@click.option("--to", "to_node", metavar="NODE", required=True, help="Node to move the sessions to.")
@reaching
def move_command(reach: Reach, sessions: tuple[str, ...], from_node: str | None, to_node: str) -> int:
    """Move sessions to another node.

    SESSION is an id, a unique prefix of one, or `last`. --from moves all sessions of a node that is silent, dead or
    draining. A session with a turn running on a live node can't be moved: interrupt the turn, or wait. Files are not
    copied: the target node must have the session's working directory.
    """
    if bool(sessions) == (from_node is not None):
        raise click.UsageError(EITHER)
    with reach.client() as client:
        answer = client.move_sessions(to_node, find_sessions(client, sessions), from_node=from_node)
    for failure in answer["failed"]:
        click.echo(as_typed(f"perdure: {failure['session_id']}: {failure['error']} ({failure['code']})"), err=True)
    if reach.as_json:
        print_json(answer)
    else:
        click.echo(f"Moved {counted(len(answer['moved']))} to {to_node}.")
    return 1 if answer["failed"] else 0


def _turns(number: int) -> str:
    return "1 turn is" if number == 1 else f"{number} turns are"
