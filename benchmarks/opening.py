"""Scenario f: how long it takes to open a very long session.

Above: bench.py. Below: the store, filled by the real state machine in this process, and then a real server on it.
Sessions are opened cold: the server was just started and has not loaded the session before.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.subject import Subject
from benchmarks.table import Row
from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.decision import Decision, World
from perdure.core.observations import AgentExited, SessionOpened, TurnFinished
from perdure.core.observe import observe
from perdure.core.resume import AgentFacts
from perdure.core.session import create, decide
from perdure.core.state import Session
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.stores.base import LaunchProgress, Owner
from perdure.stores.sqlite import SqliteStore

EVENTS_PER_TURN = 100
DELTAS_AT_ONCE = 1_000
DELTA = "some words of an answer "
ROUNDS = 5
MOST_GROWTH = 1.3
"""Bar for a session that is a hundred times as long. It allows only for noise: nothing may grow with the length."""


def world(log: Log) -> World:
    facts = AgentFacts(driver="acp", can_resume=True, workdir_id="0-0", fingerprint="load")
    return World(now=log.stamp(), facts={"load": facts})


class Writer:
    """Writes one session like a server does: the state machine decides, the log stores."""

    def __init__(self, log: Log, journal: Journal) -> None:
        self._log = log
        self._journal = journal
        self._launch_id = f"launch-{journal.state.id}"

    def _progress(self, phase: Any = "live") -> LaunchProgress:
        return LaunchProgress(self._launch_id, self._journal.state.id, "load", "acp", phase, 0, 0, 0, [], b"{}")

    async def _record(self, make: Callable[[Session, World], Decision], phase: Any = "live") -> None:
        await self._journal.record(
            lambda state: make(state, world(self._log)), progress=self._progress(phase), by_owner=True
        )

    async def _decide(self, command: cmd.Command) -> None:
        await self._record(lambda state, now: decide(state, command, now))

    async def _observe(self, fact: Any, phase: Any = "live") -> None:
        await self._record(lambda state, now: observe(state, self._launch_id, [fact], now), phase)

    async def turn(self, number: int, events: int = EVENTS_PER_TURN) -> None:
        journal = self._journal
        before = journal.last_seq
        await self._decide(cmd.SubmitMessage(message_id=f"m{number}", text=f"question {number}"))
        if journal.state.attached is None:
            launch = cmd.PrepareLaunch(
                turn=journal.state.running_turn,
                launch_id=self._launch_id,
                agent="load",
                driver="acp",
                native_session_id=None,
                workdir_id="0-0",
                fingerprint="load",
            )
            await self._decide(launch)
            await self._observe(SessionOpened("native", resumed=False))
        # Two more events end the turn.
        count = events - (journal.last_seq - before) - 2
        while count > 0:
            deltas = [ev.AssistantText(turn=number, block=0, delta=DELTA) for _ in range(min(count, DELTAS_AT_ONCE))]
            assert await journal.record_deltas(deltas, self._progress(), lambda state: state.working)
            count -= len(deltas)
        await self._observe(TurnFinished(number, "end_turn"))

    async def close(self) -> None:
        await self._observe(AgentExited(how="ended", exit_code=0), phase="gone")


async def write_sessions(
    database: Path, lengths: list[int], workdir: Path, *, one_turn: bool = False
) -> dict[int, str]:
    """Write sessions of about these lengths, in turns of a hundred events or in a single turn. Returns their ids."""
    store = SqliteStore(database)
    await store.open()
    try:
        log = Log(store)
        log.generation = await store.claim()
        log.node = Owner("here", await store.join("here", b"{}"))
        names: dict[int, str] = {}
        for length in lengths:
            name = f"s_{length}_{one_turn:d}"
            command = cmd.CreateSession(session_id=name, project=None, agent="load", workdir=str(workdir))
            writer = Writer(log, (await log.create(create(command, world(log))))[0])
            size = length if one_turn else EVENTS_PER_TURN
            for number in range(1, max(1, length // size) + 1):
                await writer.turn(number, size)
            await writer.close()
            names[length] = name
        return names
    finally:
        await store.close()


def open_cold(server: Subject, session: str) -> tuple[float, float, int]:
    """Make the two requests of the page, the stream first. Returns (first frame in ms, GET in ms, events)."""
    began = time.perf_counter()
    stream = server.server.watch(session)
    next(stream.frames())
    shown = time.perf_counter()
    answer = server.server.http.get(f"/api/sessions/{session}")
    done = time.perf_counter()
    stream.close()
    return (shown - began) * 1000, (done - shown) * 1000, int(answer.json()["event_count"])


def long_sessions(folder: Path, agent: Path, quick: bool) -> list[Row]:
    lengths = [1_000, 10_000] if quick else [1_000, 10_000, 100_000]
    place = Subject(folder / "f", agent)
    warm_up = 100
    names = asyncio.run(write_sessions(place.server.data / "perdure.db", [warm_up, *lengths], place.workdir))
    snapshots: dict[int, list[float]] = {length: [] for length in lengths}
    records: dict[int, list[float]] = {length: [] for length in lengths}
    for _ in range(2 if quick else ROUNDS):
        with place as server:
            open_cold(server, names[warm_up])
            for length in lengths:
                snapshot_ms, record_ms, events = open_cold(server, names[length])
                assert events >= length * 0.9, (events, length)
                snapshots[length].append(snapshot_ms)
                records[length].append(record_ms)
    rows: list[Row] = []
    for figure, times in (("first snapshot", snapshots), ("GET session", records)):
        shortest = statistics.median(times[lengths[0]])
        for length in lengths:
            value = statistics.median(times[length])
            growth = value / shortest
            rows.append(
                Row(
                    scenario=f"f {length:,} events",
                    figure=figure,
                    value=value,
                    unit="ms",
                    most=shortest * MOST_GROWTH if length == lengths[-1] else None,
                    note="" if length == lengths[0] else f"{growth:.2f} x that of {lengths[0]:,}",
                )
            )
    return rows
