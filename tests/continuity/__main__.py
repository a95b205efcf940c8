"""`./run continuity [AGENT ...] [--event EVENT]`: run every scenario with real agents, and print the table.

Above: a person. Below: scenarios.py runs them, table.py writes. Results are stored beside the agents, one file for
each. When there is a result for each, docs/continuity.md is written from them. The exit code is 0 if every cell holds.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path

import httpx2

from tests.conftest import AGENTS as FOLDER
from tests.conftest import ROOT, RealAgent, find_agent
from tests.continuity import table
from tests.continuity.agents import AGENTS, Agent
from tests.continuity.scenarios import SCENARIOS, Verdict, play
from tests.continuity.stage import stage
from tests.harness import SharedServers

KEPT = FOLDER / "continuity"
PAGE = ROOT / "docs" / "continuity.md"


def cell(agent: Agent, installed: RealAgent, event: str) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="perdure-") as folder:
        verdict = Verdict(False, "", "")
        try:
            with (
                contextlib.closing(SharedServers(Path(folder) / "servers")) as servers,
                stage(agent, installed, servers, Path(folder) / "stage") as set_up,
            ):
                verdict = play(set_up, event)
        except (AssertionError, OSError, httpx2.HTTPError) as error:
            detail = f"{type(error).__name__}: {error}"
            return verdict._replace(held=False, detail=f"{verdict.detail} {detail}".strip())
        return verdict


def measure(agent: Agent, installed: RealAgent, events: list[str]) -> dict[str, Verdict]:
    found = {}
    for event in events:
        begun = time.monotonic()
        found[event] = verdict = cell(agent, installed, event)
        word = "holds" if verdict.held else "BROKEN"
        print(f"{agent.name}: {event}: {word}, {verdict.plan} ({verdict.reason})", end=" ")
        print(f"in {time.monotonic() - begun:.0f} s", flush=True)
        if verdict.detail:
            print(f"  {verdict.detail[:3000]}", flush=True)
    return found


def keep(name: str, verdicts: dict[str, Verdict]) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    """Added to the stored results of other events, if they are of the same version."""
    packages = json.loads((FOLDER / f"{name}.json").read_text())["packages"]
    before = kept(name)
    all_of_them = {**(before.verdicts if before and before.packages == packages else {}), **verdicts}
    body = {"packages": packages, "verdicts": {event: verdict._asdict() for event, verdict in all_of_them.items()}}
    (KEPT / f"{name}.json").write_text(json.dumps(body, indent=1))


def kept(name: str) -> table.Row | None:
    path = KEPT / f"{name}.json"
    if not path.exists():
        return None
    body = json.loads(path.read_text())
    return table.Row(body["packages"], {event: Verdict(**fields) for event, fields in body["verdicts"].items()})


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run continuity", description="What real agents remember.")
    parser.add_argument("agents", nargs="*", help=f"of {', '.join(AGENTS)}; all, if none is named")
    parser.add_argument("--event", action="append", choices=SCENARIOS, help="only this one")
    options = parser.parse_args()
    unknown = [name for name in options.agents if name not in AGENTS]
    if unknown:
        parser.error(f"there is no agent {unknown[0]!r}; there are {', '.join(AGENTS)}")
    rows: dict[str, table.Row] = {}
    for name in options.agents or list(AGENTS):
        installed = find_agent(name)
        if isinstance(installed, str):
            print(f"{name}: left out: {installed.replace('./run agents', f'./run agents {name}')}")
            continue
        verdicts = measure(AGENTS[name], installed, options.event or list(SCENARIOS))
        rows[name] = table.Row([], verdicts)
        keep(name, verdicts)
    print("\n" + table.matrix(rows))
    known = {name: row for name in AGENTS if (row := kept(name)) is not None}
    if known.keys() == AGENTS.keys() and all(row.verdicts.keys() == SCENARIOS.keys() for row in known.values()):
        PAGE.write_text(table.page(known))
        print(f"\nWritten: {PAGE.relative_to(ROOT)}")
    return 0 if rows and all(verdict.held for row in rows.values() for verdict in row.verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
