"""Real launches for tests: start them, follow their output, and leave no process behind."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType

import msgspec

from perdure.runtime.keeping.cgroups import remove_of
from perdure.runtime.keeping.launch import Exit, Launch, LaunchLimits, LaunchSpec, Lease
from perdure.runtime.keeping.processes import end_marked

WAIT_S = 30.0
ROOMY = LaunchLimits(disk_floor_bytes=0)


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-u", "-c", code]


# Starts a child in its own process session that ignores SIGTERM, prints its pid, and continues with the test's code.
WITH_GRANDCHILD = """
import os, signal, sys, time
ready, child_ready = os.pipe()
child = os.fork()
if child == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(child_ready, str(os.getpid()).encode())
    os.close(child_ready)
    time.sleep(600)
    os._exit(0)
os.close(child_ready)
os.waitpid(child, 0)
print(os.read(ready, 64).decode(), flush=True)
"""


class Followed:
    """A launch whose output is collected as it arrives, and acknowledged unless the test does that itself."""

    def __init__(self, launch: Launch, acknowledges: bool = True) -> None:
        self.launch = launch
        self.output = bytearray()
        self.closed = False
        self._acknowledges = acknowledges
        self._changed = asyncio.Event()

    async def __aenter__(self) -> "Followed":
        await self.launch.connect(self._on_output, self._on_closed, WAIT_S)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.launch.close()

    def _on_output(self) -> None:
        while chunk := self.launch.read(len(self.output), 1024 * 1024):
            self.output += chunk
        if self._acknowledges:
            self.launch.acknowledge(len(self.output))
        self._changed.set()

    def _on_closed(self) -> None:
        self._on_output()
        self.closed = True

    async def until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            wrote, said = bytes(self.output[-500:]), self.launch.stderr_tail()[-500:]
            raise AssertionError(f"not within {WAIT_S} s: {wrote!r}, {said!r}, {self.launch.exit()}") from None

    async def until_output(self, wanted: bytes) -> None:
        await self.until(lambda: wanted in self.output)

    async def until_exit(self) -> Exit:
        await self.until(lambda: self.closed)
        found = self.launch.exit()
        assert found is not None, self.launch.stderr_tail()
        assert await self.launch.wait_gone(WAIT_S)
        return found


class Launches:
    """Creates launches in one root folder, and ends whatever is left of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made: list[Launch] = []

    def create(
        self,
        argv: list[str],
        limits: LaunchLimits = ROOMY,
        root: Path | None = None,
        env: dict[str, str] | None = None,
        cwd: str = "/",
        group_in: Path | None = None,
        lease: Lease | None = None,
    ) -> Launch:
        launch_id = f"test-{os.getpid()}-{id(self):x}-{len(self._made)}"
        env = {"PATH": os.environ["PATH"]} if env is None else env
        spec = LaunchSpec(launch_id, argv, env, cwd, limits, lease=lease)
        if group_in is not None:
            group = group_in / f"perdure-{launch_id}"
            group.mkdir()
            spec = msgspec.structs.replace(spec, cgroup=str(group))
        launch = Launch.create(root or self.root, spec)
        self._made.append(launch)
        return launch

    def follow(self, argv: list[str], limits: LaunchLimits = ROOMY, root: Path | None = None) -> Followed:
        return Followed(self.create(argv, limits, root))

    async def clean(self) -> None:
        for launch in self._made:
            keeper = launch.keeper
            if keeper is not None and launch.is_alive():
                os.kill(keeper.pid, signal.SIGKILL)
        for launch in self._made:
            assert await launch.wait_gone(WAIT_S)
            if launch.keeper is not None:
                launch.keeper.wait(WAIT_S)
            launch.close()
        assert await end_marked([launch.launch_id for launch in self._made], 0.1) == []
        for launch in self._made:
            remove_of(launch.folder)


@asynccontextmanager
async def launching(root: Path) -> AsyncIterator[Launches]:
    launches = Launches(root)
    try:
        yield launches
    finally:
        await launches.clean()


def append_raw(launch: Launch, data: bytes) -> None:
    """Append to `in` as a server does that dies during its write, or before it notifies the keeper."""
    with open(launch.folder / "in", "ab") as file:
        file.write(data)


def fill_disk(ballast: Path) -> None:
    with open(ballast, "wb") as file, suppress_no_room():
        while True:
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size + 4096)


@contextmanager
def suppress_no_room() -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        if failure.errno != errno.ENOSPC:
            raise


def cpu_seconds(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def peak_rss_bytes(pid: int | None) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


async def until_true(condition: Callable[[], bool]) -> None:
    """Poll for a condition that has no event, such as another process's file or the process table."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


async def until_dead(pid: int) -> None:
    """Wait until a process is dead; a zombie that nobody has reaped counts as dead."""
    try:
        pin = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pin, ended.set)
    try:
        async with asyncio.timeout(WAIT_S):
            await ended.wait()
    finally:
        loop.remove_reader(pin)
        os.close(pin)
