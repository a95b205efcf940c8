"""Scenario j: how long others wait while a very long session is read, planned or forked.

Above: bench.py. Below: sessions written as in opening.py, and a real server. One asks for something that concerns the
whole of a session; another asks all the time whether the server is up, and the longest that it waits is the figure.
"""

import asyncio
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
VERBS = {"transcript": ("GET", 200), "plan": ("POST", 200), "fork": ("POST", 201)}


@contextmanager
def waiting(server: LiveServer) -> Iterator[list[float]]:
    """What each of the others' requests took, in ms."""
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
    """`sessions`: what each is, and its name."""
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
                note = f"the {verb} itself took {(time.perf_counter() - began) * 1000:,.0f} ms"
                figure = f"{verb}: others wait at most"
                rows.append(
                    Row(scenario=f"j {shape}", figure=figure, value=max(took), unit="ms", most=MOST_MS, note=note)
                )
    return rows


def long_verbs(folder: Path, agent: Path, quick: bool) -> list[Row]:
    turns, pieces = (200, 30_000) if quick else (2_000, 300_000)
    place = Subject(folder / "j", agent)
    database = place.server.data / "perdure.db"
    names = asyncio.run(write_sessions(database, [turns * EVENTS_PER_TURN], place.workdir))
    names |= asyncio.run(write_sessions(database, [pieces], place.workdir, one_turn=True))
    many, one = (names[turns * EVENTS_PER_TURN], names[pieces])
    return measured(place, {f"{turns:,} turns": many, f"one turn of {pieces:,} pieces": one})
