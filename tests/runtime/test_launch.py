"""The server's side of a launch: the folder, the lock, the connection and the input file."""

import asyncio
import os
import py_compile
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.errors import StoreFull
from perdure.runtime.keeping import keeper_start
from perdure.runtime.keeping import launch as launch_module
from perdure.runtime.keeping.launch import Launch, LaunchLimits, LaunchSpec
from tests.runtime.launches import (
    ROOMY,
    WAIT_S,
    Followed,
    Launches,
    append_raw,
    fill_disk,
    launching,
    python,
    until_true,
)


@pytest.fixture
async def launches(tmp_path: Path) -> AsyncIterator[Launches]:
    async with launching(tmp_path) as made:
        yield made


def spec(launch_id: str) -> LaunchSpec:
    return LaunchSpec(launch_id, ["cat"], {}, "/", ROOMY)


def folder_only(root: Path) -> Launch:
    """A folder left by a server that died before it started the keeper."""
    (root / "early").mkdir()
    (root / "early" / "in").touch()
    found = Launch.find(root, "early")
    assert found is not None
    return found


# The lock ------------------------------------------------------------------------------------------------------


async def test_a_launch_is_alive_from_its_creation_until_its_end(launches: Launches) -> None:
    launch = launches.create(["cat"])
    assert launch.is_alive()
    async with Followed(launch) as agent:
        assert launch.is_alive()
        launch.end(5, 5)
        await agent.until_exit()
    assert not launch.is_alive()


