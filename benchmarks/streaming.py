"""Scenarios a to d: CPU cost and latency of a delta, from the agent's write to the viewers.

Above: bench.py. Below: the same stream through Perdure (subject.py), through the C reference (reference.py) and, on
request, through another server (sandbox_agent.py), one after the other. A delivery is one delta that reached one
viewer. Frames are not comparable, because Perdure joins deltas that arrive while a commit is in progress.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from benchmarks import reference, sandbox_agent, subject
from benchmarks.reference import Outcome
from benchmarks.sandbox_agent import SandboxAgent
from benchmarks.subject import Subject
from benchmarks.table import Row

WRONG = "events lost or doubled"
Scenario = Callable[[Path, Path, bool], list[Row]]


class Bars(Struct, frozen=True, kw_only=True):
    p50_ms: float | None = None
    p99_ms: float | None = None
    server_us: float | None = None
    server_of_c: float | None = None
    """Alternative to `server_us`: a ratio to the C reference."""
    machine_us: float | None = None


NO_BARS = Bars()
SESSION_BARS = {
    1: Bars(p50_ms=0.7, server_us=450),
    20: Bars(p50_ms=6, server_us=150),
    100: Bars(p50_ms=12, p99_ms=60, server_us=60, machine_us=200),
}


class Load(Struct, frozen=True):
    viewers: int
    per_s: int
    """0: as fast as possible."""
    count: int
    sessions: int = 1
    light: bool = False


class Outcomes(NamedTuple):
    """Outcomes of the same load on several servers."""

    ours: Outcome
    theirs: Outcome
    """The C reference."""
    other: Outcome | None


def run(folder: Path, agent: Path, name: str, load: Load, beside: list[str] | None = None) -> Outcomes:
    """Run the load. `beside` is the command line of another server to measure too."""
    with Subject(folder / name, agent) as server:
        ours = subject.stream(
            server,
            viewers=load.viewers,
            per_s=load.per_s,
            count=load.count,
            sessions=load.sessions,
            light=load.light,
        )
    theirs = reference.stream(
        agent,
        viewers=load.viewers,
        per_s=load.per_s,
        count=load.count,
        streams=load.sessions,
        light=load.light,
    )
    if beside is None:
        return Outcomes(ours, theirs, None)
    with SandboxAgent(folder / f"{name}-beside", agent, beside) as peer:
        other = sandbox_agent.stream(peer, per_s=load.per_s, count=load.count, sessions=load.sessions)
    return Outcomes(ours, theirs, other)


def faults(scenario: str, load: Load, ours: Outcome) -> list[Row]:
    """Return a row that says what went wrong, if anything. It makes the run exit with 1."""
    report = ours.report
    expected = load.count * max(load.viewers, load.sessions)
    missing = 0 if report.skipped else abs(expected - report.marks)
    wrong = report.lost + report.doubled + report.broken + report.unequal + missing
    if not wrong:
        return []
    note = (
        f"lost {report.lost}, doubled {report.doubled}, broken {report.broken}, unequal {report.unequal}, "
        f"{report.marks} of {expected} deltas"
    )
    return [Row(scenario=scenario, figure=WRONG, value=wrong, most=0.0001, note=note)]


def compared(
    found: Outcomes, scenario: str, figure: str, unit: str, of: Callable[[Outcome], float], most: float | None = None
) -> Row:
    return Row(
        scenario=scenario,
        figure=figure,
        value=of(found.ours),
        unit=unit,
        reference=of(found.theirs),
        beside=None if found.other is None else of(found.other),
        most=most,
    )


def cost(scenario: str, found: Outcomes, bars: Bars = NO_BARS) -> Row:
    row = compared(found, scenario, "CPU per delivery", "us", lambda one: one.us_per_delivery, bars.server_us)
    return row if bars.server_of_c is None else replace(row, most=bars.server_of_c, of_reference=True)


def machine_cost(scenario: str, found: Outcomes, bars: Bars = NO_BARS) -> Row:
    name = "machine CPU per delivery"
    return compared(found, scenario, name, "us", lambda one: one.machine_us_per_delivery, bars.machine_us)


def latency(scenario: str, found: Outcomes, bars: Bars = NO_BARS) -> list[Row]:
    return [
        compared(found, scenario, "latency p50", "ms", lambda one: one.report.p50_ms, bars.p50_ms),
        compared(found, scenario, "latency p99", "ms", lambda one: one.report.p99_ms, bars.p99_ms),
    ]


def crowd(folder: Path, agent: Path, quick: bool) -> list[Row]:
    """a: one session, a large number of viewers."""
    load = Load(viewers=2000, per_s=20, count=60 if quick else 140)
    found = run(folder, agent, "a", load)
    ours, theirs, _ = found
    return [
        cost("a 1 x 2,000 viewers x 20/s", found, Bars(server_of_c=1.35)),
        *latency("a", found),
        Row(
            scenario="a",
            figure="memory per viewer",
            value=ours.bytes_per_viewer / 1024,
            unit="KB",
            reference=theirs.bytes_per_viewer / 1024,
            most=4,
        ),
        *faults("a", load, ours),
    ]


def bursts(folder: Path, agent: Path, quick: bool) -> list[Row]:
    """b: as fast as the agent can write, to one viewer and to a hundred."""
    rows: list[Row] = []
    for viewers, count in ((1, 50_000 if quick else 200_000), (100, 50_000 if quick else 100_000)):
        load = Load(viewers=viewers, per_s=0, count=count, light=viewers > 1)
        found = run(folder, agent, f"b{viewers}", load)
        ours, theirs, _ = found
        limited = [name for name, one in (("Perdure", ours), ("C", theirs)) if one.readers_were_the_limit]
        rows += [
            Row(
                scenario=f"b burst to {viewers}",
                figure="deliveries",
                value=ours.deliveries_per_s / 1000,
                unit="k/s",
                reference=theirs.deliveries_per_s / 1000,
                least=0.4 if viewers > 1 else None,
                of_reference=viewers > 1,
                note=f"the readers were the limit for {' and '.join(limited)}" if limited else "",
            ),
            cost("b", found),
            *faults("b", load, ours),
        ]
    return rows


def sessions(letter: str, count: int, beside: list[str] | None = None) -> Scenario:
    """c and d: `count` sessions with one viewer each."""
    bars = SESSION_BARS[count]

    def sessions(folder: Path, agent: Path, quick: bool) -> list[Row]:
        load = Load(viewers=count, per_s=50, count=150 if quick else 400, sessions=count)
        found = run(folder, agent, f"{letter}{count}", load, beside)
        name = f"{letter} {count} session{'s' if count > 1 else ''} x 50/s"
        rows = [
            *latency(name, found, bars),
            cost(letter, found, bars),
            machine_cost(letter, found, bars),
        ]
        # Mention lost events of the other server, but don't fail because of them.
        if found.other is not None and (wrong := faults(letter, load, found.other)):
            rows[0].note = f"{sandbox_agent.NAME}: {wrong[0].note}"
        return [*rows, *faults(letter, load, found.ours)]

    return sessions


def compiled_agent(folder: Path) -> Path:
    """Compile the load agent. Without a compiler, there is no load and no reference."""
    try:
        return reference.compiled("agent", folder)
    except subprocess.CalledProcessError as error:
        raise reference.NoCompiler(f"the C compiler failed with {error.returncode}") from error
