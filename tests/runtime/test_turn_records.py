"""Histories read from turn records equal histories read from the log, whatever happened in a session."""

import asyncio
import sqlite3
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.decision import Decision
from perdure.core.history import Gathered, take_over
from perdure.core.session import create
from perdure.core.transcript import History
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.log.reading import of_turns, read_records, said_in_turns
from perdure.stores.base import Owner, Records, Store
from perdure.stores.sqlite import SqliteStore
from tests.core.stage import world
from tests.core.test_interleavings import Sessions
from tests.runtime.logs import opened
from tests.sizes import size

LATEST = 10**6


def shown(history: History) -> dict[int, Any]:
    """Everything that a history shows of each turn; a turn with nothing to show is left out."""
    found = {}
    for turn, view in history.views.items():
        about = view.message, view.show(), history.agents.get(turn), history.stop_reasons.get(turn)
        if any(about):
            found[turn] = about
    return found


async def from_the_log(store: Store, first: int, last: int | None, upto: int) -> dict[int, Any]:
    history = History()
    async for batch in of_turns(store, "s", first, last, upto):
        for row in batch:
            history.fold(ev.decode(row.body))
    return shown(history)


async def from_records(store: Store, first: int, last: int | None, upto: int) -> dict[int, Any]:
    history, gathered = History(), Gathered()
    async for events in said_in_turns(store, "s", first, last, upto):
        for event in events:
            history.fold(event)
        gathered.add(events)
    forked = History()
    for joined in gathered.all():
        forked.fold(joined)
    assert shown(forked) == shown(history)
    return shown(history)


class Recorded(Sessions):
    """The same sessions, stored as a server does it. The server restarts now and then."""

    loop: asyncio.AbstractEventLoop
    journal: Journal | None

    @initialize(title=st.just(""), single_shot=st.just(False))
    def begin(self, title: str, single_shot: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.store = SqliteStore(Path(self.folder.name) / "perdure.db")
        self.loop.run_until_complete(self.store.open())
        self.server: Log = self.loop.run_until_complete(opened(self.store))
        self.journal = None
        super().begin(title, single_shot)

    def _keep(self, decision: Decision) -> None:
        super()._keep(decision)
        self.loop.run_until_complete(self._record(decision))

    async def _record(self, decision: Decision) -> None:
        if self.journal is None:
            self.journal, _ = await self.server.create(decision)
        else:
            await self.journal.record(lambda _: decision)

    @rule()
    def the_server_is_started_again(self) -> None:
        self.loop.run_until_complete(self._start_again())

    async def _start_again(self) -> None:
        self.server = Log(self.store)
        self.server.generation = await self.store.claim()
        self.server.node = Owner("here", await self.store.join("here", b"{}"))
        self.journal = await self.server.open("s")

    @rule(first=st.integers(1, 6), turns=st.integers(0, 5), back=st.integers(0, 30))
    def some_turns_are_read(self, first: int, turns: int, back: int) -> None:
        assert self.journal is not None
        self.loop.run_until_complete(self._compare(first, first + turns, max(0, self.journal.last_seq - back)))

    async def _compare(self, first: int, last: int | None, upto: int) -> None:
        expected = await from_the_log(self.store, first, last, upto)
        assert await from_records(self.store, first, last, upto) == expected

    async def _all_have_records(self) -> None:
        ended = {event.turn for event in self.log if isinstance(event, ev.TurnEnd)}
        found = await self.store.read_records("s", 1, None, LATEST, limit=LATEST)
        assert {record.turn for record in found.kept} == ended

    def teardown(self) -> None:
        try:
            self.loop.run_until_complete(self._compare(1, None, LATEST))
            self.loop.run_until_complete(self._all_have_records())
        finally:
            self.loop.run_until_complete(self.store.close())
            self.loop.close()
            self.folder.cleanup()


TestRecorded = Recorded.TestCase
TestRecorded.settings = settings(
    max_examples=size("RECORDED_SESSIONS", 100, fast=15), stateful_step_count=40, deadline=None
)


async def test_a_turn_whose_record_is_damaged_or_missing_is_read_from_the_log(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "perdure.db")
    await store.open()
    try:
        log = await opened(store)
        await _four_turns(log)
        expected = await from_the_log(store, 1, None, LATEST)
        assert len(expected) == 4 and await from_records(store, 1, None, LATEST) == expected
        every = (await store.read_records("s", 1, None, LATEST, limit=9)).kept
        assert len(every) == 4
        for statement in (
            "UPDATE turn_records SET record = x'00' WHERE turn = 1",
            "UPDATE turn_records SET record = (SELECT record FROM turn_records WHERE turn = 3) WHERE turn = 2",
            "UPDATE turn_records SET size = 'x' WHERE turn = 4",
            "DELETE FROM turn_records",
        ):
            await store._writer.submit(partial(_execute, statement))
            assert await from_records(store, 1, None, LATEST) == expected
            assert shown(await log.history("s")) == expected
    finally:
        await store.close()


def _execute(statement: str, connection: sqlite3.Connection) -> None:
    connection.execute(statement)


async def _four_turns(log: Log) -> None:
    made = create(cmd.CreateSession(session_id="s", project=None, agent="alpha", workdir="/srv"), world())
    for turn in range(1, 5):
        began: dict[str, Any] = {"context": "fresh", "context_reason": ""}
        events: list[ev.Event] = [
            ev.UserMessage(turn=turn, message_id=f"m{turn}", text=f"say {turn}", agent="alpha"),
            ev.TurnStart(turn=turn, run_id=f"r{turn}", message_id=f"m{turn}", agent="alpha", **began),
            ev.AssistantText(turn=turn, block=0, delta=f"said {turn}"),
            ev.TurnEnd(turn=turn, stop_reason="end_turn"),
        ]
        take_over(made, events, {turn})
    await log.create(made)


def test_without_records_nothing_is_read() -> None:
    assert list(read_records("s", Records([], []), LATEST)) == []
