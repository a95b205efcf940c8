"""Scenario j: how long it takes to read, plan or fork a very long session, and how long other requests wait meanwhile.

Above: bench.py. Below: sessions written as in opening.py, and a real server. One client makes a request about a whole
session. Another one polls the health endpoint; the figure is its longest wait. GET of a session returns a page of it,
so its cost does not depend on the session's length.
"""

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.opening import EVENTS_PER_TURN, write_sessions
from benchmarks.subject import Subject
from benchmarks.table import Row
from tests.harness import LiveServer

MOST_MS = 50.0
MOST_ITSELF_MS = 1_000.0
"""Bar for a request on a session of many turns, which is read from one record per turn."""
MOST_GROWTH = 1.3
"""Bar for GET of a session of many turns, relative to one that is only a little longer than a page."""
SHORT_TURNS = 100
GETS = 50
VERBS = {"transcript": ("GET", 200), "plan": ("POST", 200), "fork": ("POST", 201)}


@contextmanager
def waiting(server: LiveServer) -> Iterator[list[float]]:
    """Collect the durations of the other requests, in ms."""
    took: list[float] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            began = time.perf_counter()
            server.http.get("/api/health")
            took.append((time.perf_counter() - began) * 1000)

    other = threading.Thread(target=ask)
    other.start()
    try:
        yield took
    finally:
        over.set()
        other.join()


def measured(place: Subject, sessions: dict[str, str]) -> list[Row]:
    """Measure the verbs. `sessions` maps a description to a session id."""
    rows: list[Row] = []
    with place as subject:
        server = subject.server
        for shape, session in sessions.items():
            server.session(session)
            for verb, (method, status) in VERBS.items():
                body = {"fresh": True} if verb == "plan" else {}
                began = time.perf_counter()
                with waiting(server) as took:
                    answer = server.http.request(
                        method, f"/api/sessions/{session}/{verb}", json=body if method == "POST" else None
                    )
                assert answer.status_code == status, answer.text
                itself_ms = (time.perf_counter() - began) * 1000
                scenario = f"j {shape}"
                most = MOST_ITSELF_MS if shape.endswith("turns") else None
                rows.append(Row(scenario=scenario, figure=f"{verb} itself", value=itself_ms, unit="ms", most=most))
                waited = f"{verb}: others wait at most"
                rows.append(Row(scenario=scenario, figure=waited, value=max(took), unit="ms", most=MOST_MS))
    return rows


def pages(place: Subject, short: str, long: str, turns: int) -> list[Row]:
    """Measure GET of a session with a hundred turns, and of one with many."""
    took: dict[str, list[float]] = {short: [], long: []}
    sizes: dict[str, int] = {}
    with place as subject:
        for _ in range(GETS):
            for session in (short, long):
                began = time.perf_counter()
                answer = subject.server.http.get(f"/api/sessions/{session}")
                took[session].append((time.perf_counter() - began) * 1000)
                sizes[session] = len(answer.content)
    base = statistics.median(took[short])
    rows = []
    for session, count in ((short, SHORT_TURNS), (long, turns)):
        scenario, is_long = f"j {count:,} turns", session == long
        value, size = statistics.median(took[session]), sizes[session]
        most_ms, most_bytes = (base * MOST_GROWTH, sizes[short] * MOST_GROWTH) if is_long else (None, None)
        note = f"{value / base:.2f} x that of {SHORT_TURNS}" if is_long else ""
        rows.append(Row(scenario=scenario, figure="GET session", value=value, unit="ms", most=most_ms, note=note))
        rows.append(Row(scenario=scenario, figure="GET session", value=size, unit="bytes", most=most_bytes))
    return rows


def long_verbs(folder: Path, agent: Path, quick: bool) -> list[Row]:
    turns, pieces = (200, 30_000) if quick else (2_000, 300_000)
    place = Subject(folder / "j", agent)
    database = place.server.data / "perdure.db"
    lengths = [SHORT_TURNS * EVENTS_PER_TURN, turns * EVENTS_PER_TURN]
    names = asyncio.run(write_sessions(database, lengths, place.workdir))
    short = names[lengths[0]]
    names |= asyncio.run(write_sessions(database, [pieces], place.workdir, one_turn=True))
    many, one = (names[turns * EVENTS_PER_TURN], names[pieces])
    rows = measured(place, {f"{turns:,} turns": many, f"one turn of {pieces:,} pieces": one})
    return [*rows, *pages(place, short, many, turns)]
