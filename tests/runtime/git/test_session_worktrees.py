"""The worktrees of sessions, in a server in this process: completed before a turn, and no obstacle to an erase."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from perdure.config import Config
from perdure.core import events as ev
from perdure.runtime.agents.registry import Agents
from perdure.runtime.data.projects import Projects
from perdure.runtime.engine import Engine
from perdure.runtime.git.repository import git_dir_of
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log
from perdure.runtime.log.reading import batches
from perdure.runtime.verbs.eraser import Note
from perdure.runtime.verbs.outgoing import Outgoing
from perdure.runtime.verbs.sessions import NewSession, Sessions
from perdure.stores.sqlite import SqliteStore
from tests.harness import WAIT_S
from tests.runtime.git.project import Project
from tests.runtime.logs import node_id


async def started(store: SqliteStore, folder: Path) -> Engine:
    log, config = Log(store), Config()
    log.generation = await store.claim()
    agents, projects = Agents(config.agents, folder, None), Projects(store, {}, folder)
    engine = Engine(log, agents, projects, config, folder, node_id=node_id())
    await engine.start()
    return engine


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "perdure.db")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def engine(store: SqliteStore, tmp_path: Path) -> AsyncIterator[Engine]:
    made = await started(store, tmp_path / "data")
    yield made
    async with asyncio.timeout(WAIT_S):
        await made.stop(stop_agents=True)


@pytest.fixture
def sessions(engine: Engine) -> Sessions:
    return engine.sessions


def new(project: Project, title: str = "Fix it") -> NewSession:
    return NewSession(agent="rehearsal", workdir=str(project.root), title=title, workspace="worktree")


class Waiter:
    """Waits until a turn has ended."""

    def __init__(self, journal: Journal, turn: int) -> None:
        self._journal = journal
        self._turn = turn
        self.reached = asyncio.Event()
        self.position = 0

    def wake(self) -> None:
        if self._journal.state.phase == "idle" and self._journal.state.last_turn == self._turn:
            self.reached.set()


async def turn(sessions: Sessions, session_id: str, text: str) -> str:
    """Run a turn. Returns how it ended, and its error."""
    journal = await sessions.log.open(session_id)
    waiter = Waiter(journal, journal.state.last_turn + 1)
    journal.follow(waiter)
    await sessions.send(session_id, Outgoing(text=text))
    async with asyncio.timeout(WAIT_S):
        await waiter.reached.wait()
    journal.unfollow(waiter)
    number = journal.state.last_turn
    rows = [row async for batch in batches(sessions.log.store, session_id, 0) for row in batch]
    events = [event for event in (ev.decode(row.body) for row in rows) if event.turn == number]
    ends = [event.stop_reason for event in events if isinstance(event, ev.TurnEnd)]
    return " ".join([*ends, *(event.message for event in events if isinstance(event, ev.Error))])


async def test_a_worktree_that_was_half_created_again_is_completed_before_the_turn(
    sessions: Sessions, project: Project
) -> None:
    journal, _ = await sessions.create(new(project))
    root = Path(journal.state.workdir)
    # As a server leaves it that was killed after `git worktree add --no-checkout`.
    for name in os.listdir(root):
        if name != ".git":
            shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()
    git_dir = git_dir_of(str(root))
    assert git_dir is not None
    os.unlink(os.path.join(git_dir, "index"))
    ended = await turn(sessions, journal.state.id, "write new.txt by the agent")
    assert ended.startswith("end_turn"), ended
    assert project.git("-C", str(root), "status", "--porcelain") == b"?? new.txt\n"


async def test_a_turn_fails_if_its_worktree_can_not_be_created_again(sessions: Sessions, project: Project) -> None:
    journal, _ = await sessions.create(new(project))
    root = Path(journal.state.workdir)
    assert (await turn(sessions, journal.state.id, "say one")).startswith("end_turn")
    (root / ".git").unlink()
    ended = await turn(sessions, journal.state.id, "write new.txt by the agent")
    assert "The session's worktree could not be created again" in ended
    assert "Move it away" in ended
    assert not (root / "new.txt").exists()
    shutil.rmtree(root)
    assert (await turn(sessions, journal.state.id, "write new.txt by the agent")).startswith("end_turn")
    assert (root / "new.txt").exists() and (root / "a.txt").exists()


async def test_sessions_that_are_created_at_once_with_the_same_title_get_their_own_branches(
    sessions: Sessions, project: Project
) -> None:
    made = await asyncio.gather(*(sessions.create(new(project)) for _ in range(4)))
    own = [journal.state.worktree for journal, _ in made]
    assert sorted(each["branch"] for each in own if each) == [
        "perdure/fix-it",
        "perdure/fix-it-2",
        "perdure/fix-it-3",
        "perdure/fix-it-4",
    ]


async def test_a_repeated_request_for_a_worktree_gets_the_same_one(sessions: Sessions, project: Project) -> None:
    asked = [sessions.workspaces.make_worktree(str(project.root), "s_new", "Fix it") for _ in range(3)]
    made = await asyncio.gather(*asked)
    assert made[0] == made[1] == made[2]
    journal, _ = await sessions.create(new(project), session_id="s_new")
    assert journal.state.worktree is not None and journal.state.worktree["branch"] == "perdure/fix-it"


async def test_a_worktree_that_can_not_be_deleted_stops_neither_erases_nor_the_next_server(
    store: SqliteStore,
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = await started(store, tmp_path / "data")
    sessions = engine.sessions
    await sessions.eraser.cancel()
    (first, _), (second, _) = await sessions.create(new(project)), await sessions.create(new(project))
    stuck, real = first.state.workdir, shutil.rmtree

    def refuse(folder: str, ignore_errors: bool = False) -> None:
        if str(folder).startswith(stuck):
            raise PermissionError(1, "Operation not permitted")
        real(folder, ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    note = Note(stuck, worktree=first.state.worktree)
    await store.put_document("erasing", first.state.id, msgspec.json.encode(note))
    await sessions.erase(second.state.id)
    assert not os.path.lexists(second.state.workdir)
    await engine.stop(stop_agents=True)
    again = await started(store, tmp_path / "data")
    assert "can't be deleted: Operation not permitted" in caplog.text
    assert await store.documents("erasing") == {}
    assert not await again.sessions.exists(first.state.id)
    await again.stop(stop_agents=True)
