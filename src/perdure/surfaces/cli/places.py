"""Where a new session works: `--workdir`, `--project`, `--scratch`, or else the current directory.

Above: `chat`, `send`, `run` and `jobs`. Below: the client, and this machine's file system.

The current directory is a valid default only if the server sees the same directory at the same path. A loopback address
does not prove this: it may be a tunnel to another machine, or a container. So the command asks the server for the
identity of the path, which consists of the kernel's boot id and the directory's device and inode, and compares it with
its own. If the system has no boot id, the server must also be the one that holds the lock of the data directory here.

If the current directory is inside a project, the session belongs to the project, with its agent, rules and limits, but
still works in the current directory. `--workdir .` leaves the project out.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from perdure.runtime.data.filesystem import UNKNOWN_BOOT, boot_id, directory_identity
from perdure.surfaces.cli.reach import Failure, Reach
from perdure.surfaces.client import Client, Problem

F = TypeVar("F", bound=Callable[..., Any])

SAY_WHERE = "Give --workdir DIR, --project NAME or --scratch."
USAGE = 2


class Wish(NamedTuple):
    """The place that the options ask for. At most one of them is set."""

    project: str | None
    workdir: str | None
    scratch: bool

    @property
    def is_given(self) -> bool:
        return self.scratch or self.project is not None or self.workdir is not None


class Place(NamedTuple):
    """Where a new session works. Without a project and a directory, it gets a new folder. Without a `workspace`, the
    project decides whether it gets a git worktree of its own."""

    project: str | None = None
    workdir: str | None = None
    warning: str = ""
    workspace: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a request."""
        given = {"project": self.project, "workdir": self.workdir, "workspace": self.workspace}
        return {name: value for name, value in given.items() if value is not None}

    def warn(self) -> None:
        """Print the warning, for a command without a header."""
        if self.warning:
            click.echo(f"perdure: {self.warning}", err=True)


def placing(function: F) -> F:
    """Give a command --workdir, --project and --scratch, as one argument `wish`."""

    @click.option("--workdir", metavar="DIR", help="For a new session: directory to work in.")
    @click.option("--project", help="For a new session: project to work in.")
    @click.option("--scratch", is_flag=True, help="For a new session: work in a new, empty folder.")
    @functools.wraps(function)
    def command(*arguments: Any, project: str | None, workdir: str | None, scratch: bool, **given: Any) -> Any:
        if (project is not None) + (workdir is not None) + scratch > 1:
            raise click.UsageError("Give only one of --workdir, --project and --scratch.")
        return function(*arguments, wish=Wish(project, workdir, scratch), **given)

    return command  # type: ignore[return-value]


workspace_option = click.option(
    "--workspace",
    type=click.Choice(("directory", "worktree")),
    help="For a new session: work in the directory itself, or in a new git worktree and branch.",
)


def choose(reach: Reach, client: Client, wish: Wish) -> Place:
    """Decide where a new session works."""
    check_current(wish)
    if wish.scratch:
        return Place()
    if wish.project is not None:
        return Place(project=wish.project)
    if wish.workdir is not None:
        return Place(workdir=_given(reach, client, wish.workdir))
    return _current(reach, client)


def home_shortened(path: str) -> str:
    """The path with ~ for the home directory."""
    home = os.path.expanduser("~")
    if home in ("/", "~") or not (path == home or path.startswith(home + "/")):
        return path
    return "~" + path[len(home) :]


def _given(reach: Reach, client: Client, workdir: str) -> str:
    """An absolute path is a path on the server. A relative one is on this machine, so the server must see it too."""
    if os.path.isabs(workdir):
        return workdir
    expanded = os.path.expanduser(workdir)
    path = os.path.realpath(expanded if os.path.isabs(expanded) else os.path.join(_here(), expanded))
    if not os.path.isdir(path):
        raise Failure(f"There is no directory {path}. Create it first.", USAGE)
    if _seen(reach, client, path) is None:
        raise Failure(
            f"--workdir {workdir} is {home_shortened(path)} on this machine, but the server at {client.url} can't see "
            "that directory. Give an absolute path on the server's machine.",
            USAGE,
        )
    return path


def _here() -> str:
    try:
        here = os.getcwd()
        here.encode()
    except OSError:
        raise Failure(f"The current directory no longer exists. Change to another one. {SAY_WHERE}", USAGE) from None
    except UnicodeError:
        raise Failure(f"The current directory's name is not UTF-8. {SAY_WHERE}", USAGE) from None
    return here


def check_current(wish: Wish) -> None:
    """Reject the current directory if this machine alone can tell that it is unsuitable."""
    if not wish.is_given and _here() == "/":
        raise Failure(f"The current directory is /, which is not a good place to work. {SAY_WHERE}", USAGE)


def _current(reach: Reach, client: Client) -> Place:
    here = _here()
    seen = _seen(reach, client, here)
    shown = home_shortened(here)
    if seen is None:
        raise Failure(
            f"The server at {client.url} can't see the current directory ({shown}): it runs on another machine or in "
            f"a container, or has no access to it. {SAY_WHERE}",
            USAGE,
        )
    if seen["private"]:
        raise Failure(f"The current directory ({shown}) contains Perdure's own data. {SAY_WHERE}", USAGE)
    projects = seen["projects"]
    if len(projects) > 1:
        raise Failure(
            f"The current directory belongs to {len(projects)} projects: {', '.join(projects)}. Choose one with "
            "--project, or none with `--workdir .`",
            USAGE,
        )
    is_home = _is_same(here, os.path.expanduser("~"))
    warning = f"The agent works in your home directory ({shown}). Start in a project's directory instead."
    return Place(projects[0] if projects else None, here, warning if is_home and not projects else "")


def sees_here(reach: Reach, client: Client) -> bool:
    """Whether the server sees this machine's files, judging by the current directory."""
    try:
        return _seen(reach, client, _here()) is not None
    except Failure:
        return False


def _seen(reach: Reach, client: Client, path: str) -> dict[str, Any] | None:
    """What the server knows about a directory of this machine; None if it can't see it."""
    try:
        seen = client.directory(path)
    except Problem as problem:
        if problem.status in (400, 404):  # no such directory there, or the server is too old to tell
            return None
        raise
    is_proof = boot_id() != UNKNOWN_BOOT or client.url == reach.known_url()
    return seen if is_proof and seen["identity"] == directory_identity(path) else None


def _is_same(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False
