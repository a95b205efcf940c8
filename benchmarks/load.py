"""Thousands of viewers: the reading side of the fan-out benchmarks, for any server that speaks SSE.

Above: the harness (`LoadViewers`), which runs this file in its own process, so that the cost of reading does not count
as the server's. Below: sockets and epoll. It reads frames as cheaply as possible and is not an SSE client, on purpose:
    - it looks for ids only at the start of a line, and never decodes data;
    - it checks a read by its first id, its last id and the number of ids. The first EXACT_VIEWERS viewers, and every
      read that does not match, are checked id by id;
    - `light`, for bursts: only the exact viewers look at what they read. The others count bytes, and must get the same
      number. Full checking tops out at 2 to 3 M frames/s, and would itself become the bottleneck;
    - it takes the latency from the first mark of a read (`mark()` in the text of a delta), which is the worst of it.

    python benchmarks/load.py --reference      the C reference under this load, as a demonstration
"""

import argparse
import json
import re
import resource
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

# One byte, because counting a longer mark costs three times as much. The text of a delta must not contain another.
MARK = b"@"
MARK_DIGITS = 19
ID = b"\nid: "
# Only Perdure writes the event name after the id; the name is needed only to find its snapshots.
IDS = re.compile(rb"\nid: (\d+)(?:\nevent: (\w+))?")
READ_BYTES = 256 * 1024
EXACT_VIEWERS = 8
CONNECT_TIMEOUT_S = 60.0
QUIET_S = 0.5
MAX_VIEWERS = 20_000


def mark() -> str:
    """Return a timestamp that an agent on this machine puts into the text of a delta."""
    return f"@{time.monotonic_ns():0{MARK_DIGITS}d}"


class Report(NamedTuple):
    viewers: int
    frames: int
    """Frames with an id, of all viewers."""
    marks: int
    """Marked deltas, of all viewers. Compare these, because a server may join several deltas into one frame."""
    lost: int
    doubled: int
    skipped: int
    """Events replaced by a snapshot, which a viewer gets if it is too slow."""
    broken: int
    """Viewers whose connection ended too early."""
    unequal: int
    """Light viewers that did not get the same number of bytes as the exact ones."""
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    read_s: float
    """From the first read of a marked frame to the last."""
    cpu_s: float
    """CPU time of reading, without connecting. If it is close to `read_s`, the readers were the limit."""


class LoadViewer:
    """One connection, with the bytes after its last whole frame and the last id that it has seen."""

    __slots__ = ("bytes", "exact", "last", "light", "open", "place", "socket", "tail")

    def __init__(self, connection: socket.socket, exact: bool, light: bool = False, place: int = 0) -> None:
        self.socket = connection
        self.place = place
        self.exact = exact
        self.light = light and not exact
        self.bytes = 0
        self.tail = b""
        self.last: int | None = None
        self.open = True


