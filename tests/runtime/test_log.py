"""Journals in memory: the cache for viewers is limited, and reads from the store are split into pieces."""

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.decision import Decision
from perdure.core.errors import Refused, StoreError
from perdure.core.history import take_over
from perdure.core.observe import observe
from perdure.core.session import create, decide
from perdure.runtime.log.compactor import Compactor
from perdure.runtime.log.feed import Feed
from perdure.runtime.log.frames import JOINS_MAX
from perdure.runtime.log.journal import AT_ONCE_EVENTS, Journal
from perdure.runtime.log.log import Log
from perdure.runtime.log.reading import READ_BATCH, READ_BYTES
from perdure.stores.base import LaunchProgress, Stored
from perdure.stores.sqlite import SqliteStore
from tests.core.stage import world
from tests.runtime.logs import opened

PROGRESS = LaunchProgress("launch", "s", "alpha", "acp", "live", 0, 0, 0, [], b"")


class MeasuredStore(SqliteStore):
    """Records the size of each read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.sizes: list[int] = []

    async def read(self, *given: Any, **named: Any) -> list[Stored]:
        rows = await super().read(*given, **named)
        self.sizes.append(sum(len(row.body) for row in rows))
        return rows


class Watcher:
    """Records the log's position whenever it is woken."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.position = 0
        self.seen: list[int] = []

    def wake(self) -> None:
        self.seen.append(self._journal.last_seq)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MeasuredStore]:
    made = MeasuredStore(tmp_path / "perdure.db")
    await made.open()
    yield made
    await made.close()


async def working(store: MeasuredStore) -> Journal:
    """A session in its first turn."""
    log = await opened(store)
    made = create(cmd.CreateSession(session_id="s", project=None, agent="alpha", workdir="/srv"), world())
    decision = decide(made.state, cmd.SubmitMessage(message_id="m", text="go"), world())
    decision.events[:0] = made.events
    return (await log.create(decision))[0]


async def say(journal: Journal, text: str) -> None:
    delta = ev.AssistantText(turn=1, block=0, delta=text)
    assert await journal.record_deltas([delta], PROGRESS, lambda _: True)


async def test_output_without_events_changes_only_the_progress(store: MeasuredStore) -> None:
    journal = await working(store)
    before = journal.last_seq
    moved = msgspec.structs.replace(PROGRESS, offset=1_000_000)
    assert await journal.record_deltas([], moved, lambda _: True)
    await journal.record(lambda state: Decision(state, world()), progress=moved, by_owner=True)
    assert journal.last_seq == before
    assert [row.offset for row in await store.launches("launch")] == [1_000_000]


async def test_viewers_at_many_positions_of_one_session_use_only_a_few_joined_pieces(store: MeasuredStore) -> None:
    journal = await working(store)
    for number in range(200):
        await say(journal, f"w{number} ")
    frames = journal.frames_since(0)
    assert frames is not None and len(frames) == journal.last_seq
    for _ in range(2):
        for position in range(journal.last_seq + 1):
            expected = b"".join(frame for seq, frame in frames if seq > position)
            assert journal.frames_after(position) == expected
    assert len(journal._tail._joins) <= JOINS_MAX
    shared = journal.frames_after(journal.last_seq - 1)
    assert journal.frames_after(journal.last_seq - 1) is shared, "viewers at the same position share one piece"


async def test_pieces_made_for_viewers_count_towards_the_limit_of_all_sessions(store: MeasuredStore) -> None:
    journal = await working(store)
    for _ in range(JOINS_MAX + 1):
        await say(journal, "x" * 10_000)
    before = journal.log.recent.total_bytes
    made = [journal.frames_after(position) for position in range(journal.last_seq - JOINS_MAX, journal.last_seq)]
    # A single event needs no new piece: its frame is returned as it is.
    assert journal.log.recent.total_bytes == before + sum(len(piece or b"") for piece in made[:-1])


async def test_a_piece_made_for_one_viewer_is_dropped_with_the_next_event(store: MeasuredStore) -> None:
    journal = await working(store)
    for _ in range(10):
        await say(journal, "x" * 10_000)
    piece = journal.frames_after(0)
    assert piece is not None and journal.newest_frames[2] is piece
    await say(journal, "more")
    assert sys.getrefcount(piece) == 2, "only this test holds it"


