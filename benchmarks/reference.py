"""The C reference (reference.c): compiled when needed, started, and spoken to as the agent would.

Above: the harness, and `load.py --reference`. Below: a C compiler and a process. It deliberately has no figures of its
own to keep: it is measured in the same run as what it is compared with.
"""

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.figures import cpu_s, memory
from benchmarks.load import Report, Viewers, mark

COMPILE_TIMEOUT_S = 60
STOP_TIMEOUT_S = 15
DELTA_BYTES = 200
READERS_ARE_THE_LIMIT = 0.8
"""Share of a core. Above it a rate says how fast the readers are, and a comparison by it is void."""
SOURCE = Path(__file__).with_name("reference.c")


class NoCompiler(Exception):
    """There is no C compiler here, so there is nothing to compare with."""


def compiled(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompiler("no C compiler on PATH (Debian: apt install gcc libc6-dev)")
    program = folder / "reference"
    subprocess.run([compiler, "-O2", "-o", str(program), str(SOURCE)], check=True, timeout=COMPILE_TIMEOUT_S)
    return program


def delta(number: int) -> bytes:
    """A line as an agent would write it, with the moment of writing in its text."""
    text = f"{mark()} w{number} "
    return (
        json.dumps({"type": "assistant_text", "block": 0, "delta": text.ljust(DELTA_BYTES - 60, ".")}).encode() + b"\n"
    )


class Reference:
    """The running program: its port, its process, and `write` for what the agent says."""

    def __enter__(self) -> "Reference":
        self._folder = tempfile.TemporaryDirectory(prefix="perdure-bench-")
        try:
            program = compiled(Path(self._folder.name))
            self.process = subprocess.Popen(
                [str(program), "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
        except BaseException:
            self._folder.cleanup()
            raise
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        return self

    def write(self, lines: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(lines)
        while view:
            view = view[self.process.stdin.write(view) or 0 :]

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self._folder.cleanup()


def steady(viewers: int, per_s: int, duration_s: float) -> tuple[Report, float, int]:
    """A stream at a fixed rate. The report, the server's CPU seconds, and its private bytes per viewer."""
    with Reference() as server:
        before = memory(server.process.pid).uss_bytes
        with Viewers(server.port, viewers) as crowd:
            begun_cpu, begun = cpu_s(server.process.pid), time.monotonic()
            count = int(per_s * duration_s)
            for number in range(count):
                # The schedule is absolute, so that a late line does not make all later ones late.
                time.sleep(max(0.0, begun + number / per_s - time.monotonic()))
                server.write(delta(number))
            report = crowd.finish(count)
            used = cpu_s(server.process.pid) - begun_cpu
            each = (memory(server.process.pid).uss_bytes - before) // viewers
            return report, used, each


def burst(viewers: int, count: int) -> tuple[Report, float]:
    """As fast as the pipe takes it. The report and the server's CPU seconds."""
    lines_per_write = 100
    # Made beforehand, so that the agent is not the limit; the marks in them say nothing about latency then.
    lines = [delta(number) for number in range(count)]
    writes = [b"".join(lines[start : start + lines_per_write]) for start in range(0, count, lines_per_write)]
    with Reference() as server, Viewers(server.port, viewers, light=True) as crowd:
        begun_cpu = cpu_s(server.process.pid)
        for write in writes:
            server.write(write)
        report = crowd.finish(count)
        return report, cpu_s(server.process.pid) - begun_cpu


def demonstrate() -> None:
    viewers, per_s, duration_s = 2000, 20, 5.0
    report, used, each = steady(viewers, per_s, duration_s)
    print(f"{viewers} viewers x {per_s}/s for {duration_s:.0f} s: {report.marks} deliveries, "
          f"{used / max(1, report.marks) * 1e6:.1f} us CPU each, p50 {report.p50_ms} ms, p99 {report.p99_ms} ms, "
          f"lost {report.lost}, doubled {report.doubled}, {each} private bytes per viewer, "
          f"reading cost {report.cpu_s} s")  # fmt: skip
    report, used = burst(100, 100_000)
    print(
        f"burst of 100000 to 100 viewers: {report.marks / max(report.read_s, 1e-9) / 1e6:.2f} M deliveries/s, "
        f"{used / max(1, report.marks) * 1e6:.3f} us CPU each, lost {report.lost}, doubled {report.doubled}, "
        f"unequal {report.unequal}"
    )
    print(f"  server busy {used / report.read_s:.0%}, readers busy {report.cpu_s / report.read_s:.0%}")
    if report.cpu_s / report.read_s > READERS_ARE_THE_LIMIT:
        print("  the readers were the limit: this rate is theirs, not the server's")
