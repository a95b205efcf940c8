"""Erasing in this process, with a store that is full for some time."""

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest

from perdure.config import Config
from perdure.core.errors import Refused, StoreDamaged, StoreFull
from perdure.runtime.agents.registry import Agents
from perdure.runtime.data.projects import Projects
from perdure.runtime.engine import Engine
from perdure.runtime.keeping import processes
from perdure.runtime.log.log import Log
from perdure.runtime.log.quarantine import Damage
from perdure.runtime.verbs import eraser
from perdure.runtime.verbs.outgoing import Outgoing
from perdure.runtime.verbs.sessions import Import, NewSession, Sessions
from perdure.stores import sqlite_scrub
from perdure.stores.sqlite import SqliteStore
from tests.harness import WAIT_S
from tests.runtime.logs import node_id


class CrampedStore(SqliteStore):
    """Has no space for the first few erases."""

    refusals = 2

    async def erase(self, session_id: str, generation: int) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreFull("no room")
        await super().erase(session_id, generation)


async def started(store: SqliteStore, folder: Path) -> tuple[Engine, Sessions]:
    await store.open()
    log, config = Log(store), Config()
    log.generation = await store.claim()
    agents, projects = Agents(config.agents, folder, None), Projects(store, {}, folder)
    engine = Engine(log, agents, projects, config, folder, node_id=node_id())
    await engine.start()
    # Each test decides when to look for unfinished erasures.
    await engine.sessions.eraser.cancel()
    return engine, engine.sessions


