"""The server's vital figures: running sessions, processes, memory, events. For display, not for decisions.

Above: the verb `vitals` of the sessions. Below: the runners, the store's counter, the table of processes.
"""

import asyncio
import os
import shutil
from typing import Any

import msgspec

from perdure import __version__
from perdure.core.clock import stamp
from perdure.runtime.keeping import processes
from perdure.runtime.log.log import Log
from perdure.runtime.running.launcher import Launcher
from perdure.runtime.running.runners import Runners

TRANSACTION_BITS = 63


async def vitals(log: Log, runners: Runners, launcher: Launcher, slots: int, since: float) -> dict[str, Any]:
    """The current figures. `events` is a counter: read it twice to compute the rate."""
    states = runners.states()
    newest = await log.store.list_changes(-1, (), 1)
    pids = sorted({state.attached.pid for state in states if state.attached and state.attached.pid})
    measured = await asyncio.to_thread(_measure, pids)
    disk = await asyncio.to_thread(shutil.disk_usage, launcher.folder)
    return {
        "version": __version__,
        "pid": os.getpid(),
        "at": stamp(log.now()),
        "started_at": stamp(since),
        "uptime_s": round(log.now() - since, 1),
        "slots": slots,
        "sessions": {
            "attached": len(pids),
            "working": sum(state.working for state in states),
            "waiting": sum(bool(state.prompts) for state in states),
            "accepted": len(await log.store.waiting()),
        },
        **measured,
        "events": _count(newest[-1][0] if newest else 0, log),
        "disk_free_bytes": disk.free,
        "damaged": [msgspec.to_builtins(damage) for damage in log.quarantine.all()],
    }


def _measure(pids: list[int]) -> dict[str, int]:
    trees = [processes.describe_tree(pid) for pid in pids]
    own = next((one.rss_bytes for one in processes.describe_tree(os.getpid())), 0)
    return {
        "processes": sum(len(tree) for tree in trees),
        "memory_bytes": own,
        "agents_memory_bytes": sum(process.rss_bytes for tree in trees for process in tree),
    }


def _count(position: int, log: Log) -> int:
    """The number of events; on a shared store the number of transactions, which also only grows."""
    return position >> TRANSACTION_BITS if log.shared is not None else position
