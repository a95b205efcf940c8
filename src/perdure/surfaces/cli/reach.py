"""How a command reaches its server: options that each command has, where server and token are found, which session
is meant.

Above: every command that needs a server. Below: client.py and three files of the data directory: `server.json` and
`token`, which the server writes, and `lock`, which it holds as long as it lives. The token goes nowhere else.
"""

import fcntl
import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import click

from perdure.config import data_directory
from perdure.core.addresses import host_of
from perdure.surfaces.cli.output import paragraph
from perdure.surfaces.cli.terms import as_typed, names_url, refusal
from perdure.surfaces.client import Address, Client, NeverSent, Problem, Unreachable

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = ("data", "url", "token", "as_json")
AMBIGUOUS_SHOWN = 5
START_IT = "Start it with `perdure serve`."
CHECK_URL = "Check --url, or start the server there with `perdure serve`."


class Reach:
    """A command's server, found when it is first needed."""

    def __init__(self, data: str | None, url: str | None, token: str | None, as_json: bool) -> None:
        self.data = data_directory(data)
        self.as_json = as_json
        self._url = url
        self._token = token

    def address(self) -> Address:
        known = self.known_url()
        url = (self._url or known or "").rstrip("/")
        if not url:
            raise NeverSent(f"No server runs on {self.data}.")
        check_address(url, self._token)
        return Address(url, self._token or (read_token(self.data) if url == known else None))

    @property
    def names_a_server(self) -> bool:
        """Whether the person said which server is meant, instead of leaving it to be found."""
        return self._url is not None

    def server_environment(self) -> dict[str, str]:
        """What a server that this command starts gets besides the environment of the command."""
        return {} if self._token is None else {"PERDURE_TOKEN": self._token}

    def client(self, *, patience_s: float = 0.0) -> Client:
        return Client(self.address, patience_s=patience_s)

    def known_url(self) -> str | None:
        """Where the data directory's own server listens: it alone may know the token."""
        known = self._known()
        return None if known is None else known[0].rstrip("/")

    def known_pid(self) -> int | None:
        known = self._known()
        return None if known is None else known[1]

    def _known(self) -> tuple[str, int] | None:
        """The address and the process of the data directory's own server, while it lives. What a killed one left behind
        names a port that anybody may listen on by now."""
        try:
            told = json.loads((self.data / "server.json").read_text("utf-8"))
            known = str(told["url"]), int(told["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return known if is_held(self.data / "lock") else None


def check_address(url: str, token: str | None) -> None:
    """What can't be an address or a token is refused here, before it is used for either."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and host_of(parts.hostname or "") is not None and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not (url.isascii() and url.isprintable()) or " " in url:
        raise Failure(f"--url {url!r} is not the address of a server. Give one such as http://127.0.0.1:7433.", 2)
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise Failure("--token has characters that no token has. Copy it again from the server.", 2)


def is_held(lock: Path) -> bool:
    """Whether a server lives that holds this lock. Asking takes it for an instant, so a server tries more than once."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_token(data: Path) -> str | None:
    try:
        return (data / "token").read_text("utf-8").strip() or None
    except (OSError, UnicodeError):
        return None


def reaching(function: F) -> F:
    """Gives a command --data, --url, --token and --json, and a Reach as its first argument.

    The first three may stand before the command or after it. What the server refuses becomes exit code 1, no server 3.
    """

    @click.option("--data", metavar="DIR", help="The server's data directory.")
    @click.option("--url", help="Where the server is.")
    @click.option("--token", help="The server's token.")
    @click.option("--json", "as_json", is_flag=True, help="For programs: the server's JSON as it is.")
    @functools.wraps(function)
    def command(data: str | None, url: str | None, token: str | None, as_json: bool, **given: Any) -> Any:
        outer = _given_before()
        reach = Reach(
            data or outer.get("data"), url or outer.get("url"), token or outer.get("token"), as_json or outer["as_json"]
        )
        try:
            return function(reach, **given)
        except (Problem, Unreachable) as error:
            give_up(error)

    return command  # type: ignore[return-value]


def _given_before() -> dict[str, Any]:
    """What stood before the command: after the command that this one belongs to, or after `perdure`."""
    found: dict[str, Any] = {"as_json": False}
    context = click.get_current_context()
    outside = [context.find_root().obj or {}, context.parent.params if context.parent is not None else {}]
    for given in outside:
        found.update({key: value for key, value in given.items() if key in OPTIONS and value})
    return found


class Failure(click.ClickException):
    """Ends the command with a sentence on stderr."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self._code = exit_code

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return self._code

    def show(self, file: Any = None) -> None:
        click.echo(paragraph(f"perdure: {self.message}", sys.stderr), err=True)


def give_up(error: Problem | Unreachable) -> NoReturn:
    raise Failure(sentence_of(error), 1 if isinstance(error, Problem) else 3) from error


def sentence_of(error: Problem | Unreachable) -> str:
    """An error in the words of the command line."""
    return as_typed(
        refusal(error) if isinstance(error, Problem) else f"{error} {CHECK_URL if names_url() else START_IT}"
    )


def find_session(client: Client, given: str, *, to_continue: bool = False) -> str:
    """The id of a session that is given in full, by a unique beginning, or as `last`. A session `to_continue` is the
    last one that has not ended: `perdure run` ends its own."""
    if given == "last":
        newest = client.sessions(limit=1, status="running" if to_continue else None)["sessions"]
        if not newest:
            what = "No session can be continued" if to_continue else "There is no session yet"
            raise Failure(f"{what}. Begin one with `perdure chat`.")
        return str(newest[0]["id"])
    try:
        return str(client.session(given)["id"])
    except Problem as problem:
        if problem.code != "not_found":
            raise
    beginnings = (given, f"s_{given}")
    found = [entry["id"] for entry in client.all_sessions() if entry["id"].startswith(beginnings)]
    if len(found) == 1:
        return str(found[0])
    if not found:
        raise Failure(f"There is no session {given!r}. `perdure sessions` lists them. (not_found)")
    some = ", ".join(found[:AMBIGUOUS_SHOWN]) + (" ..." if len(found) > AMBIGUOUS_SHOWN else "")
    raise Failure(f"{len(found)} sessions begin with {given!r}: {some}. Give more of the id.", 2)
