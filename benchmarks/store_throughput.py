"""Throughput of the SQLite store, and the latency of one append.

Each session repeatedly appends some deltas and its progress and waits for the commit: the hot path of a streaming
agent. Run: python benchmarks/store_throughput.py [--seconds 3] [--durability full] [--busy]
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from perdure.core.events import AssistantText, encode
from perdure.stores.base import Append, Draft, LaunchProgress, Listed, Store
from perdure.stores.sqlite import SqliteStore

CASES = ((1, 1), (1, 3), (10, 1), (100, 1), (100, 3))
AT = "2026-01-01T00:00:00.000Z"
DRIVER_STATE = b"x" * 500


def listed() -> Listed:
    return Listed(None, "agent", "/srv/site", "processing", "running", "A title", [], False, None, AT, b"{}")


def delta(session_id: str) -> Draft:
    event = AssistantText(at=AT, session_id=session_id, turn=1, block=0, delta="some words of an answer ")
    return Draft("assistant_text", 1, encode(event), False)


def progress(session_id: str, offset: int) -> LaunchProgress:
    return LaunchProgress(f"l-{session_id}", session_id, "agent", "acp", "live", offset, 1, 3, [], DRIVER_STATE)


async def create(store: Store, session_id: str, generation: int) -> None:
    created = Draft("session_created", None, b'{"type":"session_created"}', True)
    await store.append(
        Append(session_id=session_id, generation=generation, expect=0, events=[created], state=b"{}", listed=listed())
    )


async def append_for(store: Store, session_id: str, generation: int, deltas: int, until: float) -> list[float]:
    """Append until a point in time, and return the latencies in seconds."""
    events = [delta(session_id)] * deltas
    latencies: list[float] = []
    now = time.perf_counter()
    while now < until:
        at = progress(session_id, len(latencies))
        await store.append(
            Append(session_id=session_id, generation=generation, expect=None, events=events, progress=at)
        )
        before, now = now, time.perf_counter()
        latencies.append(now - before)
    return latencies


async def be_busy() -> None:
    """Simulate other work on the event loop: half a millisecond at a time, as often as possible."""
    while True:
        until = time.perf_counter() + 0.0005
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0)


async def measure(sessions: int, deltas: int, arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        store = SqliteStore(Path(directory) / "perdure.db", durability=arguments.durability)
        await store.open()
        generation = await store.claim()
        load = asyncio.create_task(be_busy()) if arguments.busy else None
        begin, cpu = time.perf_counter(), time.process_time()
        until = begin + arguments.seconds
        names = [f"s-{number}" for number in range(sessions)]
        await asyncio.gather(*[create(store, name, generation) for name in names])
        runs = [append_for(store, name, generation, deltas, until) for name in names]
        latencies = sorted(value for run in await asyncio.gather(*runs) for value in run)
        took, cpu = time.perf_counter() - begin, time.process_time() - cpu
        if load is not None:
            load.cancel()
        await store.close()
    rate = len(latencies) * deltas / took
    assert latencies, "no append finished in time"
    p50, p99 = (latencies[int(len(latencies) * share)] * 1000 for share in (0.5, 0.99))
    print(f"{sessions:8} {deltas:7} {rate:10,.0f} {p50:8.3f} {p99:8.3f} {latencies[-1] * 1000:8.1f} {cpu / took:6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--durability", choices=("normal", "full"), default="normal")
    parser.add_argument("--directory", help="folder for the database; default: the system's temporary folder")
    parser.add_argument("--switch-interval-s", type=float, default=sys.getswitchinterval())
    parser.add_argument("--busy", action="store_true", help="keep the event loop busy with other work")
    arguments = parser.parse_args()
    sys.setswitchinterval(arguments.switch_interval_s)
    print(f"SQLite, synchronous {arguments.durability}; latency of append() in milliseconds")
    print(f"{'sessions':>8} {'deltas':>7} {'events/s':>10} {'p50':>8} {'p99':>8} {'max':>8} {'cores':>6}")
    for sessions, deltas in CASES:
        asyncio.run(measure(sessions, deltas, arguments))


if __name__ == "__main__":
    main()
