"""The engine creates and connects the parts of the runtime. Each part gets only what it needs, never the whole engine.

Above: server.py puts the surfaces in front of it. Below: everything in runtime/. The engine decides nothing.
"""

import contextlib
import functools
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure import __version__
from perdure.config import Config, ServerSettings
from perdure.core.errors import StoreError
from perdure.runtime.agents.registry import OFFERS, Agents
from perdure.runtime.data.projects import Projects
from perdure.runtime.git.snapshot import Limits, Snapshots
from perdure.runtime.jobs.ledger import Ledger
from perdure.runtime.jobs.scheduler import Scheduler
from perdure.runtime.log.compactor import Compactor
from perdure.runtime.log.feed import Feed
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.review.node_requests import NodeRequests
from perdure.runtime.review.operations import Operations
from perdure.runtime.review.plans import Planner
from perdure.runtime.review.recorder import Recorder
from perdure.runtime.review.records import Records
from perdure.runtime.running import shutdown
from perdure.runtime.running.clocks import Clocks
from perdure.runtime.running.commands import Commands
from perdure.runtime.running.disk import Disk
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.launcher import Launcher
from perdure.runtime.running.node import Node
from perdure.runtime.running.orders import Orders
from perdure.runtime.running.placement import Placement
from perdure.runtime.running.pump import Pump
from perdure.runtime.running.recovery import Recovery
from perdure.runtime.running.retiring import Retiring
from perdure.runtime.running.runners import Runners
from perdure.runtime.running.sharing import Sharing
from perdure.runtime.verbs.attachments import Attachments
from perdure.runtime.verbs.changes import Changes
from perdure.runtime.verbs.jobs import Jobs
from perdure.runtime.verbs.nodes import Nodes
from perdure.runtime.verbs.sessions import Sessions
from perdure.runtime.verbs.streams import Streams

logger = logging.getLogger(__name__)

SNAPSHOT_MAX_FILES = 200_000
SNAPSHOT_MAX_BYTES = 1024 * 1024 * 1024
"""How many files a snapshot may have, and how much new content it may store."""


