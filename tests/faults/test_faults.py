"""Faults of nodes and their database: nothing acknowledged is lost, nothing is done twice, viewers see everything.

Each seed is one run with random faults (run.py). PERDURE_TEST_FAULT_SEEDS=200 runs more of them, and `python -m
tests.faults.run 17` runs one. After that come single scenarios, with what users can rely on in each.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGSTOP
from typing import Any

import httpx2
import pytest

from perdure.runtime.running.node import BEATS_PER_TAKEOVER
from tests.faults import checker
from tests.faults.database import Database
from tests.faults.history import History, of, read
from tests.faults.nodes import REQUEST_TIMEOUT_S, FaultNode, Nodes, faketime
from tests.faults.run import FaultRun, note_lifetimes
from tests.faults.workload import WorkloadViewer
from tests.harness import Stream, eventually
from tests.sizes import size

SEEDS = size("FAULT_SEEDS", 14, fast=0)
TAKEOVER_S = 3.0
FROZEN_S = float(size("FROZEN_S", 5, fast=5))
OUTAGE_S = float(size("OUTAGE_S", 5, fast=5))
"""Longer than a takeover. One or two minutes would show the same but take longer."""
ACCEPTED_WITHIN_S = 1.0
WORKED_WITHIN_S = TAKEOVER_S + 5.0
"""How long a message may take if the session's owner is dead."""
STARTED_WITHIN_S = 20.0
LONG_STREAM = "stream 200 40"
LONG_STREAM_S = 8.0
SAYS_WITHIN_S = 60.0
GONE_WITHIN_S = 10.0
DAY_S = 86_400.0
LOOK_S = 0.05

pytestmark = [pytest.mark.full, pytest.mark.needs("linux", "postgresql")]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_with_random_faults_each_message_runs_once_and_each_viewer_sees_everything(seed: int, tmp_path: Path) -> None:
    FaultRun(seed, tmp_path).run()


# Single scenarios --------------------------------------------------------------------------------------------------


class Story:
    """Nodes with their own database, and helpers for a scenario."""

    def __init__(self, folder: Path, nodes: Nodes, http: httpx2.Client) -> None:
        self.nodes = nodes
        self.http = http
        self._folder = folder

    def create(self, node: FaultNode, name: str = "s0") -> str:
        return node.create(workdir=self.nodes.directory(name), title=name)

    def until_said(self, node: FaultNode, session: str, words: str, timeout_s: float = SAYS_WITHIN_S) -> None:
        eventually(
            lambda: words in self.said(node, session),
            lambda: f"{words!r} in {self.events(node, session)[-8:]}",
            timeout_s,
        )

    def events(self, node: FaultNode, session: str) -> list[Any]:
        return node.events(self.http, session) or []

    def said(self, node: FaultNode, session: str) -> str:
        return "".join(event["delta"] for event in self.events(node, session) if event["type"] == "assistant_text")

    def of_type(self, node: FaultNode, session: str, kind: str) -> list[Any]:
        return [event for event in self.events(node, session) if event["type"] == kind]

    def until_idle(self, node: FaultNode, session: str, timeout_s: float) -> None:
        node.wait_idle(session, timeout_s)

    def violations(self, *sessions: str) -> list[str]:
        """The checker's violations for these sessions. Scenarios record no operations, so those are not checked."""
        history = History(self._folder / "history.ndjson")
        note_lifetimes(self.nodes.lifetimes, history)
        history.close()
        found = checker.check_lifetimes(of(read(history.path), "lifetime"))
        for session in sessions:
            logs = {node.name: self.events(node, session) for node in self.nodes if node.is_up}
            log = next(iter(logs.values()))
            found += checker.check_same(session, logs)
            found += checker.check_order(session, log) + checker.check_times(session, log)
            found += checker.check_turns(session, log)
            found += checker.check_words(session, log) + checker.check_prompts(session, [], log, [])
        return found


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Callable[..., Story]]:
    """Start two nodes with these settings, for example `tell(workdirs="local")`."""
    with ExitStack() as stack:

        def begin(**how: Any) -> Story:
            database = stack.enter_context(Database(has_replica=how.pop("has_replica", False)))
            settings = {"takeover_s": TAKEOVER_S, **how}
            nodes = stack.enter_context(Nodes(tmp_path, database, Random(1), **settings))
            http = httpx2.Client(timeout=REQUEST_TIMEOUT_S, trust_env=False, verify=False)
            return Story(tmp_path, nodes, stack.enter_context(http))

        yield begin


