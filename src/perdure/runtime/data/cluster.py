"""Values that all nodes of a shared store have in common: the token, and an id by which browsers recognise them.

Above: server.py, at startup. Below: documents of the shared store. With SQLite both are files in the data directory
(directory.py).
"""

import asyncio
import logging
import secrets

from perdure.runtime.data.directory import DataDirectory, DataError
from perdure.stores.shared import SharedStore

logger = logging.getLogger(__name__)

CLUSTER = "cluster"
BEAT_LOOK_S = 11.0
"""Longer than two heartbeats of any node."""


async def identity(store: SharedStore) -> str:
    """The cluster's id. The first node to start creates it."""
    await store.add_document(CLUSTER, "id", secrets.token_hex(4).encode())
    return (await store.document(CLUSTER, "id") or b"").decode()


async def token(store: SharedStore, directory: DataDirectory, given: str | None) -> str:
    """The token of all nodes. It is in the store and, for the command line on this machine, in the data directory. A
    given token replaces it, unless other nodes are running with a different one."""
    made = given or directory.token(None)
    await store.add_document(CLUSTER, "token", made.encode())
    kept = (await store.document(CLUSTER, "token") or b"").decode()
    if given is None or given == kept:
        return directory.token(kept)
    if await _are_others_alive(store, directory.install_id()):
        raise DataError(
            "The other nodes use a different token. Start this node with the same one, or without --token and "
            "PERDURE_TOKEN to take theirs from the database. To change the token, stop all nodes first."
        )
    await store.put_document(CLUSTER, "token", given.encode())
    return directory.token(given)


async def _are_others_alive(store: SharedStore, me: str) -> bool:
    """Whether another node is running. A stopped node is not marked dead, so compare heartbeats."""
    before = {node.node: node.heartbeat for node in await store.nodes() if not node.dead and node.node != me}
    if not before:
        return False
    logger.info("a different token was given: checking for %g s whether other nodes are running", BEAT_LOOK_S)
    await asyncio.sleep(BEAT_LOOK_S)
    return any(before.get(node.node, node.heartbeat) != node.heartbeat for node in await store.nodes())
