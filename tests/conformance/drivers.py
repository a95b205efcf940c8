"""What every driver must guarantee, whatever its protocol.

Above: the tests of each driver subclass `DriverConformance` and provide scenarios. Below: drivers/base.py. It is
independent of any protocol, on purpose: a scenario is a recorded sequence of orders and lines.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.core import events
from perdure.core.events import AssistantText, AssistantThinking, Event, PendingPrompt
from perdure.drivers import DRIVERS
from perdure.drivers.base import (
    CancelTurn,
    CloseSession,
    Conversation,
    Driver,
    Observation,
    Order,
    SendAnswer,
    SendConfig,
    SendInput,
    StartSession,
    Step,
    TurnFinished,
)
from tests.conformance.driver_traits import check_traits

LAUNCH_ID = "launch-1"
STRESS = settings(
    max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)

Move = Order | bytes


class Scenario(NamedTuple):
    """Orders and the agent's lines, in the recorded order."""

    name: str
    moves: list[Move]


class Run(NamedTuple):
    observations: list[Observation]
    lines: list[bytes]


def make(conversation: Conversation, move: Move) -> Step:
    return conversation.receive([move]) if isinstance(move, bytes) else conversation.perform(move)


def play(driver: Driver, moves: Sequence[Move], restored: bool = False) -> Run:
    """Play move by move. With `restored`: dump and restore before each move."""
    conversation = driver.begin(LAUNCH_ID)
    run = Run([], [])
    for move in moves:
        if restored:
            dump = conversation.dump()
            conversation = driver.restore(dump)
            assert conversation.dump() == dump
        step = make(conversation, move)
        run.observations.extend(step.observations)
        run.lines.extend(step.lines)
    return run


def play_in_batches(driver: Driver, moves: Sequence[Move]) -> Run:
    """Play with all lines between two orders in one batch."""
    conversation = driver.begin(LAUNCH_ID)
    run, batch = Run([], []), list[bytes]()
    for move in [*moves, None]:
        if isinstance(move, bytes):
            batch.append(move)
            continue
        for step in (conversation.receive(batch), conversation.perform(move) if move is not None else Step([], [])):
            run.observations.extend(step.observations)
            run.lines.extend(step.lines)
        batch = []
    return run


def are_neighbours(one: Observation, other: Observation) -> bool:
    if isinstance(one, AssistantText | AssistantThinking) and type(one) is type(other):
        return isinstance(other, AssistantText | AssistantThinking) and (one.turn, one.block) == (
            other.turn,
            other.block,
        )
    return False


def joined(observations: Sequence[Observation]) -> list[Observation]:
    """Join adjacent deltas."""
    found: list[Observation] = []
    for observation in observations:
        last = found[-1] if found else None
        if last is not None and are_neighbours(last, observation):
            assert isinstance(last, AssistantText | AssistantThinking)
            assert isinstance(observation, AssistantText | AssistantThinking)
            found[-1] = msgspec.structs.replace(last, delta=last.delta + observation.delta)
        else:
            found.append(observation)
    return found


REASON = "because the test says so"


def denials(driver: Driver, moves: Sequence[Move]) -> list[bytes]:
    """What is sent if the first permission request with an option to reject is denied for a reason."""
    conversation = driver.begin(LAUNCH_ID)
    for move in moves:
        for prompt in make(conversation, move).observations:
            if isinstance(prompt, PendingPrompt) and prompt.kind == "permission":
                for option in prompt.options:
                    if option.kind == "reject_once":
                        answer = {"option_id": option.option_id, "kind": option.kind, "reason": REASON}
                        return [b"".join(conversation.perform(SendAnswer(prompt.prompt_id, answer)).lines)]
    return []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
orders: st.SearchStrategy[Order] = st.one_of(
    st.builds(StartSession, st.just("/srv/site"), st.none() | st.text(max_size=8)),
    st.builds(SendInput, st.integers(1, 3), st.text(max_size=4), st.text(max_size=20)),
    st.builds(CancelTurn, st.integers(1, 3)),
    st.builds(SendAnswer, st.just(f"{LAUNCH_ID}-1"), st.dictionaries(st.text(max_size=9), json_values, max_size=2)),
    st.builds(SendConfig, st.sampled_from(["mode", "model", "x"]), json_values),
    st.just(CloseSession()),
)


