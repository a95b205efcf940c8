"""Where a new session works: `--workdir`, `--project`, `--scratch`, or else the current directory.

Above: `chat`, `send` and `run`. Below: the client, and the file system of this machine.

The current directory is only a good default if the server sees the same directory under the same path. An address on
loopback does not say so: it may be a tunnel to another machine, or a container. So the server is asked how it sees the
path. Its answer is made from the kernel's boot id and the directory's device and inode, which this process can compare
with its own. Where the system has no boot id, the server must also hold the lock of the data directory here.

A current directory in a known project means the project, with its agent, rules and limits: that is why somebody made
one. The session still works in the current directory. `--workdir .` leaves the project out.
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

SAY_WHERE = "Say where to work with --workdir DIR, --project NAME or --scratch."
USAGE = 2


class Wish(NamedTuple):
    """What the options say about the place. At most one of them is given."""

    project: str | None
    workdir: str | None
    scratch: bool

    @property
    def is_given(self) -> bool:
        return self.scratch or self.project is not None or self.workdir is not None


class Place(NamedTuple):
    """Where a new session works. With neither a project nor a directory, in a new folder of its own."""

    project: str | None = None
    workdir: str | None = None
    warning: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """As a request names it."""
        given = {"project": self.project, "workdir": self.workdir}
        return {name: value for name, value in given.items() if value is not None}

    def warn(self) -> None:
        """For a command without a header of its own."""
        if self.warning:
            click.echo(f"perdure: {self.warning}", err=True)


def placing(function: F) -> F:
    """Gives a command --workdir, --project and --scratch, as one argument `wish`."""

    @click.option("--workdir", metavar="DIR", help="For a new session: work here instead of the current directory.")
    @click.option("--project", help="For a new session: the project it works in.")
    @click.option("--scratch", is_flag=True, help="For a new session: work in a new, empty folder.")
    @functools.wraps(function)
    def command(*arguments: Any, project: str | None, workdir: str | None, scratch: bool, **given: Any) -> Any:
        if (project is not None) + (workdir is not None) + scratch > 1:
            raise click.UsageError("Give one of --workdir, --project and --scratch.")
        return function(*arguments, wish=Wish(project, workdir, scratch), **given)

    return command  # type: ignore[return-value]


def choose(reach: Reach, client: Client, wish: Wish) -> Place:
    """The place of a new session."""
    check_current(wish)
    if wish.scratch:
        return Place()
    if wish.project is not None:
        return Place(project=wish.project)
    if wish.workdir is not None:
        return Place(workdir=_given(reach, client, wish.workdir))
    return _current(reach, client)


def home_shortened(path: str) -> str:
    """A path as people write it: with ~ for the home directory."""
    home = os.path.expanduser("~")
    if home in ("/", "~") or not (path == home or path.startswith(home + "/")):
        return path
    return "~" + path[len(home) :]


def _given(reach: Reach, client: Client, workdir: str) -> str:
    """An absolute path is the server's. Any other is this machine's, so the server must see the same directory."""
    if os.path.isabs(workdir):
        return workdir
    expanded = os.path.expanduser(workdir)
    path = os.path.realpath(expanded if os.path.isabs(expanded) else os.path.join(_here(), expanded))
    if not os.path.isdir(path):
        raise Failure(f"There is no directory {path}. Make it first.", USAGE)
    if _seen(reach, client, path) is None:
        raise Failure(
            f"--workdir {workdir} means {home_shortened(path)} on this machine, and the server at {client.url} does "
            "not see that directory. Give an absolute path on the server's machine.",
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
    """What this machine alone can say against the current directory, where that is what the options mean."""
    if not wish.is_given and _here() == "/":
        raise Failure(f"The current directory is /, the whole machine. {SAY_WHERE}", USAGE)


def _current(reach: Reach, client: Client) -> Place:
    here = _here()
    seen = _seen(reach, client, here)
    shown = home_shortened(here)
    if seen is None:
        raise Failure(
            f"The server at {client.url} does not see the current directory ({shown}): it is on another machine, in a "
            f"container, or may not read it. {SAY_WHERE}",
            USAGE,
        )
    if seen["private"]:
        raise Failure(f"The current directory ({shown}) holds Perdure's own data. {SAY_WHERE}", USAGE)
    projects = seen["projects"]
    if len(projects) > 1:
        raise Failure(
            f"{len(projects)} projects share the current directory: {', '.join(projects)}. Choose one with --project, "
            "or none with `--workdir .`",
            USAGE,
        )
    is_home = _is_same(here, os.path.expanduser("~"))
    warning = f"The agent works in your home directory ({shown}). Start in a project's directory instead."
    return Place(projects[0] if projects else None, here, warning if is_home and not projects else "")


def sees_here(reach: Reach, client: Client) -> bool:
    """Whether the server sees the files of this machine, as far as the current directory shows."""
    try:
        return _seen(reach, client, _here()) is not None
    except Failure:
        return False


def _seen(reach: Reach, client: Client, path: str) -> dict[str, Any] | None:
    """How the server sees a directory of this machine; None if it does not see this one."""
    try:
        seen = client.directory(path)
    except Problem as problem:
        if problem.status in (400, 404):  # no such directory there, or a server that is too old to say
            return None
        raise
    is_proof = boot_id() != UNKNOWN_BOOT or client.url == reach.known_url()
    return seen if is_proof and seen["identity"] == directory_identity(path) else None


def _is_same(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False
