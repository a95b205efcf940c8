"""Scenarios a to d: what a delta costs and how long it takes, from the agent's write to the viewers.

Above: bench.py. Below: the same stream through Perdure (subject.py) and through the C reference (reference.py), one
after the other. A delivery is one delta of the agent that reached one viewer: deltas that arrive while a commit is in
flight are joined before they get a number, so frames would compare different things.
"""

import subprocess
from pathlib import Path

from msgspec import Struct

from benchmarks import reference, subject
from benchmarks.reference import Outcome
from benchmarks.subject import Subject
from benchmarks.table import Row

WRONG = "events lost or doubled"


class Load(Struct, frozen=True):
    viewers: int
    per_s: int
    """0: as fast as it is taken."""
    count: int
    sessions: int = 1
    light: bool = False


def run(folder: Path, agent: Path, name: str, load: Load) -> tuple[Outcome, Outcome]:
    """(Perdure, C) under the same load."""
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
    return ours, theirs


def faults(scenario: str, load: Load, ours: Outcome) -> list[Row]:
    """Nothing, or a row that says what went wrong; it makes the run fail."""
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


def cost(scenario: str, ours: Outcome, theirs: Outcome, most: float | None = None) -> Row:
    return Row(
        scenario=scenario,
        figure="CPU per delivery",
        value=ours.us_per_delivery,
        unit="us",
        reference=theirs.us_per_delivery,
        most=most,
        of_reference=most is not None,
    )


def latency(scenario: str, ours: Outcome, theirs: Outcome, p50_most_ms: float | None = None) -> list[Row]:
    mine, other = ours.report, theirs.report
    figures = (("p50", mine.p50_ms, other.p50_ms, p50_most_ms), ("p99", mine.p99_ms, other.p99_ms, None))
    return [
        Row(scenario=scenario, figure=f"latency {name}", value=value, unit="ms", reference=beside, most=most)
        for name, value, beside, most in figures
    ]


def crowd(folder: Path, agent: Path, quick: bool) -> list[Row]:
    """a: one session, very many viewers."""
    load = Load(viewers=2000, per_s=20, count=60 if quick else 140)
    ours, theirs = run(folder, agent, "a", load)
    return [
        cost("a 1 x 2,000 viewers x 20/s", ours, theirs, most=1.6),
        *latency("a", ours, theirs),
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
    """b: as fast as the agent can, to one viewer and to a hundred."""
    rows: list[Row] = []
    for viewers, count in ((1, 50_000 if quick else 200_000), (100, 50_000 if quick else 100_000)):
        load = Load(viewers=viewers, per_s=0, count=count, light=viewers > 1)
        ours, theirs = run(folder, agent, f"b{viewers}", load)
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
                note=f"the readers were the limit of {' and '.join(limited)}" if limited else "",
            ),
            cost("b", ours, theirs),
            *faults("b", load, ours),
        ]
    return rows


def sessions(folder: Path, agent: Path, quick: bool, count: int = 100) -> list[Row]:
    """c: many sessions with a viewer each."""
    load = Load(viewers=count, per_s=50, count=150 if quick else 400, sessions=count)
    ours, theirs = run(folder, agent, "c", load)
    name = f"c {count} sessions x 50/s"
    return [*latency(name, ours, theirs, p50_most_ms=1.0), cost("c", ours, theirs), *faults("c", load, ours)]


def single(folder: Path, agent: Path, quick: bool) -> list[Row]:
    """d: one of each."""
    load = Load(viewers=1, per_s=50, count=150 if quick else 400)
    ours, theirs = run(folder, agent, "d", load)
    return [*latency("d 1 session x 50/s", ours, theirs), cost("d", ours, theirs), *faults("d", load, ours)]


def compiled_agent(folder: Path) -> Path:
    """The load agent; without a compiler there is neither a load nor anything to compare with."""
    try:
        return reference.compiled("agent", folder)
    except subprocess.CalledProcessError as error:
        raise reference.NoCompiler(f"the C compiler failed with {error.returncode}") from error
