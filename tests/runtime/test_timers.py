"""When clocks fire: time served, ages of stored moments, and what a wall clock that is set changes (nothing)."""

import msgspec
import pytest

from perdure.config import Limits, merged
from perdure.core.clock import seconds, stamp
from perdure.core.events import AssistantText, System, ToolUpdate, Usage
from perdure.core.state import Attached, Queued, Session
from perdure.runtime.running.timers import (
    MEASURES_PER_TIMEOUT,
    STEP_MAX_S,
    WORKING_SHARE,
    Ages,
    Effort,
    Stopwatch,
    Timer,
    is_sign_of_life,
    timers,
)

START_S = 1_800_000_000.0
HOUR_S = 3600.0


def session(**given: object) -> Session:
    values = {"created_at": stamp(START_S), "last_active_at": stamp(START_S), **given}
    return Session(id="s", project=None, agent="a", workdir="/", **values)  # type: ignore[arg-type]


def process(since: float = START_S) -> Attached:
    return Attached(launch_id="l", agent="a", driver="acp", workdir_id="", fingerprint="", since=stamp(since))


def found(state: Session, **limits: object) -> set[tuple[str, float, str]]:
    """Each timer as (name, when after the session's creation, what then)."""
    given = merged(Limits(idle_timeout_s=10, lifetime_s=100), limits)
    return {(one.name, seconds(one.since) - START_S + one.after_s, one.then) for one in timers(state, given)}


def test_without_a_process_only_what_ends_the_session_is_due() -> None:
    state = session(started_at=stamp(START_S + 5))
    assert found(state) == set()
    assert found(state, on_idle="end") == {("idle_timeout", 10, "end")}
    assert found(state, on_lifetime="end") == {("lifetime", 105, "end")}
    assert found(session(), on_lifetime="end") == {("lifetime", 100, "end")}


def test_the_clocks_of_an_import_begin_when_it_was_imported() -> None:
    state = session(started_at=stamp(START_S + 5), imported_at=stamp(START_S + 5000))
    assert found(state, on_idle="end", on_lifetime="end") == {("idle_timeout", 5010, "end"), ("lifetime", 5100, "end")}
    state.last_active_at = stamp(START_S + 6000)
    assert found(state, on_idle="end") == {("idle_timeout", 6010, "end")}


def test_a_process_is_suspended_by_its_own_age_and_a_session_ends_by_its_own() -> None:
    state = session(attached=process(START_S + 50))
    # A process that was started to be asked something has just begun to be idle.
    assert found(state) == {("idle_timeout", 60, "suspend"), ("lifetime", 150, "suspend")}
    assert found(state, on_lifetime="end") == {("idle_timeout", 60, "suspend"), ("lifetime", 100, "end")}
    state.background_tasks = 1
    assert found(state) == {("lifetime", 150, "suspend")}
    state.phase = "working"
    assert found(state, on_idle="end", on_lifetime="end") == set()


def test_a_session_that_goes_on_when_its_limit_resets_is_not_ended_for_being_idle_meanwhile() -> None:
    state = session(waiting_until=stamp(START_S + 500), waits=1)
    assert found(state, on_idle="end") == {("idle_timeout", 10, "end")}
    assert found(state, on_idle="end", on_limit="continue") == {("usage_limit", 500, "continue")}
    state.waits = 9
    assert found(state, on_limit="continue") == set()
    state.queue = [Queued(message_id="m", text="x")]
    assert found(state, on_idle="end") == {("usage_limit", 500, "continue")}


@pytest.mark.parametrize("step_s", [-30 * 365 * 24 * HOUR_S, -10 * HOUR_S, 0.0, 10 * HOUR_S, 10 * 365 * 24 * HOUR_S])
def test_a_clock_that_is_set_changes_nothing_of_what_is_left(step_s: float) -> None:
    ages, timer = Ages(), Timer("idle_timeout", stamp(START_S), 600, "end")
    assert ages.left_s("s", timer, START_S + 60, 5.0) == pytest.approx(540)
    assert ages.left_s("s", timer, START_S + 120 + step_s, 65.0) == pytest.approx(480)
    assert ages.left_s("s", timer, START_S + 660 + step_s, 605.0) <= 0
    # What is said after the step is stamped with it.
    again = Timer("idle_timeout", stamp(START_S + 700 + step_s), 600, "end")
    assert ages.left_s("s", again, START_S + 700 + step_s, 645.0) == pytest.approx(600)


