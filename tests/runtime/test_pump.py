"""The pump: output of many agents is stored in one commit and shown, and no source affects another."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.errors import Conflict, Fenced, StoreBusy, StoreError
from perdure.core.session import create, decide
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.running.pump import RATE_OVER_S, TICK_MAX_S, Batch, Pump
from perdure.stores.base import Append, Kept, LaunchProgress
from perdure.stores.sqlite import SqliteStore
from tests.core.stage import world
from tests.runtime.logs import opened

WAIT_S = 20


class CountedStore(SqliteStore):
    """Counts commits, and can be told to refuse `append_now`, or to fail."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.groups: list[int] = []
        self.is_slow = False
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self.fails: dict[str, Exception] = {}
        self.bug: Exception | None = None

    def append_now(self, steps: Any) -> list[Kept | Exception] | None:
        if self.is_slow:
            return None
        if self.bug is not None:
            raise self.bug
        self.groups.append(len(steps))
        return self._with_failures(steps, super().append_now([step for step in steps if not self._fails(step)]))

    async def append_all(self, steps: Any) -> list[Kept | Exception]:
        await self.may_commit.wait()
        if self.bug is not None:
            raise self.bug
        self.groups.append(len(steps))
        kept = await super().append_all([step for step in steps if not self._fails(step)])
        made = self._with_failures(steps, kept)
        assert made is not None
        return made

    def _fails(self, step: Append) -> bool:
        return step.session_id in self.fails

    def _with_failures(self, steps: Any, kept: list[Kept | Exception] | None) -> list[Kept | Exception] | None:
        if kept is None:
            return None
        made = iter(kept)
        return [self.fails[step.session_id] if self._fails(step) else next(made) for step in steps]


