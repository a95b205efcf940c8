"""Scenario i: what the real `claude` sends to its model in each turn, with its context live, resumed, or sent again.

Above: bench.py. Below: a real server, the installed program, and a scripted model that records every request. A prompt
cache can only serve a prefix that is identical to the previous request; the figure is the share of that prefix.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.table import Row
from tests.conftest import RealAgent, find_agent
from tests.harness import ColdServer, LiveServer
from tests.model.log import Request
from tests.model.server import ModelServer, running

TURNS = 12
QUICK_TURNS = 4
WAIT_S = 60.0
WAYS = {"live": ("claude-stream", "auto"), "resumed": ("claude-resume", "auto"), "fresh": ("claude-resume", "never")}


class Turn(NamedTuple):
    input_bytes: int
    request_bytes: int
    reused: float


def reused_share(before: Request, after: Request) -> float:
    """Return the share of a request, in bytes, that is a common prefix with the previous one."""
    first, second = _flat(before.body), _flat(after.body)
    same = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        same += len(one)
    return same / sum(map(len, second))


def _flat(body: Any) -> list[str]:
    """Return the parts in the order in which a cache reads them: tools, system, then each message. Leaves out cache
    markers, because they move."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(part) for key, part in value.items() if key != "cache_control"}
        return [plain(part) for part in value] if isinstance(value, list) else value

    parts = [body.get("tools"), body.get("system"), *body.get("messages", [])]
    return [json.dumps(plain(part), sort_keys=True) for part in parts]


def conversation(server: LiveServer, model: ModelServer, way: str, workdir: Path, turns: int) -> list[Turn]:
    session = server.create(agent=way, workdir=str(workdir))
    found, before = [], None
    for number in range(turns):
        asked = len(model.log.asked)
        server.send(session, f"say {'a sentence of some words, ' * 40}{number}")
        server.wait_idle(session, WAIT_S)
        request = model.log.asked[asked]
        turn = server.session(session)["turns"][-1]
        if before is not None:
            found.append(Turn(turn["input_bytes"], request.size_bytes, reused_share(before, request)))
        before = request
    server.post(f"/api/sessions/{session}/stop")
    return found


def measured(folder: Path, agent: RealAgent, turns: int) -> dict[str, list[Turn]]:
    workdir = folder / "workdir"
    workdir.mkdir(parents=True)
    with running() as model:
        env = {"HOME": str(folder), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "dummy", **agent.env}
        shown = ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items())
        config = "[server]\nslots = 0\nproject_slots = 0\n" + "".join(
            f'[agents.{way}]\ndriver = "{driver}"\nresume = "{resume}"\n'
            f"command = {json.dumps(agent.argv)}\nenv = {{ {shown} }}\n"
            for way, (driver, resume) in WAYS.items()
        )
        server = ColdServer(folder / "data", config).start()
        try:
            return {way: conversation(server, model, way, workdir, turns) for way in WAYS}
        finally:
            server.http.close()
            server.stop()


def prefixes(folder: Path, _: Path, quick: bool) -> list[Row]:
    agent = find_agent("claude")
    if isinstance(agent, str):
        sys.stderr.write(f"i skipped: {agent}\n")
        return []
    turns = QUICK_TURNS if quick else TURNS
    rows = []
    for number, (way, found) in enumerate(measured(folder / "i", agent, turns).items()):
        last = found[-1]
        rows += [
            Row(
                scenario="i context" if number == 0 else "i",
                figure=f"{way}: sent to the agent, turn {turns}",
                value=last.input_bytes,
                unit="B",
            ),
            Row(
                scenario="i",
                figure=f"{way}: share of the request unchanged",
                value=statistics.mean(turn.reused for turn in found) * 100,
                unit="%",
                note=f"{last.reused:.0%} in turn {turns}, of {last.request_bytes / 1024:,.0f} KiB",
            ),
        ]
    return rows
