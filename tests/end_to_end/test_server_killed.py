"""The server is killed with -9 at random moments of a running turn: it goes on, and nothing is lost or doubled."""

import random
import select

import pytest

from tests.harness import LiveServer, no_holes, none_left
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
    """The turn without what may differ between two runs of the same script: ids, times, where blocks were cut."""
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


def check(server: LiveServer, session: str, expected: list[object], seed: int) -> None:
    log = server.log(session)
    no_holes(log)
    assert fold(server, session) == expected, (seed, log)
    assert [event["type"] for event in log].count("user_message") == 1
    assert [event["type"] for event in log].count("agent_launched") == 1
    assert server.recalled(session) == [SCRIPT]
    server.post(f"/api/sessions/{session}/stop")
    none_left(server.data)
