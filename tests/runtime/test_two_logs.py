"""Two logs on one store: each sees what the other wrote, and the owner of a session carries out commands of both."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.config import Config
from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.clock import stamp
from perdure.core.errors import Conflict, NotOwner, Refused, StoreError
from perdure.core.observe import observe
from perdure.core.session import create, decide
from perdure.core.state import Session
from perdure.runtime.agents.registry import Agents
from perdure.runtime.data.projects import Projects
from perdure.runtime.engine import Engine
from perdure.runtime.log import journal as journal_module
from perdure.runtime.log import log as log_module
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.running.commands import Commands
from perdure.runtime.verbs.outgoing import Outgoing
from perdure.runtime.verbs.sessions import NewSession
from perdure.stores.base import Append, Kept, LaunchProgress
from perdure.stores.sqlite import SqliteStore
from perdure.stores.wakeups import LocalWakeups
from tests.core.stage import world
from tests.harness import WAIT_S
from tests.runtime.logs import node_id, opened
from tests.simulation.nodes import SharedStore


class CountedStore(SqliteStore):
    """Counts queries, and can lose the response to one append."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.heads_asked: list[int] = []
        self.loses_answer = False

    async def heads(self, session_ids: Any) -> Any:
        self.heads_asked.append(len(session_ids))
        return await super().heads(session_ids)

    async def append(self, step: Append) -> Kept:
        kept = await super().append(step)
        if self.loses_answer:
            self.loses_answer = False
            raise StoreError("the connection was lost during the commit")
        return kept


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CountedStore]:
    made = CountedStore(tmp_path / "perdure.db")
    await made.open()
    yield made
    await made.close()


class Reader:
    """Reads the events after its position when it is woken, as a viewer does."""

    def __init__(self, journal: Journal, position: int = 0) -> None:
        self._journal = journal
        self.position = position
        self.types: list[str] = []
        journal.follow(self)
        self.wake()

    def wake(self) -> None:
        for seq, frame in self._journal.frames_since(self.position) or []:
            assert seq == self.position + 1
            self.position = seq
            self.types.append(frame.split(b"\n")[1].removeprefix(b"event: ").decode())


async def in_a_turn(log: Log, session_id: str = "s") -> Journal:
    """A session of this log whose agent is about to write text."""
    made = create(cmd.CreateSession(session_id=session_id, project=None, agent="alpha", workdir="/srv"), world())
    decision = decide(made.state, cmd.SubmitMessage(message_id="m", text="go"), world())
    decision.events[:0] = made.events
    journal, _ = await log.create(decision)
    launch = cmd.PrepareLaunch(
        turn=1, launch_id="l", agent="alpha", driver="acp", native_session_id=None, workdir_id="1:2", fingerprint="bin"
    )
    await journal.record(lambda state: decide(state, launch, world()), by_owner=True)
    await journal.record(lambda state: observe(state, "l", [ob.SessionOpened("n", False)], world()), by_owner=True)
    return journal


async def say(journal: Journal, text: str) -> None:
    progress = LaunchProgress("l", journal.state.id, "alpha", "acp", "live", 0, 0, 0, [], b"")
    delta = ev.AssistantText(turn=1, block=0, delta=text)
    assert await journal.record_deltas([delta], progress, lambda _: True)


def titled(text: str) -> Callable[[Session], Any]:
    return lambda state: decide(state, cmd.UpdateSession(title=text), world())


async def until(holds: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)


async def test_a_viewer_of_a_log_that_writes_after_another_one_skips_nothing(store: CountedStore) -> None:
    """Regression test: a viewer at 4 received 6, and the runner never saw 5."""
    owner = await in_a_turn(await opened(store, "a"))
    other = await Log(store).load("s")
    assert other is not None
    other.log.generation = owner.log.generation
    viewer, before = Reader(owner, owner.last_seq), owner.last_seq
    await other.record(titled("written elsewhere"))
    await say(owner, "word ")
    assert viewer.position == owner.last_seq == before + 2
    assert viewer.types == ["title", "assistant_text"]
    assert owner.state.title == "written elsewhere"
    found = await owner.decisive_after(before)
    assert [type(event).__name__ for _, event in found] == ["Title"], "the runner reads it too"


async def test_a_command_between_deltas_publishes_them_first(store: CountedStore) -> None:
    owner = await in_a_turn(await opened(store, "a"))
    log = Log(store)
    log.generation = owner.log.generation
    other = await log.open("s")
    viewer = Reader(other, other.last_seq)
    for number in range(3):
        await say(owner, f"{number} ")
    await other.record(titled("between"))
    assert viewer.types == ["assistant_text"] * 3 + ["title"]
    assert other.view.text() == "0 1 2 "


async def test_after_a_long_gap_the_session_is_reloaded(store: CountedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "CATCH_UP_EVENTS", 5)
    owner = await in_a_turn(await opened(store, "a"))
    log = Log(store)
    other = await log.open("s")
    woken: list[int] = []

    class Woken:
        position = 0

        def wake(self) -> None:
            woken.append(other.last_seq)

    other.follow(Woken())
    for number in range(10):
        await say(owner, f"{number} ")
    await other.catch_up()
    assert (other.last_seq, other.view.text()) == (owner.last_seq, owner.view.text())
    assert woken == [owner.last_seq]


