"""A command that an agent leaves running when its turn is stopped is killed, but nothing else of the agent."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.victims import gone, until_said
from tests.harness import LiveServer, eventually

AGENT = """
import json, subprocess, sys, time

def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def update(**fields):
    send(method="session/update", params={"sessionId": "careless", "update": fields})

def say(words):
    update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": words + "\\n"})

def start(command="sleep 300"):
    return subprocess.Popen(["sh", "-c", command], start_new_session=True, stdout=subprocess.DEVNULL).pid

running, prompts = None, 0
for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if method == "initialize":
        send(id=asked["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        helper = start()
        send(id=asked["id"], result={"sessionId": "careless"})
    elif method == "session/cancel" and running is not None:
        send(id=running, result={"stopReason": "cancelled"})
        running = None
    elif method == "session/prompt":
        time.sleep(0.1)  # a model thinks, if only for a moment
        words = asked["params"]["prompt"][-1]["text"]
        update(sessionUpdate="tool_call", toolCallId=words, title="sleep", kind="execute", status="in_progress")
        prompts += 1
        stubborn = "trap '' TERM; " if "stubborn" in words else ""
        loop = f"while true; do sleep 300 & echo $! >> {sys.argv[1]}/children-{prompts}; wait; done"
        say(f"helper {helper}, command {start(stubborn + loop)}, running")
        if words.startswith("background"):
            update(sessionUpdate="tool_call_update", toolCallId=words, status="completed")
        if words.startswith("end"):
            send(id=asked["id"], result={"stopReason": "end_turn"})
        else:
            running = asked["id"]
"""


@pytest.fixture
def careless(make_server: Callable[..., LiveServer], tmp_path: Path) -> tuple[LiveServer, str]:
    """A server, and a session whose agent never ends what it has started."""
    program = tmp_path / "agent.py"
    program.write_text(AGENT)
    command = json.dumps([sys.executable, str(program), str(tmp_path)])
    server = make_server(f'[server]\nslots = 0\n[agents.careless]\ndriver = "acp"\ncommand = {command}\n')
    return server, server.create(agent="careless")


def run(server: LiveServer, session: str, turn: int, text: str) -> tuple[int, int]:
    """Send a message. Returns the pids of the agent's helper and of its command."""
    server.send(session, text)
    helper, command = until_said(server, session, turn, r"helper (\d+), command (\d+), running").groups()
    return int(helper), int(command)


def stop(server: LiveServer, session: str) -> None:
    server.post(f"/api/sessions/{session}/abort", expect=202)
    server.wait_idle(session)


@pytest.mark.needs("linux")
@pytest.mark.parametrize("text", ["wait", "wait, stubborn"])
def test_a_command_left_running_by_a_stopped_turn_is_ended(
    careless: tuple[LiveServer, str], tmp_path: Path, text: str
) -> None:
    server, session = careless
    _, kept = run(server, session, 1, "end of the turn, not of the command")
    server.wait_idle(session)
    _, kept_too = run(server, session, 2, "background")
    stop(server, session)
    helper, command = run(server, session, 3, text)
    children = tmp_path / "children-3"
    eventually(children.exists, "the command has a child")
    stop(server, session)
    _, next_command = run(server, session, 4, "wait again")
    eventually(lambda: gone(command), "the command is ended")
    eventually(lambda: all(gone(int(pid)) for pid in children.read_text().split()), "its children are ended")
    assert not [pid for pid in (helper, kept, kept_too, next_command) if gone(pid)]
    stop(server, session)
    eventually(lambda: gone(next_command), "the command of the next turn is ended")


@pytest.mark.smoke
@pytest.mark.needs("linux")
def test_a_command_is_ended_too_if_the_server_was_killed_while_it_ran(careless: tuple[LiveServer, str]) -> None:
    server, session = careless
    helper, command = run(server, session, 1, "wait")
    server.kill()
    server.restart()
    stop(server, session)
    eventually(lambda: gone(command), "the command is ended")
    assert not gone(helper), server.account(session)
