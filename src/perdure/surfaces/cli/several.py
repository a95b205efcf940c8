"""Helpers for commands that take several sessions.

Above: label, archive, unarchive and erase. Below: reach.py. All ids are resolved first, so a misspelt one changes
nothing. If the server refuses one session, the others are still processed, and the exit code is 1.
"""

from collections.abc import Callable, Sequence
from typing import Any

import click

from perdure.surfaces.cli.reach import find_session
from perdure.surfaces.client import Client, Problem

Json = dict[str, Any]


def find_sessions(client: Client, given: Sequence[str]) -> list[str]:
    """The resolved session ids, without duplicates."""
    return list(dict.fromkeys(find_session(client, one) for one in given))


def each_session(session_ids: Sequence[str], act: Callable[[str], Any]) -> tuple[list[Any], int]:
    """What `act` returned for each session that succeeded, and the exit code."""
    done: list[Any] = []
    for session_id in session_ids:
        try:
            done.append(act(session_id))
        except Problem as problem:
            click.echo(f"perdure: {session_id}: {problem.detail} ({problem.code})", err=True)
    return done, 0 if len(done) == len(session_ids) else 1


def counted(number: int) -> str:
    return f"{number} session{'' if number == 1 else 's'}"
