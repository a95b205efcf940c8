"""A line of nearly the maximum length, with any content, needs a few times its size in memory and delays no other
request."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.drivers.jsonrpc import MAX_PARTS
from perdure.drivers.lines import MAX_LINE_BYTES
from tests.attack import forget_peak, peak_mb, resident_mb, somebody_else
from tests.harness import SOURCE, LiveServer, is_loaded, no_holes

LONG_BYTES = MAX_LINE_BYTES - 1024
TEXT_TIMES = 8
INPUT_TIMES = 16
"""A single emoji makes every character of a string take four bytes, and a tool's input can't be split."""
LONGEST_S = 2.0
LONGEST_LOADED_S = 10.0
NOTHING = "lists and nothing in them"
SHAPES = {
    "text with an emoji": ("", "a", "\U0001f600"),
    "text with half an emoji": ("", "a", r"\ud83d"),
    "input with an emoji": ('{"a":"', "a", '\U0001f600"}'),
    "as many parts as are read": ('{"a":[' + '{"b":1},' * (MAX_PARTS // 3 - 10) + '"', "a", '"]}'),
    NOTHING: ('{"a":[', "[],", "[]]}"),
}
"""The parts of each line: a start, a repeated piece, and an end."""

AGENT = f"""
import json, subprocess, sys

dialect, shape, size = sys.argv[1], {SHAPES!r}[sys.argv[2]], int(sys.argv[3])

def long(value):
    head, again, tail = shape
    body = head + again * ((size - len(head + tail)) // len(again)) + tail
    return json.dumps(value).encode().replace(b'"@"', (body if head else f'"{{body}}"').encode()) + b"\\n"

def acp(line):
    params = json.loads(line)["params"]
    params["update"] = {{"sessionUpdate": "agent_message_chunk", "content": {{"type": "text", "text": "@"}}}}
    if shape[0]:
        params["update"] = {{"sessionUpdate": "tool_call", "toolCallId": "long", "title": "Long", "rawInput": "@"}}
    return {{"jsonrpc": "2.0", "method": "session/update", "params": params}}

def claude(line):
    block = {{"type": "text", "text": "@"}}
    if shape[0]:
        block = {{"type": "tool_use", "id": "long", "name": "Long", "input": "@"}}
    return {{"type": "assistant", "message": {{"id": "long", "model": "m", "content": [block]}}}}

command = [sys.executable, "-m", "perdure.rehearsal", dialect, *sys.argv[4:]]
agent = subprocess.Popen(command, stdout=subprocess.PIPE)
told, sign = False, b'"stream_event"' if dialect == "--claude" else b"agent_message_chunk"
for line in agent.stdout:
    if sign in line and b"long" not in line and not told:
        told = True
        sys.stdout.buffer.write(long((claude if dialect == "--claude" else acp)(line)))
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
sys.exit(agent.wait())
"""


@pytest.mark.needs("linux")
@pytest.mark.parametrize(
    ("driver", "shape"),
    [
        pytest.param("acp", NOTHING, marks=pytest.mark.smoke),
        *((driver, shape) for driver in ("acp", "claude") for shape in SHAPES if (driver, shape) != ("acp", NOTHING)),
    ],
)
def test_one_long_line_needs_a_few_times_its_size_and_delays_no_other_request(
    make_server: Callable[..., LiveServer], tmp_path: Path, driver: str, shape: str
) -> None:
    program = tmp_path / "agent.py"
    program.write_text(AGENT)
    command = json.dumps([sys.executable, str(program), f"--{driver}", shape, str(LONG_BYTES)])
    server = make_server(
        f'[server]\nslots = 0\n[agents.long]\ndriver = "{driver}"\ncommand = {command}\n'
        f'env = {{ PYTHONPATH = "{SOURCE}" }}\n'
    )
    session, other = server.create(agent="long"), server.create(agent="rehearsal")
    server.turn(other, "say hello")
    before = resident_mb(server)
    forget_peak(server)
    with somebody_else(server) as waits:
        server.send(session, "say hello")
        found = server.wait_idle(session, timeout_s=110)
    times = (peak_mb(server) - before) * 1024 * 1024 / LONG_BYTES
    print(f"{driver} {shape}: {before:.0f} MB, peak {peak_mb(server):.0f}, {times:.1f} times the line; {waits}")
    assert found["turns"][-1]["stop_reason"] == "end_turn"
    assert server.text(session, 1).endswith("hello")
    no_holes(server.log(session))
    assert times < (INPUT_TIMES if SHAPES[shape][0] else TEXT_TIMES)
    assert waits.longest_s < (LONGEST_LOADED_S if is_loaded() else LONGEST_S)
