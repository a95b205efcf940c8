"""The C programs: the reference (reference.c) and the load agent (agent.c), compiled when needed.

Above: the scenarios, and `load.py --reference`. Below: a C compiler and processes. It stores no figures, on purpose:
the reference is always measured in the same run as Perdure, with the same agent.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Spent, memory, spent
from benchmarks.load import LoadViewers, Report, mark

COMPILE_TIMEOUT_S = 60
STOP_TIMEOUT_S = 15
TEXT_BYTES = 140
READERS_ARE_THE_LIMIT = 0.8
"""Share of a core. Above it, a rate shows how fast the readers are, and can't be compared."""
STREAM_EXTRA_S = 60.0
LEAD_S = 0.5
LEAD_PER_STREAM_S = 0.01
"""How long before a stream its agent is started or gets its prompt, so that this is not measured."""
HERE = Path(__file__).parent


class NoCompiler(Exception):
    """There is no C compiler, so there is no reference to compare with."""


def compiled(name: str, folder: Path) -> Path:
    """Compile a C program of this folder into another folder."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompiler("no C compiler on PATH (Debian: apt install gcc libc6-dev)")
    program = folder / name
    source = HERE / f"{name}.c"
    subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True, timeout=COMPILE_TIMEOUT_S)
    return program


def delta(number: int) -> bytes:
    """Return a line like the load agent writes it, with the current time in its text."""
    text = f"{mark()} w{number} ".ljust(TEXT_BYTES, ".")
    return (
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"load","update":{'
        f'"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}\n'
    ).encode()


class Reference:
    """The running program: its port, its process, and a pipe into each of its streams."""

    def __init__(self, streams: int = 1) -> None:
        self._streams = streams

    def __enter__(self) -> "Reference":
        self._folder = tempfile.TemporaryDirectory(prefix="perdure-bench-")
        pipes = [os.pipe() for _ in range(self._streams)]
        ends = [end for end, _ in pipes]
        self.inputs = [start for _, start in pipes]
        try:
            program = compiled("reference", Path(self._folder.name))
            self.process = subprocess.Popen(
                [str(program), "0", *map(str, ends[1:])], stdin=ends[0], stdout=subprocess.PIPE, pass_fds=ends[1:]
            )
        except BaseException:
            self._close_inputs()
            self._folder.cleanup()
            raise
        finally:
            for end in ends:
                os.close(end)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.paths = tuple(f"/events/{number}" for number in range(self._streams))
        return self

    def write(self, lines: bytes) -> None:
        """Write to the first stream."""
        view = memoryview(lines)
        while view:
            view = view[os.write(self.inputs[0], view) :]

    def _close_inputs(self) -> None:
        for start in self.inputs:
            os.close(start)
        self.inputs = []

    def __exit__(self, *_: object) -> None:
        assert self.process.stdout is not None
        self._close_inputs()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self._folder.cleanup()


class Outcome(NamedTuple):
    """One measured stream, of Perdure, of the reference or of another server."""

    report: Report
    spent: Spent
    """CPU time of the server's process, the whole machine and the database during the stream."""
    bytes_per_viewer: int

    @property
    def us_per_delivery(self) -> float:
        return self.spent.server_s / max(1, self.report.marks) * 1e6

    @property
    def machine_us_per_delivery(self) -> float:
        return self.spent.machine_s / max(1, self.report.marks) * 1e6

    @property
    def database_us_per_delivery(self) -> float:
        return self.spent.database_s / max(1, self.report.marks) * 1e6

    @property
    def deliveries_per_s(self) -> float:
        return self.report.marks / max(self.report.read_s, 1e-9)

    @property
    def readers_were_the_limit(self) -> bool:
        return self.report.cpu_s > READERS_ARE_THE_LIMIT * self.report.read_s


def starts_ns(streams: int, per_s: int, after_s: float) -> list[int]:
    """Return the start time of each stream: soon, and spread over one interval, because agents are not synchronized."""
    if not per_s:
        return [0] * streams
    begin = time.monotonic_ns() + int(after_s * 1e9)
    return [begin + number * 1_000_000_000 // (streams * per_s) for number in range(streams)]


def sleep_until(moment_ns: int) -> None:
    time.sleep(max(0.0, (moment_ns - time.monotonic_ns()) / 1e9))


def spent_streaming(read: Callable[[], Spent], starts: list[int], duration_s: float) -> Spent:
    """Return the CPU time between the first and the last delta, without the start and the end of the stream."""
    sleep_until(starts[0])
    before = read()
    sleep_until(starts[0] + int(duration_s * 1e9))
    return read().since(before)


def stream(agent: Path, *, viewers: int, per_s: int, count: int, streams: int = 1, light: bool = False) -> Outcome:
    """Measure the reference with the load agent: `count` deltas per stream, at a rate or (0) as fast as possible."""
    with ExitStack() as stack:
        server = stack.enter_context(Reference(streams))
        pid = server.process.pid
        before = memory(pid).uss_bytes
        crowd = stack.enter_context(LoadViewers(server.port, viewers, server.paths, light=light))
        connected = memory(pid).uss_bytes
        begun = spent(pid)
        starts = starts_ns(streams, per_s, LEAD_S + streams * LEAD_PER_STREAM_S)
        agents = [
            subprocess.Popen([str(agent), str(per_s), str(count), str(start)], stdout=end, stdin=subprocess.DEVNULL)
            for end, start in zip(server.inputs, starts, strict=True)
        ]
        deadline = time.monotonic() + STREAM_EXTRA_S + (count / per_s if per_s else 0)
        used = spent_streaming(partial(spent, pid), starts, count / per_s) if per_s else None
        for running in agents:
            running.wait(max(0.0, deadline - time.monotonic()))
        report = crowd.finish(*[count] * streams)
        return Outcome(report, used or spent(pid).since(begun), (connected - before) // viewers)


def demonstrate() -> None:
    viewers, per_s = 2000, 20
    with tempfile.TemporaryDirectory() as folder:
        agent = compiled("agent", Path(folder))
        steady = stream(agent, viewers=viewers, per_s=per_s, count=100)
        burst = stream(agent, viewers=100, per_s=0, count=100_000, light=True)
    report = steady.report
    print(f"{viewers} viewers x {per_s}/s: {report.marks} deliveries, {steady.us_per_delivery:.1f} us CPU each, "
          f"p50 {report.p50_ms} ms, p99 {report.p99_ms} ms, lost {report.lost}, doubled {report.doubled}, "
          f"{steady.bytes_per_viewer} private bytes per viewer, reading cost {report.cpu_s} s")  # fmt: skip
    print(f"burst of 100000 to 100 viewers: {burst.deliveries_per_s / 1e6:.2f} M deliveries/s, "
          f"{burst.us_per_delivery:.3f} us CPU each, lost {burst.report.lost}, doubled {burst.report.doubled}, "
          f"unequal {burst.report.unequal}")  # fmt: skip
    if burst.readers_were_the_limit:
        print("  the readers were the limit: this is their rate, not the server's")
