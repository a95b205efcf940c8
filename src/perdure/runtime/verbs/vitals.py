"""How the server is: what runs, what it holds, how much has happened. For people who look, not for decisions.

Above: the verb `vitals` of the sessions. Below: the host's runners, the store's counter, the table of processes.
"""

import asyncio
import os
import shutil
from typing import Any

import msgspec

from perdure import __version__
from perdure.core.clock import stamp
from perdure.runtime.keeping import processes
from perdure.runtime.running.host import Host


async def vitals(host: Host, since: float) -> dict[str, Any]:
    """Figures of this moment. `events` only ever grows: who looks twice can tell the rate."""
    states = [runner.journal.state for runner in host.runners.values()]
    newest = await host.log.store.list_changes(-1, (), 1)
    pids = sorted({state.attached.pid for state in states if state.attached and state.attached.pid})
    measured = await asyncio.to_thread(_measure, pids)
    disk = await asyncio.to_thread(shutil.disk_usage, host.launches_root)
    return {
        "version": __version__,
        "pid": os.getpid(),
        "at": stamp(host.log.now()),
        "started_at": stamp(since),
        "uptime_s": round(host.log.now() - since, 1),
        "slots": host.config.slots,
        "sessions": {
            "attached": len(pids),
            "working": sum(state.working for state in states),
            "waiting": sum(bool(state.prompts) for state in states),
        },
        **measured,
        "events": newest[-1][0] if newest else 0,
        "disk_free_bytes": disk.free,
        "damaged": [msgspec.to_builtins(damage) for damage in host.log.quarantine.all()],
    }


def _measure(pids: list[int]) -> dict[str, int]:
    trees = [processes.describe_tree(pid) for pid in pids]
    own = next((one.rss_bytes for one in processes.describe_tree(os.getpid())), 0)
    return {
        "processes": sum(len(tree) for tree in trees),
        "memory_bytes": own,
        "agents_memory_bytes": sum(process.rss_bytes for tree in trees for process in tree),
    }
