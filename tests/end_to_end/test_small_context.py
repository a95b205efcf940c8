"""A conversation longer than an agent's context: the agent still answers, and a notice says which turns it did not
get."""

import json
import sys
from collections.abc import Callable

import pytest

from tests.harness import SOURCE, LiveServer

TURNS = 300
CONTEXT_TOKENS = 3000
FAMILIES = {"acp": ("acp", "--acp"), "stream": ("claude-stream", "--claude"), "resume": ("claude-resume", "--claude")}


def config(family: str, more: str = "") -> str:
    driver, kind = FAMILIES[family]
    command = json.dumps([sys.executable, "-m", "perdure.rehearsal", kind])
    env = f'{{ PYTHONPATH = "{SOURCE}", PERDURE_REHEARSAL_CONTEXT = "{CONTEXT_TOKENS}" }}'
    agent = f'[agents.small]\ndriver = "{driver}"\ncommand = {command}\nenv = {env}\n{more}\n'
    return f"[server]\nslots = 0\nproject_slots = 0\n{agent}"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("family", FAMILIES)
def test_three_hundred_turns_are_shortened_for_a_small_agent(
    family: str, make_server: Callable[..., LiveServer]
) -> None:
    server = make_server(config(family))
    session = server.create(agent="rehearsal")
    for number in range(TURNS):
        server.send(session, f"tool Bash out {number}\nsay {'answer ' * 20}{number}", when_busy="queue")
        if number % 50 == 49:
            server.wait(session, lambda found: found["queue_length"] == 0 and found["state"] == "idle", 60)
    plan = server.post(f"/api/sessions/{session}/plan", {"agent": "small"}, expect=200)
    assert plan["turns_told"] == list(range(1, TURNS + 1))
    turn = server.turn(session, "recall", agent="small")
    assert (turn["stop_reason"], turn["context"]) == ("end_turn", "fresh")
    # It got the full replay, then shorter ones until one fitted, each in a new native session that is never used again.
    log = server.log(session)
    tries = [event for event in log if event["type"] == "context_fallback" and event["turn"] == TURNS + 1]
    assert tries and all(event["shorter"] and event["poisoned"] for event in tries)
    shortened = [event for event in log if event["type"] == "history_shortened"][-1]
    untold, short = shortened["left_out"], shortened["digested"]
    assert [*untold, *short] == list(range(1, len(untold) + len(short) + 1)) and untold and short
    assert len(untold) + len(short) < TURNS, "the latest turns are not shortened"
    assert (turn["left_out"], turn["digested"]) == (len(untold), len(short))
    assert f"turns 1 to {untold[-1]} are left out" in shortened["message"]
    held = [json.loads(line[2:]) for line in server.text(session, TURNS + 1).split("\n") if line.startswith("- ")]
    assert held[-1] == "recall"
    assert held[-2] == f"tool Bash out {TURNS - 1}\nsay {'answer ' * 20}{TURNS - 1}"
    assert len(held) == TURNS - len(untold) + 1
    assert server.turn(session, "say on", agent="small")["stop_reason"] == "end_turn"


@pytest.mark.smoke
@pytest.mark.timeout(120)
def test_a_replay_never_exceeds_the_agents_budget(make_server: Callable[..., LiveServer]) -> None:
    server = make_server(config("acp", "transcript_tokens = 1000"))
    session = server.create(agent="rehearsal")
    for number in range(40):
        server.turn(session, f"say {'answer ' * 20}{number}")
    turn = server.turn(session, "say on", agent="small")
    assert (turn["stop_reason"], turn["context_reason"]) == ("end_turn", "no_native_session")
    assert turn["input_bytes"] < 8000 and turn["digested"] + turn["left_out"] > 10
    parts = [part for part in turn["parts"] if part["type"] == "history_shortened"]
    assert len(parts) == 1 and "too long for small" in parts[0]["message"]
