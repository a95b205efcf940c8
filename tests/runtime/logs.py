"""Logs over a store, as servers have them: each a node that may own sessions."""

from perdure.runtime.log.log import Log
from perdure.stores.base import Owner, Store
from perdure.stores.wakeups import Wakeups


async def opened(store: Store, node: str = "here", wakeups: Wakeups | None = None) -> Log:
    """The log of a server that has claimed the store."""
    log = Log(store, wakeups=wakeups)
    log.generation = await store.claim()
    log.node = Owner(node, await store.join(node, b"{}"))
    return log
