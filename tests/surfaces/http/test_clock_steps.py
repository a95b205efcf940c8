"""The system clock jumps by hours while a server runs: no timeout fires early, and none is missed."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.harness import eventually
from tests.surfaces.http.local import LocalServer

Make = Callable[..., LocalServer]
HOURS_10_S = 36_000.0


def stop_for(server: LocalServer, stopped_s: float) -> None:
    """Simulate that the process and its agents were stopped for this long, then wait for two ticks of its timers."""
    log, clocks = server.server.log, server.server.engine.clocks
    steady: Callable[[], float] = log.steady

    def later() -> float:
        return steady() + stopped_s

    server.ask(lambda: setattr(log, "steady", later))
    before = server.ask(lambda: clocks._ticks)
    eventually(lambda: server.ask(lambda: clocks._ticks) >= before + 2, "the clocks were looked at")


def test_a_turn_is_not_stopped_because_its_server_was_stopped(make_server: Make) -> None:
    server = make_server()
    limits = {"turn_timeout_s": 60, "turn_limit_s": 60, "silence_s": 60, "on_silence": "abort"}
    silent = server.create(limits=limits, message="hang")
    tools = server.create(limits=limits, message="permit Deploy\nhang")
    prompt = server.prompt(tools)
    for _ in range(5):
        stop_for(server, HOURS_10_S)
    server.post(f"/api/sessions/{tools}/prompts/{prompt['prompt_id']}", {"option_id": "allow_once"}, expect=200)
    stop_for(server, HOURS_10_S)
    assert [server.session(one)["state"] for one in (silent, tools)] == ["processing", "processing"]
    timers = server.get(f"/api/sessions/{silent}/explain")["timers"]
    assert all(timer["in_s"] > 5 for timer in timers), timers


def set_clock(server: LocalServer, by_s: float) -> None:
    """Shift the server's wall clock from now on, then wait for two ticks of its timers."""
    log, clocks = server.server.log, server.server.engine.clocks

    def wrong() -> float:
        return time.time() + by_s

    server.ask(lambda: setattr(log, "now", wrong))
    before = server.ask(lambda: clocks._ticks)
    eventually(lambda: server.ask(lambda: clocks._ticks) >= before + 2, "the clocks were looked at")


@pytest.mark.parametrize("by_s", [HOURS_10_S, -HOURS_10_S])
def test_a_clock_change_does_not_affect_a_running_turn_or_an_idle_session(make_server: Make, by_s: float) -> None:
    server = make_server()
    limits = {"idle_timeout_s": 600, "lifetime_s": 600, "on_idle": "end", "on_lifetime": "end"}
    unused, used = server.create(limits=limits), server.create(limits=limits)
    server.turn(used, "say one")
    limits = {"turn_timeout_s": 600, "turn_limit_s": 600, "silence_s": 600, "on_silence": "abort"}
    busy = server.create(limits=limits)
    server.send(busy, "hang")
    set_clock(server, by_s)
    assert [server.session(one)["state"] for one in (unused, used, busy)] == ["idle", "idle", "processing"]
    for one, names in ((used, {"idle_timeout", "lifetime"}), (busy, {"turn_timeout", "turn_limit", "silence"})):
        timers = server.get(f"/api/sessions/{one}/explain")["timers"]
        assert {timer["timer"] for timer in timers} == names
        assert all(500 < timer["in_s"] <= 600 for timer in timers), timers


def test_setting_the_clock_back_does_not_extend_any_timeout(make_server: Make) -> None:
    server = make_server()
    ends = server.create(limits={"idle_timeout_s": 3, "on_idle": "end"}, message="say one")
    grows_old = server.create(limits={"lifetime_s": 3, "on_lifetime": "end"})
    hangs = server.create(limits={"turn_timeout_s": 3}, message="hang")
    works = server.create(limits={"turn_limit_s": 3}, message="stream 1000 100")
    set_clock(server, -HOURS_10_S)
    for one in (ends, grows_old):
        assert server.wait(one, lambda found: found["state"] == "ended")["status"] == "timed-out"
    for one in (hangs, works):
        server.wait_idle(one)
        assert server.transcript(one)[0]["stop_reason"] == "timed_out"


def test_a_turn_being_stopped_when_the_clock_is_set_back_ends_in_time(make_server: Make) -> None:
    server = make_server(abort_grace_s=3, term_grace_s=0.2)
    session = server.create(message="say half\nhang")
    eventually(lambda: server.text(session, 1) == "half", "it has begun")
    os.kill(server.session(session)["pid"], signal.SIGSTOP)
    server.post(f"/api/sessions/{session}/abort", expect=202)
    set_clock(server, -HOURS_10_S)
    server.wait_idle(session)
    assert server.transcript(session)[0]["stop_reason"] == "cancelled"
