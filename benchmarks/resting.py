"""Scenario e: what an idle server costs, and how fast it starts.

Above: bench.py. Below: a real server. Starts are measured with compiled bytecode, which every start except the first
after an installation has.
"""

import statistics
import time
from pathlib import Path

from benchmarks.figures import cpu_s, memory
from benchmarks.subject import Subject
from benchmarks.table import Row

STARTS = 5
EVICTED_AFTER_S = 34.0
"""The server evicts an unused session after 30 s, and checks once a second."""
QUIET_S = 3.0
WARM_UP_SESSIONS = 300
MIB = 1024 * 1024


def starts(folder: Path, agent: Path, quick: bool) -> list[Row]:
    took_s: list[float] = []
    for number in range(2 if quick else STARTS + 1):
        began = time.perf_counter()
        with Subject(folder / "e-start", agent) as server:
            took_s.append(time.perf_counter() - began)
            server.server.get("/api/sessions")
            if number == 1:
                rss = memory(server.pid).rss_bytes / MIB
                before = cpu_s(server.pid)
                time.sleep(QUIET_S)
                idle = (cpu_s(server.pid) - before) / QUIET_S * 1000
    return [
        Row(
            scenario="e start and rest",
            figure="start to ready",
            value=statistics.median(took_s[1:]),
            unit="s",
            most=0.8,
        ),
        Row(scenario="e", figure="idle memory (RSS)", value=rss, unit="MB", most=70),
        Row(scenario="e", figure="idle CPU", value=idle, unit="ms/s"),
    ]


def idle_sessions(folder: Path, agent: Path, quick: bool, count: int = 1000) -> list[Row]:
    """Measure memory per session without viewers: right after its creation, and after the server has evicted it."""
    with Subject(folder / "e-idle", agent) as server:
        # The first ones pay for one-time allocations: pools, statements, caches, the store's checkpoints.
        for _ in range(WARM_UP_SESSIONS):
            server.create()
        before = memory(server.pid).uss_bytes
        begun = time.perf_counter()
        for _ in range(count):
            server.create()
        per_s = count / (time.perf_counter() - begun)
        in_memory = (memory(server.pid).uss_bytes - before) / count / 1024
        rows = [
            Row(scenario=f"e {count} sessions", figure="created one by one", value=per_s, unit="/s"),
            Row(scenario="e", figure="memory per session, just used", value=in_memory, unit="KB"),
        ]
        if not quick:
            time.sleep(EVICTED_AFTER_S)
            resting = (memory(server.pid).uss_bytes - before) / count / 1024
            rows.append(Row(scenario="e", figure="memory per idle session", value=resting, unit="KB", most=10))
    return rows