async def test_an_erase_that_runs_out_of_space_is_completed_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eraser, "RETRY_S", 0.01)
    store = CrampedStore(tmp_path / "perdure.db")
    host, sessions = await started(store, tmp_path)
    sessions.eraser.start()
    journal, _ = await sessions.create(NewSession(agent="rehearsal"))
    session_id, workdir = journal.state.id, Path(journal.state.workdir)
    assert workdir.is_dir()
    with pytest.raises(Refused, match="half erased"):
        await sessions.erase(session_id)
    async with asyncio.timeout(WAIT_S):
        while await store.load(session_id) is not None or await store.documents("upkeep"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert await store.documents("erasing") == {}
    assert not workdir.exists()
    with pytest.raises(Refused, match="There is no session"):
        await host.log.open(session_id)
    await host.stop(stop_agents=True)
    await sessions.eraser.stop()
    await store.close()


class ForgetfulStore(SqliteStore):
    """Has space to delete rows, but at first none to record that this is done."""

    has_room = False

    async def put_document(self, kind: str, key: str, body: bytes | None) -> None:
        if kind == "erasing" and body is None and not self.has_room:
            raise StoreFull("no room")
        await super().put_document(kind, key, body)


KEPT = Import(id="kept", created_at="2026-02-07T12:00:00.000Z", events=msgspec.Raw(b"[]"), agent="rehearsal")


async def half_erased(store: SqliteStore, folder: Path) -> tuple[Engine, Sessions]:
    """An imported session whose erasure is not complete."""
    host, sessions = await started(store, folder)
    await sessions.imports.take_in(KEPT)
    with pytest.raises(Refused, match="half erased"):
        await sessions.erase(KEPT.id)
    return host, sessions


async def test_an_id_can_not_be_reused_before_its_erase_is_completed(tmp_path: Path) -> None:
    """Otherwise the new session would be erased together with the rest of the old one."""
    store = ForgetfulStore(tmp_path / "perdure.db")
    host, sessions = await half_erased(store, tmp_path)
    assert await store.load("kept") is None
    with pytest.raises(Refused, match=r"is being erased\. Try again") as refusal:
        await sessions.imports.take_in(KEPT)
    assert refusal.value.code == "unavailable", "a conflict would say that it is there"
    with pytest.raises(Refused, match=r"is being erased\. Try again"):
        await sessions.create(NewSession(agent="rehearsal"), session_id="kept")
    store.has_room = True
    await sessions.eraser.complete()
    await sessions.imports.take_in(KEPT)
    await sessions.eraser.complete()
    assert await store.load("kept") is not None
    await host.stop(stop_agents=True)
    await store.close()


async def test_a_session_being_erased_is_not_reported_as_existing(tmp_path: Path) -> None:
    store = CrampedStore(tmp_path / "perdure.db")
    host, sessions = await half_erased(store, tmp_path)
    assert await store.load("kept") is not None
    with pytest.raises(Refused, match=r"is being erased\. Try again"):
        await sessions.imports.take_in(KEPT)
    await host.stop(stop_agents=True)
    await store.close()


class DamagedStore(SqliteStore):
    """Fails to delete the rows of one session."""

    damaged = ""

    async def erase(self, session_id: str, generation: int) -> None:
        if session_id == self.damaged:
            raise StoreDamaged("a page can't be read")
        await super().erase(session_id, generation)


async def test_a_session_that_can_not_be_erased_blocks_neither_others_nor_the_next_server(
    tmp_path: Path,
) -> None:
    store = DamagedStore(tmp_path / "perdure.db")
    host, sessions = await started(store, tmp_path)
    first, _ = await sessions.create(NewSession(agent="rehearsal"))
    second, _ = await sessions.create(NewSession(agent="rehearsal"))
    store.damaged = first.state.id
    with pytest.raises(StoreDamaged):
        await sessions.erase(first.state.id)
    note = (await store.documents("erasing"))[first.state.id]
    await store.put_document("erasing", second.state.id, note)
    await sessions.eraser.complete()
    assert list(await store.documents("erasing")) == [first.state.id]
    assert await store.load(second.state.id) is None
    assert [damage.session_id for damage in host.log.quarantine.all()] == [first.state.id]
    await host.stop(stop_agents=True)
    await store.close()


@pytest.mark.parametrize("number", [0, 1])
async def test_a_quarantined_launch_is_not_listed_after_its_folder_was_erased_with_a_session(
    tmp_path: Path, number: int
) -> None:
    """The launch is shared: it has a note for each session, and is listed under one of them."""
    store = SqliteStore(tmp_path / "perdure.db")
    host, sessions = await started(store, tmp_path)
    pair = [(await sessions.create(NewSession(agent="rehearsal")))[0].state.id for _ in range(2)]
    for launch_id, of in (("here-1", pair), ("here-2", [pair[1 - number]])):
        (tmp_path / "quarantine" / launch_id).mkdir(parents=True)
        for session_id in of:
            damage = Damage("launch", launch_id, session_id, "a file is cut")
            (tmp_path / "quarantine" / launch_id / f"damage-{session_id}.json").write_bytes(msgspec.json.encode(damage))
    quarantine = host.log.quarantine
    quarantine.open(tmp_path / "quarantine")
    await sessions.erase(pair[number])
    assert not (tmp_path / "quarantine" / "here-1").exists()
    assert [damage.id for damage in quarantine.all()] == ["here-2"]
    await store.put_document("ending", "here-2", b"true")
    await sessions.eraser.complete()
    assert not (tmp_path / "quarantine" / "here-2").exists()
    assert quarantine.all() == []
    await host.stop(stop_agents=True)
    await store.close()


async def test_a_runner_whose_session_is_gone_ends_instead_of_retrying(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = SqliteStore(tmp_path / "perdure.db")
    host, sessions = await started(store, tmp_path)
    lost, _ = await sessions.create(NewSession(agent="rehearsal"))
    erased, _ = await sessions.create(NewSession(agent="rehearsal"))
    for journal in (lost, erased):
        await sessions.send(journal.state.id, Outgoing(text="say hello\nhang"))
        # Behind the server's back: no verb does this.
        await store.erase(journal.state.id, host.log.generation)
    host.log.erased.add(erased.state.id)
    async with asyncio.timeout(WAIT_S):
        while host.runners:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert [damage.id for damage in host.log.quarantine.all()] == [lost.state.id]
    assert len(caplog.records) < 20, caplog.text
    assert not [record for record in caplog.records if record.exc_info], caplog.text
    await host.stop(stop_agents=True)
    await store.close()
    # No session refers to these any more; the next start would end them.
    await processes.end_marked([folder.name for folder in (tmp_path / "launches").iterdir()], 1.0)


async def test_a_database_too_large_to_rewrite_is_reported_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_scrub, "VACUUM_MAX_BYTES", 1024)
    store = SqliteStore(tmp_path / "perdure.db")
    host, sessions = await started(store, tmp_path)
    journal, _ = await sessions.create(NewSession(agent="rehearsal"))
    assert await store.scrub(whole=True)
    assert not caplog.records
    await sessions.erase(journal.state.id)
    assert await store.scrub(whole=True)
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"stop the server and run: sqlite3 {tmp_path / 'perdure.db'} VACUUM" in told
    await host.stop()
    await store.close()
