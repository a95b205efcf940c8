"""The keeper as a real process, with real agents that misbehave. It must never lose or split a line, leave a process
behind, or end an agent that is still needed."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.runtime.keeping.keeper import ERR_MAX_BYTES, Feed
from perdure.runtime.keeping.launch import Launch, LaunchLimits
from perdure.runtime.keeping.processes import end_marked, marked
from tests.runtime.launches import (
    ROOMY,
    WAIT_S,
    WITH_GRANDCHILD,
    Followed,
    Launches,
    append_raw,
    cpu_seconds,
    fill_disk,
    launching,
    peak_rss_bytes,
    python,
    until_dead,
    until_true,
)

MIB = 1024 * 1024


@pytest.fixture
async def launches(tmp_path: Path) -> AsyncIterator[Launches]:
    async with launching(tmp_path) as made:
        yield made


def numbered(count: int) -> bytes:
    return b"".join(b"%015d\n" % number for number in range(count))


# Writes 4 MiB of numbered lines; prints "blocked" to stderr when it has to wait.
FLOOD = """
import os, select
os.set_blocking(1, False)
data = memoryview(b"".join(b"%015d\\n" % number for number in range(262144)))
said = False
while data:
    if not select.select([], [1], [], 0.3)[1]:
        if not said:
            os.write(2, b"blocked")
            said = True
        select.select([], [1], [])
    try:
        data = data[os.write(1, data[:65536]):]
    except BlockingIOError:
        pass
