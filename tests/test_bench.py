"""The benchmarks run: each scenario with the smallest numbers. Checks that all figures are there, not their values."""

import asyncio
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import (
    bench,
    first_token,
    long_verbs,
    nodes,
    opening,
    parts,
    postgres_store,
    resting,
    sandbox_agent,
    snapshots,
    streaming,
)
from benchmarks.figures import Spent, family_cpu_s, machine_cpu_s, spent
from benchmarks.load import Report
from benchmarks.reference import Outcome
from benchmarks.streaming import Load
from benchmarks.subject import Subject
from benchmarks.table import Row, aligned
from tests import postgres
from tests.conftest import ROOT, RealAgent

NOTHING_WRONG = Report(
    viewers=2, frames=20, marks=20, lost=0, doubled=0, skipped=0, broken=0, unequal=0,
    p50_ms=1.0, p95_ms=1.5, p99_ms=2.0, max_ms=3.0, read_s=1.0, cpu_s=0.1,
)  # fmt: skip
NO_TIME = Spent(0.0, 0.0)
TICKS_S = (os.cpu_count() or 1) / os.sysconf("SC_CLK_TCK")
"""How exactly Linux tells the idle time of a machine, from which `machine_s` is computed."""


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    return streaming.compiled_agent(tmp_path)


@pytest.mark.full
@pytest.mark.needs("linux", "cc")
@pytest.mark.parametrize(
    "load",
    [
        Load(viewers=12, per_s=50, count=20),
        Load(viewers=10, per_s=0, count=1000, light=True),
        Load(viewers=3, per_s=50, count=20, sessions=3),
    ],
    ids=["a crowd", "a burst", "several sessions"],
)
def test_every_delta_reaches_every_viewer_of_both_servers(tmp_path: Path, agent: Path, load: Load) -> None:
    ours, theirs, other = streaming.run(tmp_path, agent, "stream", load)
    assert ours.report.marks == theirs.report.marks == load.viewers * load.count
    assert streaming.faults("x", load, ours) == streaming.faults("x", load, theirs) == []
    for one in (ours, theirs):
        assert one.spent.server_s > 0 and one.spent.machine_s > one.spent.server_s - TICKS_S
    assert other is None


@pytest.mark.needs("linux", "cc")
@pytest.mark.parametrize("sessions", [1, 3])
def test_the_same_deltas_go_through_the_other_server(
    tmp_path: Path, agent: Path, real_agent: Callable[[str], RealAgent], sessions: int
) -> None:
    with sandbox_agent.SandboxAgent(tmp_path / "beside", agent, real_agent(sandbox_agent.NAME).argv) as peer:
        found = sandbox_agent.stream(peer, per_s=50, count=20, sessions=sessions)
    load = Load(viewers=sessions, per_s=50, count=20, sessions=sessions)
    assert streaming.faults("x", load, found) == []
    assert found.report.marks == sessions * 20 and found.report.p50_ms > 0
    assert found.spent.machine_s > found.spent.server_s > 0


def test_the_other_server_is_pinned_and_installed_only_by_its_name() -> None:
    script = runpy.run_path(str(ROOT / "run"))
    assert sandbox_agent.NAME in script["NODE_SERVERS"].keys() - {**script["NODE_AGENTS"], **script["PYTHON_AGENTS"]}


def test_without_the_other_server_nothing_is_measured_and_the_reason_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def installed() -> list[str]:
        raise sandbox_agent.NotInstalled("sandbox-agent could not be installed: no network")

    monkeypatch.setattr(sandbox_agent, "installed", installed)
    assert bench.main(["--only", "d", "--beside", "sandbox-agent"]) == 2
    assert "sandbox-agent could not be installed: no network" in capsys.readouterr().err


@pytest.mark.needs("linux")
def test_the_machines_cpu_time_is_at_least_that_of_a_busy_process() -> None:
    before = spent(os.getpid())
    while spent(os.getpid()).since(before).server_s < 0.2:
        pass
    used = spent(os.getpid()).since(before)
    # Linux reports idle time in hundredths of a second.
    assert used.machine_s > used.server_s - 0.05
    assert machine_cpu_s() >= used.machine_s


def outcome(p50_ms: float, server_s: float, machine_s: float, marks: int = 20) -> Outcome:
    return Outcome(NOTHING_WRONG._replace(p50_ms=p50_ms, marks=marks), Spent(server_s, machine_s), 0)


