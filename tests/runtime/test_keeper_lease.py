"""The keeper's lease, with real keepers and real process trees. After a lease has expired, no process of the tree may
act, even if a server is connected. After it is renewed, all of them continue, and no byte is lost."""

import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.runtime.keeping import keeper
from perdure.runtime.keeping.keeper import LEASE_LOOK_S, ORPHAN_EOF_GRACE_S, Tree
from perdure.runtime.keeping.keeper_start import start_keeper
from perdure.runtime.keeping.launch import Launch, LaunchLimits, Lease
from perdure.runtime.keeping.lease import boottime_s, write_lease
from perdure.runtime.keeping.processes import marked
from tests.runtime.launches import ROOMY, WAIT_S, Followed, Launches, launching, python, until_dead, until_true

# Each process prints its name, a counter and the time.
SPEAKER = """
import os, signal, time
def speak(name, number):
    os.write(1, b"%s %d %.6f\\n" % (name, number, time.clock_gettime(time.CLOCK_BOOTTIME)))
def speak_on(name):
    for number in range(10**9):
        speak(name, number)
        time.sleep(0.002)
"""
STUBBORN = SPEAKER + "signal.signal(signal.SIGTERM, signal.SIG_IGN); speak_on(b'agent')"
# The agent, a daemon in its own process session, and a process that forks all the time.
TREE = (
    SPEAKER
    + """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        speak_on(b"daemon")
    os._exit(0)
if os.fork() == 0:
    for number in range(10**9):
        child = os.fork()
        if child == 0:
            speak(b"forked", number)
            os._exit(0)
        os.waitpid(child, 0)
speak_on(b"agent")
"""
)
EVERYBODY = ("agent", "daemon", "forked")
SPOKEN = re.compile(rb"(\w+) (\d+) ([\d.]+)\n")
LONG_S = 600.0

pytestmark = pytest.mark.needs("linux")


class Leases:
    """A node: its lease file and the launches that depend on it."""

    def __init__(self, launches: Launches, path: Path) -> None:
        self.launches = launches
        self.path = path

    def create(
        self, code: str, lasts_s: float = LONG_S, paused_max_s: float = LONG_S, limits: LaunchLimits = ROOMY
    ) -> Launch:
        lease = Lease(str(self.path), 1, boottime_s() + lasts_s, paused_max_s)
        return self.launches.create(python(code), limits, lease=lease)

    def follow(self, code: str, paused_max_s: float = LONG_S) -> Followed:
        return Followed(self.create(code, paused_max_s=paused_max_s))

    def write(self, incarnation: int = 1) -> float:
        """Renew the lease and return when."""
        now = boottime_s()
        write_lease(self.path, incarnation, now + LONG_S)
        return now


@pytest.fixture
async def leases(tmp_path: Path) -> AsyncIterator[Leases]:
    async with launching(tmp_path / "launches") as launches:
        yield Leases(launches, tmp_path / "lease.json")


def spoken(output: bytes, name: str) -> list[tuple[int, float]]:
    return [(int(number), float(at)) for who, number, at in SPOKEN.findall(output) if who.decode() == name]


def have_spoken(agent: Followed, since_s: float, names: tuple[str, ...] = EVERYBODY) -> bool:
    said = bytes(agent.output)
    return all(any(at > since_s for _, at in spoken(said, name)) for name in names)


def is_paused(launch: Launch) -> bool:
    found = [keeper.read_whole(f"/proc/{pid}/stat").rpartition(b")")[2][:2] for pid in marked(launch.launch_id)]
    return bool(found) and set(found) == {b" T"}


async def pause(agent: Followed, names: tuple[str, ...] = EVERYBODY) -> float:
    """Let all processes run, then let the lease expire. Returns when all of them had stopped."""
    await agent.until(lambda: have_spoken(agent, 0, names))
    agent.launch.set_lease(1, boottime_s() + 0.05)
    await until_true(lambda: is_paused(agent.launch))
    return boottime_s()


async def until_looked_again(since_s: float) -> None:
    """Wait long enough for the keeper to check the lease several times; it doesn't report that."""
    await until_true(lambda: boottime_s() > since_s + 2.5 * LEASE_LOOK_S)


async def test_an_expired_lease_pauses_the_whole_tree_and_its_file_resumes_it_without_a_gap(leases: Leases) -> None:
    async with leases.follow(TREE) as agent:
        paused_at = await pause(agent)
        assert len({os.getsid(pid) for pid in marked(agent.launch.launch_id)}) == 2
        await until_looked_again(paused_at)
        assert is_paused(agent.launch)
        renewed_at = leases.write()
        await agent.until(lambda: have_spoken(agent, renewed_at))
        for name in EVERYBODY:
            numbers, times = zip(*spoken(bytes(agent.output), name), strict=True)
            assert numbers == tuple(range(len(numbers))), "nothing is lost or duplicated"
            assert not [at for at in times if paused_at < at < renewed_at], "no process acts while paused"


