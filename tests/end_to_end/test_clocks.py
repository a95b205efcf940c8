"""The turn, silence and idle timers on a live server, and what stops them."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from perdure.core.clock import seconds
from perdure.runtime.agents.registry import import_path
from tests.end_to_end.victims import none_left
from tests.harness import LiveServer


@pytest.mark.smoke
def test_an_idle_session_ends_as_timed_out_if_configured(make_server: Callable[..., LiveServer]) -> None:
    server = make_server('[server]\nslots = 0\nproject_slots = 0\n[limits]\nidle_timeout_s = 1\non_idle = "end"\n')
    # Created together with its message: otherwise the session might end before the message arrives.
    used, unused = server.create(message="say one"), server.create()
    for session in (used, unused):
        found = server.wait(session, lambda found: found["state"] == "ended")
        assert found["status"] == "timed-out"
    assert server.text(used, 1) == "one"
    none_left(server)


def test_a_session_without_a_process_ends_by_its_idle_timer(server: LiveServer) -> None:
    limits = {"idle_timeout_s": 1, "on_idle": "end"}
    used, unused = server.create(limits=limits, message="say one"), server.create(limits=limits)
    for session in (used, unused):
        assert server.wait(session, lambda found: found["state"] == "ended")["status"] == "timed-out"
    assert server.text(used, 1) == "one"


@pytest.mark.parametrize("agent", ["rehearsal", "rehearsal-resume"])
def test_a_session_without_a_process_ends_by_its_lifetime(server: LiveServer, agent: str) -> None:
    limits = {"lifetime_s": 3, "on_lifetime": "end"}
    unused, used = server.create(limits=limits, agent=agent), server.create(limits=limits, agent=agent)
    server.send(used, "say one")
    timers = server.get(f"/api/sessions/{unused}/explain")["timers"]
    assert [(timer["timer"], timer["then"]) for timer in timers] == [("lifetime", "end")]
    for session in (used, unused):
        found = server.wait(session, lambda found: found["state"] == "ended")
        assert found["status"] == "timed-out"
        assert [event["reason"] for event in server.log(session) if event["type"] == "session_end"] == ["lifetime"]
    assert server.text(used, 1) == "one"


def test_the_timers_of_a_session_without_a_process_are_shown_and_survive_a_restart(
    server: LiveServer,
) -> None:
    limits = {"idle_timeout_s": 500, "on_idle": "end", "lifetime_s": 900, "on_lifetime": "end"}
    session = server.create(limits=limits, agent="rehearsal-resume")
    server.turn(session, "say one")

    def known() -> list[tuple[str, str]]:
        why = server.get(f"/api/sessions/{session}/explain")
        assert why["next_timer"] == why["timers"][0]
        assert [400 < why["timers"][0]["in_s"] <= 500, 800 < why["timers"][1]["in_s"] <= 900] == [True, True]
        return [(timer["timer"], timer["then"]) for timer in why["timers"]]

    assert known() == [("idle_timeout", "end"), ("lifetime", "end")]
    server.kill()
    server.restart()
    assert known() == [("idle_timeout", "end"), ("lifetime", "end")]


@pytest.mark.parametrize(
    ("limit", "what"), [("turn_timeout_s", "was inactive"), ("turn_limit_s", "ran longer")], ids=str
)
def test_a_turn_that_hangs_is_stopped_and_keeps_its_output(server: LiveServer, limit: str, what: str) -> None:
    # Long enough for an agent that starts on a busy machine to produce output.
    session = server.create(limits={limit: 6})
    turn = server.turn(session, "say half\nhang")
    assert (turn["stop_reason"], server.text(session, 1)) == ("timed_out", "half")
    assert what in stopped_by(server, session)
    types = [event["type"] for event in server.log(session)]
    assert types.index("error") < types.index("turn_end")
    assert server.recalled(session) == ["say half\nhang"]


def stopped_by(server: LiveServer, session: str) -> str:
    """The error message of its turn."""
    (error,) = [event for event in server.log(session) if event["type"] == "error"]
    assert error["code"] == "turn_timeout"
    return str(error["message"])


@pytest.mark.full
def test_a_working_turn_is_not_stopped_however_long_it_takes(server: LiveServer) -> None:
    session = server.create(limits={"turn_timeout_s": 4, "silence_s": 4, "on_silence": "abort"})
    turn = server.turn(session, "stream 40 250")
    assert turn["stop_reason"] == "end_turn"
    assert turn["duration_ms"] > 9000


@pytest.mark.full
def test_a_working_turn_is_stopped_by_turn_limit(server: LiveServer) -> None:
    session = server.create(limits={"turn_timeout_s": 60, "turn_limit_s": 3})
    server.send(session, "stream 1000 100")
    timers = server.get(f"/api/sessions/{session}/explain")["timers"]
    assert {timer["timer"]: timer["then"] for timer in timers}.get("turn_limit") == "abort"
    server.wait_idle(session)
    assert server.transcript(session)[0]["stop_reason"] == "timed_out"
    assert "ran longer" in stopped_by(server, session) and server.text(session, 1).startswith("w0 ")


BUSY = """
[agents.busy]
driver = "acp"
command = ["sh", "-c", "(while :; do :; done) & exec {python} -m perdure.rehearsal --acp"]
env = {{ PERDURE_REHEARSAL_DIR = "{folder}", PYTHONPATH = "{path}" }}
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("agent", "message", "what"),
    [
        ("busy", "delegate reviewer hang", "ran longer"),
        ("busy", "hang", "was inactive"),
        ("rehearsal", "delegate reviewer hang", "was inactive"),
    ],
    ids=["a tool that works", "an agent that spins", "a tool that hangs"],
)
def test_a_silent_tool_counts_as_active_only_while_its_processes_work(
    make_server: Callable[..., LiveServer], tmp_path: Any, agent: str, message: str, what: str
) -> None:
    server = make_server(BUSY.format(python=sys.executable, folder=tmp_path, path=":".join(import_path())))
    session = server.create(agent=agent, limits={"turn_timeout_s": 3, "turn_limit_s": 12})
    assert server.turn(session, message)["stop_reason"] == "timed_out"
    assert what in stopped_by(server, session)


