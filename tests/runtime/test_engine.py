"""The engine in this process, with the rehearsal agent: requests are carried out even if their callers go away."""

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
from perdure.runtime.running.agent_link import AgentLink
from perdure.runtime.running.facts import Facts
from perdure.runtime.running.runner import Runner
from perdure.runtime.verbs.outgoing import Outgoing
from perdure.runtime.verbs.sessions import NewSession, Sessions
from perdure.stores.base import Append, Kept
from perdure.stores.sqlite import SqliteStore
from tests.harness import WAIT_S
from tests.runtime.logs import node_id


class HeldStore(SqliteStore):
    """Holds back appends, so that a caller can be cancelled meanwhile."""

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
    """A follower that waits for a state."""

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
    journal.follow(waiter)
    waiter.wake()
    async with asyncio.timeout(WAIT_S):
        await waiter.reached.wait()
    journal.unfollow(waiter)


async def until_over(sessions: Sessions, session_id: str) -> None:
    await until(sessions, session_id, lambda state: state.phase == "idle" and state.last_turn == 1)


@pytest.mark.parametrize("config", [Config(server=ServerSettings(slots=1), limits=Limits(count_idle=True))])
async def test_where_idle_sessions_count_a_session_keeps_its_slot_while_another_waits(engine: Engine) -> None:
    journal, _ = await engine.sessions.create(NewSession(agent="rehearsal"))
    async with engine.placement.slot("s_waits", None, "/") as waits_for:
        assert waits_for is not None
        await engine.sessions.send(journal.state.id, Outgoing(text="say one"))
        assert journal.state.phase == "working"
        await until_over(engine.sessions, journal.state.id)


async def given_up(store: HeldStore, asking: Any) -> None:
    """Make a request, and cancel it before it is stored."""
    store.going.clear()
    store.asked.clear()
    task = asyncio.ensure_future(asking)
    async with asyncio.timeout(WAIT_S):
        await store.asked.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    store.going.set()


async def test_a_message_runs_even_if_its_sender_is_gone_before_it_is_stored(
    sessions: Sessions, store: HeldStore
) -> None:
    journal, _ = await sessions.create(NewSession(agent="rehearsal"))
    await given_up(store, sessions.send(journal.state.id, Outgoing(text="say one")))
    await until_over(sessions, journal.state.id)


async def test_a_new_session_runs_even_if_its_creator_is_gone_before_it_is_stored(
    sessions: Sessions, store: HeldStore
) -> None:
    await given_up(store, sessions.create(NewSession(agent="rehearsal"), Outgoing(text="say one"), session_id="s_new"))
    await asyncio.gather(*sessions.log._tasks)
    await until_over(sessions, "s_new")


@pytest.mark.full
async def test_a_session_whose_clock_fails_does_not_stop_the_clocks_of_others(sessions: Sessions) -> None:
    hang = Outgoing(text="hang")
    broken, _ = await sessions.create(NewSession(agent="rehearsal"), hang)
    other, _ = await sessions.create(NewSession(agent="rehearsal", limits={"turn_timeout_s": 1}), hang)
    assert broken.state.turn is not None
    began, broken.state.turn.started_at = broken.state.turn.started_at, "at no time"
    await until_over(sessions, other.state.id)
    broken.state.turn.started_at = began


async def test_a_slash_command_known_from_another_session_is_sent_without_instructions(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's own agent has not started yet, so it has not listed its commands."""
    sessions.agents.abilities["rehearsal"] = Abilities(commands=[{"name": "/nested/review"}])
    journal, _ = await sessions.create(NewSession(agent="rehearsal"), Outgoing(text="/nested/review it"))
    orders = sessions.orders(await sessions.log.open(journal.state.id))
    monkeypatch.setattr(sessions.facts, "instructions", lambda _: "Be brief.")
    assert (await orders.turn_input()).text == "/nested/review it"
    await until_over(sessions, journal.state.id)


async def test_a_message_runs_if_the_turn_before_it_ends_before_its_agent_starts(
    sessions: Sessions, store: HeldStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = await sessions.create(NewSession(agent="rehearsal"))
    session_id, tasks = journal.state.id, list[asyncio.Task[Any]]()

    async def end_turn(facts: Facts, journal: Journal) -> None:
        """End the turn while the agent's start is being planned. The next message arrives while that is stored."""
        if tasks:
            return
        command = cmd.GiveUpTurn(code="command_refused", message="It can't be sent.")
        store.going.clear()
        store.asked.clear()
        ending = asyncio.create_task(journal.record(lambda state: decide(state, command, facts.world(state))))
        await store.asked.wait()
        tasks.append(asyncio.create_task(sessions.send(session_id, Outgoing(text="say two"))))
        while not journal._lock._waiters:  # noqa: ASYNC110  there is no event for a waiter on a lock
            await asyncio.sleep(0)
        store.going.set()
        await ending

    monkeypatch.setattr(starting, "_give_up_shared", end_turn)
    await sessions.send(session_id, Outgoing(text="say one"))
    await until(sessions, session_id, lambda state: state.phase == "idle" and state.last_turn == 2)
    assert journal.state.turn is not None and journal.state.turn.stop_reason == "end_turn"
    await asyncio.gather(*tasks)


@pytest.mark.full
async def test_measuring_the_processes_of_a_tool_does_not_block_the_event_loop(
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
    # Long enough for the agent to start on a busy machine. The first measurement is after a tenth of it.
    new = NewSession(agent="rehearsal", limits={"turn_timeout_s": 20})
    await sessions.create(new, Outgoing(text="delegate reviewer hang"))
    async with asyncio.timeout(WAIT_S):
        assert await looked


async def test_a_process_is_ended_even_if_its_close_message_can_not_be_written(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = await sessions.create(NewSession(agent="rehearsal"), Outgoing(text="say one"))
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
async def test_an_agent_that_never_stops_writing_can_be_stopped(
    engine: Engine, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, receive = engine.launcher, Runner._receive
    launcher.settings = msgspec.structs.replace(launcher.settings, abort_grace_s=1)
    journal, _ = await sessions.create(NewSession(agent="rehearsal"), Outgoing(text="hang"))
    await until(sessions, journal.state.id, lambda state: state.attached is not None and state.attached.opened)

    async def more(runner: Runner, link: AgentLink) -> bool:
        await asyncio.sleep(0)
        lives = link.launch is not None and link.launch.exit() is None
        return lives or await receive(runner, link)

    monkeypatch.setattr(Runner, "_receive", more)
    await sessions.abort(journal.state.id)
    await until_over(sessions, journal.state.id)
    assert journal.state.turn is not None and journal.state.turn.stop_reason == "cancelled"


async def test_a_turn_stored_during_shutdown_is_left_to_the_next_server(
    engine: Engine, sessions: Sessions, store: HeldStore
) -> None:
    journal, _ = await sessions.create(NewSession(agent="rehearsal-resume"))
    store.going.clear()
    store.asked.clear()
    sending = asyncio.ensure_future(sessions.send(journal.state.id, Outgoing(text="say one")))
    async with asyncio.timeout(WAIT_S):
        await store.asked.wait()
        stopping = asyncio.ensure_future(engine.stop())
        while not engine.runners.is_stopping:  # noqa: ASYNC110  there is no event for this
            await asyncio.sleep(0)
        store.going.set()
        await sending
        await stopping
    assert journal.state.working
    assert not list(sessions.runners)