"""
FLOODED = numbered(262144)


# Bytes ---------------------------------------------------------------------------------------------------------


async def test_any_bytes_pass_in_both_directions(launches: Launches) -> None:
    lines = [bytes(byte for byte in os.urandom(5000) if byte != 10) + b"\n" for _ in range(20)]
    async with launches.follow(["cat"]) as agent:
        agent.launch.write(lines)
        await agent.until(lambda: len(agent.output) >= sum(map(len, lines)))
        assert bytes(agent.output) == b"".join(lines)


async def test_a_line_of_ten_megabytes_passes_in_both_directions(launches: Launches) -> None:
    line = os.urandom(5 * MIB).hex().encode() + b"\n"
    async with launches.follow(["cat"]) as agent:
        agent.launch.write([line])
        await agent.until(lambda: len(agent.output) >= len(line))
        assert bytes(agent.output) == line


async def test_a_megabyte_of_input_waits_for_an_agent_that_reads_late(launches: Launches) -> None:
    code = "import sys; print('ready'); sys.stdin.readline(); print(len(sys.stdin.readline()))"
    async with launches.follow(python(code)) as agent:
        await agent.until_output(b"ready")
        agent.launch.write([b"go\n", b"x" * MIB + b"\n"])
        await agent.until_output(b"%d\n" % (MIB + 1))


async def test_a_flood_waits_for_acknowledgement_and_loses_nothing(launches: Launches) -> None:
    limit = 256 * 1024
    agent = Followed(
        launches.create(python(FLOOD), LaunchLimits(spool_limit_bytes=limit, disk_floor_bytes=0)), acknowledges=False
    )
    async with agent:
        # A keeper that gets no CPU time also makes the agent wait, so check the size too.
        await until_true(lambda: "blocked" in agent.launch.stderr_tail() and agent.launch.out_size() > limit)
        assert agent.launch.out_size() <= limit + 64 * 1024
        assert agent.launch.exit() is None
        while not agent.closed:
            seen = len(agent.output)
            agent.launch.acknowledge(seen, force=True)
            await agent.until(lambda seen=seen: agent.closed or len(agent.output) > seen)  # type: ignore[misc]
        assert (await agent.until_exit()).out_size == len(FLOODED)
        assert bytes(agent.output) == FLOODED


@pytest.mark.needs("linux")
async def test_acknowledged_output_frees_its_disk_space(launches: Launches) -> None:
    async with launches.follow([*python(FLOOD + "\nimport sys; sys.stdin.read()")]) as agent:
        await agent.until(lambda: len(agent.output) == len(FLOODED))
        agent.launch.acknowledge(len(agent.output), force=True)
        out = agent.launch.folder / "out"
        await until_true(lambda: out.stat().st_blocks * 512 < MIB)
        assert out.stat().st_size == len(FLOODED)


async def test_a_partial_last_line_is_not_forwarded(launches: Launches) -> None:
    async with launches.follow(["cat"]) as agent:
        append_raw(agent.launch, b"whole\nhalf a li")
        await agent.until_output(b"whole\n")
        agent.launch.end(5, 5)
        await agent.until_exit()
        assert bytes(agent.output) == b"whole\n"


async def test_a_partial_line_is_truncated_and_the_next_line_does_not_merge_into_it(launches: Launches) -> None:
    async with launches.follow(["cat"]) as agent:
        append_raw(agent.launch, b"one\n" + b"h" * MIB)
        await agent.until_output(b"one\n")
        assert agent.launch.repair_input() == 1
        agent.launch.write([b"two\n"])
        await agent.until_output(b"two\n")
        assert bytes(agent.output) == b"one\ntwo\n"


@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(st.lists(st.sampled_from([b"\n", b"a", b"bc\n", b"\x00" * 70000]), max_size=4), max_size=6))
def test_only_complete_lines_are_fed_whatever_is_appended(
    pieces: list[list[bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("feed"))
    source, target = os.pipe()
    try:
        feed, written, got = Feed(target), b"", b""
        for piece in pieces:
            with open("in", "ab") as file:
                file.write(b"".join(piece))
            written += b"".join(piece)
            feed.look()
            while len(got) < written.rfind(b"\n") + 1:
                got += os.read(source, MIB)
                feed.push()
            assert got == written[: written.rfind(b"\n") + 1]
            assert not feed.blocked()
        os.close(feed._source)
    finally:
        os.chdir(before)
        os.close(source)
        os.close(target)


async def test_an_agent_that_closes_its_stdin_can_still_write(launches: Launches) -> None:
    code = "import os, time; os.close(0); print('closed'); time.sleep(0.2); print('still here')"
    async with launches.follow(python(code)) as agent:
        await agent.until_output(b"closed")
        agent.launch.write([b"x" * MIB + b"\n"])
        assert (await agent.until_exit()).how == "exited"
        assert agent.output.endswith(b"still here\n")


async def test_the_exit_says_how_much_input_the_agent_can_have_seen(launches: Launches) -> None:
    async with launches.follow(["cat"]) as agent:
        agent.launch.write([b"all of it\n"])
        agent.launch.end(10, 10)
        assert (await agent.until_exit()).in_fed == 10
    async with launches.follow(python("print('deaf'); import time; time.sleep(600)")) as agent:
        await agent.until_output(b"deaf")
        agent.launch.write([b"x" * MIB + b"\n"])
        agent.launch.end(0.2, 5)
        fed = (await agent.until_exit()).in_fed
        assert fed is not None
        assert 0 <= fed < MIB


async def test_a_flood_on_stderr_neither_blocks_the_agent_nor_fills_the_disk(launches: Launches) -> None:
    code = "import sys\nfor n in range(100000): sys.stderr.write('%060d\\n' % n)\nprint('done')"
    async with launches.follow(python(code)) as agent:
        err = agent.launch.folder / "err"
        sizes = [err.stat().st_size]
        while not agent.closed:
            sizes.append(err.stat().st_size)
            await asyncio.sleep(0)
        assert (await agent.until_exit()).exit_code == 0
        assert bytes(agent.output) == b"done\n"
        assert max(sizes) <= ERR_MAX_BYTES
        assert agent.launch.stderr_tail().endswith("0099999\n")


# A full disk --------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"can't mount a small disk: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.needs("linux", "mount")
@pytest.mark.parametrize("floor_bytes", [0, MIB // 2])
async def test_a_full_disk_makes_the_agent_wait_and_splits_no_line(
    small_disk: Path, tmp_path: Path, floor_bytes: int
) -> None:
    async with launching(small_disk) as launches:
        limits = LaunchLimits(spool_limit_bytes=64 * MIB, disk_floor_bytes=floor_bytes)
        agent = Followed(launches.create(python(FLOOD), limits), acknowledges=False)
        async with agent:
            await agent.until(lambda: len(agent.output) >= MIB - floor_bytes)
            room = os.statvfs(small_disk)
            await until_true(lambda: os.statvfs(small_disk).f_bavail * room.f_frsize < max(floor_bytes, 1))
            assert agent.launch.exit() is None
            while not agent.closed:
                seen = len(agent.output)
                agent.launch.acknowledge(seen, force=True)
                await agent.until(lambda seen=seen: agent.closed or len(agent.output) > seen)  # type: ignore[misc]
            assert (await agent.until_exit()).out_size == len(FLOODED)
            assert bytes(agent.output) == FLOODED


@pytest.mark.needs("linux", "mount")
@pytest.mark.full
async def test_on_a_full_disk_an_exit_is_reported_only_after_all_output_is_stored(small_disk: Path) -> None:
    async with launching(small_disk) as launches:
        said = numbered(4000)
        code = "print(input()); input()\nfor n in range(4000): print('%015d' % n)"
        async with launches.follow(python(code)) as agent:
            agent.launch.write([b"ready\n"])
            await agent.until_output(b"ready\n")
            pid = agent.launch.pid()
            assert pid is not None
            ballast = small_disk / "ballast"
            fill_disk(ballast)
            append_raw(agent.launch, b"go\n")  # fits into the disk block that `in` already has
            await until_dead(pid)
            assert agent.launch.exit() is None
            ballast.unlink()
            assert (await agent.until_exit()).out_size == len(said) + 6
            assert bytes(agent.output) == b"ready\n" + said


# The agent's environment ---------------------------------------------------------------------------------------


@pytest.mark.needs("linux")
async def test_the_agent_gets_exactly_its_environment_directory_and_clean_signals(
    launches: Launches, tmp_path: Path
) -> None:
    code = """
