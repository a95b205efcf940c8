"""Reconstructs a session from a viewer's frames, and cuts connections at any byte.

Above: the tests of streams. Below: plain sockets. A Reading fails at the first missing or duplicate event.
"""

import json
import select
import socket
import time
from typing import Any

from tests.harness import WAIT_S
from tests.surfaces.http.local import TOKEN, LocalServer

Frame = tuple[str, str, Any]


class Reading:
    """One session as a viewer sees it: its position, and the text of the newest turn."""

    def __init__(self, position: int = -1) -> None:
        self.position = position
        self.turn: int | None = None
        self.text = ""
        self.text_offset = 0
        self.snapshots = 0
        self.seqs: list[int] = []
        self.types: list[str] = []

    def take(self, frame: Frame) -> None:
        _, kind, data = frame
        assert data["type"] == kind
        if kind == "snapshot":
            assert data["seq"] >= self.position, "a snapshot must not go back"
            self.snapshots += 1
            self.turn = data["turn"]
            self._resume_text(data["text_offset"], data["text"])
        else:
            first = data.get("first_seq", data["seq"])
            assert first == self.position + 1, f"after {self.position} came {first}"
            self.seqs.append(data["seq"])
            if kind == "user_message":
                self.turn, self.text, self.text_offset = data["turn"], "", 0
            if kind == "assistant_text":
                self.text += data["delta"]
        self.types.append(kind)
        self.position = data["seq"]

    def _resume_text(self, offset: int, text: str) -> None:
        """A snapshot of a long turn has only its last part. Keep the text known before that, unless there is a gap."""
        known = self.text[: max(0, offset - self.text_offset)]
        if self.text_offset + len(known) < offset:
            known, self.text_offset = "", offset
        self.text_offset = min(self.text_offset, offset)
        self.text = known + text


def connect(server: LocalServer, path: str, position: str | None = None, *, receive_buffer: int = 0) -> socket.socket:
    """A connection on which an event stream was requested."""
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(WAIT_S)
    connection.connect(("127.0.0.1", server.port))
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
    request += f"Last-Event-ID: {position}\r\n" if position is not None else ""
    connection.sendall((request + "\r\n").encode())
    return connection


def whole_frames(received: bytes) -> list[Frame]:
    """The complete frames. An incomplete last one is dropped, as in a browser."""
    _, _, body = received.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in received[: received.find(b"\r\n\r\n")]:
        body = unchunked(body)
    found = []
    for frame in body.split(b"\n\n")[:-1]:
        fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if not line.startswith(b":"))
        if fields:
            found.append((fields[b"id"].decode(), fields[b"event"].decode(), json.loads(fields[b"data"])))
    return found


def unchunked(body: bytes) -> bytes:
    pieces = []
    while b"\r\n" in body:
        size, _, body = body.partition(b"\r\n")
        pieces.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return b"".join(pieces)


def cut_after(server: LocalServer, path: str, position: str | None, count: int, within_s: float = WAIT_S) -> bytes:
    """Receive until `count` bytes have arrived, the time is over, or the server closes."""
    received = b""
    deadline = time.monotonic() + within_s
    with connect(server, path, position) as connection:
        while len(received) < count and (left := deadline - time.monotonic()) > 0:
            if select.select([connection], [], [], left)[0]:
                data = connection.recv(min(65536, count - len(received)))
                if not data:
                    break
                received += data
    return received


def all_frames(server: LocalServer, path: str, position: str | None = None) -> list[Frame]:
    """The frames of a stream that the server closes."""
    with server.stream(path, position) as stream:
        assert stream.status == 200
        return list(stream.frames())


def receive_until(connection: socket.socket, mark: bytes, timeout_s: float = WAIT_S) -> bytes:
    """Receive up to and including the first piece that contains `mark`."""
    received = b""
    deadline = time.monotonic() + timeout_s
    while mark not in received[-len(mark) - 65536 :]:
        ready, _, _ = select.select([connection], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{mark!r} did not come; the last was {received[-200:]!r}"
        data = connection.recv(65536)
        assert data, f"closed before {mark!r}; the last was {received[-200:]!r}"
        received += data
    return received
