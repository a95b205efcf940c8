"""How long an agent may take to open its session. Time in which the server or the machine was stopped doesn't count."""

from hypothesis import given
from hypothesis import strategies as some

from perdure.config import ServerSettings
from perdure.core.state import Attached, Session
from perdure.runtime.running.patience import MARGIN_S, Patience
from perdure.runtime.running.timers import LOOK_EVERY_S, STEP_MAX_S

LIMIT_S = 60.0
HOURS_10_S = 36_000.0


def opening() -> Session:
    state = Session(id="s", project=None, agent="a", workdir="/", created_at="", last_active_at="")
    state.phase = "working"
    state.attached = Attached(launch_id="l", agent="a", driver="acp", workdir_id="", fingerprint="", since="")
    return state


def when_over(patience: Patience, state: Session, now: float) -> float:
    """Look as often as it asks to; when it has had enough."""
    while not patience.is_over(state, now):
        wait_s = patience.wait_s(state, now)
        assert wait_s is not None and wait_s <= LOOK_EVERY_S + MARGIN_S
        now += wait_s
    return now


def test_an_agent_that_never_opens_its_session_is_ended_after_the_limit() -> None:
    patience, state = Patience(ServerSettings(start_timeout_s=LIMIT_S), 100.0), opening()
    assert abs(when_over(patience, state, 100.0) - 100.0 - LIMIT_S) < 1
    assert patience.next_step(state, 160.0) == "kill"
    assert patience.kill_reason == "start_timeout"


@given(some.lists(some.floats(0.0, LIMIT_S - 1), max_size=5).map(sorted))
def test_stops_of_hours_while_it_opens_count_as_a_moment_each(stops_at: list[float]) -> None:
    patience, state, now = Patience(ServerSettings(start_timeout_s=LIMIT_S), 0.0), opening(), 0.0
    stopped_s = 0.0
    for at in stops_at:
        while now - stopped_s < at and not patience.is_over(state, now):
            now += patience.wait_s(state, now) or 0.0
        now, stopped_s = now + HOURS_10_S, stopped_s + HOURS_10_S
    worked_s = when_over(patience, state, now) - stopped_s
    assert LIMIT_S - (STEP_MAX_S + 1) * len(stops_at) <= worked_s + 1
    assert worked_s <= LIMIT_S + 1


def test_one_that_has_opened_its_session_is_not_waited_for() -> None:
    patience, state = Patience(ServerSettings(start_timeout_s=LIMIT_S), 0.0), opening()
    assert state.attached is not None
    state.attached.opened = True
    assert patience.wait_s(state, HOURS_10_S) is None