async def test_a_lease_renewed_in_time_never_pauses_the_agent(leases: Leases) -> None:
    code = SPEAKER + "signal.signal(signal.SIGCONT, lambda *_: speak(b'continued', 0)); speak_on(b'agent')"
    async with leases.follow(code) as agent:
        await agent.until(lambda: have_spoken(agent, 0, ("agent",)))
        leases.write()
        deadline_s = boottime_s() + 0.1
        agent.launch.set_lease(1, deadline_s)
        await agent.until(lambda: have_spoken(agent, deadline_s + LEASE_LOOK_S, ("agent",)))
        assert spoken(bytes(agent.output), "continued") == []


async def test_another_incarnation_must_claim_over_the_socket_before_its_file_renews(leases: Leases) -> None:
    async with leases.follow(SPEAKER + "speak_on(b'agent')") as agent:
        await pause(agent, ("agent",))
        await until_looked_again(leases.write(incarnation=2))
        assert is_paused(agent.launch)
        deadline_s = boottime_s() + 0.05
        agent.launch.set_lease(2, deadline_s)
        await agent.until(lambda: have_spoken(agent, deadline_s + LEASE_LOOK_S, ("agent",)))


async def test_a_lease_set_before_the_connection_is_not_lost(leases: Leases) -> None:
    launch = leases.create(SPEAKER + "speak_on(b'agent')")
    launch.set_lease(1, 0)
    launch.set_lease(3, boottime_s() - 1)
    async with Followed(launch) as agent:
        await until_true(lambda: is_paused(launch))
        renewed_at = leases.write(incarnation=3)
        await agent.until(lambda: have_spoken(agent, renewed_at, ("agent",)))


async def test_a_process_that_was_resumed_by_others_is_stopped_again(leases: Leases) -> None:
    async with leases.follow(TREE) as agent:
        paused_at = await pause(agent)
        pids = marked(agent.launch.launch_id)

        def wake() -> bool:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            return have_spoken(agent, paused_at)

        await until_true(wake)
        await until_true(lambda: is_paused(agent.launch))


# The end of a paused tree --------------------------------------------------------------------------------------


async def test_a_paused_tree_is_ended_without_grace_periods(leases: Leases) -> None:
    async with leases.follow(TREE) as agent:
        await pause(agent)
        pids = marked(agent.launch.launch_id)
        agent.launch.end(LONG_S, LONG_S)
        found = await agent.until_exit()
        assert (found.how, found.signal, found.error) == ("ended", signal.SIGKILL, None)
        for pid in pids:
            await until_dead(pid)


@pytest.mark.parametrize("eof_grace_s", [LONG_S, 0.0])
async def test_an_expiring_lease_cuts_the_grace_periods_of_a_tree_being_ended(
    leases: Leases, eof_grace_s: float
) -> None:
    async with leases.follow(STUBBORN) as agent:
        await agent.until(lambda: have_spoken(agent, 0, ("agent",)))
        agent.launch.end(eof_grace_s, LONG_S)
        agent.launch.set_lease(1, boottime_s() + 0.1)
        found = await agent.until_exit()
        assert (found.how, found.signal) == ("ended", signal.SIGKILL)


async def test_a_resumed_launch_is_ended_with_its_grace_periods(leases: Leases) -> None:
    code = SPEAKER + "signal.signal(signal.SIGTERM, lambda *_: os._exit(4)); speak_on(b'agent')"
    async with leases.follow(code) as agent:
        await pause(agent, ("agent",))
        agent.launch.set_lease(2, boottime_s() + LONG_S)
        agent.launch.end(0, LONG_S)
        found = await agent.until_exit()
        assert (found.how, found.exit_code) == ("ended", 4)


async def test_a_tree_that_is_paused_for_too_long_is_ended(leases: Leases) -> None:
    async with leases.follow(TREE, paused_max_s=0.3) as agent:
        await agent.until(lambda: have_spoken(agent, 0))
        pids = marked(agent.launch.launch_id)
        expired_at = boottime_s()
        agent.launch.set_lease(1, expired_at)
        found = await agent.until_exit()
        assert (found.how, found.signal, found.error) == ("expired", signal.SIGKILL, None)
        assert boottime_s() >= expired_at + 0.3
        for pid in pids:
            await until_dead(pid)