def words(count: int) -> str:
    return "".join(f"w{number} " for number in range(count))


def test_a_killed_owner_is_replaced_and_its_turn_fails_with_its_output_so_far(tell: Callable[..., Story]) -> None:
    story = tell()
    a, b = story.nodes
    session = story.create(a)
    a.send(session, LONG_STREAM)
    story.until_said(b, session, "w20 ")
    a.crash()
    began_s = time.monotonic()
    b.send(session, "say after", when_busy="queue", message_id="next")
    assert time.monotonic() - began_s < ACCEPTED_WITHIN_S, "any node accepts a message immediately"
    story.until_said(b, session, "after", WORKED_WITHIN_S - (time.monotonic() - began_s))
    story.until_idle(b, session, SAYS_WITHIN_S)
    ends = [(event["turn"], event["stop_reason"]) for event in story.of_type(b, session, "turn_end")]
    assert ends == [(1, "failed"), (2, "end_turn")]
    (error,) = story.of_type(b, session, "error")
    assert "node-a" in error["message"], "the message names the node"
    partial = "".join(event["delta"] for event in story.of_type(b, session, "assistant_text") if event["turn"] == 1)
    assert partial.startswith(words(20)) and words(200).startswith(partial)
    a.revive()
    assert story.violations(session) == []
    eventually(lambda: not story.nodes.agents(a), lambda: f"its agent ended: {story.nodes.agents(a)}", GONE_WITHIN_S)


def test_an_owner_that_restarts_in_time_continues_its_turn(tell: Callable[..., Story]) -> None:
    story = tell(takeover_s=15)
    a, b = story.nodes
    session = story.create(a)
    a.send(session, "stream 100 30")
    story.until_said(b, session, "w20 ")
    a.crash()
    a.revive()
    story.until_idle(b, session, STARTED_WITHIN_S)
    assert story.said(b, session) == words(100)
    assert [event["stop_reason"] for event in story.of_type(b, session, "turn_end")] == ["end_turn"]
    assert story.nodes.owner(session) == "a"
    assert story.violations(session) == []


def test_nothing_from_a_frozen_owner_is_stored_after_the_takeover(tell: Callable[..., Story]) -> None:
    story = tell()
    a, b = story.nodes
    session = story.create(a)
    a.send(session, LONG_STREAM)
    story.until_said(b, session, "w20 ")
    a.signal(SIGSTOP)
    began_s = time.monotonic()
    b.send(session, "stream 20 20", when_busy="queue", message_id="next")
    story.until_idle(b, session, WORKED_WITHIN_S + 5)
    # The last heartbeat may have been up to one interval earlier.
    assert time.monotonic() - began_s >= TAKEOVER_S * (1 - 1 / BEATS_PER_TAKEOVER), "no takeover before that"
    before = checker.joined(story.events(b, session))
    eventually(lambda: time.monotonic() - began_s > FROZEN_S, "it was frozen long enough", FROZEN_S + 1)
    a.should_run = False
    a.signal(SIGCONT)
    eventually(lambda: not a.is_up, lambda: f"it stops after SIGCONT\n{a.log_tail()}", GONE_WITHIN_S)
    assert a.process is not None and a.process.poll() is not None
    eventually(lambda: not story.nodes.agents(a), lambda: f"its agent ended: {story.nodes.agents(a)}", GONE_WITHIN_S)
    assert checker.joined(story.events(b, session)) == before, "nothing was added to the session"
    a.revive()
    assert [event["stop_reason"] for event in story.of_type(b, session, "turn_end")] == ["failed", "end_turn"]
    assert story.violations(session) == []


