"""This server as a node: one of those that may own sessions of the store. Its heartbeat shows the others that it lives.

Above: server.py. Below: the store's table of nodes. A node that finds its own row taken by a newer incarnation, or
marked as dead, stops everything: somebody else may own its sessions.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from perdure import __version__
from perdure.core.errors import StoreError
from perdure.runtime.data.filesystem import boot_id
from perdure.runtime.log.log import Log
from perdure.stores.base import Owner

logger = logging.getLogger(__name__)

HEARTBEAT_S = 5.0


class Node:
    def __init__(self, log: Log, node_id: str, lost: Callable[[], None]) -> None:
        self._log = log
        self._node_id = node_id
        self._lost = lost
        self._beating: asyncio.Task[None] | None = None

    async def join(self, url: str) -> None:
        about = msgspec.json.encode({"url": url, "version": __version__, "boot_id": boot_id()})
        incarnation = await self._log.store.join(self._node_id, about)
        self._log.node = Owner(self._node_id, incarnation)
        await self._look()
        self._beating = asyncio.create_task(self._beat(), name="node heartbeat")

    async def stop(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)

    async def _beat(self) -> None:
        assert self._log.node is not None
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                if not await self._log.store.beat(self._log.node):
                    logger.error("this node was declared dead, or another server took its place; stopping")
                    self._lost()
                    return
                await self._look()
            except StoreError as error:
                logger.warning("could not record the heartbeat; trying again: %s", error)

    async def _look(self) -> None:
        nodes = [node for node in await self._log.store.nodes() if not node.dead]
        self._log.living = {Owner(node.node, node.incarnation) for node in nodes} - {self._log.node}