import os
print(open("/proc/self/environ", "rb").read())
print(os.getcwd(), os.getsid(0) == os.getpid(), sorted(os.listdir("/proc/self/fd"), key=int)[:3])
print(len(os.listdir("/proc/self/fd")))
print(open("/proc/self/status").read())
"""
    launch = launches.create(python(code), env={"A": "1", "ODD": "\udcff"}, cwd=str(tmp_path))
    async with Followed(launch) as agent:
        await agent.until_exit()
        environment, place, count, *status = agent.output.decode().split("\n")
        assert environment == str(b"A=1\0ODD=\xff\0PERDURE_LAUNCH=%s\0" % launch.launch_id.encode())
        assert place == f"{tmp_path} True ['0', '1', '2']"
        assert count == "4"  # the fourth is the directory being listed: neither lock nor socket is inherited
        # Python itself ignores SIGPIPE (13) and SIGXFSZ (25).
        assert next(line for line in status if line.startswith("SigIgn")).split()[1] == f"{1 << 12 | 1 << 24:016x}"
        assert next(line for line in status if line.startswith("SigBlk")).split()[1] == "0" * 16


async def test_the_exit_status_is_reported(launches: Launches) -> None:
    async with launches.follow(["sh", "-c", "echo out; exit 7"]) as agent:
        found = await agent.until_exit()
        assert (found.how, found.exit_code, found.signal, found.out_size) == ("exited", 7, None, 4)
    async with launches.follow(["sh", "-c", "kill -9 $$"]) as agent:
        found = await agent.until_exit()
        assert (found.how, found.exit_code, found.signal) == ("signalled", None, 9)


@pytest.mark.parametrize(
    ("argv", "cwd", "error"),
    [
        (["no-such-agent"], "/", "No such file or directory: no-such-agent"),
        (["/etc/passwd"], "/", "Permission denied: /etc/passwd"),
        (["cat"], "/no/such/place", "No such file or directory: /no/such/place"),
        (["cat", "a\0b"], "/", "Invalid argument: cat"),
    ],
)
async def test_the_exit_record_says_why_an_agent_could_not_be_started(
    launches: Launches, argv: list[str], cwd: str, error: str
) -> None:
    async with Followed(launches.create(argv, cwd=cwd)) as agent:
        found = await agent.until_exit()
        assert (found.how, found.exit_code, found.error) == ("spawn_failed", None, error)


# The end of the tree -------------------------------------------------------------------------------------------


async def test_a_grandchild_in_its_own_session_ends_with_the_agent(launches: Launches) -> None:
    async with launches.follow(python(WITH_GRANDCHILD + "sys.exit(3)")) as agent:
        found = await agent.until_exit()
        assert (found.how, found.exit_code, found.error) == ("exited", 3, None)
        await until_dead(int(agent.output))
        assert marked(agent.launch.launch_id) == []


async def test_a_grandchild_that_scrubbed_its_environment_ends_too(launches: Launches) -> None:
    code = """