class Engine:
    def __init__(
        self,
        log: Log,
        agents: Agents,
        projects: Projects,
        config: Config,
        data: Path,
        *,
        node_id: str,
        fenced: Callable[[], None] = lambda: None,
    ) -> None:
        """`fenced` is called when another server has taken over, and this one must stop."""
        settings, launches, sharing = config.server, data / "launches", Sharing()
        self._data = data
        self.log = log
        self.node = Node(log, node_id, settings, fenced, data / "lease.json")
        self.node.about = self._about
        self.feed = Feed(log)
        self.streams = Streams(log, self.feed)
        self.compactor = Compactor(log, self.feed)
        self.facts = Facts(log, agents, projects, config)
        self.commands = Commands(log, self.facts)
        self.pump = Pump(log)
        retiring = Retiring(log, settings, sharing)
        self.launcher = Launcher(launches, settings, retiring, sharing, self.pump, node_id, self.node.lease)
        disk = Disk(launches, self.launcher.limits().disk_floor_bytes, log.steady)
        attachments = Attachments(data / "attachments", settings.max_attachment_bytes, log.shared)

        def orders(journal: Journal) -> Orders:
            return Orders(journal, self.facts, attachments.shown)

        self.runners = Runners(log, self.facts, self.commands, self.launcher, disk, orders, fenced)
        self.placement = Placement(log, self.facts, self.commands, self.runners)
        log.is_draining = lambda: self.node.is_draining
        self.clocks = Clocks(log, self.facts, self.commands, self.runners, self.placement)
        self.clocks.are_stopped = self.node.has_lost_lease
        self.recovery = Recovery(log, self.facts, self.commands, self.launcher, self.runners)
        self.placement.adopt = self.recovery.adopt
        self.placement.on_poll = self._on_poll
        log.watch_epoch(self._on_epoch)
        self.node.on_death = self._on_death
        records = Records(data / "attachments", log)
        snapshots = Snapshots(data / "snapshots")
        self.recorder = Recorder(log, self.facts, records, snapshots, data / "snapshots" / "open", _limits(settings))
        self.runners.before_turn = self.recorder.before
        planner = Planner(self.recorder)
        self.node_requests = NodeRequests(log, node_id, settings.snapshot_timeout_s)
        doing = (self.facts, self.commands, self.placement, self.recorder, planner)
        self.operations = Operations(log, *doing, node_id)
        changes = Changes(log, self.recorder, self.operations, planner, self.node_requests)
        work = (self.placement, self.runners, self.launcher, self.clocks, disk, attachments, changes)
        self.sessions = Sessions(log, self.facts, self.commands, *work, self.recorder.trees, data)
        self.node_requests.handle("directories", self.sessions.directories.complete_for_node)
        self.operations.is_used = self.sessions.workspaces.is_used_by_others
        self.recorder.recorded = self.sessions.comments.compare
        self.nodes = Nodes(log, self.facts, self.node)
        ledger = Ledger(log)
        self.jobs = Jobs(ledger, self.sessions)
        self.scheduler = Scheduler(log, ledger, self.sessions)

    async def start(self, url: str = "") -> None:
        """Start all parts, and resume what an earlier server left: erasures, launches, unfinished turns, waiting
        messages."""
        agents = self.facts.agents
        self.launcher.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log.quarantine.open(self._data / "quarantine")
        await self.node.join(url)
        await self.sessions.eraser.complete()
        await self.log.recall_issued_twice()
        await agents.recall(self.log.store, self.launcher.node_id)
        self.log.watch_documents(OFFERS, functools.partial(agents.read_offers, self.log.store))
        self.log.watch_documents("project", self.facts.projects.reload)
        self.facts.projects.on_change = lambda: self.log.announce_documents("project")
        self.facts.keep(agents.survey(self.log.store))
        self.log.start()
        await self.feed.start()
        await self.compactor.start()
        self.pump.start()
        self.runners.start()
        # Before any turn begins: these say where none may begin, and which have begun already.
        await self.operations.reserve()
        await self.recorder.reserve()
        await self.recovery.take_up()
        self.node_requests.start()
        await self.recorder.start(await self.runners.resumed())
        await self.operations.start()
        await self.placement.start()
        await self.clocks.start()
        self.recovery.take_over_soon()
        self.facts.keep(self.recovery.survey())
        self.sessions.eraser.start()
        self.scheduler.start()

    def _about(self) -> dict[str, Any]:
        """Details for the list of nodes."""
        settings, agents = self.facts.settings, self.facts.agents
        return {
            "name": settings.node_name or socket.gethostname(),
            "version": __version__,
            "slots": self.facts.config.slots,
            "agents": sorted(agents.names()),
        }

    def _on_poll(self) -> None:
        self.recovery.take_over_soon()
        self.operations.look_soon()
        self.node_requests.sweep_soon()

    def _on_epoch(self) -> None:
        """After a failover, the last steps may be missing in the database: all runners continue from its state."""
        for runner in self.runners:
            runner.failed(StoreError("the database has failed over; continuing from the stored state"))
        self.feed.restart()

    def _on_death(self) -> None:
        self.recovery.take_over_soon()
        self.operations.look_soon()
        self.placement.look()

    async def stop(self, *, stop_agents: bool = False) -> None:
        """Shut down gracefully: end idle agents, and leave running turns to their keepers for the next server. With
        `stop_agents`, end every agent; running turns end as cancelled."""
        await self.scheduler.stop()
        await self.clocks.stop()
        await self.placement.stop()
        if stop_agents:
            await shutdown.abort_all(self.runners, self.commands, self.launcher)
        await shutdown.end_idle_agents(self.runners, self.commands, self.launcher)
        # No agent starts from here on, so the check below can't miss one.
        self.runners.is_stopping = True
        is_empty = not len(self.runners) and not self.launcher.retiring
        await self.abandon()
        if is_empty:
            with contextlib.suppress(StoreError):
                await self.node.leave()
        await self.sessions.eraser.stop()

    async def discard(self) -> None:
        """Stop and end every agent here, because other nodes may run this node's sessions."""
        await self.abandon()
        await self.launcher.end_all()

    async def abandon(self) -> None:
        """Stop all parts immediately, as after a failed start. Agents continue under their keepers, for the next
        server."""
        await self.scheduler.stop()
        await self.clocks.stop()
        await self.placement.stop()
        await self.operations.stop()
        # First, because runners wait for snapshots.
        self.recorder.stop_soon()
        await self.runners.stop()
        await self.recorder.stop()
        await self.pump.stop()
        await self.compactor.stop()
        await self.feed.stop()
        await self.facts.stop()
        await self.sessions.eraser.cancel()
        await self.log.stop()
        await self.node.stop()


def _limits(settings: ServerSettings) -> Limits | None:
    """The budget of a snapshot; None if there are no snapshots."""
    if not settings.snapshots:
        return None
    return Limits(
        time_s=settings.snapshot_timeout_s,
        file_bytes=settings.snapshot_max_file_mb * 1024 * 1024,
        total_bytes=SNAPSHOT_MAX_BYTES,
        files=SNAPSHOT_MAX_FILES,
    )
