"""How long an agent may take to open its session. Time in which server or machine are suspended doesn't count."""

from hypothesis import given
from hypothesis import strategies as some

from perdure.config import ServerSettings
from perdure.core.state import Attached, Session
from perdure.runtime.running.process_deadlines import MARGIN_S, ProcessDeadlines
from perdure.runtime.running.timers import LOOK_EVERY_S, STEP_MAX_S

LIMIT_S = 60.0
HOURS_10_S = 36_000.0


def opening() -> Session:
    state = Session(id="s", project=None, agent="a", workdir="/", created_at="", last_active_at="")
    state.phase = "working"
    state.attached = Attached(launch_id="l", agent="a", driver="acp", workdir_id="", fingerprint="", since="")
    return state


def when_over(deadlines: ProcessDeadlines, state: Session, now: float) -> float:
    """Check as often as the deadlines ask for. Returns when the deadline expired."""
    while not deadlines.is_over(state, now):
        wait_s = deadlines.wait_s(state, now)
        assert wait_s is not None and wait_s <= LOOK_EVERY_S + MARGIN_S
        now += wait_s
    return now


def test_an_agent_that_never_opens_its_session_is_ended_after_the_limit() -> None:
    deadlines, state = ProcessDeadlines(ServerSettings(start_timeout_s=LIMIT_S), 100.0), opening()
    assert abs(when_over(deadlines, state, 100.0) - 100.0 - LIMIT_S) < 1
    assert deadlines.next_step(state, 160.0) == "kill"
    assert deadlines.kill_reason == "start_timeout"


@given(some.lists(some.floats(0.0, LIMIT_S - 1), max_size=5).map(sorted))
def test_hours_of_suspension_while_it_opens_barely_count(stops_at: list[float]) -> None:
    deadlines, state, now = ProcessDeadlines(ServerSettings(start_timeout_s=LIMIT_S), 0.0), opening(), 0.0
    stopped_s = 0.0
    for at in stops_at:
        while now - stopped_s < at and not deadlines.is_over(state, now):
            now += deadlines.wait_s(state, now) or 0.0
        now, stopped_s = now + HOURS_10_S, stopped_s + HOURS_10_S
    worked_s = when_over(deadlines, state, now) - stopped_s
    assert LIMIT_S - (STEP_MAX_S + 1) * len(stops_at) <= worked_s + 1
    assert worked_s <= LIMIT_S + 1


def test_a_process_that_has_opened_its_session_has_no_deadline() -> None:
    deadlines, state = ProcessDeadlines(ServerSettings(start_timeout_s=LIMIT_S), 0.0), opening()
    assert state.attached is not None
    state.attached.opened = True
    assert deadlines.wait_s(state, HOURS_10_S) is None