import os, time
ready, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.set_inheritable(told, True)
    os.execve("/bin/sh", ["sh", "-c", f"trap '' TERM; echo $$ >&{told}; exec {told}>&-; sleep 600"], {})
os.close(told)
print(os.read(ready, 64).decode().strip())
"""
    async with launches.follow(python(code)) as agent:
        await agent.until_exit()
        await until_dead(int(agent.output))


async def test_ending_an_agent_ends_its_whole_process_tree(launches: Launches) -> None:
    code = WITH_GRANDCHILD + "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(600)"
    async with launches.follow(python(code)) as agent:
        await agent.until_output(b"ready")
        agent.launch.end(0.1, 0.1)
        found = await agent.until_exit()
        assert (found.how, found.signal) == ("ended", signal.SIGKILL)
        await until_dead(int(agent.output.split()[0]))


@pytest.mark.needs("linux")
async def test_the_agent_dies_with_its_keeper_and_the_mark_finds_the_rest(launches: Launches) -> None:
    async with launches.follow(python(WITH_GRANDCHILD + "print('ready'); time.sleep(600)")) as agent:
        await agent.until_output(b"ready")
        launch, grandchild = agent.launch, int(agent.output.split()[0])
        pid, keeper = launch.pid(), launch.keeper_pid()
        assert pid is not None
        assert keeper is not None
        os.kill(keeper, signal.SIGKILL)
        await until_dead(pid)
        await agent.until(lambda: agent.closed)
        assert await launch.wait_gone(WAIT_S)
        assert launch.exit() is None
        assert marked(launch.launch_id) == [grandchild]
        assert await end_marked([launch.launch_id], 0.1) == []
        await until_dead(grandchild)


async def test_an_agent_may_finish_after_end_of_file(launches: Launches) -> None:
    code = "import sys, time; print('ready'); n = len(sys.stdin.read()); time.sleep(0.3); print('bye', n); sys.exit(3)"
    async with launches.follow(python(code)) as agent:
        await agent.until_output(b"ready")
        agent.launch.write([b"last words\n"])
        agent.launch.end(20, 20)
        found = await agent.until_exit()
        assert (found.how, found.exit_code) == ("ended", 3)
        assert agent.output.endswith(b"bye 11\n")


async def test_sigterm_follows_if_end_of_file_is_ignored(launches: Launches) -> None:
    async with launches.follow(
        ["sh", "-c", "trap 'echo term; exit 4' TERM; echo ready; while :; do sleep 0.05; done"]
    ) as agent:
        await agent.until_output(b"ready")
        agent.launch.end(0.05, 20)
        found = await agent.until_exit()
        assert (found.how, found.exit_code) == ("ended", 4)
        assert agent.output.endswith(b"term\n")


async def test_a_second_request_to_end_shortens_the_grace_periods(launches: Launches) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(600)"
    async with launches.follow(python(code)) as agent:
        await agent.until_output(b"ready")
        agent.launch.end(600, 600)
        agent.launch.end(0, 600)
        agent.launch.end(900, 0)
        assert (await agent.until_exit()).signal == signal.SIGKILL


async def test_ending_an_agent_continues_without_the_server(launches: Launches) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(600)"
    async with launches.follow(python(code)) as agent:
        await agent.until_output(b"ready")
        agent.launch.end(0.2, 0.2)
        await asyncio.sleep(0)
    assert await agent.launch.wait_gone(WAIT_S)
    found = agent.launch.exit()
    assert found is not None
    assert (found.how, found.signal) == ("ended", signal.SIGKILL)


# Presence ------------------------------------------------------------------------------------------------------


async def test_a_quiet_agent_without_a_server_is_ended(launches: Launches) -> None:
    launch = launches.create(["cat"], LaunchLimits(disk_floor_bytes=0, orphan_quiet_s=0.3))
    assert await launch.wait_gone(WAIT_S)
    found = launch.exit()
    assert found is not None
    assert (found.how, found.exit_code) == ("orphaned", 0)


@pytest.mark.full
async def test_an_active_agent_without_a_server_is_ended_after_orphan_max_s(launches: Launches) -> None:
    code = "import select, sys\nwhile not select.select([0], [], [], 0.1)[0]: print('.')"
    async with launches.follow(python(code)) as agent:
        agent.launch.set_limits(orphan_quiet_s=2.5, orphan_max_s=4)
        await agent.until_output(b".")
        left_at = time.monotonic()
    assert await agent.launch.wait_gone(WAIT_S)
    assert time.monotonic() - left_at >= 4, "it was never silent for orphan_quiet_s"
    found = agent.launch.exit()
    assert found is not None
    assert found.how == "orphaned"


@pytest.mark.full
async def test_an_agent_blocked_on_a_full_spool_does_not_count_as_quiet(launches: Launches) -> None:
    wait = "select.select([], [1], [])"
    code = FLOOD.replace(wait, f"select.select([], [1], [], 0.6); os.write(2, b', still'); {wait}")
    launch = launches.create(python(code), LaunchLimits(spool_limit_bytes=1, disk_floor_bytes=0))
    async with Followed(launch, acknowledges=False):
        await until_true(lambda: "blocked" in launch.stderr_tail())
        launch.set_limits(orphan_quiet_s=0.2, orphan_max_s=600)
    await until_true(lambda: "still" in launch.stderr_tail())
    async with Followed(launch) as agent:
        agent.launch.acknowledge(launch.out_size(), force=True)
        assert (await agent.until_exit()).how == "exited"
        assert bytes(agent.output) == FLOODED


@pytest.mark.needs("linux")
@pytest.mark.full
async def test_a_connected_server_keeps_a_quiet_agent_alive_without_cpu_time(launches: Launches) -> None:
    code = "import sys, time; sys.stdin.readline(); print('ready'); time.sleep(1.2); print('late')"
    async with launches.follow(python(code)) as agent:
        agent.launch.set_limits(orphan_quiet_s=0.3, orphan_max_s=0.6)
        agent.launch.write([b"go\n"])
        await agent.until_output(b"ready")
        keeper = agent.launch.keeper_pid()
        before = cpu_seconds(keeper)
        await agent.until_output(b"late")
        assert cpu_seconds(keeper) - before < 0.3
        assert (await agent.until_exit()).how == "exited"


async def test_limits_can_be_changed_while_it_runs(launches: Launches) -> None:
    async with launches.follow(["cat"]) as agent:
        agent.launch.set_limits(orphan_quiet_s=0.2, orphan_max_s=600)
        agent.launch.write([b"heard\n"])
        await agent.until_output(b"heard")
    assert await agent.launch.wait_gone(WAIT_S)
    found = agent.launch.exit()
    assert found is not None
    assert found.how == "orphaned"


async def test_the_next_server_continues_where_the_last_one_stopped(launches: Launches) -> None:
    async with launches.follow(["cat"]) as first:
        first.launch.write([b"one\n"])
        await first.until_output(b"one\n")
    found = Launch.find(launches.root, first.launch.launch_id)
    assert found is not None
    async with Followed(found) as second:
        second.launch.write([b"two\n"])
        await second.until_output(b"one\ntwo\n")


async def test_two_connections_both_get_hints_of_output_and_of_the_end(launches: Launches) -> None:
    async with launches.follow(["cat"]) as first:
        other = Launch.find(launches.root, first.launch.launch_id)
        assert other is not None
        async with Followed(other) as second:
            first.launch.write([b"one\n"])
            await first.until_output(b"one\n")
            await second.until_output(b"one\n")
            second.launch.end(5, 5)
            assert await first.until_exit() == await second.until_exit()


async def test_input_is_found_without_a_feed_command(launches: Launches) -> None:
    async with launches.follow(["cat"]) as agent:
        agent.launch.write([b"poked\n"])
        await agent.until_output(b"poked\n")
        append_raw(agent.launch, b"not poked\n")
        await agent.until_output(b"not poked\n")


async def test_signals_that_stop_a_service_do_not_stop_the_keeper(launches: Launches) -> None:
    async with launches.follow(["cat"]) as agent:
        agent.launch.write([b"one\n"])
        await agent.until_output(b"one\n")
        keeper = agent.launch.keeper_pid()
        assert keeper is not None
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            os.kill(keeper, number)
        agent.launch.write([b"two\n"])
        await agent.until_output(b"two\n")


@pytest.mark.parametrize("nonsense", [b"}\n", b"[1]\n", b'{"ack":"x"}\n', b'{"end":3}\n', b"x" * 200_000])
async def test_a_peer_that_sends_garbage_is_disconnected_and_nothing_else_happens(
    launches: Launches, nonsense: bytes
) -> None:
    async with launches.follow(["cat"]) as agent:
        reader, writer = await asyncio.open_unix_connection(str(agent.launch.folder / "sock"))
        writer.write(nonsense)
        try:
            async with asyncio.timeout(WAIT_S):
                await reader.read()
        except (ConnectionResetError, BrokenPipeError):
            assert nonsense.startswith(b"x")  # the keeper closed the connection with unread bytes
        writer.close()
        agent.launch.write([b"still here\n"])
        await agent.until_output(b"still here\n")


async def test_a_crowd_of_peers_that_come_and_go_does_no_harm(launches: Launches) -> None:
    async with launches.follow(["cat"]) as agent:
        with ExitStack() as staying:
            for number in range(200):
                with ExitStack() as leaving:
                    peer = (staying if number % 2 else leaving).enter_context(socket.socket(socket.AF_UNIX))
                    peer.connect(str(agent.launch.folder / "sock"))
                agent.launch.write([b"%d\n" % number])
            await agent.until_output(b"199\n")
        agent.launch.write([b"still here\n"])
        await agent.until_output(b"still here\n")


async def test_a_last_command_is_obeyed_even_if_the_server_left_without_reading(launches: Launches) -> None:
    talks = python("import time\nwhile True: print('x' * 100, flush=True); time.sleep(0.0005)")
    for _ in range(5):
        async with launches.follow(talks) as agent:
            await agent.until_output(b"x")
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(agent.launch.folder / "sock"))
                assert peer.recv(1) == b"o"
                peer.send(b'{"end":{"eof_grace_s":0,"term_grace_s":0}}\n')
            assert (await agent.until_exit()).how == "ended"


@pytest.mark.needs("linux")
async def test_no_second_hint_is_sent_while_one_is_unread(launches: Launches) -> None:
    async with launches.follow(["cat"]) as agent:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(agent.launch.folder / "sock"))
            for number in range(20):
                agent.launch.write([b"%d\n" % number])
                await agent.until_output(b"%d\n" % number)
            # This peer may get the hint slightly later than the server.
            await until_true(lambda: bool(select.select([peer], [], [], 0)[0]))
            assert peer.recv(100) == b"o"
            # Once the hint is read, the next output causes another.
            agent.launch.write([b"more\n"])
            await agent.until_output(b"more\n")
            await until_true(lambda: bool(select.select([peer], [], [], 0)[0]))
            assert peer.recv(100) == b"o"


async def test_unknown_commands_are_ignored(launches: Launches) -> None:
    async with launches.follow(["cat"]) as agent:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(agent.launch.folder / "sock"))
            peer.send(b'{"deadline":5}\n{"limits":{"later":1},"also":[]}\n{"feed":true}\n')
            agent.launch.write([b"fine\n"])
            await agent.until_output(b"fine\n")


@pytest.mark.needs("linux")
async def test_the_keeper_is_small(launches: Launches) -> None:
    async with launches.follow(["cat"], ROOMY) as agent:
        agent.launch.write([b"x" * 3 * MIB + b"\n"])
        await agent.until(lambda: len(agent.output) > 3 * MIB)
        assert peak_rss_bytes(agent.launch.keeper_pid()) < 20 * MIB