async def test_a_keeper_holds_the_lock_before_it_runs_its_first_line(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = launches.root / "program"
    os.mkfifo(program)
    monkeypatch.setattr(keeper_start, "_program", lambda: str(program))
    launch = launches.create(["cat"])
    assert launch.is_alive()
    # Its interpreter waits for the program; give it an empty one, so that it exits.
    (await asyncio.to_thread(program.open, "wb")).close()
    assert await launch.wait_gone(WAIT_S)
    assert launch.exit() is None


async def test_a_keeper_that_can_not_start_writes_the_reason_to_err(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_start, "_program", lambda: "/no/such/keeper.py")
    launch = launches.create(["cat"])
    async with Followed(launch) as agent:
        await agent.until(lambda: agent.closed)
        assert launch.exit() is None
        assert "/no/such/keeper.py" in launch.stderr_tail()


def test_a_folder_without_a_keeper_is_a_dead_launch(tmp_path: Path) -> None:
    launch = folder_only(tmp_path)
    assert not launch.is_alive()
    assert launch.exit() is None
    assert launch.pid() is None


def test_an_unknown_launch_is_not_found(tmp_path: Path) -> None:
    assert Launch.find(tmp_path, "nobody") is None
    assert Launch.find(tmp_path, "../" + tmp_path.name) is None


@pytest.mark.parametrize("launch_id", ["", "..", "a/b", "a\0b", "x" * 101])
def test_a_launch_id_is_a_plain_file_name(tmp_path: Path, launch_id: str) -> None:
    with pytest.raises(ValueError):
        Launch.create(tmp_path, spec(launch_id))


def test_a_launch_that_can_not_be_started_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(FileNotFoundError):
        Launch.create(tmp_path, spec("failed"))
    assert list(tmp_path.iterdir()) == []


async def test_the_folder_is_private_to_its_user(launches: Launches) -> None:
    launch = launches.create(["cat"])
    assert launch.folder.stat().st_mode & 0o777 == 0o700


async def test_an_id_is_used_once(launches: Launches) -> None:
    launch = launches.create(["cat"])
    with pytest.raises(FileExistsError):
        Launch.create(launches.root, spec(launch.launch_id))
    assert launch.is_alive()


async def test_the_folder_of_a_running_launch_is_not_removed(launches: Launches) -> None:
    async with launches.follow(["cat"]) as agent:
        with pytest.raises(RuntimeError):
            await agent.launch.forget()
        agent.launch.end(5, 5)
        await agent.until_exit()
        await agent.launch.forget()
        assert not agent.launch.folder.exists()


async def test_a_keeper_that_ended_leaves_no_zombie(launches: Launches) -> None:
    launch = launches.create(["true"])
    keeper = launch.keeper
    assert keeper is not None
    assert await launch.wait_gone(WAIT_S)
    keeper.wait(10)
    launch.reap()
    assert launch.keeper is None


def test_a_compiled_keeper_is_used_only_if_it_matches_the_source(tmp_path: Path) -> None:
    source = tmp_path / "keeper.py"
    source.write_text("first = 1\n")
    assert keeper_start._program(str(source)) == str(source)
    compiled = py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    assert keeper_start._program(str(source)) == compiled
    source.write_text("second = 22\n")
    assert keeper_start._program(str(source)) == str(source)


# The connection ------------------------------------------------------------------------------------------------


async def test_a_launch_under_a_very_long_path_can_be_reached(launches: Launches, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-rather-long-name"] * 10)
    async with launches.follow(["cat"], root=deep) as agent:
        agent.launch.write([b"far\n"])
        await agent.until_output(b"far\n")


async def test_connecting_to_a_finished_launch_reports_its_end_immediately(launches: Launches) -> None:
    launch = launches.create(["echo", "quick"])
    assert await launch.wait_gone(WAIT_S)
    async with Followed(launch) as agent:
        assert (await agent.until_exit()).exit_code == 0
        assert bytes(agent.output) == b"quick\n"


async def test_connecting_to_a_hung_keeper_times_out(launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = launches.create(["cat"])
    monkeypatch.setattr(launch, "_try_connect", lambda: None)
    with pytest.raises(TimeoutError):
        await launch.connect(lambda: None, lambda: None, 0.05)


async def test_commands_given_before_the_connection_are_not_lost(launches: Launches) -> None:
    launch = launches.create(["cat"])
    launch.write([b"early\n"])
    launch.end(10, 10)
    async with Followed(launch) as agent:
        assert (await agent.until_exit()).how == "ended"
        assert bytes(agent.output) == b"early\n"


async def test_the_keeper_sees_nothing_of_the_servers_environment(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_TOKEN", "secret")
    monkeypatch.setenv("PERDURE_LAUNCH", "outer")
    async with launches.follow(["cat"]) as agent:
        await until_true(lambda: agent.launch.keeper_pid() is not None)
        assert b"PERDURE" not in Path(f"/proc/{agent.launch.keeper_pid()}/environ").read_bytes()


async def test_a_small_spool_limit_is_acknowledged_in_small_steps(launches: Launches) -> None:
    limits = LaunchLimits(spool_limit_bytes=4096, disk_floor_bytes=0)
    async with launches.follow(python("for n in range(100000): print('%031d' % n)"), limits) as agent:
        await agent.until_exit()
        assert len(agent.output) == 3_200_000


# Input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"", b"no newline", b"two\nlines\n", b"\n\n"])
def test_only_complete_single_lines_can_be_written(tmp_path: Path, line: bytes) -> None:
    launch = folder_only(tmp_path)
    with pytest.raises(ValueError):
        launch.write([b"good\n", line])
    assert (launch.folder / "in").read_bytes() == b""


@settings(max_examples=50, deadline=None)
@given(lines=st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"") + b"\n")), cut=st.integers(0, 2000))
def test_repair_keeps_every_complete_line_wherever_the_write_stopped(lines: list[bytes], cut: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        launch = folder_only(Path(root))
        written = b"".join(lines)[:cut]
        append_raw(launch, written)
        count = launch.repair_input()
        assert count == written.count(b"\n")
        launch.write(lines[count:])
        assert (launch.folder / "in").read_bytes() == b"".join(lines)


def test_repair_finds_a_partial_line_that_is_longer_than_a_chunk(tmp_path: Path) -> None:
    launch = folder_only(tmp_path)
    append_raw(launch, b"one\n" + b"x" * 3_000_000 + b"\n" + b"y" * 3_000_000)
    assert launch.repair_input() == 2
    assert (launch.folder / "in").stat().st_size == 3_000_005


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"can't mount a small disk: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.needs("linux", "mount")
def test_without_disk_space_input_is_refused_and_leaves_no_partial_line(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = folder_only(small_disk)
    with pytest.raises(StoreFull):
        launch.write([b"x" * 2_000_000 + b"\n"])
    assert (launch.folder / "in").stat().st_size == 0
    # Another process may use up the space after the check.
    monkeypatch.setattr(launch_module, "ROOM_BYTES", -10_000_000)
    with pytest.raises(StoreFull):
        launch.write([b"first\n", b"x" * 2_000_000 + b"\n"])
    assert launch.repair_input() == 1
    assert (launch.folder / "in").read_bytes() == b"first\n"


@pytest.mark.needs("linux", "mount")
def test_without_disk_space_a_launch_is_refused(small_disk: Path) -> None:
    fill_disk(small_disk / "ballast")
    with pytest.raises(StoreFull):
        Launch.create(small_disk, spec("no-room"))


@pytest.mark.full
async def test_a_server_killed_during_a_write_loses_and_duplicates_nothing(launches: Launches) -> None:
    """Ten servers in a row, each killed at an arbitrary byte. Each repairs the input and continues from there."""
    lines = [b"%06d " % number + b"x" * 200_000 + b"\n" for number in range(60)]
    writer = """
import sys
from pathlib import Path
from perdure.runtime.keeping.launch import Launch
launch = Launch.find(Path(sys.argv[1]), sys.argv[2])
done = launch.repair_input()
print("going", flush=True)
for number in range(done, 60):
    launch.write([b"%06d " % number + b"x" * 200_000 + b"\\n"])
"""
    async with launches.follow(["cat"]) as agent:
        for attempt in range(10):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                writer,
                str(launches.root),
                agent.launch.launch_id,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            assert process.stdout is not None
            await process.stdout.readline()
            if attempt < 9:
                wanted = (agent.launch.folder / "in").stat().st_size + 500_000 * (attempt % 3)
                await until_true(
                    lambda wanted=wanted, process=process: (  # type: ignore[misc]
                        process.returncode is not None or (agent.launch.folder / "in").stat().st_size >= wanted
                    )
                )
                if process.returncode is None:
                    process.send_signal(signal.SIGKILL)
            await process.wait()
        await agent.until(lambda: len(agent.output) >= sum(map(len, lines)))
        assert bytes(agent.output) == b"".join(lines)
