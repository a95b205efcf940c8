"""Control groups: where they can be created, which launch a process is in, and that a daemon can't hide from it."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from perdure.runtime.keeping import cgroups, processes
from perdure.runtime.keeping.cgroups import Base, ControlGroups, bases, launch_in
from perdure.runtime.keeping.launch import Launch
from perdure.runtime.log.quarantine import Quarantine
from perdure.stores.base import LaunchProgress
from perdure.surfaces.cli.checks import check_keeper
from tests.runtime.launches import WAIT_S, Followed, Launches, launching, python, until_dead

NOBODY = 65534
# A typical daemon: two forks, its own process session, and here also a new environment.
WITH_DAEMON = """
import os, sys, time
ready, said = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.set_inheritable(said, True)
        code = f"import os, time; os.write({said}, str(os.getpid()).encode()); os.close({said}); time.sleep(600)"
        devnull = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(devnull, fd)
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], {})
    os._exit(0)
os.close(said)
print(os.read(ready, 64).decode(), flush=True)
time.sleep(600)
"""


def place(version: int) -> Path:
    """A group in which groups can be created. Skips the test if there is none."""
    found = [base for base in cgroups.here() if base.version == version]
    if not found:
        pytest.skip(f"no control groups of version {version} are mounted")
    reasons = [cgroups.try_out(base) for base in found]
    usable = [base.folder for base, reason in zip(found, reasons, strict=True) if reason is None]
    if not usable:
        pytest.skip(str(reasons[0]))
    return usable[0]


@pytest.fixture
async def launches(tmp_path: Path) -> AsyncIterator[Launches]:
    async with launching(tmp_path) as made:
        yield made


async def daemon_of(followed: Followed) -> int:
    await followed.until_output(b"\n")
    return int(followed.output)


@pytest.mark.needs("linux")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("environment", ["{}", "{'PERDURE_LAUNCH': 'nobody'}"])
async def test_a_daemon_with_an_empty_or_forged_environment_is_ended_after_its_keeper_was_killed(
    launches: Launches, version: int, environment: str
) -> None:
    program = WITH_DAEMON.replace("code], {})", f"code], {environment})")
    launch = launches.create(python(program), group_in=place(version))
    async with Followed(launch) as followed:
        daemon = await daemon_of(followed)
        assert launch.launch_id in processes.marks_of(daemon)
        launch.kill_keeper()
        assert await launch.wait_gone(WAIT_S)
        os.kill(daemon, 0)  # the system ends only the agent, not its children, together with the keeper
        assert await processes.end_marked([launch.launch_id], 0.2) == []
        await until_dead(daemon)
    await launch.forget()
    assert not (place(version) / f"perdure-{launch.launch_id}").exists()


@pytest.mark.needs("linux")
@pytest.mark.parametrize("version", [1, 2])
async def test_a_keeper_ends_what_is_in_its_group_and_removes_it(launches: Launches, version: int) -> None:
    launch = launches.create(python(WITH_DAEMON), group_in=place(version))
    async with Followed(launch) as followed:
        daemon = await daemon_of(followed)
        launch.end(0, 0.2)
        await followed.until_exit()
        await until_dead(daemon)
    assert not (place(version) / f"perdure-{launch.launch_id}").exists()


@pytest.mark.needs("linux", "root")
@pytest.mark.parametrize("version", [1, 2])
def test_a_daemon_with_a_hidden_environment_is_found_and_ended_by_its_user(version: int) -> None:
    """As ssh-agent and gpg-agent do. The kernel hides the environment of a process that has changed its user."""
    launch_id = f"test-{os.getpid()}"
    group = place(version) / f"perdure-{launch_id}"
    group.mkdir()
    reading, writing = os.pipe()

    def lurk() -> None:
        os.write(writing, b"ready")
        signal.pause()

    def look() -> None:
        found = processes.marked(launch_id)
        os.write(writing, f"{found} {processes.signal_marked(daemon, launch_id, signal.SIGTERM)}".encode())

    daemon = as_nobody(lurk)
    try:
        assert os.read(reading, 100) == b"ready"
        (group / "cgroup.procs").write_text(str(daemon))
        looking = as_nobody(look)
        os.waitpid(looking, 0)
        os.write(writing, b".")
        assert os.read(reading, 100).decode() == f"[{daemon}] True."
    finally:
        os.close(reading)
        os.close(writing)
        os.kill(daemon, signal.SIGKILL)
        os.waitpid(daemon, 0)
        cgroups.remove(group)


def as_nobody(act: Callable[[], None]) -> int:
    """Run a function in a forked process of another user, which then exits without running pytest's cleanup. Returns
    its pid."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            act()
        finally:
            os._exit(0)
    return child


