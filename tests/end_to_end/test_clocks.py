"""Turn, silence and idle clocks on a live server, and what stops them."""

from collections.abc import Callable

import pytest

from tests.end_to_end.victims import none_left
from tests.harness import LiveServer


@pytest.mark.smoke
def test_an_idle_session_ends_as_timed_out_where_that_is_asked_for(make_server: Callable[..., LiveServer]) -> None:
    server = make_server('[server]\nslots = 0\nproject_slots = 0\n[limits]\nidle_timeout_s = 1\non_idle = "end"\n')
    # With its message: one that only waits for it might be over before it comes.
    used, unused = server.create(message="say one"), server.create()
    for session in (used, unused):
        found = server.wait(session, lambda found: found["state"] == "ended")
        assert found["status"] == "timed-out"
    assert server.text(used, 1) == "one"
    none_left(server)


def test_a_session_ends_by_its_own_idle_clock_even_if_it_has_no_process(server: LiveServer) -> None:
    limits = {"idle_timeout_s": 1, "on_idle": "end"}
    used, unused = server.create(limits=limits, message="say one"), server.create(limits=limits)
    for session in (used, unused):
        assert server.wait(session, lambda found: found["state"] == "ended")["status"] == "timed-out"
    assert server.text(used, 1) == "one"


def test_a_turn_that_runs_too_long_is_stopped_with_what_it_said(server: LiveServer) -> None:
    # Long enough for an agent that starts on a busy machine to say something.
    session = server.create(limits={"turn_timeout_s": 6})
    turn = server.turn(session, "say half\nhang")
    assert (turn["stop_reason"], server.text(session, 1)) == ("timed_out", "half")
    types = [event["type"] for event in server.log(session)]
    assert types.index("error") < types.index("turn_end")
    assert server.recalled(session) == ["say half\nhang"]


def test_a_silent_turn_is_reported_and_goes_on(server: LiveServer) -> None:
    session = server.create(limits={"silence_s": 1})
    turn = server.turn(session, "sleep 6\nsay done")
    assert (turn["stop_reason"], server.text(session, 1)) == ("end_turn", "done")
    codes = [event["code"] for event in server.log(session) if event["type"] == "system"]
    assert "silence" in codes


def test_a_silent_turn_is_stopped_where_that_is_asked_for(server: LiveServer) -> None:
    session = server.create(limits={"silence_s": 1, "on_silence": "abort"})
    assert server.turn(session, "say half\nhang")["stop_reason"] == "timed_out"


def test_clocks_stand_still_while_a_prompt_is_open(server: LiveServer) -> None:
    session = server.create(limits={"turn_timeout_s": 6, "silence_s": 6, "idle_timeout_s": 1, "lifetime_s": 1})
    other = server.create()
    server.send(session, "permit Deploy\nsay done")
    prompt = server.prompt(session)
    server.turn(other, "sleep 8")
    assert server.session(session)["state"] == "processing"
    path = f"/api/sessions/{session}/prompts/{prompt['prompt_id']}"
    server.post(path, {"option_id": "allow_once"}, expect=200)
    server.wait_idle(session)
    assert server.transcript(session)[0]["stop_reason"] == "end_turn"
    assert server.text(session, 1).endswith("done")
    assert "silence" not in [event.get("code") for event in server.log(session)]
