"""Checks and normalises the filters of a session list. Doesn't read the store.

Above: the verb `search`. Below: the store's query. A project, agent, label or parent may have been removed since, so
any name is accepted. An unknown state or status is an error, because an empty list would hide the mistake.
"""

import os

import msgspec

from perdure.core.errors import Refused
from perdure.stores.base import Query

STATES = ("accepted", "processing", "idle", "ended")
STATUSES = ("running", "completed", "stopped", "timed-out", "failed")


def checked(query: Query) -> Query:
    """The query with its working directory resolved, as in stored sessions. Raises Refused if a filter is invalid."""
    check_choice("state", query.state, STATES)
    check_choice("status", query.status, STATUSES)
    if query.workdir is None:
        return query
    if "\x00" in query.workdir or not os.path.isabs(query.workdir):
        raise Refused("invalid", "workdir must be an absolute path.", fields=["workdir"])
    return msgspec.structs.replace(query, workdir=os.path.realpath(query.workdir))


def check_choice(name: str, given: str | None, choices: tuple[str, ...]) -> None:
    if given is not None and given not in choices:
        raise Refused("invalid", f"{name} must be one of: {', '.join(choices)}.", fields=[name])
