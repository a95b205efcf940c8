"""The checker detects violations: in handwritten histories, and in runs of deliberately broken servers."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGSTOP
from threading import Event
from typing import Any

import httpx2
import pytest

from perdure.runtime.running.node import BEATS_PER_TAKEOVER
from tests.faults import checker
from tests.faults.database import Database
from tests.faults.history import History, Record, read
from tests.faults.mutants import MUTANTS
from tests.faults.nodes import REQUEST_TIMEOUT_S, FaultNode, Nodes
from tests.faults.run import note_lifetimes
from tests.faults.workload import WorkloadViewer
from tests.harness import eventually

# Handwritten histories ------------------------------------------------------------------------------------------------


def log(*events: Any) -> list[Any]:
    """Make a log, numbered from 1, of (type, turn, fields) or types alone."""
    made = []
    for seq, event in enumerate(events, 1):
        kind, turn, fields = event if isinstance(event, tuple) else (event, None, {})
        made.append({"seq": seq, "type": kind, "turn": turn, "at": f"2026-01-01T00:00:00.{seq:03}Z", **fields})
    return made


def message(turn: int, message_id: str = "m1", text: str = "stream 3 5") -> Any:
    return ("user_message", turn, {"message_id": message_id, "text": text})


def text(turn: int, delta: str) -> Any:
    return ("assistant_text", turn, {"delta": delta})


def end(turn: int, how: str = "end_turn") -> Any:
    return ("turn_end", turn, {"stop_reason": how})


def start(turn: int) -> Any:
    return ("turn_start", turn, {})


WHOLE = log(message(1), start(1), text(1, "w0 w1 "), text(1, "w2 "), end(1))


def sent(*phases: str, op: str = "m1", what: str = "send") -> list[Record]:
    return [{"op": op, "what": what, "phase": phase} for phase in phases]


def test_a_good_history_has_no_violation() -> None:
    assert checker.check_order("s", WHOLE) == []
    assert checker.check_turns("s", WHOLE) == []
    assert checker.check_words("s", WHOLE) == []
    assert checker.check_messages("s", sent("invoke", "unknown", "invoke", "ok"), WHOLE) == []


@pytest.mark.parametrize(
    ("phases", "events", "finds"),
    [
        (["invoke", "ok"], [], "is missing"),
        (["invoke", "ok"], [("message_unqueued", None, {"message_id": "m1"})], None),
        (["invoke", "ok"], [message(1), message(2)], "in the log 2 times"),
        (["invoke", "fail"], [message(1)], "was refused but is in the log"),
        (["invoke", "unknown", "invoke", "fail"], [message(1)], None),
        (["invoke", "unknown"], [message(1)], "never got a definite response"),
        (["invoke", "ok"], [message(1), message(2, "m9")], "nobody sent"),
    ],
)
def test_messages(phases: list[str], events: list[Any], finds: str | None) -> None:
    found = checker.check_messages("s", sent(*phases), log(*events))
    assert (finds is None and not found) or (finds is not None and finds in found[0]), found


@pytest.mark.parametrize(
    ("events", "finds"),
    [
        ([message(1), start(1), end(1), text(1, "late")], "text of turn 1"),
        ([message(1), text(1, "early"), start(1), end(1)], "text of turn 1"),
        ([message(1), start(1), message(2)], "was accepted"),
        ([message(1), start(1), start(1), end(1)], "out of order"),
        ([message(1), start(1), end(1), end(1)], "ended at 4"),
        ([message(1), start(1)], "never ended"),
    ],
)
def test_turns(events: list[Any], finds: str) -> None:
    assert finds in checker.check_turns("s", log(*events))[0]


def test_numbers_have_no_gaps_and_no_duplicates() -> None:
    joined = [{"seq": 1, "type": "x"}, {"seq": 4, "first_seq": 2, "type": "x"}, {"seq": 5, "type": "x"}]
    assert checker.check_order("s", joined) == []
    assert checker.check_order("s", [{"seq": 1}, {"seq": 3}]) == ["s: after 1 the log continues with 3"]
    assert checker.check_order("s", [{"seq": 1}, {"seq": 1}]) == ["s: after 1 the log continues with 1"]
    assert checker.check_same("s", {"a": WHOLE, "b": WHOLE}) == []
    assert checker.check_same("s", {"a": WHOLE, "b": WHOLE[:-1]}) == ["s: nodes a and b show different logs"]
    compacted = [*WHOLE[:2], {**WHOLE[3], "first_seq": 3, "delta": "w0 w1 w2 "}, WHOLE[4]]
    assert checker.check_same("s", {"a": WHOLE, "b": compacted}) == []
    compacted[2]["delta"] = "w0 w1 "
    assert checker.check_same("s", {"a": WHOLE, "b": compacted}) == ["s: nodes a and b show different logs"]


def test_time_does_not_go_back_within_a_session() -> None:
    assert checker.check_times("s", WHOLE) == []
    early = {**WHOLE[4], "at": WHOLE[2]["at"]}
    assert checker.check_times("s", [*WHOLE[:4], early]) == [], "its writer had not read the last deltas"
    assert len(checker.check_times("s", [WHOLE[1], WHOLE[0]])) == 1
    assert len(checker.check_times("s", [*WHOLE[:2], WHOLE[3], WHOLE[2]])) == 1, "deltas of the same owner"
    assert len(checker.check_times("s", [*WHOLE[:2], WHOLE[3], {**WHOLE[4], "at": WHOLE[0]["at"]}])) == 1


def frame(kind: str, seq: int, first: int | None = None) -> Record:
    fields = {"type": kind, "seq": seq, "first_seq": first or seq, "session": "s", "at_s": 0}
    return {"kind": "frame", "viewer": "v", **fields}


@pytest.mark.parametrize(
    ("frames", "finds"),
    [
        ([frame("snapshot", 1), frame("turn_start", 2), frame("assistant_text", 3), frame("assistant_text", 4)], None),
        ([frame("snapshot", 2), frame("assistant_text", 4, 3), frame("turn_end", 5)], None),
        ([frame("snapshot", 1), frame("snapshot", 4), frame("turn_end", 5)], None),
        ([frame("snapshot", 1), frame("assistant_text", 3)], "after 1 came 3"),
        ([frame("snapshot", 2), frame("assistant_text", 3), frame("assistant_text", 3)], "after 3 came 3"),
        ([frame("snapshot", 4), frame("snapshot", 2)], "goes back from 4 to 2"),
        ([frame("turn_end", 5)], "instead of a snapshot"),
        ([frame("snapshot", 2), frame("turn_end", 3)], "the log has assistant_text"),
    ],
)
def test_viewers(frames: list[Record], finds: str | None) -> None:
    opened = {"kind": "open", "viewer": "v", "session": "s", "node": "a", "position": None}
    found = checker.check_viewer("v", [opened, *frames], WHOLE)
    assert (finds is None and not found) or (finds is not None and finds in found[0]), found


@pytest.mark.parametrize(
    ("said", "how", "is_good"),
    [
        ("w0 w1 w2 ", "end_turn", True),
        ("w0 w1 ", "failed", True),
        ("", "cancelled", True),
        ("w0 w1 ", "end_turn", False),
        ("w0 w2 ", "failed", False),
        ("w0 w0 ", "failed", False),
        ("w0 w1 w0 w1 w2 ", "end_turn", False),
        ("w0 w1 w2 w3 ", "end_turn", False),
        ("w0 other", "failed", False),
    ],
)
def test_words(said: str, how: str, is_good: bool) -> None:
    assert (checker.check_words("s", log(message(1), start(1), text(1, said), end(1, how))) == []) is is_good


def lifetime(pid: int, *spans: tuple[float, float], directory: str = "s0") -> Record:
    ticks = [begin + number * 0.1 for begin, end in spans for number in range(round((end - begin) / 0.1) + 1)]
    return {"kind": "lifetime", "directory": directory, "pid": pid, "ticks": ticks}


def test_agents_of_one_session_never_overlap() -> None:
    assert checker.check_lifetimes([lifetime(1, (0, 1)), lifetime(2, (1.1, 2))]) == []
    assert checker.check_lifetimes([lifetime(1, (0, 1), (5, 6)), lifetime(2, (2, 4))]) == [], "it was paused meanwhile"
    assert checker.check_lifetimes([lifetime(1, (0, 3)), lifetime(2, (1, 2), directory="s1")]) == []
    assert "both acted for 1.0" in checker.check_lifetimes([lifetime(1, (0, 2)), lifetime(2, (1, 3))])[0]
    inside = checker.check_lifetimes([lifetime(1, (0, 9)), lifetime(2, (1, 2)), lifetime(3, (4, 5))])
    assert len(inside) == 2, "each agent that started while another was alive"
    awake = checker.check_lifetimes([lifetime(1, (0, 1), (3, 5)), lifetime(2, (2, 4))])
    assert len(awake) == 1, "it was resumed while the other acted"


def test_prompts_are_resolved_once_or_still_open() -> None:
    asked, resolved = ("pending_prompt", 1, {"prompt_id": "p"}), ("prompt_resolved", 1, {"prompt_id": "p"})
    assert checker.check_prompts("s", sent("ok", op="p", what="answer"), log(asked, resolved), []) == []
    assert checker.check_prompts("s", [], log(asked), ["p"]) == []
    assert "is lost" in checker.check_prompts("s", [], log(asked), [])[0]
    assert "resolved 2 times" in checker.check_prompts("s", [], log(asked, resolved, resolved), [])[0]
    assert "asked 0 times" in checker.check_prompts("s", [], log(resolved), [])[0]
    answered = checker.check_prompts("s", sent("ok", op="p", what="answer"), log(asked), ["p"])
    assert answered == ["s: the answer to prompt p was acknowledged but is missing"]


def test_a_whole_history_is_read_from_its_file(tmp_path: Path) -> None:
    history = History(tmp_path / "history.ndjson")
    history.note("op", op="m1", what="send", phase="invoke", session="s")
    history.note("op", op="m1", what="send", phase="ok", session="s")
    for node in "ab":
        history.note("log", session="s", node=node, events=WHOLE)
    history.note("rest", within_s=3.0)
    assert checker.check(read(history.path)) == []
    history.note("rest", within_s=checker.REST_LIMIT_S + 1)
    history.note("stuck", what="session s is processing")
    assert len(checker.check(read(history.path))) == 2
    history.close()


# Deliberately broken servers ---------------------------------------------------------------------------------------

TAKEOVER_S = 3.0
SAYS_WITHIN_S = 60.0
SEES_WITHIN_S = 8.0
"""How long a viewer may be behind in these scenarios: longer than the poll interval."""


class Trial:
    """Two nodes with one mutation, and the history for the checker."""

    def __init__(self, nodes: Nodes, http: httpx2.Client, history: History) -> None:
        self.nodes, self.http, self.history = nodes, http, history
        self.sessions: list[str] = []

    def create(self, node: FaultNode) -> str:
        name = f"s{len(self.sessions)}"
        self.sessions.append(node.create(workdir=self.nodes.directory(name), title=name))
        return self.sessions[-1]

    def send(self, node: FaultNode, session: str, words: str, message_id: str) -> None:
        about = {"op": message_id, "what": "send", "session": session}
        self.history.note("op", phase="invoke", **about)
        node.send(session, words, message_id=message_id, when_busy="queue")
        self.history.note("op", phase="ok", **about)

    def until_said(self, node: FaultNode, session: str, words: str) -> None:
        def said() -> str:
            events = node.events(self.http, session) or []
            return "".join(event["delta"] for event in events if event["type"] == "assistant_text")

        eventually(lambda: words in said(), lambda: f"{words!r} in {said()!r}\n{node.log_tail()}", SAYS_WITHIN_S)

    def verdict(self) -> list[str]:
        node = self.nodes[1]  # the first one is the victim
        for session in self.sessions:
            events = eventually(lambda session=session: node.events(self.http, session), "its log")  # type: ignore[misc]
            self.history.note("log", session=session, node=node.name, events=events)
        note_lifetimes(self.nodes.lifetimes, self.history)
        return checker.check(read(self.history.path))


@contextmanager
def trial(folder: Path, mutant: str, takeover_s: float = TAKEOVER_S) -> Iterator[Trial]:
    with ExitStack() as stack:
        database = stack.enter_context(Database())
        nodes = stack.enter_context(Nodes(folder, database, Random(1), takeover_s=takeover_s, mutant=mutant))
        http = stack.enter_context(httpx2.Client(timeout=REQUEST_TIMEOUT_S, trust_env=False, verify=False))
        history = History(folder / "history.ndjson")
        stack.callback(history.close)
        yield Trial(nodes, http, history)


REAL = [pytest.mark.full, pytest.mark.needs("linux", "postgresql")]


def real_runs(mutant: str) -> Any:
    """The same scenario must pass with the real product and fail with the mutant."""
    return [pytest.param("", id="as it is", marks=REAL), pytest.param(mutant, id=mutant, marks=REAL)]


@pytest.mark.parametrize("mutant", real_runs("no_fence"))
def test_it_detects_an_owner_without_a_fence(mutant: str, tmp_path: Path) -> None:
    with trial(tmp_path, mutant) as story:
        a, b = story.nodes
        session = story.create(a)
        story.send(a, session, "stream 200 20", "m1")
        story.until_said(b, session, "w20 ")
        a.signal(SIGSTOP)
        story.send(b, session, "say taken-over", "m2")
        story.until_said(b, session, "taken-over")
        b.wait_idle(session)
        before = b.session(session)["event_count"]
        a.should_run = False
        a.signal(SIGCONT)
        # It now tries to store the output that it read before its lease expired; or it stops.
        eventually(
            lambda: not a.is_up or b.session(session)["event_count"] > before, "it stops, or writes", SAYS_WITHIN_S
        )
        assert bool(story.verdict()) is bool(mutant)


@pytest.mark.parametrize("mutant", real_runs("no_decided_seq"))
def test_it_detects_an_owner_without_optimistic_concurrency(mutant: str, tmp_path: Path) -> None:
    with trial(tmp_path, mutant) as story:
        a, b = story.nodes
        for number in range(3):
            session = story.create(a)
            story.send(a, session, "stream 2 1", f"{number}-warm")
            a.wait_idle(session)
            a.proxy.freeze("notifications")
            story.send(a, session, "sleep 0.5", f"{number}-first")
            story.send(b, session, "say it", f"{number}-second")
            # Don't ask node a: to answer, it would catch up with the log.
            eventually(lambda session=session: b.session(session)["state"] == "idle", "it ends", SAYS_WITHIN_S)  # type: ignore[misc]
            a.proxy.thaw()
        assert bool(story.verdict()) is bool(mutant)


@pytest.mark.parametrize("mutant", real_runs("no_news"))
def test_it_detects_lost_notifications_without_a_fallback_poll(mutant: str, tmp_path: Path) -> None:
    with trial(tmp_path, mutant) as story:
        a, b = story.nodes
        session = story.create(a)
        over = Event()
        viewer = WorkloadViewer("v0", session, [b], story.history, Random(1), over)
        viewer.stays = True
        viewer.start()
        try:
            eventually(lambda: viewer.seq, "it is connected")
            for node in story.nodes:
                node.proxy.freeze("notifications")
            story.send(a, session, "say it", "m1")
            a.wait_idle(session)
            last = a.session(session)["event_count"]
            try:
                eventually(lambda: viewer.seq == last, "the viewer sees everything", SEES_WITHIN_S)
            except AssertionError as error:
                story.history.note("stuck", what=str(error))
        finally:
            over.set()
            viewer.leave()
            viewer.join(SAYS_WITHIN_S)
        assert bool(story.verdict()) is bool(mutant)


@pytest.mark.parametrize("mutant", real_runs("hasty_takeover"))
def test_it_detects_a_takeover_that_comes_too_early(mutant: str, tmp_path: Path) -> None:
    with trial(tmp_path, mutant, takeover_s=2 * TAKEOVER_S) as story:
        a, b = story.nodes
        session = story.create(a)
        story.send(a, session, "stream 400 20", "m1")
        story.until_said(b, session, "w20 ")
        a.signal(SIGSTOP)
        began_s = time.monotonic()
        story.send(b, session, "say taken-over", "m2")
        story.until_said(b, session, "taken-over")
        b.wait_idle(session)
        # The last heartbeat may have been up to one interval earlier.
        is_early = time.monotonic() - began_s < 2 * TAKEOVER_S * (1 - 1 / BEATS_PER_TAKEOVER)
        assert is_early is bool(mutant)
        assert bool(story.verdict()) is bool(mutant)


def test_every_mutant_has_a_scenario() -> None:
    assert set(MUTANTS) == {"no_fence", "no_decided_seq", "no_news", "hasty_takeover"}
