"""How many deltas per second the claude drivers turn into events, and what that is beside json.loads alone.

The hot path of a streaming answer: pieces of text in batches, as they come out of the spool, with a dump after each
batch as the runner stores it. Run: python benchmarks/claude_parse.py [--deltas 200000] [--batch 64]
"""

import argparse
import json
import time
from collections.abc import Callable

from perdure.core.events import AssistantText, encode
from perdure.drivers.base import Conversation, SendPrompt, StartSession
from perdure.drivers.claude import ClaudeStreamDriver

SESSION = "0f2d7c1e-5b1f-4d0a-9f55-3f7a52a1c001"
FLOOR_PER_S = 100_000
ROUNDS = 3


def line(event: dict[str, object]) -> bytes:
    message = {"type": "stream_event", "event": event, "session_id": SESSION, "parent_tool_use_id": None}
    return json.dumps({**message, "uuid": "3d9a6c44-1a8e-4f0c-8a57-1a8e4f0c8a57"}).encode()


def delta(index: int) -> bytes:
    piece = {"type": "text_delta", "text": f"word {index} of an answer "}
    return line({"type": "content_block_delta", "index": 0, "delta": piece})


def prompted() -> Conversation:
    """A conversation with a prompt in flight and its answer begun."""
    conversation = ClaudeStreamDriver().begin("launch")
    request = json.loads(conversation.perform(StartSession("/srv/site")).lines[0])["request_id"]
    response = {"subtype": "success", "request_id": request, "response": {}}
    conversation.receive([json.dumps({"type": "control_response", "response": response}).encode()])
    conversation.perform(SendPrompt(1, "m1", "go"))
    conversation.receive([line({"type": "message_start", "message": {"id": "msg_1"}})])
    return conversation


def drive(batches: list[list[bytes]]) -> None:
    conversation = prompted()
    for batch in batches:
        step = conversation.receive(batch)
        conversation.dump()
        (event,) = step.observations
        assert isinstance(event, AssistantText)
        encode(event)


def load(batches: list[list[bytes]]) -> None:
    for batch in batches:
        for line in batch:
            json.loads(line)


def per_s(work: Callable[[list[list[bytes]]], None], batches: list[list[bytes]], deltas: int) -> float:
    """The best of some rounds, in processor time: the machine may be busy with other things."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work(batches)
        best = min(best, time.process_time() - start)
    return deltas / best


def main() -> None:
    parser = argparse.ArgumentParser(description="Deltas per second of the claude drivers")
    parser.add_argument("--deltas", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=64)
    given = parser.parse_args()
    lines = [delta(index) for index in range(given.deltas)]
    size = sum(map(len, lines)) / len(lines)
    baseline = 0.0
    print(f"{given.deltas:,} deltas of {size:.0f} bytes, best of {ROUNDS}, processor time of one core")
    for name, batch, work in (
        ("json.loads alone", given.batch, load),
        (f"driver, {given.batch} a batch", given.batch, drive),
        ("driver, one by one", 1, drive),
    ):
        batches = [lines[start : start + batch] for start in range(0, len(lines), batch)]
        rate = per_s(work, batches, given.deltas)
        baseline = baseline or rate
        verdict = "" if rate >= FLOOR_PER_S else f"  BELOW {FLOOR_PER_S:,}"
        print(f"{name:24} {rate:12,.0f}/s {1e6 / rate:7.2f} us {rate / baseline:6.2f} x json.loads{verdict}")


if __name__ == "__main__":
    main()
