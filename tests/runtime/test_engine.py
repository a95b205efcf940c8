"""The engine in this process, with the rehearsal agent: what was asked for is done, whatever happens to who asked."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.config import Config, Limits, ServerSettings
from perdure.core import commands as cmd
from perdure.core.session import decide
from perdure.core.state import Session
from perdure.runtime.agents.abilities import Abilities
from perdure.runtime.agents.registry import Agents
from perdure.runtime.data.projects import Projects
from perdure.runtime.engine import Engine
from perdure.runtime.keeping import processes
from perdure.runtime.keeping.launch import Launch
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.running import starting
from perdure.runtime.running.attachment import Attachment
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.runner import Runner
from perdure.runtime.verbs.outgoing import Outgoing
from perdure.runtime.verbs.sessions import Opening, Sessions
from perdure.stores.base import Append, Kept
from perdure.stores.sqlite import SqliteStore
from tests.harness import WAIT_S
from tests.runtime.logs import node_id


class HeldStore(SqliteStore):
    """Keeps a step while whoever wants it kept may change their mind."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.going = asyncio.Event()
        self.going.set()
        self.asked = asyncio.Event()

    async def append(self, step: Append) -> Kept:
        self.asked.set()
        await self.going.wait()
        return await super().append(step)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[HeldStore]:
    made = HeldStore(tmp_path / "perdure.db")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def config() -> Config:
    return Config()


@pytest.fixture
async def engine(store: HeldStore, tmp_path: Path, config: Config) -> AsyncIterator[Engine]:
    log = Log(store)
    log.generation = await store.claim()
    agents = Agents(config.agents, tmp_path, None)
    projects = Projects(store, config.projects, tmp_path)
    made = Engine(log, agents, projects, config, tmp_path, node_id=node_id())
    await made.start()
    yield made
    async with asyncio.timeout(WAIT_S):
        await made.stop(stop_agents=True)


@pytest.fixture
def sessions(engine: Engine) -> Sessions:
    return engine.sessions


class Waiter:
    """A viewer that has seen enough when the state is as wanted."""

    def __init__(self, journal: Journal, wanted: Callable[[Session], bool]) -> None:
        self._journal = journal
        self._wanted = wanted
        self.reached = asyncio.Event()
        self.position = 0

    def wake(self) -> None:
        if self._wanted(self._journal.state):
            self.reached.set()


async def until(sessions: Sessions, session_id: str, wanted: Callable[[Session], bool]) -> None:
    journal = await sessions.log.open(session_id)
    waiter = Waiter(journal, wanted)
    journal.followers.add(waiter)
    waiter.wake()
    async with asyncio.timeout(WAIT_S):
        await waiter.reached.wait()
    journal.followers.discard(waiter)


async def until_over(sessions: Sessions, session_id: str) -> None:
    await until(sessions, session_id, lambda state: state.phase == "idle" and state.last_turn == 1)


@pytest.mark.parametrize("config", [Config(server=ServerSettings(slots=1), limits=Limits(count_idle=True))])
async def test_where_idle_sessions_count_one_keeps_its_slot_while_another_is_tried(engine: Engine) -> None:
    journal, _ = await engine.sessions.create(Opening(agent="rehearsal"))
    async with engine.placement.slot("s_waits", None, "/") as waits_for:
        assert waits_for is not None
        await engine.sessions.send(journal.state.id, Outgoing(text="say one"))
        assert journal.state.phase == "working"
        await until_over(engine.sessions, journal.state.id)


async def given_up(store: HeldStore, asking: Any) -> None:
    """Ask, and be gone before it is kept."""
    store.going.clear()
    store.asked.clear()
    task = asyncio.ensure_future(asking)
    async with asyncio.timeout(WAIT_S):
        await store.asked.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    store.going.set()


async def test_a_message_whose_sender_is_gone_before_it_is_kept_is_worked_on(
    sessions: Sessions, store: HeldStore
) -> None:
    journal, _ = await sessions.create(Opening(agent="rehearsal"))
    await given_up(store, sessions.send(journal.state.id, Outgoing(text="say one")))
    await until_over(sessions, journal.state.id)


async def test_a_session_whose_maker_is_gone_before_it_is_kept_is_worked_on(
    sessions: Sessions, store: HeldStore
) -> None:
    await given_up(store, sessions.create(Opening(agent="rehearsal"), Outgoing(text="say one"), session_id="s_new"))
    await asyncio.gather(*sessions.log._tasks)
    await until_over(sessions, "s_new")


@pytest.mark.full
async def test_a_session_whose_clock_fails_does_not_stop_the_clocks_of_others(sessions: Sessions) -> None:
    hang = Outgoing(text="hang")
    broken, _ = await sessions.create(Opening(agent="rehearsal"), hang)
    other, _ = await sessions.create(Opening(agent="rehearsal", limits={"turn_timeout_s": 1}), hang)
    assert broken.state.turn is not None
    began, broken.state.turn.started_at = broken.state.turn.started_at, "at no time"
    await until_over(sessions, other.state.id)
    broken.state.turn.started_at = began


