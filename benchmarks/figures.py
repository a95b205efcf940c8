"""CPU time and memory of a process and of the whole machine, as counted by the kernel.

Above: every scenario, and the demo in reference.py. Below: /proc (Linux only). It does no sampling, on purpose: callers
read the values before and after.
"""

import os
import time
from contextlib import suppress
from typing import NamedTuple

PROCESS_CLOCK = 2
IDLE_FIELDS = (4, 5, 8)
"""Fields in the first line of /proc/stat: idle, waiting for I/O, and stolen by the hypervisor."""
REAPED_FIELDS = (13, 14)
"""Fields of /proc/PID/stat after the name: user and system time of children that have ended."""


class Memory(NamedTuple):
    rss_bytes: int
    uss_bytes: int
    """Private pages, which would be freed if the process ended."""


class Spent(NamedTuple):
    """CPU time, in total or between two points in time."""

    server_s: float
    machine_s: float
    """All processes and the kernel. Includes work that a server moves to threads, keepers and sockets."""
    database_s: float = 0.0
    """All processes of PostgreSQL, if there is one."""

    def since(self, before: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


def spent(*pids: int, database: int | None = None) -> Spent:
    """Return the CPU time of a server, or of several nodes together. `database` is the main process of PostgreSQL."""
    return Spent(sum(map(cpu_s, pids)), machine_cpu_s(), 0.0 if database is None else family_cpu_s(database))


def cpu_s(pid: int) -> float:
    """Return the exact user and system time of all threads, without children."""
    # How Linux encodes the CPU clock of another process, like clock_getcpuclockid() in the C library.
    return time.clock_gettime((~pid << 3) | PROCESS_CLOCK)


def family_cpu_s(pid: int) -> float:
    """Return the CPU time of a process and all its children, including those that have ended."""
    with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
        children = [int(word) for word in file.read().split()]
    total = cpu_s(pid)
    for child in children:
        with suppress(OSError):  # it has ended, and is counted below
            total += cpu_s(child)
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return total + sum(int(fields[field]) for field in REAPED_FIELDS) / os.sysconf("SC_CLK_TCK")


def machine_cpu_s() -> float:
    """Return the time that all cores were not idle. Only the difference of two values is meaningful."""
    with open("/proc/stat", "rb") as file:
        fields = file.readline().split()
    # Computed from idle time: Linux measures that exactly, but only samples busy time at each tick.
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
