"""A driver that is defined in one module and registered with one line works everywhere, with real processes."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from perdure.config import AgentSettings, Config, ConfigError, ServerSettings
from perdure.core import events as ev
from perdure.drivers import DRIVERS
from perdure.drivers.base import SendInput, StartSession
from perdure.runtime.agents.registry import Agents
from perdure.runtime.data.projects import Projects
from perdure.runtime.engine import Engine
from perdure.runtime.log.log import Log
from perdure.runtime.verbs.outgoing import Outgoing
from perdure.runtime.verbs.sessions import NewSession
from perdure.stores.sqlite import SqliteStore
from tests.conformance.driver_traits import check_traits
from tests.conformance.drivers import DriverConformance, Scenario
from tests.drivers import line_driver
from tests.drivers.line_driver import VERSION, LineDriver, LineOnceDriver
from tests.harness import WAIT_S
from tests.runtime.logs import node_id

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, str(Path(line_driver.__file__))]
TURNS = (1, 2)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for driver in (LineDriver(), LineOnceDriver()):
        monkeypatch.setitem(DRIVERS, driver.name, driver)  # instead of the line in drivers/__init__.py


def settings(driver: str = "line", **more: Any) -> AgentSettings:
    given = {"driver": driver, "command": COMMAND, **more}
    given["env"] = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", **more.get("env", {})}
    return msgspec.convert(given, AgentSettings)


@asynccontextmanager
async def served(folder: Path, agent: AgentSettings, **server: Any) -> AsyncIterator[Engine]:
    config = Config(agents={"mine": agent}, server=ServerSettings(agent="mine", **server))
    store = SqliteStore(folder / "perdure.db")
    await store.open()
    log = Log(store)
    log.generation = await store.claim()
    agents = Agents(config.agents, folder, "mine")
    engine = Engine(log, agents, Projects(store, {}, folder), config, folder, node_id=node_id())
    await engine.start()
    try:
        yield engine
    finally:
        async with asyncio.timeout(WAIT_S):
            await engine.stop(stop_agents=True)
        await store.close()


class Reader:
    """Follows a session, and waits for events."""

    def __init__(self, engine: Engine, session_id: str) -> None:
        self._engine, self._session_id = engine, session_id
        self._woken = asyncio.Event()
        self.position = 0

    def wake(self) -> None:
        self._woken.set()

    async def until(self, wanted: Callable[[list[ev.AnyEvent]], bool]) -> list[ev.AnyEvent]:
        journal = await self._engine.log.open(self._session_id)
        journal.followers.add(self)
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    rows = await self._engine.sessions.read(self._session_id, 0, 1_000)
                    events = [ev.decode(row.body) for row in rows]
                    if wanted(events):
                        return events
                    self._woken.clear()
                    if journal.last_seq == (rows[-1].seq if rows else 0):
                        await self._woken.wait()
        finally:
            journal.followers.discard(self)


def has(kind: type[ev.Event], count: int = 1) -> Callable[[list[ev.AnyEvent]], bool]:
    return lambda events: sum(isinstance(event, kind) for event in events) >= count


def of(kind: type[Any], events: list[ev.AnyEvent]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def test_it_is_prewarmed_and_its_process_serves_several_turns(tmp_path: Path) -> None:
    async with served(tmp_path, settings()) as engine:
        journal, _ = await engine.sessions.create(NewSession())
        session_id = journal.state.id
        reader = Reader(engine, session_id)
        before = await reader.until(has(ev.AgentAttached))
        assert not of(ev.UserMessage, before)
        for turn, text in enumerate(("one", "two"), 1):
            await engine.sessions.send(session_id, Outgoing(text=text))
            events = await reader.until(has(ev.TurnEnd, turn))
        assert [event.delta for event in of(ev.AssistantText, events)] == ["ONE", "TWO"]
        assert [event.context for event in of(ev.TurnStart, events)] == ["fresh", "live"]
        assert [event.driver for event in of(ev.AgentLaunched, events)] == ["line-stay"]


async def test_the_runner_mode_chooses_the_member_of_its_family_with_one_process_per_turn(tmp_path: Path) -> None:
    async with served(tmp_path, settings("line-once")) as engine:
        journal, _ = await engine.sessions.create(NewSession())
        reader = Reader(engine, journal.state.id)
        for turn in TURNS:
            await engine.sessions.send(journal.state.id, Outgoing(text="again"))
            events = await reader.until(has(ev.TurnEnd, turn))
        assert [event.context for event in of(ev.TurnStart, events)] == ["fresh", "resumed"]
        assert [event.driver for event in of(ev.AgentLaunched, events)] == ["line-once", "line-once"]
    agents = Agents({"mine": settings()}, tmp_path, None)
    assert [agents.driver("mine", mode) for mode in (None, "streaming", "resume")] == [
        "line-stay",
        "line-stay",
        "line-once",
    ]


async def test_a_session_falls_back_to_its_other_driver(tmp_path: Path) -> None:
    agent = settings(env={"LINE_AGENT_HANGS": "1"}, prewarm=False)
    async with served(tmp_path, agent, start_timeout_s=1) as engine:
        journal, _ = await engine.sessions.create(NewSession())
        await engine.sessions.send(journal.state.id, Outgoing(text="hello"))
        events = await Reader(engine, journal.state.id).until(has(ev.TurnEnd))
        (switched,) = of(ev.DriverFallback, events)
        assert (switched.from_driver, switched.to) == ("line-stay", "line-once")
        assert [event.delta for event in of(ev.AssistantText, events)] == ["HELLO"]


@pytest.mark.parametrize(
    ("version", "state", "reason"),
    [
        (VERSION, "ready", None),
        ("2.9.9", "too_old", "Version 2.9.9 is too old; 3.0.0 or newer is needed."),
        ("new", "broken", "It printed no version"),
    ],
)
async def test_its_own_probe_judges_the_program(tmp_path: Path, version: str, state: str, reason: str | None) -> None:
    agents = Agents({"mine": settings(env={"LINE_AGENT_VERSION": version})}, tmp_path, None)
    await agents.probe()
    shown = agents.public("mine")
    assert (shown["state"], shown["driver"]) == (state, "line-stay")
    assert shown["reason"] is None if reason is None else shown["reason"].startswith(reason)


def test_its_traits_hold_and_what_it_lacks_is_refused(tmp_path: Path) -> None:
    for driver in (LineDriver(), LineOnceDriver()):
        check_traits(driver)
    with pytest.raises(ConfigError, match=r"agents\.mine: shared is only for agents with driver acp"):
        Agents({"mine": settings(shared=True)}, tmp_path, None)
    unknown = Agents({"mine": settings("lines")}, tmp_path, None).public("mine")
    assert unknown["reason"].endswith("acp, claude, claude-resume, claude-stream, line, line-once, line-stay.")


SCENARIOS = [
    Scenario(
        "plain",
        [
            StartSession("/srv/site"),
            b"opened native-1",
            SendInput(1, "m1", "hello"),
            b"text HEL",
            b"text LO",
            b"done",
            SendInput(2, "m2", "more"),
            b"text MORE",
            b"done",
        ],
    )
]


class TestConformance(DriverConformance):
    driver = LineDriver()
    scenarios: ClassVar[list[Scenario]] = SCENARIOS


class TestConformanceOfOnce(DriverConformance):
    driver = LineOnceDriver()
    scenarios: ClassVar[list[Scenario]] = SCENARIOS