def test_a_moment_that_lies_ahead_counts_from_when_it_is_seen() -> None:
    ages, timer = Ages(), Timer("lifetime", stamp(START_S + 10 * HOUR_S), 600, "end")
    assert ages.left_s("s", timer, START_S, 0.0) == 600
    assert ages.left_s("s", timer, START_S + 600, 600.0) == 0
    ages.keep(set())
    assert ages.left_s("s", timer, START_S, 600.0) == 600


def test_only_a_usage_limit_looks_at_the_wall_clock() -> None:
    ages, timer = Ages(), Timer("usage_limit", stamp(START_S + HOUR_S), 0.0, "continue")
    assert ages.left_s("s", timer, START_S, 0.0) == HOUR_S
    assert ages.left_s("s", timer, START_S + HOUR_S, 1.0) == 0


def test_a_stopwatch_counts_while_it_is_looked_at() -> None:
    watch = Stopwatch()
    assert watch.look(1, 100.0) == 0
    assert watch.look(1, 101.0) == 1
    assert watch.look(1, 111.0, counts=False) == 1
    assert watch.look(1, 112.0) == 2
    assert watch.look(1, 112.0 + HOUR_S) == 2 + STEP_MAX_S
    assert watch.look(2, 113.0 + HOUR_S) == 0


def test_everything_that_an_agent_shows_is_a_sign_of_life_but_that_a_tool_still_runs() -> None:
    still = ToolUpdate(turn=1, tool_id="t", status="in_progress")
    assert not is_sign_of_life(still)
    for news in ({"content": "a line"}, {"title": "npm test"}, {"input": {"command": "ls"}}, {"is_error": True}):
        assert is_sign_of_life(msgspec.structs.replace(still, **news))
    for shown in (
        AssistantText(turn=1, block=1, delta="x"),
        Usage(turn=1, output_tokens=1),
        System(turn=1, code="api_retry", message="Again."),
    ):
        assert is_sign_of_life(shown)


WINDOW_S = 1800.0 / MEASURES_PER_TIMEOUT


@pytest.mark.parametrize(
    ("share", "works"), [(0.0, False), (0.9 * WORKING_SHARE, False), (1.1 * WORKING_SHARE, True), (2.0, True)]
)
def test_a_tool_works_if_its_processes_use_the_processor(share: float, works: bool) -> None:
    effort = Effort()
    # What was used before the tool began is not its own.
    assert not effort.measured(100.0, 1800.0, 5000.0)
    for count in range(1, 9):
        now = 100.0 + count * WINDOW_S
        assert effort.measured(now, 1800.0, 5000.0 + share * count * WINDOW_S) is works


def test_a_tool_is_measured_some_times_before_its_turn_would_be_stopped() -> None:
    effort, measured = Effort(), 0
    for second in range(1800):
        if effort.is_due("tool", float(second), 1800.0):
            effort.measured(float(second), 1800.0, 0.0)
            measured += 1
    assert measured == MEASURES_PER_TIMEOUT - 1


def test_tools_that_soon_end_are_never_measured() -> None:
    """Each measure reads the whole process table, and a busy server sees several new tools each second."""
    effort = Effort()
    assert not any(effort.is_due(f"tool {second // 60}", float(second), 1800.0) for second in range(1800))


def test_processes_that_ended_and_took_their_time_along_are_no_work() -> None:
    effort = Effort()
    effort.measured(0.0, 1800.0, 5000.0)
    assert not effort.measured(WINDOW_S, 1800.0, 10.0)
    assert not effort.measured(2 * WINDOW_S, 1800.0, 11.0)