def test_a_silent_turn_is_reported_and_continues(server: LiveServer) -> None:
    session = server.create(limits={"silence_s": 1})
    turn = server.turn(session, "sleep 6\nsay done")
    assert (turn["stop_reason"], server.text(session, 1)) == ("end_turn", "done")
    codes = [event["code"] for event in server.log(session) if event["type"] == "system"]
    assert "silence" in codes


def test_a_silent_turn_is_stopped_if_configured(server: LiveServer) -> None:
    session = server.create(limits={"silence_s": 1, "on_silence": "abort"})
    assert server.turn(session, "say half\nhang")["stop_reason"] == "timed_out"


@pytest.mark.parametrize("agent", ["rehearsal", "rehearsal-stream"])
def test_a_session_continues_when_a_usage_limit_resets_with_any_agent(server: LiveServer, agent: str) -> None:
    session = server.create(agent=agent, limits={"on_limit": "continue"})
    failed = server.turn(session, "limit 3")
    assert failed["stop_reason"] == "failed"
    error = next(event for event in server.log(session) if event["type"] == "error")
    assert error["code"] == "usage_limit"
    assert "limit" in error["message"] and not any(mark in error["message"] for mark in ("{", "-32", "|"))
    waits = next(event for event in server.log(session) if event["type"] == "waiting_until")
    assert 0 < seconds(waits["until"]) - seconds(waits["at"]) < 10
    server.wait(session, lambda found: found["turn_count"] == 2 and found["state"] == "idle")
    second = server.transcript(session)[1]
    assert second["message"]["text"].startswith("Go on") and second["stop_reason"] == "end_turn"


def test_timers_pause_while_a_prompt_waits(server: LiveServer) -> None:
    session = server.create(
        limits={
            **dict.fromkeys(("turn_timeout_s", "turn_limit_s", "silence_s"), 6),
            "idle_timeout_s": 1,
            "lifetime_s": 1,
        }
    )
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
