"""`./run bench`: Perdure measured beside the C reference, in one run.

    ./run bench [--quick] [--only a,c] [--json FILE]

Above: a person. Below: one module per kind of scenario. It prints a table and is deliberately no test: the exit code is
0 whether or not a bar is met, since timings depend on the machine; it is 1 if an event was lost or came twice.
docs/benchmarks.md says how to read the figures.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks import continuity, first_token, long_verbs, opening, parts, resting, streaming
from benchmarks.reference import NoCompiler
from benchmarks.table import Row, aligned

Scenario = Callable[[Path, Path, bool], list[Row]]

SCENARIOS: dict[str, tuple[Scenario, ...]] = {
    "a": (streaming.crowd,),
    "b": (streaming.bursts,),
    "c": (streaming.sessions,),
    "d": (streaming.single,),
    "e": (resting.starts, resting.idle_sessions),
    "f": (opening.long_sessions,),
    "h": (first_token.first_token,),
    "i": (continuity.prefixes,),
    "j": (long_verbs.long_verbs,),
}
PARTS = "g"


def measure(names: list[str], quick: bool) -> tuple[list[Row], str]:
    """All rows, and what the scripts of the parts said."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        folder = Path(name)
        agent = streaming.compiled_agent(folder)
        for scenario in names:
            for work in SCENARIOS.get(scenario, ()):
                began = time.monotonic()
                rows += work(folder, agent, quick)
                sys.stderr.write(f"{scenario}: {work.__name__} in {time.monotonic() - began:.0f} s\n")
    return rows, parts.parts(quick) if PARTS in names else ""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./run bench", description="Perdure measured beside a C reference.")
    parser.add_argument("--quick", action="store_true", help="shorter streams, fewer rounds: under a minute")
    parser.add_argument("--only", default="abcdefghij", help="which scenarios, e.g. a,c")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    given = parser.parse_args(arguments)
    names = sorted(set(given.only) - {","})
    if unknown := set(names) - {*SCENARIOS, PARTS}:
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}")
    load = os.getloadavg()[0]
    try:
        rows, said = measure(names, given.quick)
    except NoCompiler as error:
        sys.stderr.write(f"Nothing can be measured: {error}.\n")
        return 2
    if rows:
        sys.stdout.write(aligned(rows) + "\n")
    if said:
        sys.stdout.write(f"\n{said}\n")
    sys.stdout.write(
        f"\nLoad of the machine before: {load:.1f} on {os.cpu_count()} cores; more than a little voids it.\n"
    )
    if given.json is not None:
        shown = [msgspec.to_builtins(row) | {"ratio": row.ratio, "verdict": row.verdict} for row in rows]
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode({"load": load, "rows": shown, "parts": said})))
    return 1 if any(row.figure == streaming.WRONG for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
