"""One process for all sessions in a directory: they don't mix, they fail together, and each continues afterwards."""

import json
import random
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from perdure.core.state import dump, restore
from tests.end_to_end.victims import agent_of, kill, none_left, until_said, zombies
from tests.harness import SOURCE, LiveServer, eventually, no_holes

STREAMED = "".join(f"w{n} " for n in range(100)) + "\nend"


class Place:
    """A server with a shared agent, and sessions in one directory."""

    def __init__(
        self,
        make_server: Callable[..., LiveServer],
        folder: Path,
        server: str = "slots = 0\nproject_slots = 0",
        first: str = "",
    ) -> None:
        """`first`: shell commands that run before the agent."""
        agent = f"{shlex.quote(sys.executable)} -m perdure.rehearsal --acp"
        command = json.dumps(["sh", "-c", f"{first or ':'}; exec {agent}"])
        env = f'{{ PERDURE_REHEARSAL_DIR = "{folder}/memory", PYTHONPATH = "{SOURCE}" }}'
        lines = f'[agents.together]\ndriver = "acp"\nshared = true\ncommand = {command}\nenv = {env}\n'
        self.server = make_server(f"[server]\n{server}\n{lines}")
        self.workdir = folder / "work"
        self.workdir.mkdir()

    def session(self) -> str:
        return self.server.create(agent="together", workdir=str(self.workdir))

    def pid(self, session: str) -> int:
        return int(self.server.session(session)["pid"])


@pytest.fixture
def place(make_server: Callable[..., LiveServer], tmp_path: Path) -> Place:
    return Place(make_server, tmp_path)


@pytest.mark.smoke
def test_sessions_in_one_directory_share_a_process_and_nothing_else(place: Place) -> None:
    server, first, second = place.server, place.session(), place.session()
    server.turn(first, "say one")
    server.turn(second, "say two")
    assert place.pid(first) == place.pid(second)
    for session in (first, second):
        server.send(session, "stream 100 5\nsay end")
    for session in (first, second):
        assert server.wait_idle(session)["turns"][1]["stop_reason"] == "end_turn"
        assert server.text(session, 2) == STREAMED
        no_holes(server.log(session))
        assert not [event for event in server.log(session) if event["type"] in ("system", "error", "unrecognised")]
    assert server.recalled(first) == ["say one", "stream 100 5\nsay end"]
    assert server.recalled(second) == ["say two", "stream 100 5\nsay end"]
    elsewhere = server.create(agent="together")
    server.turn(elsewhere, "say three")
    assert place.pid(elsewhere) != place.pid(first)


@pytest.mark.parametrize("in_repository", [False, pytest.param(True, marks=pytest.mark.needs("git"))])
def test_sessions_that_start_concurrently_wait_for_one_process(place: Place, in_repository: bool) -> None:
    if in_repository:
        # One snapshot at a time, so each session gets its turn a little after another.
        subprocess.run(["git", "init", "--quiet", place.workdir], check=True)
    sessions = [place.session() for _ in range(4)]
    for session in sessions:
        place.server.send(session, "say hello")
    for session in sessions:
        assert place.server.wait_idle(session)["turns"][0]["stop_reason"] == "end_turn"
    assert len({place.pid(session) for session in sessions}) == 1


def test_a_session_that_joins_a_process_without_resume_gets_a_replay(
    make_server: Callable[..., LiveServer], tmp_path: Path
) -> None:
    agent, ran = f"{shlex.quote(sys.executable)} -m perdure.rehearsal --acp", shlex.quote(f"{tmp_path}/ran")
    other = f"""sleep 1; {agent} | sed -u 's/"loadSession": *true/"loadSession": false/'; exit"""
    place = Place(make_server, tmp_path, first=f"if [ -e {ran} ]; then {other}; fi; touch {ran}")
    server, first, second = place.server, place.session(), place.session()
    server.turn(first, "say one")
    kill(agent_of(server, first))
    server.wait(first, lambda found: found["pid"] is None)
    server.send(second, "say two")
    assert server.recalled(first) == ["say one"]
    assert [event["type"] for event in server.log(first)].count("context_fallback") == 1
    assert server.wait_idle(second)["turns"][0]["stop_reason"] == "end_turn"
    assert place.pid(first) == place.pid(second)


def test_the_answer_to_a_prompt_reaches_only_its_session(place: Place) -> None:
    server, first, second = place.server, place.session(), place.session()
    server.send(first, "permit Deploy\nsay deployed")
    server.send(second, "permit Erase\nsay erased")
    prompts = {session: server.prompt(session) for session in (first, second)}
    assert [prompts[session]["title"] for session in (first, second)] == ["Run Deploy", "Run Erase"]
    for session, option in ((second, "reject_once"), (first, "allow_once")):
        path = f"/api/sessions/{session}/prompts/{prompts[session]['prompt_id']}"
        server.post(path, {"option_id": option}, expect=200)
    for session in (first, second):
        server.wait_idle(session)
    assert "deployed" in server.text(first, 1)
    outcomes = [
        [event["outcome"] for event in server.log(session) if event["type"] == "prompt_resolved"]
        for session in (first, second)
    ]
    assert outcomes == [["allowed"], ["denied"]]


def test_the_process_ends_with_its_last_session(place: Place) -> None:
    server, first, second = place.server, place.session(), place.session()
    server.turn(first, "say one")
    server.turn(second, "say two")
    pid = place.pid(first)
    server.post(f"/api/sessions/{first}/stop")
    assert server.turn(second, "say three")["stop_reason"] == "end_turn"
    assert place.pid(second) == pid
    third = place.session()
    server.turn(third, "say four")
    assert place.pid(third) == pid
    for session in (second, third):
        server.post(f"/api/sessions/{session}/stop")
    none_left(server)
    eventually(lambda: not zombies(server), "its keeper is gone")
    assert server.turn(place.session(), "say five")["stop_reason"] == "end_turn"