async def test_a_lost_wake_up_is_found_with_one_query_for_all_sessions(store: CountedStore) -> None:
    log = await opened(store, "a")
    owners = [await in_a_turn(log, f"s{number}") for number in range(20)]
    other = Log(store)
    viewers = [Reader(await other.open(owner.state.id), owner.last_seq) for owner in owners]
    for owner in owners:
        await say(owner, "unheard ")
    assert not any(viewer.types for viewer in viewers)
    store.heads_asked.clear()
    await other.poll()
    assert store.heads_asked == [20]
    assert all(viewer.types == ["assistant_text"] for viewer in viewers)


async def test_without_followers_nothing_is_polled(store: CountedStore) -> None:
    log = await opened(store, "a")
    await in_a_turn(log)
    await log.poll()
    assert store.heads_asked == []


async def test_a_step_whose_response_was_lost_reaches_viewers_with_the_next_step(store: CountedStore) -> None:
    journal = await in_a_turn(await opened(store, "a"))
    viewer = Reader(journal, journal.last_seq)
    store.loses_answer = True
    with pytest.raises(StoreError):
        await journal.record(titled("kept, and nobody knows"))
    await say(journal, "on ")
    assert viewer.types == ["title", "assistant_text"]
    assert journal.state.title == "kept, and nobody knows"


async def test_a_fenced_owner_stores_nothing_and_finds_the_new_owner(store: CountedStore) -> None:
    old = await in_a_turn(await opened(store, "a"))
    new_log = await opened(store, "b")
    new = await new_log.open("s")
    await new_log.claim(new)
    old.log.generation = new_log.generation
    with pytest.raises(NotOwner):
        await say(old, "too late ")
    await say(new, "in time ")
    await old.catch_up()
    assert not old.is_ours and old.owner == new_log.node
    assert old.view.text() == new.view.text() == "in time "


async def test_a_command_that_claims_a_session_loses_to_a_faster_one(store: CountedStore) -> None:
    """Both have read that the session has no owner. The second must decide again and leave the turn to the owner."""
    made = create(cmd.CreateSession(session_id="s", project=None, agent="alpha", workdir="/srv"), world())
    first = await opened(store, "a")
    second = await opened(store, "b")
    await Log(store).load("s")
    maker = Log(store)
    maker.generation = first.generation = second.generation
    await maker.create(made)
    one, two = await first.open("s"), await second.open("s")
    second.living = {first.node.node} if first.node is not None else set()
    await one.record(lambda state: decide(state, cmd.UpdateSession(title="mine"), world()))
    assert one.is_ours

    def sent(state: Session) -> Any:
        waits = two.waits_for_owner
        message = cmd.SubmitMessage(message_id="m", text="go")
        made = world()
        return decide(state, message, replace(made, waits_for=waits))

    await two.record(sent)
    assert two.state.phase == "accepted" and two.owner == first.node
    assert two.state.waits_for is not None and "node a" in two.state.waits_for.message


