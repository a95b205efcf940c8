"""This server as a node of the store: it may own sessions, and its heartbeat shows the other nodes that it is alive.

Above: the engine. Below: the store's table of nodes. If a node finds its row removed, marked as dead or taken over by a
newer incarnation, it stops everything: other nodes may own its sessions.

If nodes share their working directories, each watches the others. A node is dead if its heartbeat stays unchanged for
`takeover_after_s` of the watcher's steady clock, with a successful read at every beat. So a database outage, a failover
or a changed clock never makes a node look dead. Each node holds a lease for its agents. It renews the lease only after
a heartbeat was stored, and the lease expires before another node may take over. Without it, keepers pause their agents.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from perdure.config import ServerSettings
from perdure.core.errors import UNREADABLE, StoreError
from perdure.runtime.data.filesystem import boot_id
from perdure.runtime.keeping.launch import Lease
from perdure.runtime.keeping.lease import boottime_s, write_lease
from perdure.runtime.log.log import Log
from perdure.stores import base
from perdure.stores.base import Owner

logger = logging.getLogger(__name__)

HEARTBEAT_S = 5.0
BEATS_PER_TAKEOVER = 6
LEASE_SHARE = 2 / 3
"""The length of a lease, as a share of `takeover_after_s`. The rest allows for keepers that notice its end late."""
RESPONSIVE_BEATS = 2.5
GAP_BEATS = 2.5
"""If two reads are further apart, in beats, the time between them doesn't count as silence."""
FORMAT = 1
"""The newest format of states and events that this version can write. It increases with a change that older versions
can't read. No node writes a new format until every living node knows it."""