@pytest.mark.parametrize(
    ("count", "bars"),
    [
        (1, ["<= 0.7", "", "<= 450", ""]),
        (20, ["<= 6", "", "<= 150", ""]),
        (100, ["<= 12", "<= 60", "<= 60", "<= 200"]),
    ],
)
def test_sessions_have_four_figures_with_the_bars_of_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, bars: list[str]
) -> None:
    marks = count * 150
    found = streaming.Outcomes(outcome(1, 1, 2, marks), outcome(2, 3, 4, marks), outcome(5, 6, 7, marks - 1))
    monkeypatch.setattr(streaming, "run", lambda *_: found)
    rows = streaming.sessions("c", count, ["program"])(tmp_path, tmp_path, True)
    figures = ["latency p50", "latency p99", "CPU per delivery", "machine CPU per delivery"]
    assert [row.figure for row in rows] == figures and [row.bar for row in rows] == bars
    machine = rows[-1]
    assert machine.value == pytest.approx(2 / marks * 1e6)
    assert machine.reference == pytest.approx(4 / marks * 1e6)
    assert machine.beside == pytest.approx(7 / (marks - 1) * 1e6)
    # Lost events of the other server are reported, but are not a failure.
    assert rows[0].note.startswith("sandbox-agent: lost 0,") and f"{marks - 1} of {marks} deltas" in rows[0].note


def test_a_crowd_is_compared_with_c_and_sessions_with_a_figure() -> None:
    found = streaming.Outcomes(outcome(1, 1, 2), outcome(1, 0.5, 1), None)
    assert streaming.cost("a", found, streaming.Bars(server_of_c=1.35)).verdict == "MISSED by 48%"
    assert streaming.cost("c", found, streaming.Bars(server_us=50_000)).verdict == "ok"


@pytest.mark.parametrize("change", [{"lost": 1}, {"doubled": 1}, {"broken": 1}, {"unequal": 1}, {"marks": 19}])
def test_lost_or_duplicate_events_fail_the_run(change: dict[str, int]) -> None:
    load = Load(viewers=2, per_s=50, count=10)
    assert streaming.faults("x", load, Outcome(NOTHING_WRONG, NO_TIME, 0)) == []
    (row,) = streaming.faults("x", load, Outcome(NOTHING_WRONG._replace(**change), NO_TIME, 0))
    assert row.figure == streaming.WRONG and "MISSED" in row.verdict


@pytest.mark.full
@pytest.mark.needs("linux", "cc")
def test_a_resting_server_is_measured(tmp_path: Path, agent: Path) -> None:
    rows = resting.starts(tmp_path, agent, True) + resting.idle_sessions(tmp_path, agent, True, count=3)
    assert {row.figure for row in rows} >= {"start to ready", "idle memory (RSS)", "created one by one"}


@pytest.mark.full
@pytest.mark.needs("linux", "cc")
def test_a_long_session_written_by_the_machine_is_opened_by_a_server(tmp_path: Path, agent: Path) -> None:
    place = Subject(tmp_path / "long", agent)
    names = asyncio.run(opening.write_sessions(place.server.data / "perdure.db", [100, 300], place.workdir))
    with place as server:
        for length, name in names.items():
            snapshot_ms, record_ms, events = opening.open_cold(server, name)
            assert snapshot_ms > 0 and record_ms > 0
            assert length * 0.9 <= events <= length * 1.1 + 10


@pytest.mark.full
@pytest.mark.needs("linux", "cc")
def test_the_wait_of_other_requests_is_measured_during_long_verbs(tmp_path: Path, agent: Path) -> None:
    place = Subject(tmp_path / "long", agent)
    names = asyncio.run(opening.write_sessions(place.server.data / "perdure.db", [300], place.workdir, one_turn=True))
    found = long_verbs.measured(place, {"one turn": names[300]})
    waits = [row for row in found if row.figure.endswith("others wait at most")]
    assert [row.figure.partition(":")[0] for row in waits] == ["transcript", "plan", "fork"]
    assert [row.figure for row in found if row not in waits] == ["transcript itself", "plan itself", "fork itself"]
    assert all(row.value > 0 for row in found)


