"""The agent, its keeper, or both are killed with -9: the turn fails and keeps its output, and the session continues."""

import json
import shutil
from collections.abc import Callable

import pytest

from tests.end_to_end.victims import agent_of, closed_order, groups_of, keeper_of, kill, none_left, until_said
from tests.harness import LiveServer, eventually, no_holes

VICTIMS: dict[str, Callable[[LiveServer, str], list[int]]] = {
    "agent": lambda server, session: [agent_of(server, session)],
    "keeper": lambda server, session: [keeper_of(server, session)],
    "both": lambda server, session: [keeper_of(server, session), agent_of(server, session)],
}


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_turn_whose_processes_are_killed_fails_and_keeps_its_output(server: LiveServer, victim: str) -> None:
    session = server.create()
    server.turn(session, "say one")
    server.send(session, "say half of it\nhang")
    until_said(server, session, 2, "^half of it$")
    kill(*VICTIMS[victim](server, session))
    found = server.wait_idle(session)
    assert (found["state"], found["status"]) == ("idle", "running")
    turn = server.transcript(session)[-1]
    assert (turn["stop_reason"], server.text(session, 2)) == ("failed", "half of it")
    assert turn["input_bytes"] > len("say half of it\nhang")
    log = server.log(session)
    assert closed_order(log, 2) == ["user_message", "turn_start", "error", "turn_end", "waiting_for_input"]
    assert next(event for event in log if event["type"] == "error")["code"] == "agent_exited"
    assert server.recalled(session) == ["say one", "say half of it\nhang"]
    no_holes(server.log(session))


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_prompt_whose_agent_is_killed_is_closed_as_agent_lost(server: LiveServer, victim: str) -> None:
    session = server.create()
    server.send(session, "say half\npermit Deploy")
    prompt = server.prompt(session)
    kill(*VICTIMS[victim](server, session))
    server.wait_idle(session)
    resolved = [event for event in server.log(session) if event["type"] == "prompt_resolved"]
    assert [(event["by"], event["outcome"], event["delivered"]) for event in resolved] == [
        ("server", "agent_lost", False)
    ]
    assert server.get(f"/api/sessions/{session}/prompts") == {"prompts": []}
    answer = {"option_id": prompt["options"][0]["option_id"]}
    refused = server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", answer, expect=409)
    assert refused["code"] == "prompt_resolved"
    assert server.text(session, 1) == "half"
    assert server.recalled(session) == ["say half\npermit Deploy"]


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_turn_whose_server_and_processes_are_all_killed_fails_at_the_next_start(
    server: LiveServer, victim: str
) -> None:
    session = server.create()
    server.send(session, "say half\nhang")
    until_said(server, session, 1, "^half$")
    pids = VICTIMS[victim](server, session)
    server.kill()
    kill(*pids)
    server.restart()
    server.wait_idle(session)
    assert server.transcript(session)[0]["stop_reason"] == "failed"
    assert server.text(session, 1) == "half"
    assert server.recalled(session) == ["say half\nhang"]


@pytest.mark.smoke
def test_an_agent_that_crashes_fails_the_turn_with_its_exit_code_and_stderr(
    server: LiveServer,
) -> None:
    session = server.create()
    turn = server.turn(session, "say half\nstderr 3\ncrash 7")
    assert (turn["stop_reason"], turn["exit_code"]) == ("failed", 7)
    error = next(event for event in server.log(session) if event["type"] == "error")
    assert "rehearsal stderr line 00000002" in error["detail"]
    assert server.text(session, 1) == "half"
    assert server.recalled(session) == ["say half\nstderr 3\ncrash 7"]


def test_a_keeper_killed_between_two_turns_loses_only_the_process(server: LiveServer) -> None:
    session = server.create()
    server.turn(session, "say one")
    kill(keeper_of(server, session))
    server.wait(session, lambda found: found["attached"] == "suspended")
    none_left(server)
    assert server.recalled(session) == ["say one"]
    assert server.transcript(session)[-1]["context"] == "resumed"


def test_a_turn_whose_launch_folder_is_gone_fails_and_keeps_its_output(server: LiveServer) -> None:
    session = server.create()
    server.send(session, "say half\nhang")
    until_said(server, session, 1, "^half$")
    pids = [keeper_of(server, session), agent_of(server, session)]
    server.kill()
    kill(*pids)
    shutil.rmtree(server.data / "launches")
    server.restart()
    server.wait_idle(session)
    assert server.transcript(session)[0]["stop_reason"] == "failed"
    eventually(lambda: not groups_of(server), "its control group is removed")
    assert server.recalled(session) == ["say half\nhang"]


def test_a_launch_with_a_half_created_folder_is_launched_again(make_server: Callable[..., LiveServer]) -> None:
    silent = '[agents.silent]\ndriver = "acp"\ncommand = ["sleep", "300"]\n'
    server = make_server("[server]\nslots = 0\nproject_slots = 0\n" + silent)
    session = server.create(agent="silent")
    server.send(session, "say one")
    note = eventually(lambda: next((server.data / "launches").glob("*/pid.json"), None), "the keeper runs")
    pids = json.loads(note.read_text())
    server.kill()
    kill(pids["keeper_pid"], pids["pid"])
    for entry in note.parent.iterdir():
        entry.unlink()
    server.restart()
    launched = eventually(
        lambda: [event for event in server.log(session) if event["type"] == "agent_launched"][1:],
        "the agent is launched again",
    )
    assert len(launched) == 1
    assert server.session(session)["state"] == "processing"