async def test_too_many_requests_for_one_session_are_told_to_retry(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MAX_WAITING_COMMANDS", 10)
    journal = await in_a_turn(await opened(store, "a"))
    asked = [asyncio.ensure_future(journal.record(titled(f"t{number}"))) for number in range(15)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    assert [(refusal.code, refusal.facts["retry_after_s"]) for refusal in refused] == [("unavailable", 1)] * 5
    assert not [answer for answer in answers if isinstance(answer, Conflict)]


# With a real agent ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def engine(store: CountedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """The owner of every session, with the rehearsal agent. It gets no wake-ups and must poll."""
    monkeypatch.setattr(log_module, "POLL_S", 0.05)
    log, config = Log(store), Config()
    log.generation = await store.claim()
    agents, projects = Agents(config.agents, tmp_path, None), Projects(store, {}, tmp_path)
    made = Engine(log, agents, projects, config, tmp_path, node_id=node_id())
    await made.start()
    yield made
    async with asyncio.timeout(WAIT_S):
        await made.stop(stop_agents=True)


async def elsewhere(engine: Engine, wakeups: LocalWakeups | None = None) -> Log:
    """A log that owns no session and runs no agent: it only writes commands."""
    log = Log(engine.log.store, wakeups=wakeups)
    log.generation = engine.log.generation
    return log


async def test_a_message_from_a_log_that_does_not_own_the_session_is_run_by_the_owner(engine: Engine) -> None:
    made, _ = await engine.sessions.create(NewSession(agent="rehearsal"))
    log = await elsewhere(engine)
    journal = await log.open(made.state.id)
    viewer = Reader(journal, journal.last_seq)

    def send(state: Session) -> Any:
        from msgspec.structs import replace

        sent = cmd.SubmitMessage(message_id="m", text="say hello from elsewhere")
        return decide(state, sent, replace(engine.facts.world(state, sent), waits_for=journal.waits_for_owner))

    await journal.record(send)
    assert journal.state.phase == "accepted"

    async def is_over() -> bool:
        await log.poll()
        return journal.state.phase == "idle"

    await until(is_over)
    assert viewer.types[0] == "user_message" and "turn_start" in viewer.types and "turn_end" in viewer.types
    assert "hello from elsewhere" in journal.view.text()
    assert journal.state.turn is not None and journal.state.turn.stop_reason == "end_turn"


async def test_an_abort_from_a_log_that_does_not_own_the_session_stops_the_agent(engine: Engine) -> None:
    from perdure.runtime.verbs.outgoing import Outgoing

    made, _ = await engine.sessions.create(NewSession(agent="rehearsal"), Outgoing(text="say one\nhang"))
    await until(lambda: "one" in made.view.text())
    log = await elsewhere(engine)
    journal = await log.open(made.state.id)
    await journal.record(lambda state: decide(state, cmd.AbortTurn(), engine.facts.world(state)))
    await until(lambda: made.state.phase == "idle")
    assert made.state.turn is not None and made.state.turn.stop_reason == "cancelled"


async def test_a_fenced_owner_does_not_detach_the_process_of_the_next_one(store: CountedStore) -> None:
    old = await in_a_turn(await opened(store, "a"))
    over = ob.TurnFinished(1, "end_turn")
    await old.record(lambda state: observe(state, "l", [over], world()), by_owner=True)
    new_log = await opened(store, "b")
    new = await new_log.open("s")
    await new_log.claim(new)
    await new.record(titled("mine now"))
    old.log.generation = new_log.generation
    facts: Any = SimpleNamespace(world=lambda *_: world())
    await Commands(old.log, facts).suspend(old, "server_stopped")
    await new.catch_up()
    assert new.state.attached is not None, "only the owner may end a process"
    await Commands(new_log, facts).suspend(new, "server_stopped")
    assert new.state.attached is None


async def test_the_poll_finds_a_step_whose_response_was_lost_even_without_followers(store: CountedStore) -> None:
    """Otherwise no node would run the turn that it began."""
    log = await opened(store, "a")
    journal = await in_a_turn(log)
    changed: list[str] = []
    log.watch(changed.append)
    store.loses_answer = True
    with pytest.raises(StoreError):
        await journal.record(titled("kept, and nobody knows"))
    assert not journal.followers and changed == []
    log.evict(-1)
    await log.poll()
    assert journal.state.title == "kept, and nobody knows" and changed == ["s"]


async def test_a_server_that_starts_beside_a_living_node_leaves_its_sessions_alone(tmp_path: Path) -> None:
    shared = SharedStore(tmp_path / "perdure.db")
    await shared.open()
    other = await opened(shared, "other")
    running = await in_a_turn(other)
    await say(running, "word ")
    log, config = Log(shared), Config()
    log.generation = other.generation
    agents, projects = Agents(config.agents, tmp_path, None), Projects(shared, {}, tmp_path)
    engine = Engine(log, agents, projects, config, tmp_path, node_id=node_id())
    await engine.start()
    await say(running, "more ")
    assert (running.is_ours, running.state.phase, len(engine.runners)) == (True, "working", 0)
    assert [row.launch_id for row in await shared.launches()] == ["l"]
    await engine.stop()
    await shared.close()


async def test_an_event_is_never_dated_before_events_that_its_writer_has_read(engine: Engine) -> None:
    made, _ = await engine.sessions.create(NewSession(agent="rehearsal"))
    log = await elsewhere(engine)
    ahead = stamp(log.now() + 60)
    journal = await log.open(made.state.id)
    await journal.record(
        lambda state: decide(state, cmd.UpdateSession(title="from a clock that is ahead"), replace(world(), now=ahead))
    )
    await engine.sessions.update(made.state.id, cmd.UpdateSession(title="from a correct clock"))
    dates = [ev.decode(row.body).at for row in await log.store.read(made.state.id, 0, limit=100)]
    assert dates == sorted(dates) and dates[-1] == ahead


async def test_a_message_with_an_unknown_outcome_keeps_its_files(
    engine: Engine, store: CountedStore, tmp_path: Path
) -> None:
    made, _ = await engine.sessions.create(NewSession(agent="rehearsal"))
    picture = {"name": "a.txt", "data": base64.b64encode(b"hello").decode()}
    message = Outgoing(text="say seen", message_id="m", attachments=(picture,))
    store.loses_answer = True
    with pytest.raises(StoreError):
        await engine.sessions.send(made.state.id, message)
    assert (await engine.sessions.send(made.state.id, message))["message_id"] == "m", "it was stored"
    (kept,) = tmp_path.rglob("*a.txt")
    assert kept.read_bytes() == b"hello"


async def test_the_fallback_poll_continues_after_an_unexpected_error(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, polls = await opened(store, "a"), list[int]()

    async def fail() -> None:
        polls.append(len(polls))
        raise LookupError("a bug")

    monkeypatch.setattr(log, "poll", fail)
    monkeypatch.setattr(log_module, "POLL_S", 0.001)
    log.start()
    await until(lambda: len(polls) > 2)
    await log.stop()
