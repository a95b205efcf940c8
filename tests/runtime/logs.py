"""Logs over a store, as servers have them: each a node that may own sessions."""

import secrets

from perdure.runtime.log.log import Log
from perdure.stores.base import Owner, Store
from perdure.stores.wakeups import Wakeups


def node_id() -> str:
    """Of a server that starts agents: it ends what carries its name, so no two that run at the same time may share
    it."""
    return f"here{secrets.token_hex(4)}"


async def opened(store: Store, node: str = "here", wakeups: Wakeups | None = None) -> Log:
    """The log of a server that has claimed the store."""
    log = Log(store, wakeups=wakeups)
    log.generation = await store.claim()
    log.node = Owner(node, await store.join(node, b"{}"))
    return log
