"""What a process has used, as the kernel counts it.

Above: every scenario, and the demo in reference.py. Below: /proc (Linux only). It deliberately samples nothing by
itself: whoever measures reads before and after.
"""

import time
from typing import NamedTuple

PROCESS_CLOCK = 2


class Memory(NamedTuple):
    rss_bytes: int
    uss_bytes: int
    """What would be given back if the process ended: its private pages."""


def cpu_s(pid: int) -> float:
    """User and system time of all threads, exactly. Children are not counted."""
    # How Linux numbers the clock of another process; the C library's clock_getcpuclockid() does the same.
    return time.clock_gettime((~pid << 3) | PROCESS_CLOCK)


def memory(pid: int) -> Memory:
    sizes: dict[bytes, int] = {}
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file.read().splitlines()[1:]:
            name, _, rest = line.partition(b":")
            sizes[name] = int(rest.split()[0]) * 1024
    return Memory(sizes[b"Rss"], sizes[b"Private_Clean"] + sizes[b"Private_Dirty"])
