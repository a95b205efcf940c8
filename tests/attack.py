"""Helpers for attacks on a real server: plain sockets, and measurements of the server's memory and response times.

Above: tests of unauthenticated clients, and of clients that don't read. Below: tests/harness.py, whose server runs in
its own process, so that its memory can be measured.
"""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx2

from tests.harness import WAIT_S, LiveServer, eventually

HEAD = b"Host: 127.0.0.1\r\n"
GROWTH_MAX_MB = 20
"""How much the server's memory may have grown after an attack."""


def resident_mb(server: LiveServer) -> float:
    """Return the server's current memory."""
    return _status_mb(server, "VmRSS:")


def peak_mb(server: LiveServer) -> float:
    """Return the server's peak memory since its start or since `forget_peak`."""
    return _status_mb(server, "VmHWM:")


def forget_peak(server: LiveServer) -> None:
    assert server.process is not None
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")


@contextmanager
def memory_comes_back(server: LiveServer) -> Iterator[float]:
    """Yields the memory in MB before it, and checks afterwards that the server is back at that level."""
    before = resident_mb(server)
    forget_peak(server)
    yield before
    print(f"{before:.0f} MB, peak {peak_mb(server):.0f}, then {resident_mb(server):.0f}")
    eventually(
        lambda: resident_mb(server) < before + GROWTH_MAX_MB,
        lambda: f"the server has {resident_mb(server):.0f} MB, but had {before:.0f} before the attack",
    )


def open_files(server: LiveServer) -> int:
    assert server.process is not None
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def _status_mb(server: LiveServer, field: str) -> float:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition(field)[2].split()[0]) / 1024


def plain(server: LiveServer, timeout_s: float = WAIT_S) -> socket.socket:
    """Return a new connection."""
    return socket.create_connection(("127.0.0.1", server.port), timeout_s)


def unread(server: LiveServer, request: bytes, timeout_s: float = WAIT_S) -> socket.socket:
    """Return a connection whose answers are not read, with a small receive buffer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(timeout_s)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(request)
    return connection


def rest(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def answer(connection: socket.socket) -> bytes:
    """Read one whole answer that has a Content-Length."""
    received = b""
    while b"\r\n\r\n" not in received:
        data = connection.recv(65536)
        assert data, f"closed before an answer: {received!r}"
        received += data
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def send_all(connection: socket.socket, pieces: Iterator[bytes]) -> int:
    """Send all pieces, or until the server closes the connection. Returns the number of bytes sent."""
    sent = 0
    try:
        for piece in pieces:
            connection.sendall(piece)
            sent += len(piece)
    except (ConnectionResetError, BrokenPipeError):
        pass
    return sent


class Waits:
    """The durations of the requests of a signed-in user."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @property
    def longest_s(self) -> float:
        return max(self.seconds)

    @property
    def typical_s(self) -> float:
        return median(self.seconds)

    def __str__(self) -> str:
        return f"{len(self.seconds)} requests took {self.typical_s:.3f} s, at most {self.longest_s:.3f} s"


@contextmanager
def somebody_else(server: LiveServer, path: str = "/api/sessions") -> Iterator[Waits]:
    """Meanwhile, make requests as a signed-in user, each over a new connection."""
    waits, done = Waits(), threading.Event()

    def ask() -> None:
        while not done.is_set():
            begun = time.monotonic()
            with httpx2.Client(
                headers=dict(server.http.headers), timeout=WAIT_S, trust_env=False, verify=False
            ) as client:
                assert client.get(server.url + path).status_code == 200
            waits.seconds.append(time.monotonic() - begun)
            done.wait(0.01)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield waits
        finally:
            done.set()
        asking.result()