class Readers:
    """All viewers of this process."""

    def __init__(self, light: bool = False) -> None:
        self.light = light
        self.buffer = bytearray(READ_BYTES)
        self.cpu_before_s = 0.0
        self.by_fd: dict[int, LoadViewer] = {}
        self.poll = select.epoll()
        self.frames = self.marks = self.lost = self.doubled = self.skipped = self.broken = self.unequal = 0
        self.latencies_ns: list[int] = []
        self.first_ns = self.last_ns = 0

    def connect(self, count: int, requests: list[tuple[int, bytes]]) -> None:
        """Open all connections, distributed over the requests (a port and the bytes to send), and wait for each
        response head. Raises if a server refuses."""
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        for number in range(count):
            place = number % len(requests)
            port, request = requests[place]
            connection = socket.create_connection(("127.0.0.1", port), timeout=deadline - time.monotonic())
            connection.sendall(request)
            self.by_fd[connection.fileno()] = LoadViewer(connection, number < EXACT_VIEWERS, self.light, place)
        for viewer in self.by_fd.values():
            data = b""
            while b"\r\n\r\n" not in data:
                viewer.socket.settimeout(max(0.01, deadline - time.monotonic()))
                more = viewer.socket.recv(READ_BYTES)
                if not more:
                    raise ConnectionError(f"closed before the response: {data[:200]!r}")
                data += more
            head, _, rest = data.partition(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n")[0]:
                raise ConnectionError(f"refused: {head[:200]!r}")
            viewer.socket.setblocking(False)
            viewer.tail = b"\n"
            self.take(viewer, rest, time.monotonic_ns())
            self.poll.register(viewer.socket.fileno(), select.EPOLLIN)
        self.cpu_before_s = time.process_time()

    def take(self, viewer: LoadViewer, data: bytes, now_ns: int) -> None:
        viewer.bytes += len(data)
        if viewer.light:
            return
        data = viewer.tail + data
        end = data.rfind(b"\n\n")
        if end < 0:
            viewer.tail = data
            return
        # Keep the last newline, so that the next id is at the start of a line too.
        viewer.tail = data[end + 1 :]
        # Use `data` up to `end` instead of copying up to a quarter of a megabyte.
        count = data.count(ID, 0, end)
        if count == 0:
            return
        self.frames += count
        self.check(viewer, data, end, count)
        found = data.find(MARK, 0, end)
        if found >= 0:
            begin = found + len(MARK)
            self.latencies_ns.append(now_ns - int(data[begin : begin + MARK_DIGITS]))
            self.marks += data.count(MARK, 0, end)
            self.first_ns = self.first_ns or now_ns
            self.last_ns = now_ns

    def check(self, viewer: LoadViewer, data: bytes, end: int, count: int) -> None:
        begin = data.find(ID) + len(ID)
        last = first = int(data[begin : data.index(b"\n", begin)])
        if count > 1:
            begin = data.rfind(ID, 0, end) + len(ID)
            last = int(data[begin : data.index(b"\n", begin)])
        expected = first if viewer.last is None else viewer.last + 1
        if first == expected and last - first + 1 == count and not viewer.exact:
            viewer.last = last
            return
        position = expected - 1
        for found, event in IDS.findall(data, 0, end):
            number = int(found)
            if event == b"snapshot" and number >= position:
                self.skipped += number - position if viewer.last is not None else 0
                position = number
            elif number > position:
                self.lost += number - position - 1
                position = number
            else:
                self.doubled += 1
        viewer.last = position

    def read(self, timeout_s: float) -> bool:
        """Read what has arrived. Returns False if nothing has."""
        ready = self.poll.poll(timeout_s, 1024)
        for fd, _ in ready:
            viewer = self.by_fd.get(fd)
            if viewer is None:
                continue
            try:
                count = viewer.socket.recv_into(self.buffer)
            except BlockingIOError:
                continue
            except ConnectionError:
                count = 0
            if count and viewer.light:
                viewer.bytes += count
                self.last_ns = time.monotonic_ns()
            elif count:
                self.take(viewer, bytes(memoryview(self.buffer)[:count]), time.monotonic_ns())
            else:
                self.poll.unregister(fd)
                viewer.open = False
        return bool(ready)

    def finish(self, last_ids: list[int], timeout_s: float) -> None:
        """Read until every viewer has reached the last id of its stream, or, if none is given, until no more
        arrives."""
        deadline = time.monotonic() + timeout_s
        checked = [viewer for viewer in self.by_fd.values() if not viewer.light]
        light = [viewer for viewer in self.by_fd.values() if viewer.light]
        while time.monotonic() < deadline:
            something = self.read(QUIET_S)
            if not last_ids and not something:
                break
            if last_ids and not any(viewer.open and (viewer.last or 0) < last_ids[viewer.place] for viewer in checked):
                whole = max((viewer.bytes for viewer in checked), default=0)
                if not any(viewer.open and viewer.bytes < whole for viewer in light):
                    break
        goals = dict(enumerate(last_ids))
        if not last_ids:
            for viewer in checked:
                goals[viewer.place] = max(goals.get(viewer.place, 0), viewer.last or 0)
        behind = [(viewer, goals[viewer.place] - (viewer.last or 0)) for viewer in checked]
        self.lost += sum(max(0, missing) for _, missing in behind)
        self.broken = sum(1 for viewer, missing in behind if missing > 0 and not viewer.open)
        self.count_light(checked, light)

    def count_light(self, checked: list[LoadViewer], light: list[LoadViewer]) -> None:
        """Count a light viewer's frames if it got as many bytes as the checked ones. Otherwise count nothing for it."""
        if not light:
            return
        whole = max(viewer.bytes for viewer in checked)
        equal = sum(1 for viewer in light if viewer.bytes == whole)
        self.unequal = len(light) - equal
        self.frames += self.frames // len(checked) * equal
        self.marks += self.marks // len(checked) * equal

    def report(self) -> Report:
        ordered = sorted(self.latencies_ns) or [0]

        def at(share: float) -> float:
            return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6, 3)

        return Report(
            viewers=len(self.by_fd),
            frames=self.frames,
            marks=self.marks,
            lost=self.lost,
            doubled=self.doubled,
            skipped=self.skipped,
            broken=self.broken,
            unequal=self.unequal,
            p50_ms=at(0.5),
            p95_ms=at(0.95),
            p99_ms=at(0.99),
            max_ms=at(1.0),
            read_s=round((self.last_ns - self.first_ns) / 1e9, 4),
            cpu_s=round(time.process_time() - self.cpu_before_s, 3),
        )


