"""Commands on several sessions at once: which are meant, and one after the other.

Above: label, archive, unarchive and erase. Below: reach.py. All names are looked up before anything is done, so that a
misspelt one changes nothing. A session that refuses does not keep the others from being done; the exit code is 1 then.
"""

from collections.abc import Callable, Sequence
from typing import Any

import click

from perdure.surfaces.cli.reach import find_session
from perdure.surfaces.client import Client, Problem

Json = dict[str, Any]


def find_sessions(client: Client, given: Sequence[str]) -> list[str]:
    """The ids of the sessions that are meant, each once."""
    return list(dict.fromkeys(find_session(client, one) for one in given))


def each_session(session_ids: Sequence[str], act: Callable[[str], Any]) -> tuple[list[Any], int]:
    """What `act` returned for each session that did not refuse, and the exit code."""
    done: list[Any] = []
    for session_id in session_ids:
        try:
            done.append(act(session_id))
        except Problem as problem:
            click.echo(f"perdure: {session_id}: {problem.detail} ({problem.code})", err=True)
    return done, 0 if len(done) == len(session_ids) else 1


def counted(number: int) -> str:
    return f"{number} session{'' if number == 1 else 's'}"
