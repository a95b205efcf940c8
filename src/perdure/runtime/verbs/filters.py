"""The filters of a list of sessions: whether they can match anything, and written as sessions are kept. Reads no store.

Above: the verb `search`. Below: the store's query. A project, an agent, a label or a parent may be one that is gone, so
any name is taken; a state or a status that does not exist is a mistake, and an empty list would hide it.
"""

import os

import msgspec

from perdure.core.errors import Refused
from perdure.stores.base import Query

STATES = ("accepted", "processing", "idle", "ended")
STATUSES = ("running", "completed", "stopped", "timed-out", "failed")


def checked(query: Query) -> Query:
    """The same query, with its working directory as sessions have it."""
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