async def test_a_command_that_is_known_from_another_session_is_sent_without_instructions_before_it(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own agent has not started yet, and so has not named its commands."""
    sessions.agents.abilities["rehearsal"] = Abilities(commands=[{"name": "/nested/review"}])
    journal, _ = await sessions.create(Opening(agent="rehearsal"), Outgoing(text="/nested/review it"))
    orders = sessions.orders(journal)
    monkeypatch.setattr(sessions.facts, "instructions", lambda _: "Be brief.")
    assert (await orders.prompt()).text == "/nested/review it"
    await until_over(sessions, journal.state.id)


async def test_a_message_that_comes_as_a_turn_ends_before_its_agent_starts_is_worked_on(
    sessions: Sessions, store: HeldStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = await sessions.create(Opening(agent="rehearsal"))
    session_id, tasks = journal.state.id, list[asyncio.Task[Any]]()

    async def end_turn(facts: Facts, journal: Journal) -> None:
        """The turn ends while the agent's start is planned, and while that is stored the next message comes."""
        if tasks:
            return
        command = cmd.GiveUpTurn(code="command_refused", message="It can't be sent.")
        store.going.clear()
        store.asked.clear()
        ending = asyncio.create_task(journal.record(lambda state: decide(state, command, facts.world(state))))
        await store.asked.wait()
        tasks.append(asyncio.create_task(sessions.send(session_id, Outgoing(text="say two"))))
        while not journal._lock._waiters:  # noqa: ASYNC110  nothing tells that a lock is waited for
            await asyncio.sleep(0)
        store.going.set()
        await ending

    monkeypatch.setattr(starting, "_give_up_shared", end_turn)
    await sessions.send(session_id, Outgoing(text="say one"))
    await until(sessions, session_id, lambda state: state.phase == "idle" and state.last_turn == 2)
    assert journal.state.turn is not None and journal.state.turn.stop_reason == "end_turn"
    await asyncio.gather(*tasks)


@pytest.mark.full
async def test_nobody_waits_while_the_processes_of_a_tool_are_looked_at(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, others_went_on = asyncio.get_running_loop(), threading.Event()
    looked: asyncio.Future[bool] = loop.create_future()

    def look(pid: int) -> float:
        loop.call_soon_threadsafe(others_went_on.set)
        in_time = others_went_on.wait(1)
        loop.call_soon_threadsafe(lambda: None if looked.done() else looked.set_result(in_time))
        return 0.0

    monkeypatch.setattr(processes, "tree_cpu_s", look)
    # Long enough that the agent starts on a busy machine; a tenth of it passes before the first look.
    opening = Opening(agent="rehearsal", limits={"turn_timeout_s": 20})
    await sessions.create(opening, Outgoing(text="delegate reviewer hang"))
    async with asyncio.timeout(WAIT_S):
        assert await looked


async def test_a_process_that_no_goodbye_can_be_written_to_is_ended(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = await sessions.create(Opening(agent="rehearsal"), Outgoing(text="say one"))
    session_id = journal.state.id
    await until_over(sessions, session_id)
    assert journal.state.attached is not None
    launch_id = journal.state.attached.launch_id

    def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Launch, "write", fails)
    await sessions.end(session_id, "stopped", "enough")
    async with asyncio.timeout(WAIT_S):
        await sessions.runners.wait_gone(session_id)
    assert launch_id not in processes.marked_all()


@pytest.mark.full
async def test_an_agent_that_always_has_more_to_say_can_be_stopped(
    engine: Engine, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, receive = engine.launcher, Runner._receive
    launcher.settings = msgspec.structs.replace(launcher.settings, abort_grace_s=1)
    journal, _ = await sessions.create(Opening(agent="rehearsal"), Outgoing(text="hang"))
    await until(sessions, journal.state.id, lambda state: state.attached is not None and state.attached.opened)

    async def more(runner: Runner, attachment: Attachment) -> bool:
        await asyncio.sleep(0)
        lives = attachment.launch is not None and attachment.launch.exit() is None
        return lives or await receive(runner, attachment)

    monkeypatch.setattr(Runner, "_receive", more)
    await sessions.abort(journal.state.id)
    await until_over(sessions, journal.state.id)
    assert journal.state.turn is not None and journal.state.turn.stop_reason == "cancelled"


async def test_a_turn_that_is_kept_while_the_server_stops_is_left_to_the_next_one(
    engine: Engine, sessions: Sessions, store: HeldStore
) -> None:
    journal, _ = await sessions.create(Opening(agent="rehearsal-resume"))
    store.going.clear()
    store.asked.clear()
    sending = asyncio.ensure_future(sessions.send(journal.state.id, Outgoing(text="say one")))
    async with asyncio.timeout(WAIT_S):
        await store.asked.wait()
        stopping = asyncio.ensure_future(engine.stop())
        while not engine.runners.is_stopping:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0)
        store.going.set()
        await sending
        await stopping
    assert journal.state.working
    assert not list(sessions.runners)
