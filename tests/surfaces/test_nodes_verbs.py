"""The verbs for several nodes that share a store: liveness, draining, removing, and moving sessions.

The store is SQLite, used as if by several nodes. Tests with PostgreSQL cover what only a database server can do.
"""

import sqlite3
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import __version__
from perdure.config import Config
from perdure.core import commands as cmd
from perdure.core.clock import stamp
from perdure.core.decision import Decision, World
from perdure.core.errors import Refused
from perdure.core.resume import AgentFacts
from perdure.core.session import create, decide
from perdure.core.state import Session
from perdure.runtime.agents.registry import Agents
from perdure.runtime.data.projects import Projects
from perdure.runtime.log.journal import DECISIVE, Journal
from perdure.runtime.log.log import Log
from perdure.runtime.running.facts import Facts
from perdure.runtime.verbs.nodes import Nodes, Readiness
from perdure.runtime.verbs.outgoing import Outgoing, command_of
from perdure.stores.base import Node, Owner, Query
from perdure.stores.shared import Load, News
from perdure.stores.sqlite import SqliteStore
from perdure.stores.sqlite_group import find_head, write_owner
from perdure.stores.wakeups import LocalWakeups
from perdure.surfaces.http import nodes as shapes
from tests.runtime.logs import opened

Json = dict[str, Any]
KNOWN = AgentFacts(driver="acp", can_resume=True, workdir_id="1:2", fingerprint="bin")
WORLD = World(stamp(1_800_000_000), {"alpha": KNOWN})


class SharedSqlite(SqliteStore):
    """A joining node does not declare all others dead, and users can drain and remove nodes."""

    is_shared = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.draining: set[str] = set()
        self.moves_refused = 0
        self._generation: int | None = None

    async def claim(self) -> int:
        if self._generation is None:
            self._generation = await super().claim()
        return self._generation

    async def join(self, node: str, about: bytes) -> int:
        living = [each.node for each in await self.nodes() if not each.dead]
        incarnation = await super().join(node, about)
        for each in living:
            await self._change("UPDATE nodes SET dead = 0 WHERE node = ?", each)
        return incarnation

    async def nodes(self) -> list[Node]:
        return [msgspec.structs.replace(node, draining=node.node in self.draining) for node in await super().nodes()]

    async def set_draining(self, node: str, draining: bool) -> bool:
        (self.draining.add if draining else self.draining.discard)(node)
        return any(each.node == node for each in await self.nodes())

    async def die(self, node: str) -> None:
        await self._change("UPDATE nodes SET dead = 1 WHERE node = ?", node)

    async def remove_node(self, node: str) -> bool:
        await self._change("UPDATE heads SET owner = NULL, incarnation = NULL WHERE owner = ?", node)
        return await self._change("DELETE FROM nodes WHERE node = ?", node) > 0

    async def move(self, session_id: str, to: Owner, expect: int) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            head = find_head(connection, session_id)
            if head is None or head.decided_seq != expect:
                return False
            write_owner(connection, head.key, to, head.token + 1)
            return True

        if self.moves_refused:
            self.moves_refused -= 1
            return False
        moved: bool = await self._writer.submit(work, stale=(session_id,))
        return moved

    async def loads(self) -> dict[str, Load]:
        found: dict[str, Load] = {}
        for each in (await self.list_sessions(Query(status="running", limit=100))).found:
            if each.node is not None:
                before = found.get(each.node, Load(0, 0))
                runs = msgspec.json.decode(each.public)["state"] == "processing"
                found[each.node] = Load(before.sessions + 1, before.running + runs)
        return found

    async def news(self, positions: Mapping[str, int], *, limit: int, max_bytes: int) -> dict[str, News]:
        heads = await self.heads(list(positions))
        return {
            each: News(head, await self.read(each, positions[each], limit=limit, max_bytes=max_bytes))
            for each, head in heads.items()
        }

    async def _change(self, sql: str, value: str) -> int:
        changed: int = await self._writer.submit(lambda connection: connection.execute(sql, (value,)).rowcount)
        return changed


