"""When timers fire: time served and ages of stored times. Setting the wall clock changes nothing."""

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
    """Each timer as (name, seconds after the session's creation, action)."""
    given = merged(Limits(idle_timeout_s=10, lifetime_s=100), limits)
    return {(one.name, seconds(one.since) - START_S + one.after_s, one.then) for one in timers(state, given)}


def test_without_a_process_only_timers_that_end_the_session_run() -> None:
    state = session(started_at=stamp(START_S + 5))
    assert found(state) == set()
    assert found(state, on_idle="end") == {("idle_timeout", 10, "end")}
    assert found(state, on_lifetime="end") == {("lifetime", 105, "end")}
    assert found(session(), on_lifetime="end") == {("lifetime", 100, "end")}


def test_the_timers_of_an_imported_session_start_at_its_import() -> None:
    state = session(started_at=stamp(START_S + 5), imported_at=stamp(START_S + 5000))
    assert found(state, on_idle="end", on_lifetime="end") == {("idle_timeout", 5010, "end"), ("lifetime", 5100, "end")}
    state.last_active_at = stamp(START_S + 6000)
    assert found(state, on_idle="end") == {("idle_timeout", 6010, "end")}


def test_suspending_depends_on_the_age_of_the_process_and_ending_on_that_of_the_session() -> None:
    state = session(attached=process(START_S + 50))
    # A process that was started without a turn is idle only since its start.
    assert found(state) == {("idle_timeout", 60, "suspend"), ("lifetime", 150, "suspend")}
    assert found(state, on_lifetime="end") == {("idle_timeout", 60, "suspend"), ("lifetime", 100, "end")}
    state.background_tasks = 1
    assert found(state) == {("lifetime", 150, "suspend")}
    state.phase = "working"
    assert found(state, on_idle="end", on_lifetime="end") == set()


def test_a_session_waiting_for_its_usage_limit_is_not_ended_as_idle() -> None:
    state = session(waiting_until=stamp(START_S + 500), waits=1)
    assert found(state, on_idle="end") == {("idle_timeout", 10, "end")}
    assert found(state, on_idle="end", on_limit="continue") == {("usage_limit", 500, "continue")}
    state.waits = 9
    assert found(state, on_limit="continue") == set()
    state.queue = [Queued(message_id="m", text="x")]
    assert found(state, on_idle="end") == {("usage_limit", 500, "continue")}


@pytest.mark.parametrize("step_s", [-30 * 365 * 24 * HOUR_S, -10 * HOUR_S, 0.0, 10 * HOUR_S, 10 * 365 * 24 * HOUR_S])
def test_setting_the_wall_clock_does_not_change_the_time_left(step_s: float) -> None:
    ages, timer = Ages(), Timer("idle_timeout", stamp(START_S), 600, "end")
    assert ages.left_s("s", timer, START_S + 60, 5.0) == pytest.approx(540)
    assert ages.left_s("s", timer, START_S + 120 + step_s, 65.0) == pytest.approx(480)
    assert ages.left_s("s", timer, START_S + 660 + step_s, 605.0) <= 0
    # Events after the clock change carry the new time.
    again = Timer("idle_timeout", stamp(START_S + 700 + step_s), 600, "end")
    assert ages.left_s("s", again, START_S + 700 + step_s, 645.0) == pytest.approx(600)


def test_a_time_in_the_future_counts_from_when_it_is_first_seen() -> None:
    ages, timer = Ages(), Timer("lifetime", stamp(START_S + 10 * HOUR_S), 600, "end")
    assert ages.left_s("s", timer, START_S, 0.0) == 600
    assert ages.left_s("s", timer, START_S + 600, 600.0) == 0
    ages.keep(set())
    assert ages.left_s("s", timer, START_S, 600.0) == 600


def test_only_usage_limits_use_the_wall_clock() -> None:
    ages, timer = Ages(), Timer("usage_limit", stamp(START_S + HOUR_S), 0.0, "continue")
    assert ages.left_s("s", timer, START_S, 0.0) == HOUR_S
    assert ages.left_s("s", timer, START_S + HOUR_S, 1.0) == 0


def test_a_stopwatch_ignores_long_gaps_between_looks() -> None:
    watch = Stopwatch()
    assert watch.look(1, 100.0) == 0
    assert watch.look(1, 101.0) == 1
    assert watch.look(1, 111.0, counts=False) == 1
    assert watch.look(1, 112.0) == 2
    assert watch.look(1, 112.0 + HOUR_S) == 2 + STEP_MAX_S
    assert watch.look(2, 113.0 + HOUR_S) == 0


def test_every_event_counts_as_activity_except_that_a_tool_still_runs() -> None:
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
def test_a_tool_is_working_if_its_processes_use_cpu_time(share: float, works: bool) -> None:
    effort = Effort()
    # CPU time used before the tool began doesn't count.
    assert not effort.measured(100.0, 1800.0, 5000.0)
    for count in range(1, 9):
        now = 100.0 + count * WINDOW_S
        assert effort.measured(now, 1800.0, 5000.0 + share * count * WINDOW_S) is works


def test_a_tool_is_measured_several_times_before_its_turn_would_time_out() -> None:
    effort, measured = Effort(), 0
    for second in range(1800):
        if effort.is_due("tool", float(second), 1800.0):
            effort.measured(float(second), 1800.0, 0.0)
            measured += 1
    assert measured == MEASURES_PER_TIMEOUT - 1


def test_tools_that_end_quickly_are_never_measured() -> None:
    """Each measurement reads the whole process table, and a busy server sees several new tools each second."""
    effort = Effort()
    assert not any(effort.is_due(f"tool {second // 60}", float(second), 1800.0) for second in range(1800))


def test_cpu_time_that_disappears_with_a_process_is_not_work() -> None:
    effort = Effort()
    effort.measured(0.0, 1800.0, 5000.0)
    assert not effort.measured(WINDOW_S, 1800.0, 10.0)
    assert not effort.measured(2 * WINDOW_S, 1800.0, 11.0)