@pytest.mark.full
@pytest.mark.needs("linux", "cc", "git")
def test_snapshots_are_measured_beside_git(tmp_path: Path, agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SETTLE_S", 0.0)
    rows = snapshots.of_trees(tmp_path / "trees", files=60, rounds=2)
    rows += snapshots.of_turns(tmp_path / "turns", agent, files=60, turns=2)
    assert len(rows) == 5
    assert all(row.value > 0 and row.reference for row in rows)


def test_the_first_token_of_the_real_program_is_measured_in_every_way(
    tmp_path: Path, real_agent: Callable[[str], RealAgent]
) -> None:
    found = first_token.measured(tmp_path, real_agent("claude"), rounds=1)
    assert len(found) == 5 and all(len(took) == 1 and took[0] > 0 for took in found.values())


def test_a_program_that_is_not_installed_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(first_token, "find_agent", lambda name: f"the agent {name} is not installed (./run agents)")
    assert first_token.first_token(tmp_path, tmp_path, True) == []
    assert capsys.readouterr().err == "h skipped: the agent claude is not installed (./run agents)\n"


@pytest.fixture(scope="module")
def database() -> Iterator[postgres.Server]:
    if reason := nodes.lack():
        pytest.skip(reason)
    with postgres.private_server(**{**nodes.SETTINGS, "fsync": "off"}) as server:
        yield server


@pytest.mark.full
@pytest.mark.needs("linux", "postgresql")
def test_the_postgresql_store_is_measured_beside_sqlite_and_copy(tmp_path: Path, database: postgres.Server) -> None:
    rows = postgres_store.rows(database, tmp_path / "store", seconds=0.2, paced_s=1, paced=20)
    assert [row.scenario for row in rows if row.scenario != "k"] == [
        "k store, 100 sessions",
        "k store, 10 sessions",
        "k store, 20 sessions x 1/s",
    ]
    assert {row.against for row in rows if row.reference} == {"SQLite", "COPY"}
    assert [row.bar for row in rows if row.bar] == [">= 0.2 x COPY", ">= 19"]
    # The CPU time of such short runs may be too small to measure.
    assert all(row.value > 0 for row in rows if not row.figure.startswith("CPU"))


@pytest.mark.full
@pytest.mark.needs("linux", "cc", "postgresql")
@pytest.mark.parametrize("count", [1, 2])
def test_every_delta_reaches_the_viewer_on_another_node(
    tmp_path: Path, agent: Path, database: postgres.Server, count: int
) -> None:
    load = Load(viewers=3, per_s=50, count=20, sessions=3)
    found = nodes.run(database, tmp_path / "nodes", agent, count, load)
    assert streaming.faults("k", load, found) == [] and found.report.marks == 60
    assert found.spent.machine_s > found.spent.server_s > 0 and found.spent.database_s > 0
    assert 0 < found.report.p50_ms <= found.report.p95_ms <= found.report.p99_ms


@pytest.mark.parametrize(("count", "sessions", "bar"), [(1, 20, ""), (2, 20, "<= 40"), (2, 100, "")])
def test_two_nodes_with_twenty_sessions_have_a_bar_for_the_lag(count: int, sessions: int, bar: str) -> None:
    load = Load(viewers=sessions, per_s=50, count=10, sessions=sessions)
    found = outcome(1, 1, 2, marks=10 * sessions)
    p50, p95, p99, own, database = nodes.lag_and_cost(count, load, found, outcome(2, 1, 2))
    assert (p50.bar, p95.bar, p99.bar) == ("", bar, "") and p50.cells()[3:5] == ("2 (1 node)", "0.50 x")
    assert own.value == pytest.approx(1000 / (10 * sessions) * 1000) and database.value == 0
    lossy = outcome(1, 1, 2, marks=10 * sessions - 1)
    assert nodes.lag_and_cost(count, load, lossy, None)[-1].figure == streaming.WRONG


def test_without_postgresql_the_nodes_are_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(postgres, "lack", lambda: "needs PostgreSQL: install it")
    assert nodes.several_nodes(tmp_path, tmp_path, True) == []
    assert capsys.readouterr().err == "k skipped: needs PostgreSQL: install it\n"


@pytest.mark.needs("linux")
def test_cpu_time_of_children_counts_while_they_run_and_after_they_end() -> None:
    before = family_cpu_s(os.getpid())
    busy = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert family_cpu_s(os.getpid()) - before > 0.19
        child.communicate(b"\n")
    assert family_cpu_s(os.getpid()) - before > 0.19


def test_the_scripts_of_the_parts_are_there() -> None:
    assert all((parts.HERE / script).exists() for script, *_ in parts.scripts(quick=True))


def test_a_result_says_by_how_much_a_bar_was_missed() -> None:
    def verdict(**fields: float) -> str:
        return Row(scenario="x", figure="y", value=3, **fields).verdict  # type: ignore[arg-type]

    assert verdict() == ""
    assert verdict(most=3) == verdict(least=3) == "ok"
    assert verdict(most=2) == verdict(least=4.5) == "MISSED by 50%"
    assert verdict(most=2, reference=2, of_reference=True) == "ok"
    assert verdict(most=1.2, reference=2, of_reference=True) == "MISSED by 25%"


def test_the_table_shows_each_figure_beside_its_reference_and_its_bar() -> None:
    table = aligned([Row(scenario="a", figure="cost", value=3, unit="us", reference=2, most=1.6, of_reference=True)])
    assert table.splitlines()[1].split() == ["a", "cost", "3", "us", "2", "1.50", "x", "<=", "1.6", "x", "C", "ok"]


def test_the_other_server_has_a_column_only_where_it_was_measured() -> None:
    rows = [
        Row(scenario="c", figure="p50", value=3, unit="ms", beside=4, most=5),
        Row(scenario="c", figure="x", value=1),
    ]
    assert "sandbox-agent" not in aligned(rows) and "4" not in aligned(rows)
    head, first, second = aligned(rows, "sandbox-agent").splitlines()
    assert head.split() == ["figure", "value", "C", "ratio", "sandbox-agent", "bar"]
    assert first.split() == ["c", "p50", "3", "ms", "4", "<=", "5", "ok"] and second.split() == ["c", "x", "1"]


def test_a_scenario_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SystemExit):
        bench.main(["--only", "a,z"])