class Seen:
    """Heartbeats that this server has seen."""

    def __init__(self) -> None:
        self.unchanged: dict[str, float] = {}

    def unchanged_s(self, node_id: str, row: Node | None = None) -> float | None:
        return self.unchanged.get(node_id)

    def name_of(self, node_id: str) -> str:
        return node_id


class Installation:
    """Nodes a, b and c; the verbs are those of a."""

    def __init__(self, store: SharedSqlite, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.seen = Seen()
        self.wakeups = LocalWakeups()
        self.logs: dict[str, Log] = {}

    async def start(self) -> None:
        for name in "abc":
            self.logs[name] = await opened(self.store, name, self.wakeups)
        self.nodes = self.verbs(self.logs["a"])

    def verbs(self, log: Log) -> Nodes:
        config = Config()
        agents = Agents(config.agents, self.folder, None)
        return Nodes(log, Facts(log, agents, Projects(log.store, {}, self.folder), config), self.seen)

    async def session(self, node: str, session_id: str) -> Journal:
        command = cmd.CreateSession(session_id=session_id, project=None, agent="alpha", workdir="/srv")
        return (await self.logs[node].create(create(command, WORLD)))[0]

    async def state_of(self, node: str) -> str:
        return str(next(each["state"] for each in await self.nodes.all() if each["id"] == node))

    async def owner_of(self, session_id: str) -> str | None:
        owner = (await self.store.heads([session_id]))[session_id].owner
        return None if owner is None else owner.node


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    store = SharedSqlite(tmp_path / "perdure.db")
    await store.open()
    made = Installation(store, tmp_path)
    await made.start()
    yield made
    for log in made.logs.values():
        await log.stop()
    await store.close()


async def begin_turn(journal: Journal) -> None:
    def made(state: Session) -> Decision:
        return decide(state, command_of(Outgoing(text="say hello"), "m1"), WORLD)

    await journal.record(made)
    assert journal.state.working


async def end(journal: Journal) -> None:
    await journal.record(lambda state: decide(state, cmd.EndSession("stopped", "stopped"), WORLD))


async def refused(work: Any) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        await work
    return caught.value.code, caught.value.detail


# Listing ------------------------------------------------------------------------------------------------------------


async def test_every_node_is_listed_with_its_load(installation: Installation) -> None:
    await installation.session("a", "s1")
    await begin_turn(await installation.session("b", "s2"))
    await end(await installation.session("b", "s3"))
    nodes = await installation.nodes.all()
    assert [(node["name"], node["sessions"], node["running"], node["this"]) for node in nodes] == [
        ("a", 1, 0, True),
        ("b", 1, 1, False),
        ("c", 0, 0, False),
    ]
    msgspec.convert({"nodes": nodes}, shapes.NodeList)


async def test_a_nodes_own_report_is_shown(installation: Installation) -> None:
    about: Json = {
        "name": "north",
        "url": "http://10.0.0.2:7433",
        "version": "9.9",
        "labels": ["gpu"],
        "workdirs": "shared",
        "slots": 4,
        "agents": ["claude"],
        "started_at": "2026-11-01T00:00:00.000Z",
    }
    await installation.store.join("d", msgspec.json.encode({**about, "machine_id": "x", "of_a_newer_version": []}))
    shown = next(node for node in await installation.nodes.all() if node["id"] == "d")
    assert shown | about == shown


@pytest.mark.parametrize("about", [b"{}", b"not JSON", b"[]", b'{"name":7,"labels":"gpu","slots":"x","workdirs":1}'])
async def test_a_node_of_another_version_is_shown_without_missing_fields(
    installation: Installation, about: bytes
) -> None:
    await installation.store.join("d", about)
    shown = next(node for node in await installation.nodes.all() if node["id"] == "d")
    msgspec.convert(shown, shapes.Node)
    assert (shown["name"], shown["url"], shown["version"], shown["slots"]) == ("d", None, None, None)
    assert (shown["labels"], shown["agents"], shown["workdirs"], shown["state"]) == ([], [], "local", "alive")
    own = next(node for node in await installation.nodes.all() if node["this"])
    assert own["version"] == __version__ and own["slots"] is not None and "rehearsal" in own["agents"]


async def test_a_node_is_silent_when_its_heartbeat_was_unchanged_for_its_own_limit(installation: Installation) -> None:
    await installation.store.join("d", b'{"takeover_after_s": 5}')
    seen = installation.seen.unchanged
    seen.update(b=29.0, d=4.0)
    assert [await installation.state_of(node) for node in "bcd"] == ["alive", "alive", "alive"]
    seen.update(b=31.0, d=6.04)
    assert [await installation.state_of(node) for node in "bd"] == ["silent", "silent"]
    assert [node["last_seen_s"] for node in await installation.nodes.all()] == [None, 31.0, None, 6.0]
    await installation.store.die("b")
    assert await installation.state_of("b") == "dead"


async def test_a_node_never_reports_itself_as_silent(installation: Installation) -> None:
    installation.seen.unchanged["a"] = 1000.0
    own = (await installation.nodes.all())[0]
    assert (own["state"], own["last_seen_s"]) == ("alive", None)


# Draining and removing ----------------------------------------------------------------------------------------------


async def test_a_node_drains_until_it_is_resumed(installation: Installation) -> None:
    drained = await installation.nodes.drain("b")
    assert (drained["id"], drained["state"], drained["draining"]) == ("b", "draining", True)
    installation.seen.unchanged["b"] = 60.0
    assert await installation.state_of("b") == "silent", "silence matters more than draining"
    installation.seen.unchanged["b"] = 0.0
    assert (await installation.nodes.resume("b"))["state"] == "alive"


async def test_a_node_is_addressed_by_its_id_or_by_a_unique_name(installation: Installation) -> None:
    for node, name in (("d", "north"), ("e", "south"), ("f", "south")):
        await installation.store.join(node, msgspec.json.encode({"name": name}))
    assert (await installation.nodes.drain("north"))["id"] == "d"
    assert (await installation.nodes.drain("e"))["name"] == "south"
    for given in ("south", "west"):
        code, words = await refused(installation.nodes.drain(given))
        assert code == "not_found" and "`perdure nodes" in words


async def test_neither_a_live_node_nor_this_one_can_be_removed(installation: Installation) -> None:
    code, words = await refused(installation.nodes.remove("b"))
    assert code == "conflict" and "Stop it first" in words
    await installation.nodes.drain("b")
    assert (await refused(installation.nodes.remove("b")))[0] == "conflict"
    await installation.store.die("a")
    code, words = await refused(installation.nodes.remove("a"))
    assert code == "conflict" and "itself" in words


@pytest.mark.parametrize("end_of", ["silent", "dead"])
async def test_a_removed_node_is_gone_and_its_sessions_have_no_owner(installation: Installation, end_of: str) -> None:
    await installation.session("b", "s1")
    await end(await installation.session("b", "s2"))
    if end_of == "dead":
        await installation.store.die("b")
    installation.seen.unchanged["b"] = 60.0
    assert await installation.nodes.remove("b") == {"id": "b", "name": "b", "sessions": 1}
    assert [node["id"] for node in await installation.nodes.all()] == ["a", "c"]
    assert await installation.owner_of("s1") is None


# Moving -------------------------------------------------------------------------------------------------------------


async def test_a_session_is_moved_and_both_nodes_are_woken(installation: Installation) -> None:
    before = await installation.session("b", "s1")
    heard: list[tuple[str, str]] = []
    for name, log in installation.logs.items():
        log.watch(lambda session_id, name=name: heard.append((name, session_id)))  # type: ignore[misc]
    announced: list[str] = []
    installation.wakeups.listen(object(), announced.append)
    moved = await installation.nodes.move("c", session_ids=["s1"])
    assert moved == {"to": "c", "moved": ["s1"], "failed": []}
    assert await installation.owner_of("s1") == "c"
    assert announced == [f"{DECISIVE}s1"] and {("a", "s1"), ("c", "s1")} <= set(heard)
    assert await installation.nodes.move("c", session_ids=["s1"]) == moved, "repeating it changes nothing"
    await installation.logs["b"].stop()
    assert before.owner is not None and before.owner.node == "c", "a stop waits for pending reads"


async def test_a_move_is_retried_after_a_concurrent_write(installation: Installation) -> None:
    await installation.session("b", "s1")
    installation.store.moves_refused = 2
    assert (await installation.nodes.move("c", session_ids=["s1"]))["moved"] == ["s1"]
    installation.store.moves_refused = 100
    assert (await refused(installation.nodes.move("a", session_ids=["s1"])))[0] == "conflict"


async def test_a_session_whose_turn_runs_on_a_live_node_is_not_moved(installation: Installation) -> None:
    await begin_turn(await installation.session("b", "s1"))
    for _ in range(2):
        code, words = await refused(installation.nodes.move("c", session_ids=["s1"]))
        assert code == "turn_active" and "on node b" in words
        await installation.nodes.drain("b")
    installation.seen.unchanged["b"] = 60.0
    assert (await installation.nodes.move("c", session_ids=["s1"]))["moved"] == ["s1"]
    assert await installation.owner_of("s1") == "c"


async def test_invalid_moves_are_refused(installation: Installation) -> None:
    await end(await installation.session("b", "s1"))
    assert (await refused(installation.nodes.move("c", session_ids=["s1"])))[0] == "session_ended"
    assert (await refused(installation.nodes.move("c", session_ids=["none"])))[0] == "not_found"
    assert (await refused(installation.nodes.move("none", session_ids=["s1"])))[0] == "not_found"
    assert (await refused(installation.nodes.move("c")))[0] == "invalid"
    assert (await refused(installation.nodes.move("c", session_ids=["s1"], source="b")))[0] == "invalid"
    assert (await refused(installation.nodes.move("c", source="c")))[0] == "invalid"
    code, words = await refused(installation.nodes.move("c", source="b"))
    assert code == "conflict" and "Drain it first" in words


@pytest.mark.parametrize("state", ["draining", "silent", "dead"])
async def test_no_session_is_moved_to_a_node_that_would_not_run_it(installation: Installation, state: str) -> None:
    await installation.session("b", "s1")
    if state == "draining":
        await installation.nodes.drain("c")
    elif state == "dead":
        await installation.store.die("c")
    else:
        installation.seen.unchanged["c"] = 60.0
    code, words = await refused(installation.nodes.move("c", session_ids=["s1"]))
    assert code == "conflict" and state in words
    assert await installation.owner_of("s1") == "b"


async def test_all_sessions_of_a_node_are_moved_except_running_ones(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.runtime.verbs.nodes.LIST_PAGE", 3)
    sessions = [await installation.session("b", f"s{number:02}") for number in range(20)]
    await begin_turn(sessions[7])
    await end(sessions[8])
    other = await installation.session("a", "other")
    await installation.nodes.drain("b")
    answer = await installation.nodes.move("c", source="b")
    msgspec.convert(answer, shapes.Moved)
    assert sorted(answer["moved"]) == [f"s{number:02}" for number in range(20) if number not in (7, 8)]
    assert [(each["session_id"], each["code"]) for each in answer["failed"]] == [("s07", "turn_active")]
    assert [await installation.owner_of(name) for name in ("s00", "s07", "s08", other.state.id)] == ["c", "b", "b", "a"]


async def test_each_of_several_sessions_has_its_own_result(installation: Installation) -> None:
    await installation.session("b", "s1")
    answer = await installation.nodes.move("c", session_ids=["s1", "none", "s1"])
    assert answer["moved"] == ["s1"]
    assert [(each["session_id"], each["code"]) for each in answer["failed"]] == [("none", "not_found")]


# Readiness ----------------------------------------------------------------------------------------------------------


def test_a_server_is_ready_unless_it_stops_drains_or_its_store_is_silent() -> None:
    draining, silent_s = [False], [0.0]
    readiness = Readiness(lambda: draining[0], lambda: silent_s[0])
    assert readiness.reason() is None
    silent_s[0] = 60.0
    assert "store" in (readiness.reason() or "")
    draining[0] = True
    assert "draining" in (readiness.reason() or "")
    readiness.is_stopping = True
    assert "stopping" in (readiness.reason() or "")
