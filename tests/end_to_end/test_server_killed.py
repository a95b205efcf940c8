"""The server is killed with -9 at random moments of a turn: the turn continues, and nothing is lost or repeated."""

import json
import random
import select
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.victims import kill
from tests.harness import SOURCE, LiveServer, eventually, no_holes, none_left
from tests.sizes import size

KILLS = size("KILLS", 30, fast=3)
SCRIPT = """\
say beginning
think about it
stream 60 8
tool Bash ls
stream 60 8
plan one; two; three
edit notes.txt
stream 60 8
usage 10 20
say the end"""


def fold(server: LiveServer, session: str) -> list[object]:
    """The turn without what may differ between two runs of a script: ids, times, block boundaries."""
    shown: list[object] = []
    for turn in server.transcript(session):
        parts: list[tuple[object, ...]] = []
        for part in turn["parts"]:
            if part["type"] in ("text", "thinking"):
                parts.append((part["type"], part["text"]))
            elif part["type"] == "tool":
                parts.append(("tool", part["name"], part["title"], part["status"], part.get("content")))
            elif part["type"] == "plan":
                parts.append(("plan", str(part["entries"])))
            else:
                parts.append((part["type"], part.get("code")))
        shown.append((turn["message"]["text"], turn["stop_reason"], turn["usage"], parts))
    return shown


def pause(seconds: float) -> None:
    select.select([], [], [], seconds)


@pytest.mark.smoke
@pytest.mark.timeout(600)
def test_a_turn_ends_as_if_nothing_had_happened_however_often_the_server_is_killed(server: LiveServer) -> None:
    undisturbed = server.create()
    server.turn(undisturbed, SCRIPT)
    expected = fold(server, undisturbed)
    server.post(f"/api/sessions/{undisturbed}/stop")
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    kills = 0
    session, sent = "", ""
    while kills < KILLS:
        if not session:
            session = server.create()
            sent = f"m-{kills}"
            server.send(session, SCRIPT, message_id=sent)
        pause(chance.uniform(0.0, 0.6))
        server.kill()
        kills += 1
        server.restart()
        again = server.send(session, SCRIPT, message_id=sent)
        assert again["turn"] == 1
        if server.session(session)["state"] == "idle":
            check(server, session, expected, seed)
            session = ""
    if session:
        server.wait_idle(session)
        check(server, session, expected, seed)


def never_started(log: list[Any]) -> int:
    """How often the server was killed between recording a launch and starting its keeper."""
    return sum(event["type"] == "agent_detached" and event["reason"] == "never_started" for event in log)


def test_a_recorded_launch_that_never_started_is_launched_again_with_the_same_plan(
    make_server: Callable[..., LiveServer], tmp_path: Path
) -> None:
    """If a file exists, the agent hangs before it opens a session. Without its keeper and folder, this looks as if the
    server had been killed before it created them."""
    hang = tmp_path / "hang"
    rehearsal = shlex.join([sys.executable, "-m", "perdure", "rehearse", "--acp"])
    program = f"test ! -e {hang} || exec sleep 600; exec {rehearsal}"
    command = json.dumps(["/bin/sh", "-c", program])
    environment = f'env = {{ PYTHONPATH = "{SOURCE}" }}'
    server = make_server(f'[server]\nslots = 0\n[agents.late]\ndriver = "acp"\ncommand = {command}\n{environment}\n')
    session = server.create(agent="late")
    server.turn(session, "say one")
    server.stop()
    server.start()
    hang.touch()
    server.send(session, "say two")
    note = eventually(lambda: next((server.data / "launches").glob("*/pid.json"), None), "the agent is started")
    server.kill()
    kill(json.loads(note.read_text())["keeper_pid"])
    none_left(server.data)
    shutil.rmtree(note.parent)
    hang.unlink()
    server.start()
    server.wait_idle(session)
    log = server.log(session)
    no_holes(log)
    assert never_started(log) == 1
    assert [event["type"] for event in log].count("context_fallback") == 0
    assert [(turn["context"], turn["stop_reason"]) for turn in server.transcript(session)] == [
        ("fresh", "end_turn"),
        ("resumed", "end_turn"),
    ]
    assert server.recalled(session) == ["say one", "say two"]


def check(server: LiveServer, session: str, expected: list[object], seed: int) -> None:
    log = server.log(session)
    no_holes(log)
    assert fold(server, session) == expected, (seed, log)
    assert [event["type"] for event in log].count("user_message") == 1
    assert [event["type"] for event in log].count("agent_launched") == 1 + never_started(log)
    assert server.recalled(session) == [SCRIPT]
    server.post(f"/api/sessions/{session}/stop")
    none_left(server.data)
