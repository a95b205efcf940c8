"""How a command reaches its server: the shared options, finding the server and its token, resolving a session id.

Above: every command that needs a server. Below: client.py and three files in the data directory: `server.json` and
`token`, which the server writes, and `lock`, which it holds while it runs. The token is sent to no other server.
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
from perdure.surfaces.cli.terms import as_typed, names_url, refusal, remember_session
from perdure.surfaces.client import Address, Client, NeverSent, Problem, Unreachable

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = ("data", "url", "token", "as_json")
AMBIGUOUS_SHOWN = 5
NO_ID = "{} is no session id. `perdure sessions` lists them. (not_found)"
START_IT = "Start one with `perdure serve`."
CHECK_URL = "Check --url, or start the server there with `perdure serve`."


class Reach:
    """A command's server, looked up on first use."""

    def __init__(self, data: str | None, url: str | None, token: str | None, as_json: bool) -> None:
        self.data = data_directory(data)
        self.as_json = as_json
        self._url = url
        self._token = token

    def address(self) -> Address:
        known = self.known_url()
        url = (self._url or known or "").rstrip("/")
        if not url:
            raise NeverSent(f"No server is running for {self.data}.")
        check_address(url, self._token)
        return Address(url, self._token or (read_token(self.data) if url == known else None))

    @property
    def names_a_server(self) -> bool:
        """Whether the user gave a URL."""
        return self._url is not None

    def server_environment(self) -> dict[str, str]:
        """Variables to add to the environment of a server that this command starts."""
        return {} if self._token is None else {"PERDURE_TOKEN": self._token}

    def client(self, *, patience_s: float = 0.0) -> Client:
        return Client(self.address, patience_s=patience_s)

    def known_url(self) -> str | None:
        """The URL of the data directory's own server, the only one that gets the token from there."""
        known = self._known()
        return None if known is None else known[0].rstrip("/")

    def known_pid(self) -> int | None:
        known = self._known()
        return None if known is None else known[1]

    def _known(self) -> tuple[str, int] | None:
        """The URL and pid of the data directory's own server, if it is running. Ignores the file of a killed server:
        another program may listen on that port now."""
        try:
            told = json.loads((self.data / "server.json").read_text("utf-8"))
            known = str(told["url"]), int(told["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return known if is_held(self.data / "lock") else None


def check_address(url: str, token: str | None) -> None:
    """Reject an invalid URL or token before using it."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and host_of(parts.hostname or "") is not None and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not (url.isascii() and url.isprintable()) or " " in url:
        raise Failure(f"--url {url!r} is not a valid server URL. Give one such as http://127.0.0.1:7433.", 2)
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise Failure("--token contains invalid characters. Copy the token again from the server.", 2)


def is_held(lock: Path) -> bool:
    """Whether a running server holds this lock. The check takes the lock for a moment, so a starting server retries."""
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
    """Give a command --data, --url, --token and --json, and a Reach as its first argument.

    The first three may come before or after the command. Exits 1 if the server refuses, 3 if no server is reachable.
    """

    @click.option("--data", metavar="DIR", help="The server's data directory.")
    @click.option("--url", help="Server URL.")
    @click.option("--token", help="Server token.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
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
    """Options given before the command: to its group, or to `perdure` itself."""
    found: dict[str, Any] = {"as_json": False}
    context = click.get_current_context()
    outside = [context.find_root().obj or {}, context.parent.params if context.parent is not None else {}]
    for given in outside:
        found.update({key: value for key, value in given.items() if key in OPTIONS and value})
    return found


class Failure(click.ClickException):
    """Ends the command with a message on stderr. `after` follows it unchanged."""

    def __init__(self, message: str, exit_code: int = 1, *, after: str = "") -> None:
        super().__init__(message)
        self._code = exit_code
        self._after = after

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return self._code

    def show(self, file: Any = None) -> None:
        click.echo(paragraph(f"perdure: {self.message}", sys.stderr), err=True)
        if self._after:
            click.echo(self._after, err=True)


def failure_of(error: Problem | Unreachable) -> Failure:
    return Failure(sentence_of(error), 1 if isinstance(error, Problem) else 3)


def give_up(error: Problem | Unreachable) -> NoReturn:
    raise failure_of(error) from error


def sentence_of(error: Problem | Unreachable, *, in_chat: bool = False) -> str:
    """An error message in the terms of the command line."""
    if isinstance(error, Problem):
        return as_typed(refusal(error, in_chat=in_chat))
    return as_typed(f"{error} {CHECK_URL if names_url() else START_IT}")


def find_session(client: Client, given: str, *, to_continue: bool = False) -> str:
    """Resolve a full id, a unique prefix, or `last` to a session id. With `to_continue`, `last` is the last session
    that has not ended: `perdure run` ends its own sessions."""
    session_id = _session_meant(client, given, to_continue)
    remember_session(session_id)
    return session_id


def _session_meant(client: Client, given: str, to_continue: bool) -> str:
    if given == "last":
        newest = client.sessions(limit=1, status="running" if to_continue else None)["sessions"]
        if not newest:
            what = "There is no session to continue" if to_continue else "There are no sessions yet"
            raise Failure(f"{what}. Start one with `perdure chat`.")
        return str(newest[0]["id"])
    if not given:
        raise Failure(NO_ID.format("''"))
    try:
        return str(client.session(given)["id"])
    except Problem as problem:
        if problem.code != "not_found":
            raise
    if given.isdigit():
        raise Failure(NO_ID.format(given))
    found = [entry["id"] for entry in client.all_sessions() if _begins(entry["id"], given)]
    if len(found) == 1:
        return str(found[0])
    if not found:
        raise Failure(f"There is no session {given!r}. `perdure sessions` lists all sessions. (not_found)")
    some = ", ".join(found[:AMBIGUOUS_SHOWN]) + (" ..." if len(found) > AMBIGUOUS_SHOWN else "")
    raise Failure(f"{len(found)} session ids start with {given!r}: {some}. Give more of the id.", 2)


def _begins(session_id: str, given: str) -> bool:
    """Whether an id begins like this. Without its `s_`, too many words and numbers would be a prefix of one."""
    return session_id.startswith(given) and (given.startswith("s_") or not session_id.startswith("s_"))
