"""Scenario k: several nodes on one PostgreSQL, after the PostgreSQL store alone.

Above: bench.py. Below: a private PostgreSQL with durable commits, the store in this process (postgres_store.py), and
real servers as nodes (subject.py) with the load agent. Each session has a viewer on another node, so this measures the
whole path: the agent's pipe, its owner, the commit, the wake-up of the other node, its read from the database, and the
viewer's socket. Nodes, agents, viewers and PostgreSQL share the cores of this machine, so more nodes have no more CPU
here and only add cost.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks import postgres_store, streaming, subject
from benchmarks.reference import Outcome
from benchmarks.streaming import Load
from benchmarks.subject import Subject
from benchmarks.table import Row
from tests import postgres

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "autovacuum_naptime": "1min",
}
"""PostgreSQL's defaults, which the servers of the tests override."""
LOADS = ((1, 10), (2, 10), (4, 10), (2, 20), (1, 100), (2, 100), (4, 100))
"""(nodes, sessions)"""
QUICK_LOADS = ((1, 10), (2, 10), (2, 20), (4, 10))
PER_S = 50
MOST_P95_MS = {(2, 20): 40.0}


def lack() -> str | None:
    """Return why this can't run here, or None. An existing PostgreSQL server is not enough."""
    return postgres.lack() or (None if postgres.binaries() else "needs PostgreSQL: install it (Debian: postgresql)")


def several_nodes(folder: Path, agent: Path, quick: bool) -> list[Row]:
    if reason := lack():
        sys.stderr.write(f"k skipped: {reason}\n")
        return []
    with postgres.private_server(**SETTINGS) as database:
        rows = postgres_store.rows(database, folder / "k-store", 1.0 if quick else 5.0, 3 if quick else 15)
        alone: dict[int, Outcome] = {}
        for nodes, sessions in QUICK_LOADS if quick else LOADS:
            load = Load(viewers=sessions, per_s=PER_S, count=100 if quick else 500, sessions=sessions)
            found = run(database, folder / f"k-{nodes}-{sessions}", agent, nodes, load)
            rows += lag_and_cost(nodes, load, found, alone.get(sessions))
            if nodes == 1:
                alone[sessions] = found
    return rows


def run(database: postgres.Server, folder: Path, agent: Path, nodes: int, load: Load) -> Outcome:
    assert database.process is not None
    with ExitStack() as stack:
        url = stack.enter_context(postgres_store.new_database(database))
        places = [Subject(folder / f"node-{number}", agent, url) for number in range(nodes)]
        return subject.stream_over(
            [stack.enter_context(place) for place in places],
            viewers=load.viewers,
            per_s=load.per_s,
            count=load.count,
            sessions=load.sessions,
            database=database.process.pid,
        )


def lag_and_cost(nodes: int, load: Load, found: Outcome, alone: Outcome | None) -> list[Row]:
    """Return the rows of one load. `alone` is the outcome of the same sessions on one node."""

    def row(figure: str, of: Callable[[Outcome], float], most: float | None = None) -> Row:
        return Row(
            scenario="k",
            figure=figure,
            value=of(found),
            unit="ms",
            reference=None if alone is None else of(alone),
            against="1 node",
            most=most,
        )

    most = MOST_P95_MS.get((nodes, load.sessions))
    rows = [
        row("lag p50", lambda one: one.report.p50_ms),
        row("lag p95", lambda one: one.report.p95_ms, most),
        row("lag p99", lambda one: one.report.p99_ms),
        # Microseconds per event equal milliseconds per 1,000 events.
        row("CPU per 1,000 events, all nodes", lambda one: one.us_per_delivery),
        row("CPU per 1,000 events, PostgreSQL", lambda one: one.database_us_per_delivery),
    ]
    rows[0].scenario = f"k {nodes} node{'s' if nodes > 1 else ''}, {load.sessions} sessions x {load.per_s}/s"
    if found.report.skipped:
        rows[0].note = f"{found.report.skipped} events came as snapshots"
    return [*rows, *streaming.faults("k", load, found)]
