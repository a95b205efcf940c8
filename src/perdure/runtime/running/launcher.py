"""What all runners of this machine need to start, share and end agent processes.

Above: runners and recovery. Below: launches, keepers and control groups. The launcher itself starts nothing.
"""

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path

from perdure.config import ServerSettings
from perdure.drivers.lines import MAX_LINE_BYTES
from perdure.runtime.keeping import processes
from perdure.runtime.keeping.cgroups import ControlGroups
from perdure.runtime.keeping.launch import Launch, LaunchLimits, Lease
from perdure.runtime.running.agent_link import READ_BYTES, AgentLink
from perdure.runtime.running.pump import Pump
from perdure.runtime.running.retiring import Retiring
from perdure.runtime.running.sharing import Sharing

SPAWNS_AT_ONCE = 4
END_GRACE_S = 2.0


class Launcher:
    def __init__(
        self,
        folder: Path,
        settings: ServerSettings,
        retiring: Retiring,
        sharing: Sharing,
        pump: Pump,
        node_id: str,
        lease: Callable[[], Lease | None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.spawning = asyncio.Semaphore(SPAWNS_AT_ONCE)
        self.sharing = sharing
        self.retiring = retiring
        self.pump = pump
        self.groups = ControlGroups()
        self.node_id = node_id
        """The prefix of this server's launch ids."""
        self.lease = lease
        """The current lease, for an agent that is about to start."""

    def new_launch_id(self) -> str:
        return f"{self.node_id}-{secrets.token_hex(6)}"

    def limits(self) -> LaunchLimits:
        settings = self.settings
        return LaunchLimits(
            # The longest allowed line must fit, or its end could never be read.
            spool_limit_bytes=max(settings.spool_limit_mb * 1024 * 1024, MAX_LINE_BYTES + READ_BYTES),
            disk_floor_bytes=settings.disk_floor_mb * 1024 * 1024,
            orphan_quiet_s=settings.orphan_quiet_s,
            orphan_max_s=settings.orphan_max_s,
        )

    def orphan_limits(self, *, waits: bool) -> tuple[float, float]:
        """How long an agent without a server may be quiet, and how long it may run. Longer while it `waits` for a
        person."""
        settings = self.settings
        asking = (settings.orphan_prompt_s, settings.orphan_prompt_s)
        return asking if waits else (settings.orphan_quiet_s, settings.orphan_max_s)

    async def end_all(self) -> None:
        """Kill every agent of this node immediately."""
        launches = [Launch(entry) for entry in self.folder.iterdir() if entry.name.startswith(f"{self.node_id}-")]
        await processes.end_marked([launch.launch_id for launch in launches], 0.0)
        for launch in launches:
            launch.kill_keeper()
            await launch.wait_gone(END_GRACE_S)

    def leave(self, link: AgentLink) -> None:
        """Detach a session from its process, and end the process if no other session uses it."""
        is_last = self.sharing.leave(link)
        if link.launch is not None and is_last:
            self.retiring.begin(link)
        elif link.launch is not None:
            link.launch.close()