async def test_a_journal_whose_frames_were_dropped_is_counted_again_with_its_next_delta(store: MeasuredStore) -> None:
    journal = await working(store)
    await say(journal, "x" * 10_000)
    journal.log.recent.forget("s")
    journal.drop_frames()
    await say(journal, "more")
    assert journal.log.recent.total_bytes > 10_000


async def test_an_evicted_or_erased_journal_uses_no_budget(store: MeasuredStore) -> None:
    journal = await working(store)
    log = journal.log
    await say(journal, "x" * 10_000)
    log.evict(-1)
    await journal.snapshot_frame()
    assert (log.journals, log.recent.total_bytes) == ({}, 0)
    assert await log.open("s") is journal, "it stays the same object while it is referenced"
    await say(journal, "x" * 10_000)
    assert log.recent.total_bytes > 20_000
    log.forget("s")
    await journal.snapshot_frame()
    assert log.recent.total_bytes == 0


async def test_a_long_running_turn_is_loaded_in_pieces(store: MeasuredStore) -> None:
    journal = await working(store)
    for _ in range(30):
        await say(journal, "x" * 200_000)
    store.sizes.clear()
    loaded = await Log(store).load("s")
    assert loaded is not None
    assert loaded.view.text() == journal.view.text()
    assert len(store.sizes) > 1 and max(store.sizes) <= READ_BYTES


async def test_a_snapshot_says_when_the_last_event_happened_also_after_a_restart(store: MeasuredStore) -> None:
    journal = await working(store)
    clock = iter(range(2_000_000_000, 2_000_000_100))
    journal.log.now = lambda: float(next(clock))
    await say(journal, "one")
    spoken = msgspec.json.decode((await store.read("s", 0, limit=100))[-1].body)
    later = Log(store, clock=lambda: 2_100_000_000.0)
    for one in (journal, await later.open("s")):
        frame = (await one.snapshot_frame())[1]
        shown = msgspec.json.decode(frame[frame.index(b"data: ") + 6 :])
        assert shown["last_event_at"] == spoken["at"]
        assert shown["at"] > shown["last_event_at"]


async def test_after_a_rewind_a_snapshot_reads_only_the_last_remaining_turn(store: MeasuredStore) -> None:
    journal = await working(store)
    launch = cmd.PrepareLaunch(
        turn=1, launch_id="l", agent="alpha", driver="acp", native_session_id=None, workdir_id="1:2", fingerprint="bin"
    )

    async def do(command: cmd.Command) -> None:
        await journal.record(lambda state: decide(state, command, world()))

    async def see(*facts: Any) -> None:
        await journal.record(lambda state: observe(state, "l", facts, world()))

    await do(launch)
    await see(ob.SessionOpened("n1", False))
    for number, words in ((1, "long "), (2, "short "), (3, "long "), (4, "long ")):
        if number > 1:
            await do(cmd.SubmitMessage(message_id=f"m{number}", text=f"message {number}"))
        await see(ev.AssistantText(turn=number, block=0, delta=words * 50_000 if words == "long " else words))
        await see(ob.TurnFinished(number, "end_turn"))
    await do(cmd.EditMessage(turn=2, message_id="m2", text="edited"))
    await do(cmd.Rewind(turn=3))
    store.sizes.clear()
    frame = (await journal.snapshot_frame())[1]
    shown = msgspec.json.decode(frame[frame.index(b"data: ") + 6 :])
    assert (shown["turn"], shown["text"], shown["message"]["text"]) == (2, "short ", "edited")
    assert sum(store.sizes) < 10_000


async def test_a_history_imported_in_one_step_equals_one_that_is_read(store: MeasuredStore) -> None:
    log = await opened(store)
    made = create(cmd.CreateSession(session_id="s", project=None, agent="alpha", workdir="/srv"), world())
    numbers = range(1, AT_ONCE_EVENTS)
    turns = [event for number in numbers for event in _finished(number)]
    take_over(made, turns, set(numbers))
    journal, _ = await log.create(made)
    assert log.recent.total_bytes == journal.view.size > 0
    read = await Log(store).load("s")
    assert read is not None
    assert (journal.last_seq, journal.decided_seq) == (read.last_seq, read.decided_seq)
    assert (journal.state, journal.happened_at) == (read.state, read.happened_at)
    assert (journal.view.message, journal.view.show()) == (read.view.message, read.view.show())
    assert [row.seq for row in await store.read("s", 0, limit=10**6)] == list(range(1, journal.last_seq + 1))
    await journal.record(lambda state: decide(state, cmd.SubmitMessage(message_id="m", text="go on"), world()))
    assert journal.state.last_turn == AT_ONCE_EVENTS


