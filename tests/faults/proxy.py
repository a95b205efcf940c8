"""A TCP proxy between one node and its database that delays, freezes, cuts and refuses connections on command.

Above: nodes.py puts one in front of each node; the schedule of faults controls it. Below: asyncio in its own thread, on
the loopback address only. Random choices (the delay of a connection, which connections to cut) come from the Random
passed in. The proxy knows one thing about PostgreSQL: a connection that has sent LISTEN carries notifications, and
these can be frozen separately.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from random import Random
from typing import Self

CHUNK_BYTES = 64 * 1024
HELD_MAX_CHUNKS = 1024
"""How many bytes a frozen connection accepts before the sender must wait."""
COMMAND_TIMEOUT_S = 10.0
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with a timeout of zero: closing sends RST instead of FIN."""


class Proxy:
    def __init__(self, target_port: int, random: Random) -> None:
        self.port = 0
        self._target_port = target_port
        self._random = random
        self._delays_s = (0.0, 0.0)
        self._refuses = False
        self._frozen = ""
        """What is frozen: "" (nothing), "all", or "notifications"."""
        self._connections: list[_Connection] = []
        self._thawed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(listener.getsockname()[1])
        future = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._accept, sock=listener), self._loop)
        self._server = future.result(COMMAND_TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            self._server.close()
            self._cut(self._connections)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(COMMAND_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(COMMAND_TIMEOUT_S)
        self._loop.close()

    # Commands, from any thread -------------------------------------------------------------------------------------

    def delay(self, least_s: float, most_s: float) -> None:
        """Delay each connection in both directions by its own random amount."""

        def set_delays() -> None:
            self._delays_s = (least_s, most_s)
            for connection in self._connections:
                connection.delay_s = self._random.uniform(least_s, most_s)

        self._command(set_delays)

    def freeze(self, what: str = "all") -> None:
        """Accept bytes and connections but forward nothing, for "all" connections or only for "notifications"."""

        def freeze() -> None:
            self._frozen = what
            self._thawed.clear()

        self._command(freeze)

    def thaw(self) -> None:
        def thaw() -> None:
            self._frozen = ""
            self._thawed.set()

        self._command(thaw)

    def cut(self, share: float = 1.0) -> None:
        """Reset a share of the connections, chosen at random."""
        self._command(lambda: self._cut([one for one in self._connections if self._random.random() < share]))

    def refuse(self, refuses: bool) -> None:
        """Reset each new connection, or accept them again."""

        def set_refuses() -> None:
            self._refuses = refuses

        self._command(set_refuses)

    def lead_to(self, port: int) -> None:
        """Switch to another server, as after a failover, and cut the connections to the old one."""

        def lead() -> None:
            self._target_port = port
            self._cut(self._connections)

        self._command(lead)

    def heal(self) -> None:
        self.refuse(False)
        self.delay(0, 0)
        self.thaw()

    @property
    def count(self) -> int:
        """The number of connections."""
        return len(self._connections)

    def _command(self, work: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            try:
                work()
            finally:
                done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(COMMAND_TIMEOUT_S), "the proxy does not respond"

    # In its own thread ---------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, writer, self._random.uniform(*self._delays_s))
        self._connections.append(connection)
        try:
            if self._refuses:
                return
            upstream, connection.upstream = await asyncio.open_connection("127.0.0.1", self._target_port)
            pumps = [
                asyncio.ensure_future(connection.pump(reader, connection.upstream, is_request=True)),
                asyncio.ensure_future(connection.pump(upstream, writer, is_request=False)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            return  # the database is down, or the proxy is stopping: the node's connection is reset below
        finally:
            self._connections.remove(connection)
            connection.reset()

    @staticmethod
    def _cut(connections: "list[_Connection]") -> None:
        for connection in connections:
            connection.reset()

    async def until_thawed(self, connection: "_Connection") -> None:
        while self._frozen == "all" or (self._frozen == "notifications" and connection.listens):
            await self._thawed.wait()


class _Connection:
    """One of a node's connections, and the connection from the proxy to the database."""

    def __init__(self, proxy: Proxy, downstream: asyncio.StreamWriter, delay_s: float) -> None:
        self._proxy = proxy
        self._downstream = downstream
        self.upstream: asyncio.StreamWriter | None = None
        self.delay_s = delay_s
        self.listens = False

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool) -> None:
        """Forward in order through a bounded queue. Ends when either side ends."""
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HELD_MAX_CHUNKS)
        loop = asyncio.get_running_loop()

        async def read() -> None:
            with contextlib.suppress(OSError):
                while data := await reader.read(CHUNK_BYTES):
                    self.listens = self.listens or (is_request and b"LISTEN" in data)
                    await held.put((loop.time() + self.delay_s, data))
            await held.put((loop.time() + self.delay_s, b""))

        reading = asyncio.ensure_future(read())
        try:
            while True:
                due_s, data = await held.get()
                if (early_s := due_s - loop.time()) > 0:
                    await asyncio.sleep(early_s)
                await self._proxy.until_thawed(self)
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            return  # one side is gone: close the other too
        finally:
            reading.cancel()

    def reset(self) -> None:
        for writer in (self._downstream, self.upstream):
            if writer is not None and not writer.transport.is_closing():
                with contextlib.suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                writer.transport.abort()
