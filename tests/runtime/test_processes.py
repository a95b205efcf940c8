"""Finding and ending processes by their mark, and never any others."""

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from perdure.runtime.keeping import processes
from tests.runtime.launches import WAIT_S

pytestmark = pytest.mark.needs("linux")

Start = Callable[..., Coroutine[Any, Any, Process]]
READY = "import signal, sys, time; print('ready', flush=True); "
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY


@pytest.fixture
def launch_id() -> str:
    return f"test-processes-{os.getpid()}"


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a Python program and wait until it is ready."""
    started: list[Process] = []

    async def run(code: str, mark: str | None = None) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            "-c",
            code,
            stdout=asyncio.subprocess.PIPE,
            env={} if mark is None else {"A": "1", "PERDURE_LAUNCH": mark, "Z": "26"},
        )
        started.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            await process.stdout.readline()
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_marked_process_is_found_by_its_launch_and_no_other(start: Start, launch_id: str) -> None:
    process = await start(READY + "time.sleep(600)", launch_id)
    other = await start(READY + "time.sleep(600)", launch_id + "-longer")
    assert processes.marked(launch_id) == [process.pid]
    found = processes.marked_all()
    assert found[launch_id] == [process.pid]
    assert found[launch_id + "-longer"] == [other.pid]
    assert processes.marked("nobody") == []


def test_a_process_shown_as_roots_is_found_by_the_user_in_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /proc shows a non-dumpable process: its environment can't be read, but its control group and status can."""
    user = os.geteuid() + 1
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "environ").touch()
    for pid, effective in ((7, user), (8, user + 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").mkdir()
        (tmp_path / str(pid) / "exe").touch()
        (tmp_path / str(pid) / "cgroup").write_text("0::/perdure-1a2b-3c\n")
        (tmp_path / str(pid) / "status").write_text(f"Name:\tssh-agent\nUid:\t1\t{effective}\t1\t1\nGid:\t2\n")
    (tmp_path / "9").mkdir()
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert processes.marked_all() == {"1a2b-3c": [7]}


async def test_ending_tries_sigterm_first(start: Start, launch_id: str) -> None:
    process = await start(READY + "time.sleep(600)", launch_id)
    assert await processes.end_marked([launch_id], WAIT_S) == []
    assert await process.wait() == -signal.SIGTERM


async def test_ending_kills_processes_that_ignore_sigterm(start: Start, launch_id: str) -> None:
    one = await start(STUBBORN + "time.sleep(600)", launch_id)
    two = await start(STUBBORN + "time.sleep(600)", launch_id + "-two")
    bystander = await start(READY + "time.sleep(600)", launch_id + "-three")
    assert await processes.end_marked([launch_id, launch_id + "-two"], 0.05) == []
    assert (await one.wait(), await two.wait()) == (-signal.SIGKILL, -signal.SIGKILL)
    assert processes.marked(launch_id + "-three") == [bystander.pid]


async def test_a_process_started_while_its_parent_is_ended_is_ended_too(start: Start, launch_id: str) -> None:
    code = (
        "import os, signal, time\n"
        "def more(*_):\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "signal.signal(signal.SIGTERM, more)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(600)\n"
    )
    await start(code, launch_id)
    assert await processes.end_marked([launch_id], 0.1) == []
    assert processes.marked(launch_id) == []


async def test_ending_nothing_is_fine(launch_id: str) -> None:
    assert await processes.end_marked([launch_id], 1) == []
    assert await processes.end_marked([], 1) == []


async def test_a_reused_pid_is_not_signalled(start: Start, launch_id: str) -> None:
    stranger = await start(READY + "print(sys.stdin.readline()); time.sleep(600)")
    assert not processes.signal_marked(stranger.pid, launch_id, signal.SIGKILL)
    other_launch = await start(READY + "time.sleep(600)", launch_id + "-other")
    assert not processes.signal_marked(other_launch.pid, launch_id, signal.SIGKILL)
    assert {stranger.pid, other_launch.pid} <= {process.pid for process in processes.describe_tree(os.getpid())}


def test_a_pid_reused_between_check_and_signal_is_not_signalled(
    launch_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marked process ends, and its pid is free for reuse, right after its mark was read."""
    code = READY + "time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE, env={"PERDURE_LAUNCH": launch_id}
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        by_number: list[int] = []

        def marks_of_the_dying(pid: int) -> set[str]:
            found = read_marks(pid)
            really_kill(pid, signal.SIGKILL)
            process.wait()
            return found

        read_marks, really_kill = processes.marks_of, os.kill
        monkeypatch.setattr(processes, "marks_of", marks_of_the_dying)
        monkeypatch.setattr(os, "kill", lambda pid, number: by_number.append(number))
        assert not processes.signal_marked(process.pid, launch_id, signal.SIGTERM)
        assert by_number == []
        assert process.returncode == -signal.SIGKILL


def test_a_pid_that_is_gone_is_not_signalled(launch_id: str) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert not processes.signal_marked(pid, launch_id, signal.SIGKILL)


async def test_without_pidfds_the_mark_is_still_checked(
    start: Start, launch_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await start(READY + "time.sleep(600)", launch_id)
    monkeypatch.delattr(os, "pidfd_open")
    assert not processes.signal_marked(process.pid, "another", signal.SIGKILL)
    assert processes.signal_marked(process.pid, launch_id, signal.SIGKILL)
    monkeypatch.undo()
    assert await process.wait() == -signal.SIGKILL


async def test_a_tree_is_described_parents_first_with_its_memory(start: Start, launch_id: str) -> None:
    code = "import os; child = os.fork(); READY = child and print('ready', flush=True); import time; time.sleep(600)"
    process = await start(code, launch_id)
    tree = processes.describe_tree(process.pid)
    assert [found.pid for found in tree][:1] == [process.pid]
    assert [found.ppid for found in tree] == [os.getpid(), process.pid]
    assert "time.sleep(600)" in tree[0].command
    assert tree[0].rss_bytes > 1_000_000
    assert processes.tree_rss_bytes(process.pid) >= tree[0].rss_bytes
    assert await processes.end_marked([launch_id], 1) == []


BURN = "import time\nwhile time.process_time() < 0.3: pass\n"


async def test_the_cpu_time_of_a_tree_includes_children_that_have_ended(start: Start, launch_id: str) -> None:
    code = f"import os, subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}]); " + READY + "time.sleep(600)"
    process = await start(code, launch_id)
    # The kernel reports whole ticks of each process, so the total may be slightly too low.
    assert 0.25 <= processes.tree_cpu_s(process.pid) < 10
    assert await processes.end_marked([launch_id], 1) == []


@pytest.mark.parametrize(
    ("used", "cpu_s"),
    [("00:00:00", 0), ("01:02:03", 3723), ("2-00:00:01", 172_801), ("0:01.50", 1.5), ("62:03.25", 3723.25)],
)
def test_cpu_times_of_both_ps_formats_are_parsed(used: str, cpu_s: float) -> None:
    assert processes._seconds_of(used) == cpu_s


def test_the_tree_of_a_missing_process_is_empty() -> None:
    assert processes.describe_tree(2**22 + 1) == []
    assert processes.tree_cpu_s(2**22 + 1) == 0
    assert processes.tree_rss_bytes(2**22 + 1) == 0


@pytest.mark.needs("ps")
async def test_without_proc_trees_come_from_ps_and_there_are_no_marks(
    start: Start, launch_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await start(READY + "time.sleep(600)", launch_id)
    from_proc = processes.describe_tree(process.pid)
    monkeypatch.setattr(processes, "can_see_marks", lambda: False)
    assert processes.marked_all() == {}
    from_ps = processes.describe_tree(process.pid)
    assert [(found.pid, found.ppid) for found in from_ps] == [(found.pid, found.ppid) for found in from_proc]
    assert from_ps[0].rss_bytes > 1_000_000
