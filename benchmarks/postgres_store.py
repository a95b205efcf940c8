"""Scenario k, first part: throughput of the PostgreSQL store, compared with SQLite and with COPY into PostgreSQL.

Above: nodes.py, which starts the PostgreSQL. Below: both stores in this process, with the load of store_throughput.py.
There is no server and no agent here, so the figures show the store's share of a node's cost. COPY with one commit at
the end is the fastest way to fill a table; it shows the limit of this PostgreSQL and its disk.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks.figures import family_cpu_s
from benchmarks.store_throughput import append_for, create, delta, progress
from benchmarks.table import Row
from perdure.stores.base import Append, Store
from perdure.stores.sqlite import SqliteStore
from tests.postgres import Server, Shared, drop_database, make_database

DELTAS = 5
"""Deltas per step."""
CROWDS = (100, 10)
PACED_SESSIONS = 1000
PACED_LEAD_S = 0.2
LEAST_OF_COPY = 0.2
LEAST_OF_PACE = 0.95
COMMITS = 100
COPY_MAX_EVENTS = 300_000
"""Limit, because all events are in memory before they are sent."""
COLUMNS = "session_key, seq, turn, decisive, type, body"
# psycopg, and modules that import it, are imported in functions: the other scenarios run without it.


class Timed(NamedTuple):
    """The number of events stored in a time span, and the latencies."""

    events: int
    took_s: float
    latencies_s: list[float]


class Measured(NamedTuple):
    timed: Timed
    own_s: float
    """CPU time of this process: the store, and the small load generator."""
    database_s: float

    @property
    def per_s(self) -> float:
        return self.timed.events / self.timed.took_s

    @property
    def own_ms(self) -> float:
        """CPU time per 1,000 events."""
        return self.own_s / self.timed.events * 1e6

    @property
    def database_ms(self) -> float:
        return self.database_s / self.timed.events * 1e6

    def latency_ms(self, share: float) -> float:
        ordered = sorted(self.timed.latencies_s)
        return ordered[int(len(ordered) * share)] * 1000


class Clock:
    """CPU time of this process and of a PostgreSQL since the clock was created."""

    def __init__(self, server: Server) -> None:
        assert server.process is not None
        self._pid = server.process.pid
        self._begun = self._now()

    def _now(self) -> tuple[float, float]:
        return time.process_time(), family_cpu_s(self._pid)

    def measured(self, timed: Timed) -> Measured:
        own, database = (now - then for now, then in zip(self._now(), self._begun, strict=True))
        return Measured(timed, own, database)


@contextmanager
def new_database(server: Server) -> Iterator[str]:
    """Create an empty database and yield its URL. That makes a checkpoint, so measurements start right after one."""
    shared = Shared(server.url())
    name = make_database(shared, prefix="perdure_bench")
    try:
        yield server.url(name)
    finally:
        drop_database(shared, name)


@asynccontextmanager
async def with_sessions(store: Store, count: int) -> AsyncIterator[tuple[int, list[str]]]:
    """Open a store with `count` sessions. Yields its generation and the session ids."""
    await store.open()
    try:
        generation = await store.claim()
        names = [f"s-{number}" for number in range(count)]
        await asyncio.gather(*[create(store, name, generation) for name in names])
        yield generation, names
    finally:
        await store.close()


def as_fast_as_kept(server: Server, sessions: int, seconds: float, store: Store) -> Measured:
    """Each session appends, waits for the commit, and appends again."""

    async def work() -> Measured:
        async with with_sessions(store, sessions) as (generation, names):
            clock = Clock(server)
            begun = time.perf_counter()
            runs = [append_for(store, name, generation, DELTAS, begun + seconds) for name in names]
            latencies = [latency for run in await asyncio.gather(*runs) for latency in run]
            return clock.measured(Timed(len(latencies) * DELTAS, time.perf_counter() - begun, latencies))

    return uvloop.run(work())


def once_a_second(server: Server, sessions: int, seconds: int, store: Store) -> Measured:
    """Each session appends one event per second, evenly spread over time."""

    async def work() -> Measured:
        async with with_sessions(store, sessions) as (generation, names):
            latencies: list[float] = []
            begin = time.perf_counter() + PACED_LEAD_S

            async def session(number: int, name: str) -> None:
                events = [delta(name)]
                for step in range(seconds):
                    # The schedule is absolute: a late append does not delay the next one.
                    await asyncio.sleep(max(0.0, begin + step + number / sessions - time.perf_counter()))
                    asked = time.perf_counter()
                    await store.append(
                        Append(
                            session_id=name,
                            generation=generation,
                            expect=None,
                            events=events,
                            progress=progress(name, step),
                        )
                    )
                    latencies.append(time.perf_counter() - asked)

            clock = Clock(server)
            await asyncio.gather(*[session(number, name) for number, name in enumerate(names)])
            return clock.measured(Timed(len(latencies), time.perf_counter() - begin, latencies))

    return uvloop.run(work())


def copied(server: Server, sessions: int, events: int) -> tuple[Measured, float]:
    """Measure COPY of the same rows, in the same order, into a table with the same columns and primary key. Also
    returns the duration of a commit of one row, in ms."""
    import psycopg

    from perdure.stores.postgres import PostgresStore

    async def migrate(url: str) -> None:
        store = PostgresStore(url)
        await store.open()
        await store.close()

    bodies = ["\\\\x" + delta(f"s-{number}").body.hex() for number in range(sessions)]
    blocks = [
        "".join(
            f"{number}\t{seq}\t1\tf\tassistant_text\t{body}\n"
            for number, body in enumerate(bodies)
            for seq in range(first, first + DELTAS)
        ).encode()
        for first in range(1, max(1, min(events, COPY_MAX_EVENTS) // sessions) + 1, DELTAS)
    ]
    rows = len(blocks) * sessions * DELTAS
    with new_database(server) as url:
        uvloop.run(migrate(url))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE copied (LIKE events, PRIMARY KEY (session_key, seq))")
            clock = Clock(server)
            begun = time.perf_counter()
            with connection.cursor() as cursor, cursor.copy(f"COPY copied ({COLUMNS}) FROM STDIN") as copy:
                for block in blocks:
                    copy.write(block)
            measured = clock.measured(Timed(rows, time.perf_counter() - begun, []))
            commits: list[float] = []
            for seq in range(COMMITS):
                begun = time.perf_counter()
                connection.execute(f"INSERT INTO copied ({COLUMNS}) VALUES (-1, %s, 1, false, 'x', 'x')", (seq,))
                commits.append(time.perf_counter() - begun)
    return measured, statistics.median(commits) * 1000


def beside(server: Server, folder: Path, measure: Callable[[Store], Measured]) -> tuple[Measured, Measured]:
    """Measure PostgreSQL and SQLite, each with an empty database."""
    from perdure.stores.postgres import PostgresStore

    with new_database(server) as url:
        ours = measure(PostgresStore(url))
    folder.mkdir(parents=True)
    return ours, measure(SqliteStore(folder / "perdure.db"))


def latency_and_cost(ours: Measured, sqlite: Measured) -> list[Row]:
    both = [
        ("append p50", ours.latency_ms(0.5), sqlite.latency_ms(0.5)),
        ("append p99", ours.latency_ms(0.99), sqlite.latency_ms(0.99)),
        ("CPU per 1,000 events, the store", ours.own_ms, sqlite.own_ms),
    ]
    return [
        Row(scenario="k", figure=figure, value=value, unit="ms", reference=reference, against="SQLite")
        for figure, value, reference in both
    ]


def crowd_rows(sessions: int, ours: Measured, sqlite: Measured, copy: Measured) -> list[Row]:
    kept, figure = ours.per_s / 1000, "events stored"
    least = LEAST_OF_COPY if sessions == CROWDS[0] else None
    return [
        Row(
            scenario=f"k store, {sessions} sessions",
            figure=figure,
            value=kept,
            unit="k/s",
            reference=sqlite.per_s / 1000,
            against="SQLite",
        ),
        Row(
            scenario="k",
            figure=figure,
            value=kept,
            unit="k/s",
            reference=copy.per_s / 1000,
            against="COPY",
            least=least,
            of_reference=least is not None,
        ),
        *latency_and_cost(ours, sqlite),
        Row(
            scenario="k",
            figure="CPU per 1,000 events, PostgreSQL",
            value=ours.database_ms,
            unit="ms",
            reference=copy.database_ms,
            against="COPY",
        ),
    ]


def paced_rows(sessions: int, ours: Measured, sqlite: Measured) -> list[Row]:
    return [
        Row(
            scenario=f"k store, {sessions:,} sessions x 1/s",
            figure="events stored",
            value=ours.per_s,
            unit="/s",
            reference=sqlite.per_s,
            against="SQLite",
            least=LEAST_OF_PACE * sessions,
        ),
        *latency_and_cost(ours, sqlite),
        Row(scenario="k", figure="CPU per 1,000 events, PostgreSQL", value=ours.database_ms, unit="ms"),
    ]


def rows(server: Server, folder: Path, seconds: float, paced_s: int, paced: int = PACED_SESSIONS) -> list[Row]:
    found: list[Row] = []
    copy: Measured | None = None
    for sessions in CROWDS:
        ours, sqlite = beside(server, folder / f"{sessions}", partial(as_fast_as_kept, server, sessions, seconds))
        if copy is None:
            copy, commit_ms = copied(server, sessions, ours.timed.events)
        found += crowd_rows(sessions, ours, sqlite, copy)
    found.append(Row(scenario="k", figure="commit of one row, p50", value=commit_ms, unit="ms"))
    ours, sqlite = beside(server, folder / "paced", partial(once_a_second, server, paced, paced_s))
    return found + paced_rows(paced, ours, sqlite)
