"""What a process has used, as the kernel counts it.

Above: the harness and the demo in reference.py. Below: /proc (Linux only). It deliberately samples nothing by itself:
whoever measures reads before and after.
"""

import os
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Memory(NamedTuple):
    rss_bytes: int
    uss_bytes: int
    """What would be given back if the process ended: its private pages."""


def cpu_s(pid: int) -> float:
    """User and system time of all threads, in steps of 10 ms. Children are not counted."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name, in parentheses, may hold spaces.
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory(pid: int) -> Memory:
    sizes: dict[bytes, int] = {}
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file.read().splitlines()[1:]:
            name, _, rest = line.partition(b":")
            sizes[name] = int(rest.split()[0]) * 1024
    return Memory(sizes[b"Rss"], sizes[b"Private_Clean"] + sizes[b"Private_Dirty"])