@pytest.mark.needs("linux")
async def test_without_a_group_such_a_daemon_is_not_found(launches: Launches) -> None:
    """`perdure doctor` warns of this."""
    async with Followed(launches.create(python(WITH_DAEMON))) as followed:
        daemon = await daemon_of(followed)
        try:
            assert processes.marks_of(daemon) == set()
        finally:
            os.kill(daemon, signal.SIGKILL)


@pytest.mark.needs("linux")
@pytest.mark.parametrize("version", [1, 2])
def test_a_group_with_groups_inside_is_removed_and_one_with_a_process_is_not(version: int) -> None:
    group = place(version) / f"perdure-test-{os.getpid()}"
    (group / "inner" / "most").mkdir(parents=True)
    assert cgroups.remove(group) and not group.exists()
    assert cgroups.remove(group), "a missing group counts as removed"


@pytest.mark.needs("linux")
def test_only_groups_of_finished_launches_are_swept() -> None:
    groups = ControlGroups()
    groups.start()
    ours, others = f"test{os.getpid()}", f"other{os.getpid()}"
    made = [groups.make(f"{install}-{name}") for install, name in ((ours, "over"), (ours, "living"), (others, "over"))]
    if None in made:
        pytest.skip(cgroups.find()[1])
    try:
        groups.sweep(ours, {f"{ours}-living"})
        assert [Path(str(group)).exists() for group in made] == [False, True, True]
    finally:
        for group in made:
            cgroups.remove(Path(str(group)))


