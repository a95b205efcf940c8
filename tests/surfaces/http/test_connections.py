"""A keep-alive connection whose client reads its last response slowly, or not at all."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from perdure.surfaces.http.connections import CONNECTION, BoundedProtocol
from tests.harness import WAIT_S

SIZE = 9_000_000
SYSTEM_BYTES = 256 * 1024
"""The socket buffer of each side, which the system may double. It is much smaller than the response."""
LONG_S = 3600
"""So long that the timers never fire; the tests call their handlers instead."""


@asynccontextmanager
async def answered(*, admitted: bool) -> AsyncIterator[tuple[asyncio.StreamReader, BoundedProtocol]]:
    """A client that has not read anything yet of a response that was written in one piece."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[BoundedProtocol] = loop.create_future()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connection: BoundedProtocol = scope["extensions"][CONNECTION]
        if admitted:
            connection.admit()
        await Response(b"y" * SIZE)(scope, receive, send)
        asked.set_result(connection)

    config = Config(app, ws="none", lifespan="off", log_config=None, access_log=False, timeout_keep_alive=LONG_S)
    config.load()
    state = ServerState()
    listening, client = socket.create_server(("127.0.0.1", 0)), socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SYSTEM_BYTES)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SYSTEM_BYTES)
    client.setblocking(False)
    async with asyncio.timeout(WAIT_S):
        server = await loop.create_server(lambda: BoundedProtocol(config, state, {}), sock=listening)
        await loop.sock_connect(client, listening.getsockname())
        reader, writer = await asyncio.open_connection(sock=client)
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        connection = await asked
        try:
            yield reader, connection
        finally:
            connection.give_up()
            writer.close()
            server.close()
            await server.wait_closed()


async def test_a_client_that_reads_a_response_slowly_keeps_the_connection() -> None:
    async with answered(admitted=True) as (reader, connection):
        for _ in range(2):
            await reader.readexactly(SIZE // 3)
            connection.timeout_keep_alive_handler()
            assert not connection.transport.is_closing()
            assert connection.timeout_keep_alive_task is not None
            assert connection.timeout_keep_alive_task.when() > asyncio.get_running_loop().time() + LONG_S / 2
        connection.timeout_keep_alive_handler()
        assert connection.transport.is_closing(), "nothing was taken since"


@pytest.mark.parametrize("admitted", [False, True])
async def test_an_idle_client_that_has_read_the_whole_response_is_disconnected(admitted: bool) -> None:
    async with answered(admitted=admitted) as (reader, connection):
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(SIZE)
        connection.timeout_keep_alive_handler()
        assert await reader.read() == b""


async def test_an_unauthenticated_client_gets_no_extra_time() -> None:
    async with answered(admitted=False) as (reader, connection):
        await reader.readexactly(SIZE // 3)
        connection.timeout_keep_alive_handler()
        assert connection.transport.is_closing()
