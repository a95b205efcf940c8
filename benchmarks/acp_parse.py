"""How many updates per second the acp driver turns into events, and what that is beside json.loads alone.

The hot path of a streaming agent: text chunks in batches, as they come out of the spool, with a dump after each batch
as the runner stores it. Run: python benchmarks/acp_parse.py [--updates 200000] [--batch 64]
"""

import argparse
import json
import time
from collections.abc import Callable

from perdure.core.events import AssistantText, encode
from perdure.drivers.acp import AcpDriver
from perdure.drivers.base import Conversation, SendPrompt, StartSession

SESSION = "0f2d7c1e-5b1f-4d0a-9f55-3f7a52a1c001"
FLOOR_PER_S = 100_000
ROUNDS = 3


def line(message: dict[str, object]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def chunk(index: int) -> bytes:
    content = {"type": "text", "text": f"word {index} of an answer "}
    update = {"sessionUpdate": "agent_message_chunk", "content": content, "messageId": "3d9a6c44-1a8e-4f0c-8a57"}
    return line({"method": "session/update", "params": {"sessionId": SESSION, "update": update}})


def prompted() -> Conversation:
    """A conversation with a prompt in flight."""
    conversation = AcpDriver().begin("launch")
    conversation.perform(StartSession("/srv/site"))
    conversation.receive([line({"id": 0, "result": {"protocolVersion": 1}})])
    conversation.receive([line({"id": 1, "result": {"sessionId": SESSION}})])
    conversation.perform(SendPrompt(1, "m1", "go"))
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


def per_s(work: Callable[[list[list[bytes]]], None], batches: list[list[bytes]], updates: int) -> float:
    """The best of some rounds, in processor time: the machine may be busy with other things."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work(batches)
        best = min(best, time.process_time() - start)
    return updates / best


def main() -> None:
    parser = argparse.ArgumentParser(description="Updates per second of the acp driver")
    parser.add_argument("--updates", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=64)
    given = parser.parse_args()
    lines = [chunk(index) for index in range(given.updates)]
    size = sum(map(len, lines)) / len(lines)
    baseline = 0.0
    print(f"{given.updates:,} updates of {size:.0f} bytes, best of {ROUNDS}, processor time of one core")
    for name, batch, work in (
        ("json.loads alone", given.batch, load),
        (f"driver, {given.batch} a batch", given.batch, drive),
        ("driver, one by one", 1, drive),
    ):
        batches = [lines[start : start + batch] for start in range(0, len(lines), batch)]
        rate = per_s(work, batches, given.updates)
        baseline = baseline or rate
        verdict = "" if rate >= FLOOR_PER_S else f"  BELOW {FLOOR_PER_S:,}"
        print(f"{name:24} {rate:12,.0f}/s {1e6 / rate:7.2f} us {rate / baseline:6.2f} x json.loads{verdict}")


if __name__ == "__main__":
    main()
