"""What all nodes of a shared store have in common: an identity, by which browsers know them, and the token.

Above: server.py, at the start. Below: documents of the shared store. On SQLite both are files in the data directory
(directory.py).
"""

import secrets

from perdure.runtime.data.directory import DataDirectory, DataError
from perdure.stores.shared import SharedStore

CLUSTER = "cluster"


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
    others = [node for node in await store.nodes() if not node.dead and node.node != directory.install_id()]
    if others:
        raise DataError(
            "The other nodes use another token. Start this node with the same one, or without --token and "
            "PERDURE_TOKEN: then it takes theirs from the database. To change it, stop all nodes first."
        )
    await store.put_document(CLUSTER, "token", given.encode())
    return directory.token(given)
