"""An ACP agent that shows all odd behaviour of real ones in one turn: nothing is lost and nothing hangs."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import SOURCE, LiveServer, no_holes

BIG = 1_000_000

AGENT = """
import json, sys

SESSION = "strange-1"

def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def update(session, **fields):
    send(method="session/update", params={"sessionId": session, "update": fields})

def text(words):
    update(SESSION, sessionUpdate="agent_message_chunk", content={"type": "text", "text": words})

def receive():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)

sys.stdout.write("Welcome! A new version is available.\\n")
sys.stderr.write("e" * 2_000_000 + "\\n")
while True:
    asked = receive()
    method = asked.get("method")
    if method == "initialize":
        send(id=asked["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        commands = [{"name": "early", "description": "told before the session is"}]
        update(SESSION, sessionUpdate="available_commands_update", availableCommands=commands)
        send(id=asked["id"], result={"sessionId": SESSION})
    elif method == "session/prompt":
        prompt = asked["params"]["prompt"][-1]["text"]
        update("nobody's", sessionUpdate="agent_message_chunk", content={"type": "text", "text": "not ours"})
        update(SESSION, sessionUpdate="from_the_future", detail={"keep": "me"})
        send(id="q", method="craft/drain", params={"sessionId": SESSION})
        answer = receive()
        while answer.get("id") != "q":
            answer = receive()
        text("refused " if answer["error"]["code"] == -32601 else "odd ")
        sys.stdout.write("half a line of no JSON {\\n")
        text("x" * int(prompt))
        text(" end")
        send(id=asked["id"], result={"stopReason": "end_turn"})
"""


@pytest.mark.smoke
def test_noise_odd_updates_unknown_requests_and_long_lines_are_harmless(
    make_server: Callable[..., LiveServer], tmp_path: Path
) -> None:
    program = tmp_path / "agent.py"
    program.write_text(AGENT)
    command = json.dumps([sys.executable, str(program)])
    server = make_server(f'[server]\nslots = 0\n[agents.strange]\ndriver = "acp"\ncommand = {command}\n')
    session = server.create(agent="strange")
    for turn in (1, 2):
        assert server.turn(session, str(BIG))["stop_reason"] == "end_turn"
        assert server.text(session, turn) == "refused " + "x" * BIG + " end"
    log = server.log(session)
    no_holes(log)
    early = [event for event in log if event["type"] == "config" and event["config_id"] == "available_commands"]
    assert [command["name"] for event in early for command in event["value"]] == ["early"]
    kept = [event["raw"] for event in log if event["type"] == "unrecognised"]
    for words in ("Welcome!", '"keep": "me"', "craft/drain", "half a line", "nobody's"):
        assert any(words in raw for raw in kept), words
    assert len([event for event in log if event["type"] == "system"]) == 3


def test_an_agent_that_never_answers_an_unknown_request_gets_a_replay(
    make_server: Callable[..., LiveServer], tmp_path: Path
) -> None:
    """It resumes its session. Perdure uses an unknown request to find out whether its replay of the old conversation is
    complete."""
    agent = f"{shlex.quote(sys.executable)} -m perdure.rehearsal --acp"
    command = json.dumps(["sh", "-c", f"grep --line-buffered -v _perdure/settled | {agent}"])
    env = f'{{ PYTHONPATH = "{SOURCE}", PERDURE_REHEARSAL_DIR = "{tmp_path / "memory"}" }}'
    server = make_server(
        "[server]\nslots = 0\nproject_slots = 0\nstart_timeout_s = 8\n[limits]\nidle_timeout_s = 1\n"
        f'[agents.deaf]\ndriver = "acp"\ncommand = {command}\nenv = {env}\n'
    )
    session = server.create(agent="deaf")
    server.turn(session, "say one")
    server.wait(session, lambda found: found["pid"] is None)
    assert server.recalled(session) == ["say one"]
    (fallback,) = [event for event in server.log(session) if event["type"] == "context_fallback"]
    assert "in time" in fallback["reason"]