def test_a_node_that_dies_during_a_takeover_ends_the_turn_after_its_restart(tell: Callable[..., Story]) -> None:
    story = tell()
    a, b = story.nodes
    session = story.create(a)
    a.send(session, LONG_STREAM)
    story.until_said(b, session, "w20 ")
    b.stop()
    b.mutant = "dies_in_takeover"
    b.revive()
    a.crash()
    eventually(lambda: not b.is_up, lambda: f"it dies\n{b.log_tail()}", WORKED_WITHIN_S)
    b.mutant = ""
    b.revive()
    story.until_idle(b, session, WORKED_WITHIN_S)
    assert [event["stop_reason"] for event in story.of_type(b, session, "turn_end")] == ["failed"]
    assert story.violations(session) == []


def test_a_takeover_interrupted_by_the_database_is_retried(tell: Callable[..., Story]) -> None:
    story = tell()
    a, b = story.nodes
    session = story.create(a)
    a.send(session, LONG_STREAM)
    story.until_said(b, session, "w20 ")
    b.stop()
    b.mutant = "loses_database_in_takeover"
    b.revive()
    a.crash()
    story.until_idle(b, session, WORKED_WITHIN_S)
    assert [event["stop_reason"] for event in story.of_type(b, session, "turn_end")] == ["failed"]
    assert story.violations(session) == []


def test_a_takeover_in_batches_takes_all_sessions(tell: Callable[..., Story]) -> None:
    story = tell()
    a, b = story.nodes
    sessions = [story.create(a, f"s{number}") for number in range(5)]
    for session in sessions:
        a.send(session, LONG_STREAM)
        story.until_said(b, session, "w1 ")
    b.stop()
    b.mutant = "takes_over_two_concurrently"
    b.revive()
    a.crash()
    for session in sessions:
        story.until_idle(b, session, WORKED_WITHIN_S)
        assert [event["stop_reason"] for event in story.of_type(b, session, "turn_end")] == ["failed"]


def test_requests_during_a_takeover_start_no_second_agent(tell: Callable[..., Story]) -> None:
    story = tell()
    a, b = story.nodes
    session = story.create(a)
    a.send(session, LONG_STREAM)
    story.until_said(b, session, "w20 ")
    b.stop()
    b.mutant = "reads_launches_slowly"
    b.revive()
    b.send(session, "stream 40 50", when_busy="queue", message_id="next")
    a.crash()
    over = threading.Event()

    def ask() -> None:
        """Keep a request in flight for as long as the takeover lasts."""
        with httpx2.Client(timeout=SAYS_WITHIN_S, trust_env=False, verify=False) as http:
            while not over.is_set():
                b.call(http, "POST", f"/api/sessions/{session}/messages", {"text": "say it", "when_busy": "reject"})
                over.wait(LOOK_S)

    askers = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for asker in askers:
        asker.start()
    try:
        eventually(lambda: story.of_type(b, session, "turn_end"), "the takeover", WORKED_WITHIN_S + SAYS_WITHIN_S)
        story.until_said(b, session, "w39 ", SAYS_WITHIN_S)
    finally:
        over.set()
        for asker in askers:
            asker.join(SAYS_WITHIN_S)
    story.until_idle(b, session, SAYS_WITHIN_S)
    assert len(story.nodes.agents(b)) == 1, "one session has one agent"
    assert story.violations(session) == []


