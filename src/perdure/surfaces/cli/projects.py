"""`perdure projects`: working directories with a name and defaults.

Above: people and scripts. Below: the client. In `edit`, omitted options stay, and an empty value resets an option.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from perdure.surfaces.cli.default_group import DefaultGroup
from perdure.surfaces.cli.output import print_json, print_table
from perdure.surfaces.cli.reach import Reach, reaching
from perdure.surfaces.short_text import one_line

Json = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])

ACTIONS = ("allow", "ask", "deny")
SCOPES = ("all", "agent")
WORKSPACES = ("directory", "worktree")
SHOWN = ("name", "path", "agent", "workspace", "history_scope", "instructions", "kickoff", "active_session_id")


@click.group(
    name="projects",
    cls=DefaultGroup,
    default="show",
    aliases={"ls": "list", "rm": "remove"},
    invoke_without_command=True,
    subcommand_metavar="[PROJECT | COMMAND]",
)
@reaching
@click.pass_context
def projects_command(ctx: click.Context, reach: Reach) -> None:
    """List, add, show, edit and remove projects.

    Without a command, lists all projects; with PROJECT, shows that project. PROJECT is an id, or a unique name.
    """
    if ctx.invoked_subcommand is None:
        list_projects(reach)


@projects_command.command("list")
@reaching
def list_command(reach: Reach) -> None:
    """List all projects. Same as `perdure projects`."""
    list_projects(reach)


def list_projects(reach: Reach) -> None:
    with reach.client() as client:
        projects = client.projects()
    if reach.as_json:
        print_json({"projects": projects})
        return
    rows = [
        [entry["id"], entry["name"], entry.get("agent") or "", entry["path"], entry.get("active_session_id") or ""]
        for entry in projects
    ]
    empty = "There are no projects. Add one with `perdure projects add PATH`."
    print_table(["project", "name", "agent", "path", "active session"], rows, empty)


@projects_command.command("show")
@click.argument("project")
@reaching
def show_command(reach: Reach, project: str) -> None:
    """Show one project: its directory, defaults, rules and limits."""
    with reach.client() as client:
        found = client.project(project)
    show_project(found, reach.as_json)


def show_project(project: Json, as_json: bool) -> None:
    if as_json:
        print_json(project)
        return
    rows = [[field.replace("_", " "), one_line(str(project[field]), 200)] for field in SHOWN if project.get(field)]
    rows += [["limit", f"{name}={value}"] for name, value in (project.get("limits") or {}).items()]
    rows += [
        ["rule", f"{rule['action']} {rule['tool']}" + (f":{rule['pattern']}" if rule["pattern"] != "*" else "")]
        for rule in project.get("permissions") or []
    ]
    print_table([project["id"], ""], rows, "")


def project_settings(function: F) -> F:
    """The options that `add` and `edit` share."""
    for option in reversed(
        (
            click.option("--agent", help="Default agent for sessions in the project."),
            click.option("--instructions", help="Instructions, added to every message."),
            click.option("--kickoff", help="Template for a session's first message; see `perdure send --kickoff`."),
            click.option(
                "--history-scope",
                type=click.Choice(SCOPES),
                help="History that an agent gets: all turns, or only those after another agent's last answer.",
            ),
            click.option(
                "--workspace",
                type=click.Choice(WORKSPACES),
                help="Where sessions work: in the directory itself, or each in its own git worktree and branch.",
            ),
            click.option(
                "--rule",
                "rules",
                multiple=True,
                metavar='"ACTION TOOL[:PATTERN]"',
                help="Add a permission rule, such as `allow Bash:git *`; the first match wins. Repeatable.",
            ),
            click.option(
                "--limit",
                "limits",
                multiple=True,
                metavar="NAME=VALUE",
                help="Set a limit, such as `turn_timeout_s=600`; an empty VALUE restores the default. Repeatable.",
            ),
        )
    ):
        function = option(function)
    return function


@projects_command.command("add")
@click.argument("path")
@click.option("--name", help="Name of the project. Defaults to the directory's name.")
@project_settings
@reaching
def add_command(
    reach: Reach, path: str, name: str | None, rules: tuple[str, ...], limits: tuple[str, ...], **given: str | None
) -> None:
    """Add a project. Prints its id.

    PATH is the project's working directory. `perdure send --project PROJECT` starts a session in it.
    """
    fields: Json = {key: value for key, value in given.items() if value}
    fields |= {"permissions": [read_rule(rule) for rule in rules]} if rules else {}
    fields |= {"limits": {key: value for key, value in map(read_limit, limits) if value is not None}} if limits else {}
    place = _absolute(path)
    with reach.client() as client:
        project = client.add_project(place, name=name or os.path.basename(place), **fields)
    if reach.as_json:
        print_json(project)
    else:
        click.echo(project["id"])


@projects_command.command("edit")
@click.argument("project")
@click.option("--name", help="New name.")
@click.option("--path", metavar="DIR", help="New working directory, for new sessions.")
@project_settings
@click.option("--clear-rules", is_flag=True, help="Remove all permission rules before adding those of --rule.")
@reaching
def edit_command(
    reach: Reach,
    project: str,
    path: str | None,
    rules: tuple[str, ...],
    limits: tuple[str, ...],
    clear_rules: bool,
    **given: str | None,
) -> None:
    """Change a project, and show the result.

    Settings that you omit keep their value. An empty value (`--agent ""`) resets a setting. To change a project that is
    defined in perdure.toml, edit that file.
    """
    changes: Json = {key: value or None for key, value in given.items() if value is not None}
    if changes.get("name", "") is None:
        raise click.UsageError("--name must not be empty.")
    if path is not None:
        changes["path"] = _absolute(path)
    if not (changes or rules or limits or clear_rules):
        raise click.UsageError(
            "Give at least one change, such as --agent NAME. `perdure projects edit --help` lists all options."
        )
    read = [read_rule(rule) for rule in rules]
    wanted = dict(map(read_limit, limits))
    with reach.client() as client:
        if rules or clear_rules or limits:
            now = client.project(project)
            kept = [] if clear_rules else now["permissions"]
            changes |= {"permissions": [*kept, *read]} if rules or clear_rules else {}
            both = {**now["limits"], **wanted}
            changes |= {"limits": {key: value for key, value in both.items() if value is not None}} if limits else {}
        changed = client.change_project(project, **changes)
    show_project(changed, reach.as_json)


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


def read_rule(given: str) -> Json:
    action, _, rest = given.strip().partition(" ")
    tool, _, pattern = rest.strip().partition(":")
    if action not in ACTIONS or not tool:
        raise click.UsageError(
            f"--rule {given!r} is not valid. Give an action and a tool, such as 'allow Read' or 'deny Bash:rm *'."
        )
    return {"tool": tool, "pattern": pattern or "*", "action": action}


def read_limit(given: str) -> tuple[str, str | float | bool | None]:
    """A limit's name and value. The server validates them."""
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise click.UsageError(f"--limit {given!r} has no value. Give it as NAME=VALUE, such as turn_timeout_s=600.")
    if value in ("true", "false"):
        return name, value == "true"
    try:
        number = float(value)
    except ValueError:
        return name, value or None
    return name, int(number) if number.is_integer() else number


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