class DriverConformance:
    driver: ClassVar[Driver]
    scenarios: ClassVar[Sequence[Scenario]]

    def test_it_is_registered_under_its_name(self) -> None:
        assert DRIVERS[self.driver.name] is not None
        assert type(DRIVERS[self.driver.name]) is type(self.driver)

    def test_its_traits_are_consistent(self) -> None:
        check_traits(self.driver)

    def test_a_process_ends_after_its_turn_if_and_only_if_each_turn_has_its_own(self) -> None:
        runs = [play(self.driver, scenario.moves) for scenario in self.scenarios]
        ends = [end.leaves for run in runs for end in run.observations if isinstance(end, TurnFinished)]
        assert set(ends) == {self.driver.process_per_turn}

    def test_the_reason_of_a_denial_is_sent_if_and_only_if_the_protocol_supports_it(self) -> None:
        denied = [line for scenario in self.scenarios for line in denials(self.driver, scenario.moves)]
        assert all((REASON.encode() in line) == self.driver.delivers_reasons for line in denied)
        assert denied or not self.driver.delivers_reasons, "no scenario asks for permission"

    @STRESS
    @given(st.lists(st.binary(max_size=80) | orders, max_size=12))
    def test_arbitrary_bytes_never_raise(self, moves: list[Move]) -> None:
        self.check(moves)

    @STRESS
    @given(st.data())
    def test_a_run_with_damaged_lines_never_raises(self, data: st.DataObject) -> None:
        scenario = data.draw(st.sampled_from(self.scenarios))
        moves = scenario.moves[: data.draw(st.integers(1, 60))]
        for _ in range(data.draw(st.integers(1, 8))):
            index = data.draw(st.integers(0, len(moves) - 1))
            moves = [*moves[:index], data.draw(orders | damage(moves[index])), *moves[index:]]
        self.check(moves)

    def check(self, moves: Sequence[Move]) -> None:
        """Check that both ways of playing raise nothing and have the same result, and that the result can be stored."""
        run = play(self.driver, moves)
        assert play(self.driver, moves, restored=True) == run
        for line in run.lines:
            assert line.endswith(b"\n") and line.count(b"\n") == 1
        for observation in run.observations:
            if isinstance(observation, Event):
                assert events.encode(events.decode(events.encode(observation))) == events.encode(observation)

    def test_a_dump_at_any_line_boundary_changes_nothing(self) -> None:
        for scenario in self.scenarios:
            self.check(scenario.moves)

    def test_adjacent_deltas_of_one_batch_are_joined(self) -> None:
        for scenario in self.scenarios:
            batches, single = play_in_batches(self.driver, scenario.moves), play(self.driver, scenario.moves)
            assert joined(batches.observations) == joined(single.observations), scenario.name
            assert batches.lines == single.lines, scenario.name
        moves = next(scenario.moves for scenario in self.scenarios if scenario.name.startswith("plain"))
        found = play_in_batches(self.driver, moves).observations
        assert not any(are_neighbours(one, other) for one, other in pairwise(found))

    def test_a_line_of_a_megabyte_is_accepted(self) -> None:
        conversation = self.driver.begin(LAUNCH_ID)
        conversation.receive([b"x" * 1_000_000, json.dumps({"x": "y" * 1_000_000}).encode()])

    def test_an_order_that_comes_too_early_is_harmless(self) -> None:
        conversation = self.driver.begin(LAUNCH_ID)
        for order in (CancelTurn(1), SendAnswer("nobody-1", {"cancel": True}), CloseSession()):
            assert conversation.perform(order).observations == []


def damage(move: Move) -> st.SearchStrategy[bytes]:
    """Return a line of the run that is truncated, has other bytes in it, or has one of its values replaced."""
    if not isinstance(move, bytes):
        return st.binary(max_size=40)
    length = len(move)
    cut = st.integers(0, length).map(lambda end: move[:end])
    bent = st.tuples(st.integers(0, length), st.binary(max_size=3)).map(
        lambda place: move[: place[0]] + place[1] + move[place[0] + len(place[1]) :]
    )
    try:
        message = json.loads(move)
    except ValueError:
        return cut | bent
    paths = list(paths_in(message))
    if not paths:
        return cut | bent
    swapped = st.tuples(st.sampled_from(paths), json_values).map(lambda change: with_value(message, *change))
    return cut | bent | swapped


Path = tuple[str | int, ...]


def paths_in(value: object, here: Path = ()) -> list[Path]:
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value[:3]))
    return [path for key, part in inner for path in [(*here, key), *paths_in(part, (*here, key))]]


def with_value(message: object, path: Path, value: object) -> bytes:
    copy = json.loads(json.dumps(message))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(copy).encode()
