"""What all nodes of a shared store have in common: an identity, by which browsers know them, and the token.

Above: server.py, at the start. Below: documents of the shared store. On SQLite both are files in the data directory
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
    """Made by the first node that starts."""
    await store.add_document(CLUSTER, "id", secrets.token_hex(4).encode())
    return (await store.document(CLUSTER, "id") or b"").decode()


async def token(store: SharedStore, directory: DataDirectory, given: str | None) -> str:
    """The token of all nodes, kept in the store and, for the command line on this machine, in the data directory. One
    that is given replaces it, unless other nodes are at work with another one."""
    made = given or directory.token(None)
    await store.add_document(CLUSTER, "token", made.encode())
    kept = (await store.document(CLUSTER, "token") or b"").decode()
    if given is None or given == kept:
        return directory.token(kept)
    if await _are_others_alive(store, directory.install_id()):
        raise DataError(
            "The other nodes use another token. Start this node with the same one, or without --token and "
            "PERDURE_TOKEN: then it takes theirs from the database. To change it, stop all nodes first."
        )
    await store.put_document(CLUSTER, "token", given.encode())
    return directory.token(given)


async def _are_others_alive(store: SharedStore, me: str) -> bool:
    """A node that was stopped is not marked dead: its heartbeat says whether it runs."""
    before = {node.node: node.heartbeat for node in await store.nodes() if not node.dead and node.node != me}
    if not before:
        return False
    logger.info("another token is given: looking for %g s whether other nodes run", BEAT_LOOK_S)
    await asyncio.sleep(BEAT_LOOK_S)
    return any(before.get(node.node, node.heartbeat) != node.heartbeat for node in await store.nodes())
