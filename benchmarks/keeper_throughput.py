"""How fast a keeper copies an agent's lines to its spool, and the round-trip time of one line.

    PYTHONPATH=src python benchmarks/keeper_throughput.py [LINES]

Prints figures and asserts nothing.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from perdure.runtime.keeping.launch import Launch, LaunchLimits, LaunchSpec

LINE_BYTES = 100
ROUND_TRIPS = 2000
TIMEOUT_S = 120.0


def start(root: Path, name: str, argv: list[str]) -> Launch:
    limits = LaunchLimits(disk_floor_bytes=0)
    return Launch.create(root, LaunchSpec(name, argv, {"PATH": os.environ["PATH"]}, "/", limits))


async def flood(root: Path, lines: int) -> None:
    launch = start(root, "flood", ["sh", "-c", f"read go; yes {'x' * (LINE_BYTES - 1)} | head -n {lines}"])
    over = asyncio.Event()
    position = 0

    def read() -> None:
        nonlocal position
        while chunk := launch.read(position, 1024 * 1024):
            position += len(chunk)
        launch.acknowledge(position)

    await launch.connect(read, over.set, TIMEOUT_S)
    began = time.perf_counter()
    launch.write([b"go\n"])
    async with asyncio.timeout(TIMEOUT_S):
        await over.wait()
    read()
    took = time.perf_counter() - began
    print(f"flood: {position // LINE_BYTES / took:,.0f} lines/s, {position / took / 1e6:,.0f} MB/s")
    await launch.wait_gone(TIMEOUT_S)
    await launch.forget()


async def round_trips(root: Path) -> None:
    began = time.perf_counter()
    launch = start(root, "echo", ["cat"])
    heard = asyncio.Event()
    closed = asyncio.Event()
    await launch.connect(heard.set, closed.set, TIMEOUT_S)
    position, took_ms = 0, []
    for number in range(ROUND_TRIPS + 1):
        sent = time.perf_counter()
        launch.write([b"%d\n" % number])
        async with asyncio.timeout(TIMEOUT_S):
            while not (chunk := launch.read(position, 4096)):
                heard.clear()
                await heard.wait()
        position += len(chunk)
        took_ms.append((time.perf_counter() - sent) * 1000)
        if number == 0:
            print(f"start: {(time.perf_counter() - began) * 1000:.0f} ms to the first answer")
            took_ms.clear()
    took_ms.sort()
    p99 = took_ms[len(took_ms) * 99 // 100]
    print(f"round trip: median {statistics.median(took_ms):.3f} ms, p99 {p99:.3f} ms")
    launch.end(5, 5)
    async with asyncio.timeout(TIMEOUT_S):
        await closed.wait()
    await launch.wait_gone(TIMEOUT_S)
    await launch.forget()


async def measure(lines: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await flood(Path(folder), lines)
        await round_trips(Path(folder))


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000))
