"""`./run bench`: measures Perdure and the C reference in the same run.

    ./run bench [--quick] [--only a,c] [--json FILE] [--beside sandbox-agent]

Above: the command line. Below: one module per kind of scenario. It prints a table. It is not a test, on purpose: it
exits 0 whether or not a bar is met, because timings depend on the machine, and 1 if an event was lost or duplicated.
docs/benchmarks.md explains the figures.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks import (
    continuity,
    first_token,
    long_verbs,
    nodes,
    opening,
    parts,
    resting,
    sandbox_agent,
    snapshots,
    streaming,
)
from benchmarks.reference import NoCompiler
from benchmarks.sandbox_agent import NotInstalled
from benchmarks.streaming import Scenario
from benchmarks.table import Row, aligned

PARTS = "g"


def scenarios(beside: list[str] | None = None) -> dict[str, tuple[Scenario, ...]]:
    """Return the scenarios. `beside` is the command line of another server, for the scenarios that can measure it."""
    return {
        "a": (streaming.crowd,),
        "b": (streaming.bursts,),
        "c": (streaming.sessions("c", 100, beside),),
        "d": (streaming.sessions("d", 1, beside), streaming.sessions("d", 20, beside)),
        "e": (resting.starts, resting.idle_sessions),
        "f": (opening.long_sessions,),
        "h": (first_token.first_token,),
        "i": (continuity.prefixes,),
        "j": (long_verbs.long_verbs,),
        "k": (nodes.several_nodes,),
        "l": (snapshots.costs,),
    }


def measure(names: list[str], quick: bool, beside: list[str] | None = None) -> tuple[list[Row], str]:
    """Return all rows, and the output of the scripts that measure single parts."""
    rows: list[Row] = []
    known = scenarios(beside)
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        folder = Path(name)
        agent = streaming.compiled_agent(folder)
        for scenario in names:
            for work in known.get(scenario, ()):
                began = time.monotonic()
                rows += work(folder, agent, quick)
                sys.stderr.write(f"{scenario}: {work.__name__} in {time.monotonic() - began:.0f} s\n")
    return rows, parts.parts(quick) if PARTS in names else ""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./run bench", description="Compare Perdure with a C reference.")
    parser.add_argument("--quick", action="store_true", help="shorter streams, fewer rounds: about two minutes")
    parser.add_argument("--only", default="abcdefghijkl", help="scenarios to run, e.g. a,c")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument(
        "--beside", choices=[sandbox_agent.NAME], help="also measure this server in c and d; installed when needed"
    )
    given = parser.parse_args(arguments)
    names = sorted(set(given.only) - {","})
    if unknown := set(names) - {*scenarios(), PARTS}:
        parser.error(f"unknown scenario: {', '.join(sorted(unknown))}")
    load = os.getloadavg()[0]
    try:
        beside = sandbox_agent.installed() if given.beside else None
        rows, said = measure(names, given.quick, beside)
    except (NoCompiler, NotInstalled) as error:
        sys.stderr.write(f"Can't run the benchmarks: {error}.\n")
        return 2
    if rows:
        sys.stdout.write(aligned(rows, given.beside or "") + "\n")
    if said:
        sys.stdout.write(f"\n{said}\n")
    sys.stdout.write(
        f"\nMachine load before the run: {load:.1f} on {os.cpu_count()} cores. If it was busy, ignore the results.\n"
    )
    if given.json is not None:
        shown = [msgspec.to_builtins(row) | {"ratio": row.ratio, "verdict": row.verdict} for row in rows]
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode({"load": load, "rows": shown, "parts": said})))
    return 1 if any(row.figure == streaming.WRONG for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
