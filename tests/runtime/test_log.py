"""Journals in memory: what is kept for viewers is bounded, and what is read from the store comes in pieces."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.session import create, decide
from perdure.runtime.log import JOINS_MAX, READ_BYTES, Journal, Log
from perdure.stores.base import Checkpoint, Stored
from perdure.stores.sqlite import SqliteStore
from tests.core.stage import world

CHECKPOINT = Checkpoint("launch", "s", "alpha", "acp", "live", 0, 0, 0, [], b"")


class MeasuredStore(SqliteStore):
    """Remembers how much each read brought."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.sizes: list[int] = []

    async def read(self, *given: Any, **named: Any) -> list[Stored]:
        rows = await super().read(*given, **named)
        self.sizes.append(sum(len(row.body) for row in rows))
        return rows


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MeasuredStore]:
    made = MeasuredStore(tmp_path / "perdure.db")
    await made.open()
    yield made
    await made.close()


async def working(store: MeasuredStore) -> Journal:
    """A session in its first turn."""
    log = Log(store)
    log.generation = await store.claim()
    made = create(cmd.CreateSession(session_id="s", project=None, agent="alpha", workdir="/srv"), world())
    decision = decide(made.state, cmd.SubmitMessage(message_id="m", text="go"), world())
    decision.events[:0] = made.events
    return await log.create(decision)


async def say(journal: Journal, text: str) -> None:
    delta = ev.AssistantText(turn=1, block=0, delta=text)
    assert await journal.record_deltas([delta], CHECKPOINT, lambda _: True)


async def test_viewers_at_many_places_of_one_session_cost_only_a_few_joined_pieces(store: MeasuredStore) -> None:
    journal = await working(store)
    for number in range(200):
        await say(journal, f"w{number} ")
    frames = journal.frames_since(0)
    assert frames is not None and len(frames) == journal.last_seq
    for _ in range(2):
        for position in range(journal.last_seq + 1):
            expected = b"".join(frame for seq, frame in frames if seq > position)
            assert journal.frames_after(position) == expected
    assert len(journal._joins) <= JOINS_MAX
    shared = journal.frames_after(journal.last_seq - 1)
    assert journal.frames_after(journal.last_seq - 1) is shared, "those at the same place share one piece"


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
