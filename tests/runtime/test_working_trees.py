"""The locks, threads and time budget of git working trees."""

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import Refused
from perdure.runtime.git.snapshot import REFS, Limits, OverBudget, Snapshots
from perdure.runtime.review import working_trees
from perdure.runtime.review.working_trees import WorkingTrees
from tests.harness import WAIT_S
from tests.runtime.git.project import Project

REF = f"{REFS}s_1/1"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    made.write("a.txt", "one\n")
    made.commit()
    return made


@pytest.fixture
def trees(tmp_path: Path) -> WorkingTrees:
    return WorkingTrees(Snapshots(tmp_path / "snapshots"), Limits(time_s=30.0), time.monotonic)


class Slow:
    """Work that goes on until it may end, as on a file system that hangs."""

    def __init__(self) -> None:
        self.reached, self.go, self.is_done = threading.Event(), threading.Event(), False

    def __call__(self, *given: Any, **more: Any) -> None:
        self.reached.set()
        self.go.wait(WAIT_S)
        self.is_done = True


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.go.set()


async def test_a_snapshot_does_not_wait_longer_than_its_budget_for_a_lock(
    project: Project, trees: WorkingTrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_trees, "GRACE_S", 0.1)
    trees.limits = Limits(time_s=0.1)
    async with trees.lock(project.repository.root):
        found = await trees.take(project.repository, REF, {})
    assert isinstance(found, str) and found.endswith("Others were being recorded at the same time.")
    trees.limits = Limits(time_s=30.0)
    assert not isinstance(await trees.take(project.repository, REF, {}), str)


async def test_a_snapshot_in_a_thread_that_hangs_is_given_up_and_not_tried_again_at_once(
    project: Project, trees: WorkingTrees, monkeypatch: pytest.MonkeyPatch, slow: Slow
) -> None:
    monkeypatch.setattr(working_trees, "GRACE_S", 0.1)
    monkeypatch.setattr(trees.snapshots, "take", slow)
    trees.limits = Limits(time_s=0.1)
    found = await trees.take(project.repository, REF, {})
    assert isinstance(found, str) and "could not be recorded within 0.1 seconds" in found
    monkeypatch.undo()
    again = await trees.take(project.repository, REF, {})
    assert isinstance(again, str) and "tries again in 10 minutes" in again


async def test_a_wait_for_snapshots_of_other_working_trees_does_not_turn_snapshots_off(
    project: Project, trees: WorkingTrees, monkeypatch: pytest.MonkeyPatch, slow: Slow
) -> None:
    monkeypatch.setattr(working_trees, "GRACE_S", 0.1)
    trees.limits = Limits(time_s=0.1)
    others = [asyncio.create_task(trees.in_thread(slow)) for _ in range(working_trees.AT_ONCE)]
    await asyncio.to_thread(slow.reached.wait, WAIT_S)
    found = await trees.take(project.repository, REF, {})
    assert isinstance(found, str) and found.endswith("Others were being recorded at the same time.")
    slow.go.set()
    await asyncio.gather(*others)
    trees.limits = Limits(time_s=30.0)
    assert not isinstance(await trees.take(project.repository, REF, {}), str)


async def test_a_repository_is_found_while_snapshots_take_long(
    project: Project, trees: WorkingTrees, monkeypatch: pytest.MonkeyPatch, slow: Slow
) -> None:
    monkeypatch.setattr(working_trees, "GRACE_S", WAIT_S / 2)
    snapshots = [asyncio.create_task(trees.in_thread(slow)) for _ in range(working_trees.AT_ONCE + 1)]
    await asyncio.to_thread(slow.reached.wait, WAIT_S)
    assert await trees.find(project.repository.root) == project.repository
    slow.go.set()
    await asyncio.gather(*snapshots)


async def test_long_operations_do_not_delay_snapshots(project: Project, trees: WorkingTrees, slow: Slow) -> None:
    operations = [asyncio.create_task(trees.operate(slow)) for _ in range(working_trees.OPERATION_THREADS)]
    await asyncio.to_thread(slow.reached.wait, WAIT_S)
    async with asyncio.timeout(WAIT_S / 2):
        assert not isinstance(await trees.take(project.repository, REF, {}), str)
        await trees.forget(project.repository, "s_1")
    assert project.git("for-each-ref", REFS) == b""
    slow.go.set()
    await asyncio.gather(*operations)


async def test_a_turn_that_is_aborted_does_not_wait_for_a_ref_on_a_file_system_that_hangs(
    project: Project, trees: WorkingTrees, monkeypatch: pytest.MonkeyPatch, slow: Slow
) -> None:
    monkeypatch.setattr(working_trees, "KEEPING_TIMEOUT_S", 0.1)
    monkeypatch.setattr(trees.snapshots, "keep", slow)
    task = asyncio.create_task(trees.take(project.repository, REF, {}))
    await asyncio.to_thread(slow.reached.wait, WAIT_S)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=WAIT_S / 2)
    assert done and task.cancelled() and not slow.is_done