@pytest.mark.parametrize("workdirs", ["shared", "local"])
def test_a_long_database_outage_kills_no_node_and_loses_no_output(workdirs: str, tell: Callable[..., Story]) -> None:
    story = tell(workdirs=workdirs)
    a, b = story.nodes
    sessions = [story.create(a, "s0"), story.create(b, "s1")]
    for node, session in zip(story.nodes, sessions, strict=True):
        node.send(session, LONG_STREAM)
        story.until_said(node, session, "w10 ")
    pids = [node.process.pid for node in story.nodes if node.process is not None]
    story.nodes.database.kill()
    gone_s = time.monotonic()
    with pytest.raises(AssertionError, match="503"):
        a.send(sessions[0], "say it", when_busy="queue")
    eventually(lambda: time.monotonic() - gone_s > OUTAGE_S, "the outage lasted long enough", OUTAGE_S + 1)
    story.nodes.database.start()
    for node, session in zip(story.nodes, sessions, strict=True):
        eventually(lambda node=node: node.ask(story.http, "/api/sessions"), "it responds again", SAYS_WITHIN_S)  # type: ignore[misc]
        story.until_idle(node, session, LONG_STREAM_S + SAYS_WITHIN_S)
        assert story.said(node, session) == words(200)
        assert [event["stop_reason"] for event in story.of_type(node, session, "turn_end")] == ["end_turn"]
    assert [node.process.pid for node in story.nodes if node.process is not None] == pids, "no node was replaced"
    assert all(node.is_up for node in story.nodes), "no node is dead"
    assert story.violations(*sessions) == []


def test_a_failover_loses_no_events_and_no_viewers(tell: Callable[..., Story], tmp_path: Path) -> None:
    story = tell(has_replica=True, takeover_s=10)
    a, b = story.nodes
    session = story.create(a)
    a.send(session, "stream 150 30")
    history, over = History(tmp_path / "viewer.ndjson"), threading.Event()
    viewer = WorkloadViewer("v0", session, [b], history, Random(1), over)
    viewer.start()
    try:
        story.until_said(b, session, "w20 ")
        story.nodes.database.fail_over()
        for node in story.nodes:
            node.proxy.lead_to(story.nodes.database.port)
        eventually(lambda: story.of_type(a, session, "turn_end"), "it ends", SAYS_WITHIN_S)
        story.until_idle(a, session, SAYS_WITHIN_S)
        last = a.session(session)["event_count"]
        eventually(lambda: viewer.seq == last, lambda: f"it sees {last}, not {viewer.seq}", SAYS_WITHIN_S)
    finally:
        over.set()
        viewer.leave()
        viewer.join(SAYS_WITHIN_S)
        history.close()
    assert story.said(a, session) == words(150)
    assert checker.check_viewer("v0", read(history.path), story.events(a, session)) == []
    assert all(node.is_up for node in story.nodes)
    assert story.violations(session) == []


def test_a_node_without_notifications_finds_everything_by_polling(tell: Callable[..., Story]) -> None:
    story = tell()
    a, b = story.nodes
    session = story.create(a)
    a.turn(session, "say first")
    for node in story.nodes:
        node.proxy.freeze("notifications")
    with Stream(b, f"/api/sessions/{session}/events") as stream:
        b.send(session, "say second", message_id="second")
        kinds = [frame[1] for frame in stream.until("waiting_for_input")]
    assert kinds.count("turn_end") == 1
    assert re.search("second", story.said(a, session))
    assert story.violations(session) == []


@pytest.mark.skipif(faketime() is None, reason="needs libfaketime (Debian: faketime)")
def test_clock_jumps_kill_no_node_and_backdate_no_event(tell: Callable[..., Story]) -> None:
    story = tell(clocks=True)
    a, b = story.nodes
    session = story.create(a)
    a.send(session, "stream 150 30")
    story.until_said(b, session, "w10 ")
    a.set_clock(-DAY_S)
    b.set_clock(DAY_S)
    story.until_said(b, session, "w60 ")
    a.set_clock(DAY_S)
    b.set_clock(-DAY_S)
    b.send(session, "say second", when_busy="queue", message_id="second")
    story.until_said(b, session, "second")
    story.until_idle(b, session, SAYS_WITHIN_S)
    assert [event["stop_reason"] for event in story.of_type(a, session, "turn_end")] == ["end_turn", "end_turn"]
    assert all(node.is_up for node in story.nodes), "no node is dead"
    assert story.nodes.owner(session) == "a"
    assert story.violations(session) == []
