"""`perdure directories`: directories on the server, to choose where a session works.

Above: people and scripts; the header of a chat, for the words about a repository. Below: the client.
"""

import os
from typing import Any

import click

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.output import age, print_json, print_table
from perdure.surfaces.cli.reach import Reach, reaching
from perdure.surfaces.cli.rows import shown_path
from perdure.surfaces.client import Client, Problem
from perdure.surfaces.short_text import one_line

Json = dict[str, Any]

MOST = 200
BRANCH_CHARS = 60


@click.command()
@click.argument("prefix", required=False)
@click.option(
    "--limit",
    type=click.IntRange(1, MOST),
    default=MOST,
    show_default=True,
    help="Maximum number of directories.",
)
@reaching
def directories_command(reach: Reach, prefix: str | None, limit: int) -> None:
    """List directories on the server to work in, with their branch and changes.

    Without PREFIX, lists projects and recently used directories. With PREFIX, the first characters of a path, lists the
    directories that start with it.
    """
    with reach.client() as client:
        if prefix is not None:
            found = client.directories(_absolute(prefix), limit=limit, recent=False)
        else:
            found = client.directories(limit=limit)
    if reach.as_json:
        print_json(found)
    elif prefix is None:
        rows = [_row(entry) for entry in _places(found)]
        empty = "No session has worked in a directory yet. List directories with `perdure directories /`."
        print_table(["directory", "branch", "changes", "project", "sessions", "last active"], rows, empty)
    else:
        _show_entries(found)


def _absolute(prefix: str) -> str:
    """A relative prefix is on this machine. An empty one is not the home directory, but the current one."""
    if os.path.basename(prefix) in (".", ".."):
        # A directory, not names that start with a dot.
        prefix += "/"
    if os.path.isabs(prefix) or prefix == "~" or prefix.startswith("~/"):
        return prefix
    return os.path.join(os.getcwd(), prefix)


def _places(found: Json) -> list[Json]:
    """Projects, then recent directories; a directory that is both appears once."""
    recent = {entry["path"]: entry for entry in found["recent"]}
    projects = [{**recent.get(entry["path"], {}), **entry} for entry in found["projects"]]
    named = {entry["path"] for entry in projects}
    return projects + [entry for entry in found["recent"] if entry["path"] not in named]


def _row(entry: Json) -> list[str]:
    return [
        shown_path(entry["path"]),
        _branch(entry),
        changes_in_words(entry["dirty"]),
        entry.get("name", ""),
        str(entry["sessions"]) if entry.get("sessions") is not None else "",
        age(entry.get("last_active_at")),
    ]


def _show_entries(found: Json) -> None:
    for entry in found["entries"]:
        click.echo(shown_path(entry["path"] + "/") + ("  (git)" if entry["repository"] else ""))
    if found["truncated"]:
        click.echo("There are more. Give more of the path.", err=True)
    elif not found["entries"]:
        click.echo("No directory starts with this path.", err=True)


def changes_in_words(dirty: int | None) -> str:
    """The number of uncommitted changes; empty if it is not known."""
    if dirty is None:
        return ""
    return "none" if dirty == 0 else wording.files(dirty)


def _branch(state: Json) -> str:
    if state["branch"]:
        return one_line(state["branch"], BRANCH_CHARS)
    # An older node does not say.
    return f"detached at {state['head'][:10]}" if state.get("head") else ""


def repository_in_words(client: Client, path: str) -> str:
    """The branch and the uncommitted changes of a directory on the server: `on main, 2 changed files`. Empty if it
    is in no repository, or if that is not known."""
    try:
        state = client.directory(path).get("git")
    except Problem:
        return ""
    if not state or state["root"] is None:
        return ""
    branch = f"on {_branch(state)}" if state["branch"] else _branch(state)
    words = [wording.counted(state["dirty"], "changed file")] if state["dirty"] else []
    words += [f"in the middle of a {state['in_progress']}"] if state["in_progress"] else []
    return ", ".join([branch, *words])