def view(ports: list[int], paths: list[str], count: int, headers: list[str], max_s: float, light: bool) -> None:
    """Run in the process of `LoadViewers`: print "ready", read until a line `stop [LAST_ID ...]` or EOF, and report.

    A single port serves all paths; otherwise each path has its own. The last ids are in the order of the paths."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    fields = ["Accept: text/event-stream", *headers, "", ""]
    readers = Readers(light)
    places = zip(ports if len(ports) > 1 else ports * len(paths), paths, strict=True)
    requests = [
        (port, "\r\n".join([f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *fields]).encode())
        for port, path in places
    ]
    readers.connect(min(count, MAX_VIEWERS), requests)
    print("ready", flush=True)
    deadline = time.monotonic() + max_s
    stdin = sys.stdin.fileno()
    readers.poll.register(stdin, select.EPOLLIN)
    while time.monotonic() < deadline and not select.select([stdin], [], [], 0)[0]:
        readers.read(0.2)
    readers.poll.unregister(stdin)
    words = sys.stdin.readline().split() if time.monotonic() < deadline else []
    readers.finish([int(word) for word in words[1:]], max(1.0, deadline - time.monotonic()))
    print(json.dumps(readers.report()._asdict()), flush=True)


class LoadViewers:
    """Viewers in their own process, which are connected when `with` is entered. Each path may have its own port."""

    def __init__(
        self,
        port: int | tuple[int, ...],
        count: int,
        paths: tuple[str, ...] = ("/events",),
        headers: tuple[str, ...] = (),
        max_s: float = 60.0,
        light: bool = False,
    ) -> None:
        ports = (port,) if isinstance(port, int) else port
        arguments = [f"--viewers={count}", f"--max-s={max_s}", *(f"--port={port}" for port in ports)]
        arguments += [f"--path={path}" for path in paths]
        arguments += ["--light"] if light else []
        self.argv = [sys.executable, __file__, *arguments, *(f"--header={header}" for header in headers)]

    def __enter__(self) -> "LoadViewers":
        self.process = subprocess.Popen(self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._line() != "ready":
            self.process.wait()
            raise RuntimeError("the viewers could not connect; see their error above")
        return self

    def finish(self, *last_ids: int) -> Report:
        """Wait until all viewers have reached the last id of their path (or no more arrives), and return the report."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(["stop", *map(str, last_ids)]) + "\n")
        self.process.stdin.flush()
        fields: dict[str, Any] = json.loads(self._line())
        return Report(**fields)

    def _line(self) -> str:
        # Bounded by the deadlines of the process: when it ends, this reads EOF.
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Many SSE viewers of one stream on this machine.")
    parser.add_argument("--reference", action="store_true", help="demonstrate the C reference under load")
    parser.add_argument(
        "--port", type=int, action="append", help="port of the server on 127.0.0.1; repeat it for one per path"
    )
    parser.add_argument("--path", action="append", help="default: /events; several paths share the viewers")
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--header", action="append", default=[], help="e.g. 'Authorization: Bearer ...'")
    parser.add_argument("--max-s", type=float, default=60.0, help="report after this time at the latest")
    parser.add_argument("--light", action="store_true", help="check a few viewers, count the bytes of the others")
    options = parser.parse_args()
    if options.reference:
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
        from benchmarks.reference import demonstrate

        demonstrate()
    elif options.port:
        view(options.port, options.path or ["/events"], options.viewers, options.header, options.max_s, options.light)
    else:
        parser.error("give --port, or --reference")


if __name__ == "__main__":
    main()