# Without a server ----------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_a_paused_agent_without_a_server_does_not_count_as_quiet(leases: Leases) -> None:
    launch = leases.create(SPEAKER + "speak_on(b'agent')")
    async with Followed(launch) as agent:
        launch.set_limits(orphan_quiet_s=0.5, orphan_max_s=LONG_S)
        paused_at = await pause(agent, ("agent",))
    await until_true(lambda: boottime_s() > paused_at + 1.2)
    assert launch.exit() is None
    assert is_paused(launch)
    leases.write()
    await until_true(lambda: launch.out_size() > len(agent.output) + 1000)
    assert launch.exit() is None


async def test_a_paused_agent_without_a_server_is_ended_after_orphan_max_s(leases: Leases) -> None:
    launch = leases.create(STUBBORN)
    async with Followed(launch) as agent:
        launch.set_limits(orphan_quiet_s=LONG_S, orphan_max_s=0.3)
        await pause(agent, ("agent",))
        left_at = boottime_s()
    assert await launch.wait_gone(WAIT_S)
    assert 0.3 <= boottime_s() - left_at < ORPHAN_EOF_GRACE_S, "there is no grace period"
    found = launch.exit()
    assert found is not None
    assert (found.how, found.signal) == ("orphaned", signal.SIGKILL)


# Before the start, and without a lease -------------------------------------------------------------------------


async def test_nothing_is_started_once_the_lease_has_expired(leases: Leases, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    leases.write(incarnation=2)
    launch = leases.create(f"open({str(trace)!r}, 'w')", lasts_s=0)
    launch.write([b"prompt\n"])
    async with Followed(launch) as agent:
        found = await agent.until_exit()
    assert (found.how, found.exit_code, found.signal, found.in_fed, found.out_size) == ("expired", None, None, 0, 0)
    assert found.error == "its lease expired before it was started"
    assert launch.pid() is None
    assert not trace.exists()


async def test_an_agent_is_started_if_its_lease_was_renewed_meanwhile(leases: Leases) -> None:
    leases.write()
    async with Followed(leases.create("print('started')", lasts_s=0)) as agent:
        assert (await agent.until_exit()).how == "exited"
        assert bytes(agent.output) == b"started\n"


async def test_a_launch_of_an_older_version_has_no_lease_and_gets_none(leases: Leases) -> None:
    folder = leases.launches.root / "older"
    folder.mkdir(parents=True)
    limits = {"spool_limit_bytes": 2**20, "disk_floor_bytes": 0, "orphan_quiet_s": 600, "orphan_max_s": 3600}
    spec = {"launch_id": "older", "argv": ["cat"], "env": {"PATH": os.environ["PATH"]}, "cwd": "/", "limits": limits}
    (folder / "spec.json").write_text(json.dumps(spec | {"protocol": 1}))
    for name in ("in", "out"):
        (folder / name).touch()
    launch = Launch(folder, start_keeper(folder))
    leases.launches._made.append(launch)
    async with Followed(launch) as agent:
        launch.set_lease(1, boottime_s() - 1)
        launch.write([b"one\n"])
        await agent.until_output(b"one\n")
        launch.write([b"two\n"])
        await agent.until_output(b"two\n")


# The file ------------------------------------------------------------------------------------------------------

NONSENSE = ["", "{", "[]", "7", "null", "[" * 100_000, '{"incarnation":1}', '{"deadline_s":9e9}', '{"incarnation":{}}']
NONSENSE += ['{"incarnation":1,"deadline_s":' + value + "}" for value in ("null", '"x"', "1e999", "NaN", "9" * 400)]


@pytest.mark.parametrize("text", NONSENSE)
def test_a_damaged_file_renews_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "lease").write_text(text)
    assert not keeper.Lease(Tree("nobody", None), str(tmp_path / "lease"), 1, boottime_s(), 1).holds()


@pytest.mark.parametrize("path", ["", "missing", "."])
def test_a_file_that_can_not_be_read_renews_nothing(tmp_path: Path, path: str) -> None:
    assert not keeper.Lease(Tree("nobody", None), str(tmp_path / path), 1, boottime_s(), 1).holds()


def test_the_file_is_replaced_atomically_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    write_lease(path, 1, 2.5)
    with path.open() as before:
        write_lease(path, 2, 1234567.0625)
        assert json.load(before) == {"incarnation": 1, "deadline_s": 2.5}
    assert json.loads(path.read_text()) == {"incarnation": 2, "deadline_s": 1234567.0625}
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
