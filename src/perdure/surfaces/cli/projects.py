"""`perdure projects`: working directories with a name and defaults."""

import os

import click

from perdure.surfaces.cli.output import print_json, print_table
from perdure.surfaces.cli.reach import Reach, reaching


@click.group(name="projects", invoke_without_command=True)
@reaching
@click.pass_context
def projects_command(ctx: click.Context, reach: Reach) -> None:
    """List, add and remove projects."""
    if ctx.invoked_subcommand is not None:
        return
    with reach.client() as client:
        projects = client.projects()
    if reach.as_json:
        print_json({"projects": projects})
        return
    rows = [
        [entry["id"], entry["name"], entry.get("agent") or "", entry["path"], entry.get("active_session_id") or ""]
        for entry in projects
    ]
    empty = "There is no project. Add one with `perdure projects add PATH`."
    print_table(["project", "name", "agent", "path", "active session"], rows, empty)


@projects_command.command("add")
@click.argument("path")
@click.option("--name", help="What to call it; by default the directory's name.")
@click.option("--agent", help="The agent of its sessions.")
@click.option("--kickoff", help="A template for the first message of its sessions; see `perdure send --kickoff`.")
@reaching
def add_command(reach: Reach, path: str, name: str | None, agent: str | None, kickoff: str | None) -> None:
    """Add a project. Its id is printed."""
    fields = {"name": name or os.path.basename(os.path.abspath(path)), "agent": agent, "kickoff": kickoff}
    with reach.client() as client:
        project = client.add_project(
            os.path.abspath(os.path.expanduser(path)), **{key: value for key, value in fields.items() if value}
        )
    if reach.as_json:
        print_json(project)
    else:
        click.echo(project["id"])


@projects_command.command("remove")
@click.argument("project")
@reaching
def remove_command(reach: Reach, project: str) -> None:
    """Remove a project. Its files and sessions stay."""
    with reach.client() as client:
        client.remove_project(project)
    if reach.as_json:
        print_json({})
    else:
        click.echo(f"Removed {project}. Its files and sessions stay.")
