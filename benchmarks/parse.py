"""How many pieces of text per second each driver turns into events, compared with json.loads alone.

The hot path of a streaming answer: lines in batches, as read from the spool, with a dump after each batch, as the
runner stores it. Run: python benchmarks/parse.py [--lines 200000] [--batch 64]
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import NamedTuple

from perdure.core.events import AssistantText, encode
from perdure.drivers.acp import AcpDriver
from perdure.drivers.base import Conversation, SendInput, StartSession
from perdure.drivers.claude import ClaudeStreamDriver

SESSION = "0f2d7c1e-5b1f-4d0a-9f55-3f7a52a1c001"
UUID = "3d9a6c44-1a8e-4f0c-8a57-1a8e4f0c8a57"
FLOOR_PER_S = 100_000
ROUNDS = 3

Batches = list[list[bytes]]


class Family(NamedTuple):
    name: str
    with_input: Callable[[], Conversation]
    """Returns a conversation with an input in flight whose answer has started."""
    piece: Callable[[str], bytes]
    """Returns a line with a piece of text."""


def acp_line(**message: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def acp_piece(text: str) -> bytes:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}, "messageId": UUID}
    return acp_line(method="session/update", params={"sessionId": SESSION, "update": update})


def acp_with_input() -> Conversation:
    conversation = AcpDriver().begin("launch")
    conversation.perform(StartSession("/srv/site"))
    conversation.receive([acp_line(id=0, result={"protocolVersion": 1})])
    conversation.receive([acp_line(id=1, result={"sessionId": SESSION})])
    conversation.perform(SendInput(1, "m1", "go"))
    return conversation


def claude_line(**event: object) -> bytes:
    message = {"type": "stream_event", "event": event, "session_id": SESSION, "parent_tool_use_id": None}
    return json.dumps({**message, "uuid": UUID}).encode()


def claude_piece(text: str) -> bytes:
    return claude_line(type="content_block_delta", index=0, delta={"type": "text_delta", "text": text})


def claude_with_input() -> Conversation:
    conversation = ClaudeStreamDriver().begin("launch")
    request = json.loads(conversation.perform(StartSession("/srv/site")).lines[0])["request_id"]
    response = {"subtype": "success", "request_id": request, "response": {}}
    conversation.receive([json.dumps({"type": "control_response", "response": response}).encode()])
    conversation.perform(SendInput(1, "m1", "go"))
    conversation.receive([claude_line(type="message_start", message={"id": "msg_1"})])
    return conversation


FAMILIES = (Family("acp", acp_with_input, acp_piece), Family("claude", claude_with_input, claude_piece))


def driver(conversation: Conversation, batches: Batches) -> None:
    for batch in batches:
        step = conversation.receive(batch)
        conversation.dump()
        (event,) = step.observations
        assert isinstance(event, AssistantText)
        encode(event)


def loads(_: Conversation, batches: Batches) -> None:
    for batch in batches:
        for line in batch:
            json.loads(line)


def per_s(family: Family, work: Callable[[Conversation, Batches], None], lines: list[bytes], batch: int) -> float:
    """Return the best of several rounds, in CPU time, because the machine may be busy with other things."""
    batches = [lines[start : start + batch] for start in range(0, len(lines), batch)]
    best = float("inf")
    for _ in range(ROUNDS):
        conversation = family.with_input()
        start = time.process_time()
        work(conversation, batches)
        best = min(best, time.process_time() - start)
    return len(lines) / best


def main() -> None:
    parser = argparse.ArgumentParser(description="Pieces of text per second of each driver")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=64)
    given = parser.parse_args()
    for family in FAMILIES:
        lines = [family.piece(f"word {index} of an answer ") for index in range(given.lines)]
        size = sum(map(len, lines)) / len(lines)
        print(f"{family.name}: {len(lines):,} lines of {size:.0f} bytes, best of {ROUNDS}, CPU time of one core")
        alone = per_s(family, loads, lines, given.batch)
        print(f"{'json.loads alone':24} {alone:12,.0f}/s {1e6 / alone:7.2f} us")
        for batch in (given.batch, 1):
            rate = per_s(family, driver, lines, batch)
            name = f"driver, {batch} per batch"
            verdict = "" if rate >= FLOOR_PER_S else f"  BELOW {FLOOR_PER_S:,}"
            print(f"{name:24} {rate:12,.0f}/s {1e6 / rate:7.2f} us {rate / alone:6.2f} x json.loads{verdict}")


if __name__ == "__main__":
    main()