async def test_a_file_system_that_hangs_is_not_taken_for_one_without_a_repository(
    project: Project, trees: WorkingTrees, monkeypatch: pytest.MonkeyPatch, slow: Slow, tmp_path: Path
) -> None:
    root = project.repository.root
    assert await trees.find(root) == project.repository and await trees.find(str(tmp_path)) is None
    monkeypatch.setattr(working_trees, "GRACE_S", 0.1)
    monkeypatch.setattr(working_trees, "find", slow)
    trees.limits = Limits(time_s=0.1)
    with pytest.raises(working_trees.Hanging):
        await trees.look(root, slow)
    assert await trees.find(root) == f"The file system of {root} does not respond."


HANGING = """
import asyncio, pathlib, threading, time
from perdure.runtime.git.snapshot import Limits, Snapshots
from perdure.runtime.review.working_trees import WorkingTrees

async def main():
    trees = WorkingTrees(Snapshots(pathlib.Path("none")), Limits(), time.monotonic)
    reached = threading.Event()
    def hang():
        reached.set()
        threading.Event().wait()
    for work in (trees.read, trees.in_thread, trees.operate):
        reached.clear()
        task = asyncio.create_task(work(hang))
        await asyncio.to_thread(reached.wait)
from perdure.runtime.review import working_trees
working_trees.CANCELLED_TIMEOUT_S = 0.1
asyncio.run(main())
"""


def test_a_thread_that_hangs_does_not_keep_the_server_from_exiting() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], timeout=2 * WAIT_S)
    assert ended.returncode == 0


async def test_a_read_that_takes_too_long_does_not_turn_snapshots_off(
    project: Project, trees: WorkingTrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_trees, "GRACE_S", 0.0)
    trees.limits = Limits(time_s=0.1)
    with pytest.raises(OverBudget):
        async with trees.within_budget(project.repository.root, counts=False):
            await asyncio.Event().wait()
    trees.limits = Limits(time_s=30.0)
    assert not isinstance(await trees.take(project.repository, REF, {}), str)


async def test_threads_that_hang_do_not_keep_others_from_reading(
    trees: WorkingTrees, monkeypatch: pytest.MonkeyPatch, slow: Slow
) -> None:
    monkeypatch.setattr(working_trees, "HANGING_S", 0.1)
    hanging = [asyncio.create_task(trees.in_thread(slow)) for _ in range(working_trees.AT_ONCE)]
    assert await trees.in_thread(lambda: "read") == "read"
    for one in await asyncio.gather(*hanging, return_exceptions=True):
        assert isinstance(one, working_trees.Hanging)


async def test_somebody_who_reads_on_a_file_system_that_hangs_is_told_so(
    trees: WorkingTrees, monkeypatch: pytest.MonkeyPatch, slow: Slow
) -> None:
    monkeypatch.setattr(working_trees, "READ_TIMEOUT_S", 0.1)
    with pytest.raises(Refused) as refusal:
        await trees.read(slow)
    assert refusal.value.code == "unavailable" and "did not respond" in refusal.value.detail


async def test_an_operation_that_is_cancelled_keeps_its_lock_until_its_thread_has_ended(
    project: Project, trees: WorkingTrees, slow: Slow
) -> None:
    root = project.repository.root

    async def operation() -> None:
        async with trees.operating([root]):
            await trees.operate(slow)

    task = asyncio.create_task(operation())
    await asyncio.to_thread(slow.reached.wait, WAIT_S)
    task.cancel()
    asyncio.get_running_loop().call_later(0.1, slow.go.set)
    async with asyncio.timeout(WAIT_S), trees.lock(root):
        assert slow.is_done
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("is_reserved", [False, True])
async def test_a_turn_waits_for_an_operation_that_waits_for_its_locks_or_is_to_be_completed(
    trees: WorkingTrees, is_reserved: bool
) -> None:
    order: list[str] = []

    async def operation() -> None:
        async with trees.operating(["/a", "/b"]):
            order.append("operation")

    async def turn() -> None:
        await trees.lock("/b").without_operation()
        order.append("turn")

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks, trees.lock("/a"):
        reserved = trees.reserve(["/b"]) if is_reserved else contextlib.ExitStack()
        others = [tasks.create_task(work()) for work in ((turn,) if is_reserved else (operation, turn))]
        done, _ = await asyncio.wait(others, timeout=0)
        assert not done and order == []
        reserved.close()
    assert order == (["turn"] if is_reserved else ["operation", "turn"])


async def test_a_lock_exists_only_while_somebody_uses_it(trees: WorkingTrees) -> None:
    async with trees.lock("/a"):
        assert len(trees._locks) == 1
    assert len(trees._locks) == 0