def test_a_crash_fails_every_running_turn_and_every_session_continues(place: Place) -> None:
    server, first, second, idle = place.server, place.session(), place.session(), place.session()
    server.turn(idle, "say nothing")
    for session in (first, second):
        server.send(session, "say half\nhang")
        until_said(server, session, 1, "^half$")
    kill(agent_of(server, first))
    for session in (first, second):
        assert server.wait_idle(session)["turns"][0]["stop_reason"] == "failed"
        assert server.text(session, 1) == "half"
    assert server.session(idle)["state"] == "idle"
    for session in (first, second):
        assert server.recalled(session) == ["say half\nhang"]
    assert server.recalled(idle) == ["say nothing"]
    assert len({place.pid(session) for session in (first, second, idle)}) == 1


def test_an_abort_stops_one_session_and_no_other(place: Place) -> None:
    server, first, second = place.server, place.session(), place.session()
    server.send(first, "say half\nhang")
    server.send(second, "stream 100 10\nsay end")
    until_said(server, first, 1, "^half$")
    server.post(f"/api/sessions/{first}/abort", expect=202)
    assert server.wait_idle(first)["turns"][0]["stop_reason"] == "cancelled"
    assert server.wait_idle(second)["turns"][0]["stop_reason"] == "end_turn"
    assert server.text(second, 1) == STREAMED


@pytest.mark.parametrize("seed", range(4))
def test_turns_of_all_sessions_continue_after_the_server_is_killed(place: Place, seed: int) -> None:
    server, chance = place.server, random.Random(seed)
    sessions = [place.session() for _ in range(3)]
    for session in sessions:
        server.turn(session, "say begin")
    pid = place.pid(sessions[0])
    for session in sessions:
        server.send(session, "stream 100 5\nsay end")
        server.send(session, "say queued", when_busy="queue")
    until_said(server, chance.choice(sessions), 2, f"w{chance.randrange(60)} ")
    server.kill()
    server.restart()
    for session in sessions:
        found = server.wait(session, lambda found: found["state"] == "idle" and len(found["turns"]) == 3)
        assert [turn["stop_reason"] for turn in found["turns"]] == ["end_turn"] * 3
        assert [server.text(session, turn) for turn in (1, 2, 3)] == ["begin", STREAMED, "queued"]
        no_holes(server.log(session))
        assert server.recalled(session) == ["say begin", "stream 100 5\nsay end", "say queued"]
        assert place.pid(session) == pid
    joined = place.session()
    server.turn(joined, "say late")
    assert place.pid(joined) == pid


def test_a_session_that_waits_for_the_process_accepts_messages_meanwhile(
    make_server: Callable[..., LiveServer], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    place = Place(make_server, tmp_path, first=f"while [ ! -e {gate} ]; do sleep 0.02; done")
    server, first, warm, stopped = place.server, place.session(), place.session(), place.session()
    server.send(first, "say one")
    server.wait(first, lambda found: found["state"] == "processing")
    # These wait until the process has completed its handshake.
    server.send(warm, "say two")
    server.send(stopped, "say never")
    server.post(f"/api/sessions/{stopped}/abort", expect=202)
    assert server.wait_idle(stopped)["turns"][0]["stop_reason"] == "cancelled"
    server.send(warm, "say three", when_busy="queue")
    gate.touch()
    assert server.wait_idle(first)["turns"][0]["stop_reason"] == "end_turn"
    found = server.wait(warm, lambda found: found["state"] == "idle" and len(found["turns"]) == 2)
    assert [server.text(warm, turn["turn"]) for turn in found["turns"]] == ["two", "three"]
    assert server.recalled(stopped) == ["say never"]
    assert len({place.pid(session) for session in (first, warm, stopped)}) == 1


def test_with_one_slot_an_idle_session_keeps_the_process_that_the_next_turn_uses(
    make_server: Callable[..., LiveServer], tmp_path: Path
) -> None:
    place = Place(make_server, tmp_path, server="slots = 3\nproject_slots = 1")
    server, first, second = place.server, place.session(), place.session()
    pids = set()
    for session in (first, second, first, second):
        server.turn(session, "say hello")
        pids.add(place.pid(session))
    assert len(pids) == 1


def test_a_session_that_was_leaving_when_the_server_died_does_not_end_the_shared_process(place: Place) -> None:
    server, first, second = place.server, place.session(), place.session()
    server.turn(first, "say one")
    server.send(second, "stream 100 20\nsay end")
    until_said(server, second, 1, "w3 ")
    server.kill()
    # As if the server had died while the first session was leaving: it is detached, but its row still exists.
    with closing(sqlite3.connect(server.data / "perdure.db", isolation_level=None)) as database:
        (body,) = database.execute("SELECT machine_state FROM sessions WHERE session_id = ?", (first,)).fetchone()
        state = restore(body)
        state.attached = None
        database.execute("UPDATE sessions SET machine_state = ? WHERE session_id = ?", (dump(state), first))
    server.restart()
    assert server.wait_idle(second)["turns"][0]["stop_reason"] == "end_turn"
    assert server.text(second, 1) == STREAMED
    assert server.recalled(first) == ["say one"]


def test_more_sessions_than_a_process_can_serve_get_another(place: Place) -> None:
    sessions = [place.session() for _ in range(15)]
    for session in sessions:
        place.server.turn(session, "say hello")
    assert len({place.pid(session) for session in sessions}) == 2
    for session in sessions:
        assert place.server.recalled(session) == ["say hello"]