class Source:
    """A source that produces text when the test tells it to."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.words: list[str] = []
        self.offset = self.stored_offset = 0
        self.errors: list[Exception] = []
        self.is_broken = False
        self.changed = asyncio.Event()

    def collect(self) -> Batch | None:
        if self.is_broken:
            raise ZeroDivisionError
        if not self.words or not self.journal.takes_deltas:
            return None
        said, self.words = self.words[0], self.words[1:]
        self.offset += len(said)
        name = self.journal.state.id
        row = LaunchProgress(f"launch-{name}", name, "alpha", "acp", "live", self.offset, 0, 0, [], b"")
        return Batch(self, [ev.AssistantText(turn=1, block=0, delta=said)], row, self.offset, bool(self.words))

    def stored(self, batch: Batch) -> None:
        self.stored_offset = batch.freeable
        self.changed.set()

    def rejected(self, batch: Batch, error: Exception) -> None:
        self.failed(error)

    def failed(self, error: Exception) -> None:
        self.errors.append(error)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CountedStore]:
    made = CountedStore(tmp_path / "perdure.db")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def log(store: CountedStore) -> Log:
    return await opened(store)


@pytest.fixture
async def pump(log: Log) -> AsyncIterator[Pump]:
    made = Pump(log)
    made.start()
    yield made
    await made.stop()


async def source(log: Log, name: str) -> Source:
    """A session in its first turn."""
    made = create(cmd.CreateSession(session_id=name, project=None, agent="alpha", workdir="/srv"), world())
    decision = decide(made.state, cmd.SubmitMessage(message_id="m", text="go"), world())
    decision.events[:0] = made.events
    return Source((await log.create(decision))[0])


async def said(store: CountedStore, name: str) -> str:
    rows = await store.read(name, 0, limit=1_000)
    events = [ev.decode(row.body) for row in rows if row.type == "assistant_text"]
    return "".join(event.delta for event in events if isinstance(event, ev.AssistantText))


async def test_output_of_several_sources_is_one_commit(store: CountedStore, log: Log, pump: Pump) -> None:
    sources = [await source(log, f"s{number}") for number in range(5)]
    for one in sources:
        one.words = ["word "]
        pump.ready(one)
    for one in sources:
        await one.until(lambda one=one: one.stored_offset == 5)  # type: ignore[misc]
    assert store.groups == [5]
    assert [await said(store, f"s{number}") for number in range(5)] == ["word "] * 5
    assert {row.offset for row in await store.launches()} == {5}


async def test_a_source_is_read_until_it_has_no_more(store: CountedStore, log: Log, pump: Pump) -> None:
    one = await source(log, "s")
    one.words = [f"{number} " for number in range(20)]
    expected = "".join(one.words)
    pump.ready(one)
    await one.until(lambda: one.stored_offset == len(expected))
    assert await said(store, "s") == expected


async def test_nothing_is_read_while_a_commit_is_in_progress(store: CountedStore, log: Log, pump: Pump) -> None:
    one, other = await source(log, "s"), await source(log, "t")
    store.is_slow = True
    store.may_commit.clear()
    one.words = other.words = ["first ", "second "]
    pump.ready(one)
    for _ in range(5):
        await asyncio.sleep(0)
    assert one.journal.is_writing
    pump.ready(other)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (one.offset, other.offset) == (6, 0)
    settled = asyncio.create_task(pump.settled(one))
    await asyncio.sleep(0)
    assert not settled.done()
    store.may_commit.set()
    await settled
    await one.until(lambda: one.stored_offset == 13)
    await other.until(lambda: other.stored_offset == 13)
    assert not one.journal.is_writing
    assert [await said(store, name) for name in "st"] == ["first second "] * 2


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("error", [Conflict("no"), StoreBusy("no"), Fenced("no"), StoreError("who knows")])
async def test_a_rejected_step_affects_only_its_own_source(
    store: CountedStore, log: Log, pump: Pump, error: Exception, is_slow: bool
) -> None:
    one, other = await source(log, "s"), await source(log, "t")
    store.is_slow, store.fails = is_slow, {"s": error}
    one.words, other.words = ["lost "], ["kept "]
    pump.ready(one)
    pump.ready(other)
    await one.until(lambda: one.errors == [error])
    await other.until(lambda: other.stored_offset == 5)
    assert [await said(store, name) for name in "st"] == ["", "kept "]
    # It is unknown whether the last one was stored: the next step reads first.
    assert one.journal.is_stale == (type(error) is StoreError)


async def test_a_session_that_is_being_written_to_is_left_to_its_runner(
    store: CountedStore, log: Log, pump: Pump
) -> None:
    one = await source(log, "s")
    async with one.journal.alone():
        one.words = ["word "]
        pump.ready(one)
        for _ in range(10):
            await asyncio.sleep(0)
        assert one.offset == 0
    pump.ready(one)
    await one.until(lambda: one.stored_offset == 5)


async def test_deltas_of_another_log_are_read_before_later_ones_are_shown(
    store: CountedStore, log: Log, pump: Pump
) -> None:
    one = await source(log, "s")
    foreign = ev.AssistantText(turn=1, block=0, delta="theirs ")
    step = one.journal.delta_step([foreign], LaunchProgress("x", "s", "alpha", "acp", "live", 0, 0, 0, [], b""), "now")
    await store.append(step)
    before = one.journal.last_seq
    one.words = ["ours "]
    pump.ready(one)
    await one.until(lambda: one.stored_offset == 5)
    await one.journal.catch_up()
    shown = b"".join(frame for _, frame in one.journal.frames_since(before) or [])
    assert one.journal.last_seq == before + 2
    assert shown.index(b"theirs ") < shown.index(b"ours ")


async def test_a_bug_in_one_source_stops_neither_the_pump_nor_the_others(
    store: CountedStore, log: Log, pump: Pump, caplog: pytest.LogCaptureFixture
) -> None:
    broken, one = await source(log, "s"), await source(log, "t")
    broken.is_broken = True
    one.words = ["word "]
    pump.ready(broken)
    pump.ready(one)
    await one.until(lambda: one.stored_offset == 5)
    assert "session s: the pump failed" in caplog.text
    assert [type(error) for error in broken.errors] == [ZeroDivisionError] and broken.journal.is_stale
    assert store.groups == [1]


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_bug_in_the_store_reaches_every_source_that_had_output_and_the_pump_continues(
    store: CountedStore, log: Log, pump: Pump, is_slow: bool
) -> None:
    sources = [await source(log, name) for name in "st"]
    store.is_slow, store.bug = is_slow, ZeroDivisionError()
    for one in sources:
        one.words = ["lost "]
        pump.ready(one)
    for one in sources:
        await one.until(lambda one=one: one.errors == [store.bug])  # type: ignore[misc]
        assert one.stored_offset == 0 and one.journal.is_stale
    store.bug = None
    for one in sources:
        await one.journal.catch_up()
        one.words = ["word "]
        pump.ready(one)
    for one in sources:
        await one.until(lambda one=one: one.stored_offset > 0)  # type: ignore[misc]
    assert [await said(store, name) for name in "st"] == ["word ", "word "]


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("part", ["delta_step", "show_deltas"])
async def test_an_error_in_one_sources_output_reaches_only_that_source(
    store: CountedStore, log: Log, pump: Pump, monkeypatch: pytest.MonkeyPatch, part: str, is_slow: bool
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    broken, one = await source(log, "s"), await source(log, "t")
    store.is_slow = is_slow
    monkeypatch.setattr(broken.journal, part, fails)
    for each in (broken, one):
        each.words = ["word "]
        pump.ready(each)
    await one.until(lambda: one.stored_offset == 5)
    await broken.until(lambda: bool(broken.errors))
    assert one.errors == []
    # Whether it was stored decides where the source continues.
    assert broken.journal.is_stale
    assert [await said(store, name) for name in "st"] == ["" if part == "delta_step" else "word ", "word "]


async def test_a_single_source_barely_waits_and_many_are_batched(
    store: CountedStore, log: Log, pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("perdure.runtime.running.pump.time.monotonic", lambda: now)
    one = await source(log, "s")
    # At the rate of a model: the next piece comes long after the tick interval.
    for _ in range(100):
        now += 0.02
        pump.ready(one)
        await asyncio.sleep(0)
    assert 0 < pump.tick_s < 0.001
    many = [await source(log, f"s{number}") for number in range(100)]
    for _ in range(100):
        now += TICK_MAX_S
        for each in many:
            pump.ready(each)
        await asyncio.sleep(0)
    assert pump.tick_s == TICK_MAX_S
    assert RATE_OVER_S < 1