class Node:
    def __init__(
        self, log: Log, node_id: str, settings: ServerSettings, lost: Callable[[], None], lease_file: Path
    ) -> None:
        self._log = log
        self._node_id = node_id
        self._settings = settings
        self._lost = lost
        self._lease_file = lease_file
        self.about: Callable[[], dict[str, Any]] = dict
        """Returns further details of this node, for display."""
        self.on_death: Callable[[], None] = lambda: None
        """Called when another node has died and its sessions may be taken over."""
        self.is_draining = False
        self.beaten_s: float | None = None
        """When the last heartbeat was stored, by the steady clock."""
        self._lease_until_s: float | None = None
        self._beating: asyncio.Task[None] | None = None
        self._names: dict[str, str] = {}
        self._seen: dict[str, tuple[int, int, float]] = {}
        """By node: incarnation, heartbeat, and since when both are unchanged."""
        self._read_s: float | None = None
        self._clock_offset_s: float | None = None
        """The database's time minus the steady clock."""
        self._format = 0
        self._finishing: asyncio.Task[None] | None = None
        self.beat_s = HEARTBEAT_S
        log.name_of_node = self.name_of
        if log.shared is not None:
            self.beat_s = min(HEARTBEAT_S, settings.takeover_after_s / BEATS_PER_TAKEOVER)
            log.is_responsive = self.is_responsive
            log.waits_for_directory = settings.workdirs == "local"

    @property
    def takes_over(self) -> bool:
        return self._log.shared is not None and self._settings.workdirs == "shared"

    async def join(self, url: str) -> None:
        known = {"url": url, "boot_id": boot_id(), "format": FORMAT, "started_at": self._log.stamp()}
        settings = {key: getattr(self._settings, key) for key in ("labels", "workdirs", "takeover_after_s")}
        began_s = boottime_s()
        incarnation = await self._log.store.join(
            self._node_id, msgspec.json.encode({**known, **settings, **self.about()})
        )
        self._log.node = Owner(self._node_id, incarnation)
        self._renew(began_s)
        await self._set_clock()
        await self._look()
        self._beating = asyncio.create_task(self._beat(), name="node heartbeat")

    async def stop(self) -> None:
        tasks = [task for task in (self._beating, self._finishing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def leave(self) -> None:
        """Mark this node as dead, so that others can take its sessions immediately. Call it only if none of its agents
        is still running."""
        if self.takes_over and self._log.shared is not None and self._log.node is not None:
            for node in await self._log.shared.nodes():
                if node.node == self._node_id:
                    await self._log.shared.declare_dead(self._log.node, node.heartbeat)

    def lease(self) -> Lease | None:
        """The lease for an agent that is about to start; None if other nodes never take over."""
        if not self.takes_over or self._log.node is None or self._lease_until_s is None:
            return None
        return Lease(
            path=str(self._lease_file),
            incarnation=self._log.node.incarnation,
            deadline_s=self._lease_until_s,
            paused_max_s=self._settings.orphan_max_s,
        )

    def has_lost_lease(self) -> bool:
        """Whether keepers have paused the agents of this node."""
        return self.takes_over and self._lease_until_s is not None and boottime_s() >= self._lease_until_s

    # Other nodes ---------------------------------------------------------------------------------------------------

    def name_of(self, node_id: str) -> str:
        return self._names.get(node_id, node_id)

    def unchanged_s(self, node_id: str, row: base.Node | None = None) -> float | None:
        """How long this node has seen another's heartbeat unchanged; None if it has never seen one. `row`: the other
        node's row if it was just read, which may be newer."""
        seen = self._seen.get(node_id)
        if seen is None:
            return None
        is_newer = row is not None and (row.incarnation, row.heartbeat) != seen[:2]
        return 0.0 if is_newer else max(0.0, self._log.steady() - seen[2])

    def is_responsive(self, node_id: str) -> bool:
        """Whether a node's heartbeat has changed within the last few beats."""
        unchanged_s = self.unchanged_s(node_id)
        return unchanged_s is not None and unchanged_s < RESPONSIVE_BEATS * HEARTBEAT_S

    # The heartbeat -------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        assert self._log.node is not None
        while True:
            await asyncio.sleep(self.beat_s)
            began_s = boottime_s()
            try:
                if not await self._log.store.beat(self._log.node):
                    logger.error("this node was declared dead or removed, or another server took its place; stopping")
                    self._lost()
                    return
                try:
                    self._renew(began_s)
                except OSError as error:
                    logger.error("could not renew the lease %s, so agents may pause: %s", self._lease_file, error)
                await self._set_clock()
                await self._look()
                if self._log.shared is not None:
                    self._log.renew_epoch(await self._log.shared.epoch())
            except StoreError as error:
                # The other nodes could not be seen meanwhile, so this time doesn't count as their silence.
                self._read_s = None
                logger.warning("could not record the heartbeat; retrying: %s", error)
            except Exception:
                # Keep going: only the heartbeat tells this node if others have declared it dead.
                logger.exception("the heartbeat failed; retrying")

    def _renew(self, began_s: float) -> None:
        """Renew the lease after a heartbeat was stored. It counts from before the heartbeat, while other nodes wait
        `takeover_after_s` from after it."""
        self.beaten_s = self._log.steady()
        until_s = began_s + LEASE_SHARE * self._settings.takeover_after_s
        if self.takes_over and self._log.node is not None:
            write_lease(self._lease_file, self._log.node.incarnation, until_s)
        # Only after it was written, because keepers pause their agents when the lease in the file ends.
        self._lease_until_s = until_s

    async def _set_clock(self) -> None:
        """Follow the database's clock, as all nodes do. Their events are then in order, whatever their own clocks
        say."""
        if self._log.shared is None:
            return
        steady = self._log.steady
        asked_s = steady()
        time = await self._log.shared.time()
        # The database read its clock between request and response, which bounds the offset. On a slow connection the
        # bounds are far apart, and the known offset is the better estimate.
        least, most = time - steady(), time - asked_s
        known = (least + most) / 2 if self._clock_offset_s is None else self._clock_offset_s
        self._clock_offset_s = offset_s = min(max(known, least), most)
        self._log.now = lambda: steady() + offset_s

    async def _look(self) -> None:
        """Update which nodes are alive, and declare dead those that have been silent for too long."""
        began_s = self._log.steady()
        nodes = await self._log.store.nodes()
        now = self._log.steady()
        has_gap = self._read_s is None or now - self._read_s > GAP_BEATS * self.beat_s
        self._read_s = now
        self._names = {node.node: _name(node) for node in nodes}
        await self._follow_versions(nodes)
        dead = False
        for node in nodes:
            if node.node == self._node_id:
                self.is_draining = node.draining
                continue
            seen = self._seen.get(node.node)
            if has_gap or seen is None or seen[:2] != (node.incarnation, node.heartbeat):
                self._seen[node.node] = (node.incarnation, node.heartbeat, now)
            elif not node.dead and began_s - seen[2] >= self._limit_s(node):
                dead |= await self._declare_dead(node)
        living = {node.node for node in nodes if not node.dead} - {self._node_id}
        has_died = bool(self._log.living - living)
        self._log.living = living
        if dead:
            await self._look()
        elif has_died:
            self.on_death()

    def _limit_s(self, node: base.Node) -> float:
        """How long a node must be silent to be declared dead. Its own settings count too: they define whether and when
        its agents pause."""
        about = _about(node)
        if not self.takes_over or about.get("workdirs") != "shared":
            return float("inf")
        theirs = about.get("takeover_after_s")
        return max(self._settings.takeover_after_s, theirs if isinstance(theirs, int | float) else 0.0)

    async def _follow_versions(self, nodes: list[base.Node]) -> None:
        """Run the second step of migrations once the last node of an older version is gone."""
        lives = [_about(node) for node in nodes if not node.dead]
        formats = [written for about in lives if isinstance(written := about.get("format"), int)]
        is_idle = self._finishing is None or self._finishing.done()
        if self._log.shared is not None and formats and min(formats) != self._format and is_idle:
            # In a task, so that heartbeats continue.
            self._finishing = asyncio.create_task(self._finish_rollout(min(formats)), name="migrations")

    async def _finish_rollout(self, format_version: int) -> None:
        assert self._log.shared is not None
        try:
            await self._log.shared.finish_rollout(format_version)
            self._format = format_version
        except StoreError as error:
            logger.warning("could not finish the migrations; the next heartbeat tries again: %s", error)

    async def _declare_dead(self, node: base.Node) -> bool:
        assert self._log.shared is not None
        declared = await self._log.shared.declare_dead(Owner(node.node, node.incarnation), node.heartbeat)
        if declared:
            limit_s = self._limit_s(node)
            logger.warning("node %s: no heartbeat for %g s; taking over its sessions", _name(node), limit_s)
        return declared


def _about(node: base.Node) -> dict[str, Any]:
    try:
        return msgspec.json.decode(node.about, type=dict[str, Any])
    except UNREADABLE:
        return {}


def _name(node: base.Node) -> str:
    return str(_about(node).get("name") or node.node)
