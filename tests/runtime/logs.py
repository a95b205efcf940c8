"""Logs on a store, as servers have them: each is a node that may own sessions."""

import secrets

from perdure.runtime.log.log import Log
from perdure.stores.base import Owner, Store
from perdure.stores.wakeups import Wakeups


def node_id() -> str:
    """A unique node id for a server that starts agents. It ends processes marked with its id, so no two servers at the
    same time may share one."""
    return f"here{secrets.token_hex(4)}"


async def opened(store: Store, node: str = "here", wakeups: Wakeups | None = None) -> Log:
    """The log of a server that has claimed the store."""
    log = Log(store, wakeups=wakeups)
    log.generation = await store.claim()
    log.node = Owner(node, await store.join(node, b"{}"))
    return log