@pytest.mark.needs("linux", "root")
def test_without_permission_there_are_no_groups_and_doctor_explains_the_consequences() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        groups = ControlGroups()
        groups.start()
        found = next(one for one in check_keeper(Path("/nowhere")) if one.about == "control groups")
        os.write(writing, f"{groups.make('x-1')} {found.level} {found.what}".encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as said:
        told = said.read()
    os.waitpid(child, 0)
    assert told.startswith("None warning not usable (")
    assert "Permission denied" in told and "Delegate=yes" in told


@pytest.mark.needs("linux")
def test_doctor_reports_the_groups_of_the_server_not_of_its_own_shell(tmp_path: Path) -> None:
    def said(note: dict[str, object]) -> str:
        (tmp_path / "server.json").write_text(json.dumps({"control_groups": note}))
        found = next(one for one in check_keeper(tmp_path) if one.about == "control groups")
        return f"{found.level} {found.what}"

    assert said({"folder": "/groups/of/the/service", "version": 2, "reason": ""}).startswith("ok version 2, /groups/of")
    assert said({"folder": None, "version": None, "reason": "no rights"}).startswith("warning not usable (no rights)")


async def test_removing_a_busy_group_does_not_block_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, goes_on = asyncio.Event(), threading.Event()
    saw: list[bool] = []
    loop = asyncio.get_running_loop()

    def wait(_seconds: float) -> None:
        loop.call_soon_threadsafe(waiting.set)
        saw.append(goes_on.wait(0 if saw else WAIT_S))

    async def noticed() -> None:
        await waiting.wait()
        goes_on.set()

    def over(name: str) -> Launch:
        launch, group = Launch(tmp_path / name), tmp_path / f"perdure-{name}"
        launch.folder.mkdir()
        (group / "held").mkdir(parents=True)
        (group / "held" / "file").touch()
        (launch.folder / "spec.json").write_text(json.dumps({"cgroup": str(group)}))
        return launch

    monkeypatch.setattr(cgroups, "time", SimpleNamespace(sleep=wait))
    quarantine = Quarantine()
    quarantine.open(tmp_path / "quarantine")
    row = LaunchProgress("second", "session", "agent", "claude", "gone", 0, 0, 0, [], b"")
    for end in (over("first").forget(), quarantine.set_aside(row, over("second"), "cut")):
        waiting.clear()
        goes_on.clear()
        saw.clear()
        async with asyncio.timeout(2 * WAIT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(noticed())
            tasks.create_task(end)
        assert saw == [True] * (cgroups.REMOVE_TRIES - 1), "there is no wait after the last attempt"
    assert not (tmp_path / "first").exists()
    assert (tmp_path / "quarantine" / "second" / "spec.json").exists()


def test_a_launch_removes_only_its_own_group(tmp_path: Path) -> None:
    other = tmp_path / "perdure-other"
    other.mkdir()
    launch = tmp_path / "mine"
    launch.mkdir()
    (launch / "spec.json").write_text(f'{{"cgroup": "{other}"}}')
    cgroups.remove_of(launch)
    assert other.exists()
    for damaged in ("[", "[]", '{"cgroup": 7}'):
        (launch / "spec.json").write_text(damaged)
        cgroups.remove_of(launch)


@pytest.mark.needs("linux")
@pytest.mark.parametrize("version", [1, 2])
def test_the_group_of_a_launch_whose_folder_is_gone_is_found_by_its_name(tmp_path: Path, version: int) -> None:
    group = place(version) / f"perdure-test-{os.getpid()}"
    group.mkdir()
    cgroups.remove_of(tmp_path / f"test-{os.getpid()}")
    assert not group.exists()


@pytest.mark.parametrize(
    ("membership", "launch_id"),
    [
        (b"0::/user.slice/perdure.service/perdure-1a2b-3c\n", "1a2b-3c"),
        (b"7:pids:/\n6:freezer:/perdure-1a2b-3c\n0::/\n", "1a2b-3c"),
        (b"0::/perdure-outer-1/perdure-inner-2\n", "inner-2"),
        (b"0::/perdure-1a2b-3c/made/by/the/agent\n", "1a2b-3c"),
        (b"0::/system.slice/perdure.service\n", None),
        (b"0::/not-perdure-1\n", None),
        (b"", None),
    ],
)
def test_a_process_belongs_to_the_launch_that_its_group_is_named_after(
    membership: bytes, launch_id: str | None
) -> None:
    assert launch_in(membership) == launch_id


UNIFIED = "31 23 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


@pytest.mark.parametrize(
    ("mounts", "membership", "found"),
    [
        (
            UNIFIED,
            "0::/system.slice/perdure.service\n",
            [Base(Path("/sys/fs/cgroup/system.slice/perdure.service"), 2)],
        ),
        (
            HYBRID,
            "4:name=systemd:/x\n3:freezer:/\n2:cpu,cpuacct:/a:b\n0::/x\n",
            [
                Base(Path("/sys/fs/cgroup/unified/x"), 2),
                Base(Path("/sys/fs/cgroup/freezer"), 1),
                Base(Path("/sys/fs/cgroup/cpu,cpuacct/a:b"), 1),
            ],
        ),
        (
            "31 23 0:28 /docker/1f /sys/fs/cg\\040root ro - cgroup2 cgroup rw\n",
            "0::/docker/1f/in\n",
            [Base(Path("/sys/fs/cg root/in"), 2)],
        ),
        ("31 23 0:28 /docker/1f /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/elsewhere\n", []),
        ("", "0::/\n", []),
        ("nonsense\n - \n", "nonsense", []),
    ],
)
def test_groups_are_created_below_the_servers_own(mounts: str, membership: str, found: list[Base]) -> None:
    assert list(bases(mounts, membership)) == found
