"""Scenario h: the time to the first token of the real `claude`, from POST to the first delta.

Above: bench.py. Below: a real server, the program that `./run agents` installed, and a scripted model that answers
immediately, so that only the program's time and ours remain. For comparison, the program is also measured without a
server.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.table import Row
from tests.conftest import RealAgent, find_agent
from tests.harness import ColdServer
from tests.model.claude_process import ClaudeProcess, environment
from tests.model.server import ModelServer, running

ROUNDS = 9
QUICK_ROUNDS = 2
WAIT_S = 60.0
TEXT = "say a few words"


class Place:
    """A server with the same program as several agents, which it starts and keeps in different ways."""

    def __init__(self, folder: Path, agent: RealAgent, model: ModelServer) -> None:
        self.workdir = folder / "workdir"
        self.workdir.mkdir(parents=True)
        env = {
            "HOME": str(folder),
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "dummy",
            **agent.env,
        }
        shown = ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items())
        program = f"command = {json.dumps(agent.argv)}\nenv = {{ {shown} }}\n"
        config = (
            "[server]\nslots = 0\nproject_slots = 0\n"
            f'[agents.cold]\ndriver = "claude-stream"\nprewarm = false\n{program}'
            f'[agents.warm]\ndriver = "claude-stream"\n{program}'
            f'[agents.resume]\ndriver = "claude-resume"\n{program}'
        )
        self.server = ColdServer(folder / "data", config)

    def __enter__(self) -> "Place":
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        for session in self.server.get("/api/sessions?limit=1000&status=running")["sessions"]:
            self.server.post(f"/api/sessions/{session['id']}/stop")
        self.server.http.close()
        self.server.stop()

    def create(self, agent: str) -> str:
        return self.server.create(agent=agent, workdir=str(self.workdir))

    def first_delta_ms(self, session: str) -> float:
        """Run one turn with a viewer, and wait for its end."""
        stream = self.server.watch(session, timeout_s=WAIT_S)
        frames = stream.frames()
        next(frames)
        began = time.perf_counter()
        self.server.send(session, TEXT)
        shown = next(time.perf_counter() for _, kind, _ in frames if kind == "assistant_text")
        stream.close()
        self.server.wait_idle(session, WAIT_S)
        return (shown - began) * 1000

    def cold(self) -> Iterator[float]:
        yield self.first_delta_ms(self.create("cold"))

    def warm(self) -> Iterator[float]:
        session = self.create("warm")
        self.server.wait(session, lambda found: found["pid"] and found["native_session_id"], WAIT_S)
        yield self.first_delta_ms(session)
        self.server.post(f"/api/sessions/{session}/stop")

    def streaming(self, rounds: int) -> Iterator[float]:
        session = self.create("warm")
        self.first_delta_ms(session)
        for _ in range(rounds):
            yield self.first_delta_ms(session)
        self.server.post(f"/api/sessions/{session}/stop")

    def resumed(self, rounds: int) -> Iterator[float]:
        session = self.create("resume")
        self.first_delta_ms(session)
        for _ in range(rounds):
            yield self.first_delta_ms(session)


def alone(folder: Path, agent: RealAgent, model: ModelServer, rounds: int) -> Iterator[float]:
    """Measure turns of the bare program, except the first: from our write to the line with the first piece of text."""
    workdir = folder / "alone"
    workdir.mkdir(parents=True)
    process = ClaudeProcess(agent, environment(model, folder), workdir)
    try:
        process.turn(TEXT)
        for _ in range(rounds):
            began = time.perf_counter()
            process.send(TEXT)
            process.until(lambda event: event.get("event", {}).get("type") == "content_block_delta")
            yield (time.perf_counter() - began) * 1000
            process.result()
    finally:
        process.close()


def measured(folder: Path, agent: RealAgent, rounds: int) -> dict[str, list[float]]:
    with running() as model:
        bare = list(alone(folder / "bare", agent, model, rounds))
        with Place(folder / "server", agent, model) as place:
            one_by_one: dict[str, Callable[[], Iterator[float]]] = {
                "cold: no process": place.cold,
                "warm: started with its session": place.warm,
            }
            # Discard the first start, which reads the program from disk.
            list(place.cold())
            found = {name: [took for _ in range(rounds) for took in work()] for name, work in one_by_one.items()}
            found["turn 2 and later, streaming"] = list(place.streaming(rounds))
            found["turn 2 and later, resume mode"] = list(place.resumed(rounds))
    return {**found, "turn 2 and later, the program alone": bare}


def first_token(folder: Path, _: Path, quick: bool) -> list[Row]:
    agent = find_agent("claude")
    if isinstance(agent, str):
        sys.stderr.write(f"h skipped: {agent}\n")
        return []
    rounds = QUICK_ROUNDS if quick else ROUNDS
    load = os.getloadavg()[0]
    return [
        Row(
            scenario="h first token" if number == 0 else "h",
            figure=name,
            value=statistics.median(took),
            unit="ms",
            note=f"{min(took):,.0f} to {max(took):,.0f} in {len(took)}" + (f", load {load:.1f}" if not number else ""),
        )
        for number, (name, took) in enumerate(measured(folder / "h", agent, rounds).items())
    ]