async def test_a_follower_is_notified_when_a_long_import_is_complete(store: MeasuredStore) -> None:
    log = await opened(store)
    made = create(cmd.CreateSession(session_id="s", project=None, agent="alpha", workdir="/srv"), world())
    numbers = range(1, AT_ONCE_EVENTS)
    take_over(made, [event for number in numbers for event in _finished(number)], set(numbers))
    taking = asyncio.ensure_future(log.create(made))
    await asyncio.sleep(0)
    watching = Watcher(log.journals["s"])
    log.journals["s"].follow(watching)
    journal, _ = await taking
    assert watching.seen == [journal.last_seq]


async def test_a_server_that_can_not_read_the_reused_ids_does_not_start(store: MeasuredStore) -> None:
    log = Log(store)
    await store.close()
    with pytest.raises(StoreError):
        await log.recall_issued_twice()


async def test_a_text_longer_than_a_batch_is_compacted_into_one_and_read_from_anywhere(store: MeasuredStore) -> None:
    journal = await working(store)
    count = READ_BATCH * 3 + 7
    deltas = [ev.AssistantText(turn=1, block=0, delta=f"w{number} ") for number in range(count)]
    for start in range(0, count, 500):
        assert await journal.record_deltas(deltas[start : start + 500], PROGRESS, lambda _: True)
    await journal.record(lambda state: decide(state, cmd.GiveUpTurn(code="x", message="over"), world()))
    before = await store.read("s", 0, limit=10**6)
    feed = Feed(journal.log)
    await Compactor(journal.log, feed).compact("s", 1, journal.last_seq)
    after = await store.read("s", 0, limit=10**6)
    texts = [row for row in after if row.type == "assistant_text"]
    assert sum(row.seq - row.first_seq + 1 for row in texts) == count
    assert texts[0].seq - texts[0].first_seq > READ_BATCH and len(texts) < 4
    assert [row.seq for row in after][-1] == before[-1].seq
    first = texts[0].first_seq
    for position in (first, first + 1, first + READ_BATCH, first + count - 2):
        rest = await store.read("s", position, limit=1)
        said = msgspec.json.decode(rest[0].body)["delta"]
        assert said == "".join(delta.delta for delta in deltas[position - first + 1 : rest[0].seq - first + 1])


def _finished(turn: int) -> list[ev.Event]:
    at = f"2026-01-01T00:00:{turn % 60:02d}.000Z"
    return [
        ev.UserMessage(at=at, turn=turn, message_id=f"m{turn}", text=f"message {turn}", agent="alpha"),
        ev.TurnStart(
            at=at, turn=turn, run_id="", message_id=f"m{turn}", agent="alpha", context="fresh", context_reason=""
        ),
        ev.AssistantText(at=at, turn=turn, block=0, delta=f"answer {turn}"),
        ev.TurnEnd(at=at, turn=turn, stop_reason="end_turn"),
    ]


async def test_a_session_has_one_journal_while_it_is_referenced(store: MeasuredStore) -> None:
    journal = await working(store)
    log = journal.log
    log.evict(-1)
    assert not log.journals
    assert journal.frames_since(0) is None
    assert await log.open("s") is journal
    log.evict(-1)
    await say(journal, "more")
    assert log.journals == {"s": journal}


async def test_an_erased_session_is_not_found_even_if_it_is_referenced(store: MeasuredStore) -> None:
    journal = await working(store)
    log = journal.log
    log.evict(-1)
    await say(journal, "more")
    await store.erase("s", log.generation)
    log.forget("s")
    with pytest.raises(Refused):
        await log.open("s")


async def test_an_unreferenced_journal_uses_no_memory(store: MeasuredStore) -> None:
    journal = await working(store)
    log, held = journal.log, weakref.ref(journal)
    del journal
    log.evict(-1)
    gc.collect()
    assert held() is None
    assert (await log.open("s")).state.working
