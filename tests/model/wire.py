"""HTTP/1.1 on one connection, as far as model clients need it: requests one after another, complete or chunked answers.

Above: server.py. Below: asyncio streams. It exists because a scripted model must do what no web server allows: cut a
connection in the middle of a chunk, or never answer.
"""

import asyncio
import json
from typing import Any, NamedTuple

MAX_HEAD_BYTES = 65536
MAX_BODY_BYTES = 256 * 1024 * 1024
READ_BYTES = 262144
WRITE_TIMEOUT_S = 60
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


class BadRequest(Exception):
    """The input is not HTTP as supported here."""


class Received(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()

    async def request(self) -> Received | None:
        """The next request; None after the client has disconnected."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise BadRequest("the head is too long")
            if not await self._more():
                return None
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        method, _, rest = lines[0].partition(" ")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        if headers.get("expect", "").lower() == "100-continue":
            await self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in headers.get("transfer-encoding", "").lower():
            body = await self._chunked()
        else:
            body = await self._exactly(int(headers.get("content-length") or 0))
        return Received(method, rest.rsplit(" ", 1)[0], headers, body)

    async def left(self) -> None:
        """Returns when the client has disconnected. Keeps what it still sends for the next request."""
        while await self._more():
            pass

    async def _more(self) -> bool:
        try:
            data = await self._reader.read(READ_BYTES)
        except ConnectionError:
            return False
        self._buffer += data
        return bool(data)

    async def _exactly(self, count: int) -> bytes:
        if count > MAX_BODY_BYTES:
            raise BadRequest("the body is too long")
        while len(self._buffer) < count:
            if not await self._more():
                raise BadRequest("the body ended early")
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def _chunked(self) -> bytes:
        parts: list[bytes] = []
        while True:
            while (end := self._buffer.find(b"\r\n")) < 0:
                if not await self._more():
                    raise BadRequest("the body ended early")
            size = int(bytes(self._buffer[:end]).split(b";")[0], 16)
            del self._buffer[: end + 2]
            parts.append((await self._exactly(size + 2))[:-2])
            if size == 0:
                return b"".join(parts)

    # Answering -------------------------------------------------------------------------------------------------

    async def send_json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        kind = {"content-type": "application/json", "content-length": str(len(data))}
        await self._write(_head(status, {**kind, **(headers or {})}) + data)

    async def send_head_only(self, status: int) -> None:
        """To a HEAD request."""
        await self._write(_head(status, {"content-length": "0"}))

    async def open_stream(self, headers: dict[str, str] | None = None) -> None:
        kind = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        await self._write(_head(200, {**kind, "transfer-encoding": "chunked", **(headers or {})}))

    async def send_chunk(self, data: bytes) -> None:
        if data:
            await self._write(b"%x\r\n%s\r\n" % (len(data), data))

    async def end_stream(self) -> None:
        await self._write(b"0\r\n\r\n")

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._writer.drain()

    def cut(self) -> None:
        """Close immediately, and discard what was not sent yet."""
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Scripted')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
