"""What a process and the whole machine have used, as the kernel counts it.

Above: every scenario, and the demo in reference.py. Below: /proc (Linux only). It deliberately samples nothing by
itself: whoever measures reads before and after.
"""

import os
import time
from contextlib import suppress
from typing import NamedTuple

PROCESS_CLOCK = 2
IDLE_FIELDS = (4, 5, 8)
"""Of the first line of /proc/stat: idle, waiting for a disk, and given to other machines by the hypervisor."""
REAPED_FIELDS = (13, 14)
"""Of /proc/PID/stat after the name: user and system time of children that have ended."""


class Memory(NamedTuple):
    rss_bytes: int
    uss_bytes: int
    """What would be given back if the process ended: its private pages."""


class Spent(NamedTuple):
    """Processor time up to a moment, or between two."""

    server_s: float
    machine_s: float
    """Of all processes and the kernel: servers move work to threads, keepers and sockets, and none can hide it here."""
    database_s: float = 0.0
    """Of all processes of PostgreSQL, where there is one."""

    def since(self, before: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


def spent(*pids: int, database: int | None = None) -> Spent:
    """Of a server, or of several nodes together. `database` is the first process of PostgreSQL."""
    return Spent(sum(map(cpu_s, pids)), machine_cpu_s(), 0.0 if database is None else family_cpu_s(database))


def cpu_s(pid: int) -> float:
    """User and system time of all threads, exactly. Children are not counted."""
    # How Linux numbers the clock of another process; the C library's clock_getcpuclockid() does the same.
    return time.clock_gettime((~pid << 3) | PROCESS_CLOCK)


def family_cpu_s(pid: int) -> float:
    """Of a process and all its children, those that have ended included."""
    with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
        children = [int(word) for word in file.read().split()]
    total = cpu_s(pid)
    for child in children:
        with suppress(OSError):  # it has just ended, and is counted below
            total += cpu_s(child)
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return total + sum(int(fields[field]) for field in REAPED_FIELDS) / os.sysconf("SC_CLK_TCK")


def machine_cpu_s() -> float:
    """All time of all cores that was not idle. Only a difference of two means something."""
    with open("/proc/stat", "rb") as file:
        fields = file.readline().split()
    # Counted from what was idle: Linux measures that, and only samples at each tick what was busy.
    cores = os.sysconf("SC_NPROCESSORS_ONLN")
    idle = sum(int(fields[field]) for field in IDLE_FIELDS)
    return cores * time.monotonic() - idle / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> Memory:
    sizes: dict[bytes, int] = {}
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file.read().splitlines()[1:]:
            name, _, rest = line.partition(b":")
            sizes[name] = int(rest.split()[0]) * 1024
    return Memory(sizes[b"Rss"], sizes[b"Private_Clean"] + sizes[b"Private_Dirty"])
