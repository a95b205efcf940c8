"""Erasing a session through one node while the other one, which has its directory, records what a turn changed."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import WAIT_S, eventually
from tests.surfaces.http.local import LocalNodes, LocalServer, settings
from tests.surfaces.http.test_changes import Scratch

pytestmark = [pytest.mark.nodes, pytest.mark.needs("postgresql")]


@pytest.fixture
def nodes(tmp_path: Path, postgres_url: str) -> Iterator[LocalNodes]:
    made = LocalNodes(tmp_path / "nodes", settings(heartbeat_s=0.2), postgres_url)
    made.start()
    yield made
    made.finish()


class HeldSnapshot:
    """The next snapshot of a node is held back before a ref keeps it, until somebody waits for the turn's record."""

    def __init__(self, node: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        recorder = node.server.engine.recorder
        original, finished = recorder.trees.snapshots.take, recorder.finished

        def slow(*given: Any, **more: Any) -> Any:
            taken = original(*given, **more)
            self.reached.set()
            assert self.go.wait(WAIT_S)
            return taken

        async def waiting(session_id: str) -> bool:
            self.go.set()
            return bool(await finished(session_id))

        monkeypatch.setattr(recorder.trees.snapshots, "take", slow)
        monkeypatch.setattr(recorder, "finished", waiting)


@pytest.mark.parametrize("waits", [True, False])
def test_nothing_is_left_of_a_session_that_another_node_erases_during_its_snapshot(
    nodes: LocalNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Whether the node that erases waits for the snapshot, or gives up waiting."""
    a, b = nodes.nodes
    scratch = Scratch(a, tmp_path / "repository")
    session = scratch.session
    scratch.turn("write b.txt x")
    a.send(session, "ask Go on? | yes")
    prompt = a.prompt(session)
    held = HeldSnapshot(a, monkeypatch)
    answers = {"answers": {prompt["questions"][0]["question_id"]: "yes"}}
    a.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", answers, expect=200)
    assert held.reached.wait(WAIT_S)
    if not waits:
        monkeypatch.setattr(b.server.engine.node_requests, "_patience_s", 0.0)
    b.http.delete(f"/api/sessions/{session}?purge=true").raise_for_status()
    shared = b.server.log.shared
    assert shared is not None
    tombstones = f"tombstone.{a.server.engine.launcher.node_id}"
    eventually(lambda: b.run(shared.documents(tombstones)) == {}, "its node has deleted its files")
    held.go.set()
    eventually(lambda: not a.ask(lambda: a.server.engine.recorder.works_in(str(scratch.root))), "the turn is over")
    assert b.run(shared.file_names(session, "")) == []
    assert scratch.git("for-each-ref", "refs/perdure") == b""


def test_an_erased_session_becomes_no_parent_on_a_node_that_has_not_heard_of_it(
    nodes: LocalNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = nodes.nodes
    parent = b.create()
    assert a.session(parent)["state"] == "idle"
    monkeypatch.setattr(a.server.engine.log, "learn_erased", lambda session_id: None)
    assert b.http.delete(f"/api/sessions/{parent}?purge=true").status_code == 200
    assert parent in a.server.engine.log.journals
    a.post("/api/sessions", {"parent": parent}, expect=404)
