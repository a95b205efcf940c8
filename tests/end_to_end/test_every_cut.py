"""The server dies after any byte that an agent wrote, or before any line of input: the turn is the same."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.config import Config
from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core.session import create, decide
from perdure.runtime.agents.registry import Agents
from perdure.runtime.data.projects import Projects
from perdure.runtime.engine import Engine
from perdure.runtime.log.journal import Journal
from perdure.runtime.running import runner as runner_module
from perdure.runtime.running.agent_link import AgentLink
from perdure.runtime.running.runner import Runner
from perdure.stores.base import Store
from perdure.stores.sqlite import SqliteStore
from tests.end_to_end.spool import Recordings, Spool
from tests.harness import WAIT_S, LiveServer
from tests.runtime.logs import node_id, opened
from tests.sizes import size

STEP_BYTES = size("CUT_STEP", 1, fast=40)
PASSING = ("prompt_id", "block", "waited_ms")
"""Fields that differ between two runs of the same turn."""
SHORT = "say hi"
LONG = """\
say beginning
think about it
stream 30
tool Bash ls
plan one; two
edit notes.txt
permit Deploy
garbage
ask Which? | red | blue
usage 10 20
say the end"""


@pytest.fixture
def record(server: LiveServer) -> Callable[[str], tuple[Spool, str]]:
    def recorded(script: str) -> tuple[Spool, str]:
        session = server.create()
        server.send(session, script)
        while server.session(session)["state"] == "processing":
            for prompt in server.get(f"/api/sessions/{session}/prompts")["prompts"]:
                server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", answer_to(prompt), expect=200)
        folder = next((server.data / "launches").iterdir())
        return Spool((folder / "out").read_bytes(), (folder / "in").read_bytes()), server.session(session)["workdir"]

    return recorded


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    kept = SqliteStore(tmp_path / "cuts.db", durability="normal")
    await kept.open()
    yield kept
    await kept.close()


def answer_to(prompt: dict[str, Any]) -> dict[str, Any]:
    if prompt["kind"] == "question":
        return {"answers": {prompt["questions"][0]["question_id"]: "blue"}}
    return {"option_id": "allow_once"}


class Stage:
    """One session with the recorded agent, across several servers."""

    def __init__(self, store: Store, recordings: Recordings, workdir: str, data: Path) -> None:
        self.store, self.recordings, self.workdir, self.data = store, recordings, workdir, data
        self.session = "s"
        self.generation = 0

    async def _server(self) -> Engine:
        log, config = await opened(self.store), Config()
        projects = Projects(self.store, config.projects, self.data)
        agents = Agents(config.agents, self.data, None)
        engine = Engine(log, agents, projects, config, self.data, node_id=node_id())
        engine.pump.start()
        return engine

    async def begin(self, session: str, script: str) -> tuple[Engine, Runner]:
        """The first server accepts the message."""
        self.session = session
        self.recordings.given = []
        engine = await self._server()
        command = cmd.CreateSession(session_id=session, project=None, agent="rehearsal", workdir=self.workdir)
        world = engine.facts.world
        journal, _ = await engine.log.create(create(command, world(unborn(session, self.workdir))))
        message = cmd.SubmitMessage(message_id="m-1", text=script)
        await journal.record(lambda state: decide(state, message, world(state, message)))
        return engine, self._runner(engine)

    async def go_on(self) -> tuple[Engine, Runner]:
        """The next server reads what the last one stored."""
        engine = await self._server()
        journal = await engine.log.open(self.session)
        # As at startup: running launches are resumed before anything new starts.
        engine.runners.is_recovering = True
        await engine.log.claim(journal)
        engine.runners.is_recovering = False
        rows = [row for row in await self.store.launches() if row.session_id == self.session]
        if rows:
            runner = engine.runners.make(journal)
            await runner.recover(AgentLink.restore(rows[0], self.recordings.handle()))
            runner.start()
        else:
            engine.runners.ensure(journal)
        return engine, self._runner(engine)

    def _runner(self, engine: Engine) -> Runner:
        runner = engine.runners.get(self.session)
        assert runner is not None
        return runner

    async def finish(self, engine: Engine, runner: Runner) -> "Seen":
        """Answer prompts until the turn is over."""
        journal = runner.journal
        async with asyncio.timeout(WAIT_S):
            while journal.state.working:
                for prompt in list(journal.state.prompts.values()):
                    await self._answer(engine, journal, msgspec.to_builtins(prompt))
                await asyncio.sleep(0)
        await runner.stop()
        await engine.pump.stop()
        seen = Seen(await engine.log.history(self.session), await self._types(), list(self.recordings.given))
        await self.store.erase(self.session, engine.log.generation)
        return seen

    async def until_cut(self, engine: Engine, runner: Runner) -> bool:
        """Run until the crash point, then die. False if the turn ended before."""
        journal = runner.journal
        async with asyncio.timeout(WAIT_S):
            while journal.state.working:
                newest = self.recordings.newest
                if newest is not None and newest.reached.is_set():
                    break
                for prompt in list(journal.state.prompts.values()):
                    await self._answer(engine, journal, msgspec.to_builtins(prompt))
                await asyncio.sleep(0)
        assert runner.task is not None
        runner.task.cancel()
        await asyncio.wait([runner.task])
        await engine.pump.stop()
        return journal.state.working

    async def _answer(self, engine: Engine, journal: Journal, prompt: dict[str, Any]) -> None:
        command = cmd.AnswerPrompt(prompt_id=prompt["prompt_id"], **answer_to(prompt))
        await journal.record(lambda state: decide(state, command, engine.facts.world(state, command)))

    async def _types(self) -> list[str]:
        rows = await self.store.read(self.session, 0, limit=100_000)
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        return [row.type for row in rows if ev.decode(row.body).decisive]


class Seen:
    """What must be the same: the turn as users see it, the decisive events, and the agent's input."""

    def __init__(self, history: Any, types: list[str], given: list[bytes]) -> None:
        (view,) = history.views.values()
        timeless = [
            {key: value for key, value in part.items() if not key.endswith("at") and key not in PASSING}
            for part in view.show()
        ]
        self.value = (timeless, types, given, history.stop_reasons)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and self.value == other.value

    def __repr__(self) -> str:
        return repr(self.value)


