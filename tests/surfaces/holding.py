"""A proxy that can delay messages to a server, like a slow network, when a test asks for it.

Above: the chat's tests. Below: sockets. Everything else passes immediately, in both directions.
"""

import contextlib
import re
import select
import socket
import threading

WAIT_S = 30.0
_MESSAGE = re.compile(rb"POST \S*/messages ")


class HoldingProxy:
    def __init__(self, port: int) -> None:
        self._port = port
        self._going = threading.Event()
        self._going.set()
        self.held = threading.Event()
        """Set when a message is delayed here."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        self._going.clear()

    def release(self) -> None:
        self._going.set()

    def close(self) -> None:
        self.release()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._port)) as server:
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is client and _MESSAGE.match(data) and not self._going.is_set():
                        self.held.set()
                        self._going.wait(WAIT_S)
                    (server if source is client else client).sendall(data)
