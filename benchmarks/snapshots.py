"""Scenario l: what snapshots of a working tree cost beside git itself, and how much later an agent gets a message.

Above: bench.py. Below: runtime/git in this process and the git program, on the same generated repository; and a real
server with the load agent. The two sides take turns, so a busy machine slows both.
"""

import shutil
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.subject import Subject
from benchmarks.table import Row
from perdure.runtime.git.difference import changes, patch
from perdure.runtime.git.private_index import TOO_RECENT_NS
from perdure.runtime.git.snapshot import Snapshots
from tests.harness import LiveServer
from tests.runtime.git.project import Project

FILES = 20_000
FILES_QUICK = 2_000
FILES_PER_FOLDER = 100
LINES_PER_FILE = 30
CHANGED = 40
ROUNDS = 7
TURNS = 15
TURN_WAIT_S = 60.0
POLL_S = 0.05
MOST_FIRST = 2.5
"""Bars, as ratios to what git takes."""
MOST_LATER = 6.0
"""git looks at the files in C and in several threads; Perdure then looks at each file once more in Python."""
MOST_DIFFERENCE = 3.0
SETTLE_S = TOO_RECENT_NS / 1e9 + 0.1
"""A file that changed later than this before a snapshot is read once more by the next one."""

Work = Callable[[], object]


def generated(root: Path, files: int) -> Project:
    """A repository whose files are all committed."""
    project = Project(root)
    for number in range(files):
        text = "".join(f"line {line} of file {number}\n" for line in range(LINES_PER_FILE))
        project.write(f"folder{number // FILES_PER_FOLDER}/file{number}.txt", text)
    project.commit("all files")
    return project


def edit(project: Project, text: str) -> None:
    """Change one line of some files."""
    for number in range(CHANGED):
        path = f"folder{number // FILES_PER_FOLDER}/file{number}.txt"
        lines = project.read(path).splitlines(keepends=True)
        lines[LINES_PER_FILE // 2] = f"{text}\n".encode()
        project.write(path, b"".join(lines))


def took_ms(work: Work) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def beside(figure: str, ours: Work, git: Work, *, most: float, named: str, rounds: int, prepare: Work) -> Row:
    """Measure both in turn, and prepare each time for each."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for took, work in zip(times, (ours, git), strict=True):
            prepare()
            took.append(took_ms(work))
    value, reference = (statistics.median(took) for took in times)
    return Row(
        scenario="l",
        figure=figure,
        value=value,
        unit="ms",
        reference=reference,
        against=named,
        most=most,
        of_reference=True,
    )


def of_trees(folder: Path, files: int, rounds: int) -> list[Row]:
    project = generated(folder / "project", files)
    repository, snapshots, index = project.repository, Snapshots(folder / "snapshots"), folder / "index"
    env = {"GIT_INDEX_FILE": str(index)}
    round_ = iter(range(1_000_000))

    def forget() -> None:
        shutil.rmtree(folder / "snapshots", ignore_errors=True)
        index.unlink(missing_ok=True)

    def add() -> None:
        project.git("add", "--all", env=env)
        project.git("write-tree", env=env)

    def take() -> str:
        return snapshots.take(repository).tree

    time.sleep(SETTLE_S)
    first = beside(
        "first snapshot", take, add, most=MOST_FIRST, named="git add", rounds=max(1, rounds // 2), prepare=forget
    )
    before = take()
    add()
    later = partial(beside, ours=take, git=add, most=MOST_LATER, named="git add", rounds=rounds)
    unchanged = later("nothing changed", prepare=lambda: None)
    changed = later(f"{CHANGED} files changed", prepare=lambda: edit(project, f"round {next(round_)}"))
    after = take()
    shown = beside(
        f"list and patch of {CHANGED} files",
        lambda: (changes(repository, before, after), patch(repository, before, after)),
        lambda: (project.git("diff", "--raw", "--numstat", before, after), project.git("diff", before, after)),
        most=MOST_DIFFERENCE,
        named="git diff",
        rounds=rounds,
        prepare=lambda: None,
    )
    return [first, unchanged, changed, shown]


def of_turns(folder: Path, agent: Path, files: int, turns: int) -> list[Row]:
    """From the request to the end of a turn in which the agent does nothing, in a repository and beside it."""
    project = generated(folder / "worked-in", files)
    took: dict[str, list[float]] = {}
    with Subject(folder / "server", agent) as place:
        server = place.server
        sessions = {
            str(workdir): server.create(agent="load", workdir=str(workdir)) for workdir in (project.root, place.workdir)
        }
        for session in sessions.values():
            server.send(session, "load 0 0 0")
            place.wait_idle(session, TURN_WAIT_S)
        time.sleep(SETTLE_S)
        for _ in range(turns):
            for workdir, session in sessions.items():
                with server.watch(session) as stream:
                    stream.until("snapshot")
                    began = time.perf_counter()
                    server.send(session, "load 0 0 0")
                    stream.until("turn_end")
                    took.setdefault(workdir, []).append((time.perf_counter() - began) * 1000)
                # Its second snapshot must not be part of the next turn.
                recorded(server, session)
    inside, outside = (statistics.median(took[workdir]) for workdir in sessions)
    return [
        Row(
            scenario="l",
            figure="turn of an agent that does nothing",
            value=inside,
            unit="ms",
            reference=outside,
            against="no repository",
            note=f"a snapshot of {files:,} files comes first",
        )
    ]


def recorded(server: LiveServer, session: str) -> None:
    """Wait until the last turn's changes are stored."""
    deadline = time.monotonic() + TURN_WAIT_S
    number = server.session(session)["turns"][-1]["turn"]
    while server.get(f"/api/sessions/{session}/changes?turn={number}")["state"] == "running":
        if time.monotonic() > deadline:
            raise TimeoutError(f"the changes of turn {number} of {session} were not stored")
        time.sleep(POLL_S)


def costs(folder: Path, agent: Path, quick: bool) -> list[Row]:
    if shutil.which("git") is None:
        sys.stderr.write("l skipped: git is not installed\n")
        return []
    files = FILES_QUICK if quick else FILES
    rows = of_trees(folder / "l-trees", files, 3 if quick else ROUNDS)
    return rows + of_turns(folder / "l-turns", agent, files, 5 if quick else TURNS)