def unborn(session: str, workdir: str) -> Any:
    from perdure.core.state import Session

    return Session(id=session, project=None, agent="rehearsal", workdir=workdir, created_at="")


@pytest.fixture
def stage(
    store: Store, record: Callable[[str], tuple[Spool, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Stage]:
    def made(script: str) -> Stage:
        spool, workdir = record(script)
        recordings = Recordings(spool)
        monkeypatch.setattr(runner_module, "Launch", recordings)
        return Stage(store, recordings, workdir, tmp_path)

    return made


async def cut_everywhere(stage: Stage, script: str, plans: list[dict[str, int]]) -> None:
    whole = await stage.finish(*await stage.begin("whole", script))
    assert whole.value[3] == {1: "end_turn"}
    for number, plan in enumerate(plans):
        stage.recordings.plan = dict(plan)
        engine, runner = await stage.begin(f"cut-{number}", script)
        was_cut = await stage.until_cut(engine, runner)
        stage.recordings.plan = {}
        assert was_cut, plan
        assert await stage.finish(*await stage.go_on()) == whole, plan


@pytest.mark.smoke
@pytest.mark.timeout(300)
async def test_a_crash_after_any_byte_of_a_short_turn_changes_nothing(stage: Callable[[str], Stage]) -> None:
    made = stage(SHORT)
    size = len(made.recordings.spool.out)
    lines = [end for _, end in made.recordings.spool.ends[:-1]]
    near = {end + step for end in lines for step in (-1, 0, 1)}
    cuts = sorted(cut for cut in near | set(range(0, size - 1, STEP_BYTES)) if 0 <= cut < size)
    print(f"{len(cuts)} cuts of {size} bytes")
    await cut_everywhere(made, SHORT, [{"cut": cut} for cut in cuts])


@pytest.mark.timeout(300)
async def test_a_crash_after_any_line_of_a_long_turn_changes_nothing(stage: Callable[[str], Stage]) -> None:
    made = stage(LONG)
    await cut_everywhere(made, LONG, [{"cut": end} for _, end in made.recordings.spool.ends[:-1]])


async def test_a_crash_before_any_line_is_given_to_the_agent_changes_nothing(stage: Callable[[str], Stage]) -> None:
    made = stage(LONG)
    count = len(made.recordings.spool.given)
    await cut_everywhere(made, LONG, [{"crash_at_line": line} for line in range(1, count + 1)])
