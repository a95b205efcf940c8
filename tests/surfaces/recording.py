"""A proxy in front of a server that records the requested operations.

Above: test_cli_operations.py. Below: sockets. Bytes pass unchanged in both directions, so streams work as usual.
"""

import contextlib
import re
import socket
import threading
from collections.abc import Iterator

from perdure.surfaces.http.routes import ENDPOINTS

REQUEST = re.compile(rb"(GET|POST|PATCH|PUT|DELETE) (/[^ ?]*)(?:\?[^ ]*)? HTTP/1\.1\r\n")
"""The first line of a request. Bodies are JSON, which has no raw line ends."""
CHUNK_BYTES = 65536
_PATTERNS = [
    (
        endpoint.method,
        re.compile(re.sub(r"\{\w+\}", "[^/]+", re.sub(r"\{\w+:path\}", ".+", endpoint.path))),
        endpoint.handler.__name__,
    )
    for endpoint in ENDPOINTS
]


def operation(method: str, path: str) -> str:
    """The operation's id in the OpenAPI document. As in the server, the first matching endpoint wins."""
    for its_method, pattern, name in _PATTERNS:
        if its_method == method and pattern.fullmatch(path):
            return name
    return f"{method} {path}"


class Recorder:
    """Listens on its own port. `requested` has the ids of the operations so far."""

    def __init__(self, port: int) -> None:
        self.requested: set[str] = set()
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            self._open += [near, far]
            threading.Thread(target=self._pass, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, record: bool) -> None:
        seen = b""
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                if record:
                    seen = seen[-CHUNK_BYTES:] + chunk
                    self.requested |= {
                        operation(method.decode(), path.decode()) for method, path in REQUEST.findall(seen)
                    }
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def recorded(port: int) -> Iterator[Recorder]:
    recorder = Recorder(port)
    try:
        yield recorder
    finally:
        recorder.close()
