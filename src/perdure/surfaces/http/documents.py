"""Documents of any length, sent a little at a time: transcripts and logs.

Above: handlers, which say what a document is made of. Below: the connection. What was made and not yet sent is counted
over all documents, so that readers who are slow, or don't read at all, cost a bounded amount of memory; the next piece
of a document is made only while there is room. A small piece never waits for a large one. A small answer is not a
document: `reply` sends it in one.
"""

import asyncio
import logging
import mmap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive, Scope, Send

from perdure.core.errors import Refused
from perdure.surfaces.http.connections import CONNECTION
from perdure.surfaces.http.problems import refused

logger = logging.getLogger(__name__)

MAX_SMALL_UNSENT_BYTES = 16 * 1024 * 1024
MAX_LARGE_UNSENT_BYTES = 48 * 1024 * 1024
"""Of all documents together. Pieces that are being made when it is reached come on top."""
MAX_MAKING_SMALL, MAX_MAKING_LARGE = 16, 1
"""Pieces that are made at the same time. To read a large one keeps one of the store's two readers busy."""
WAIT_S = 10.0
"""How long a new document waits for room before it is refused."""
RETRY_AFTER_S = 5
STALL_S = 30.0
"""A reader who takes nothing for this long is disconnected."""
MIN_BYTES_PER_S = 32 * 1024
"""Once `STALL_S` is used up: one who takes a little now and then would hold a large piece for hours."""
WRITE_BYTES = 64 * 1024
"""A multiple of a page of memory."""
MAPPED_BYTES = 256 * 1024

Pieces = AsyncIterator[bytes | None]
"""None: the next piece is a large one, and is made when it is asked for again."""


class _StalledError(Exception):
    """The reader takes too little."""


class _Room:
    """What pieces of one kind may take in memory."""

    def __init__(self, max_bytes: int, max_making: int) -> None:
        self._max_bytes = max_bytes
        self._unsent_bytes = 0
        self._making = asyncio.Semaphore(max_making)
        self._is_free = asyncio.Event()
        self._is_free.set()

    @asynccontextmanager
    async def entered(self, *, wait_s: float | None) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(wait_s):
                await self._making.acquire()
                try:
                    await self._is_free.wait()
                except BaseException:
                    self._making.release()
                    raise
        except TimeoutError:
            raise Refused(
                "unavailable",
                f"Other clients have yet to read {self._unsent_bytes / 1024**2:.0f} MiB that were made for them, and "
                f"there is no memory for more. Try again in {RETRY_AFTER_S} seconds.",
                retry_after_s=RETRY_AFTER_S,
            ) from None
        try:
            yield
        finally:
            self._making.release()

    def count(self, change: int) -> None:
        self._unsent_bytes += change
        if self._unsent_bytes < self._max_bytes:
            self._is_free.set()
        else:
            self._is_free.clear()


class _Piece:
    """A piece to be sent. From when it is made until it is left, it counts for what is left of it."""

    def __init__(self, room: _Room, content: bytes) -> None:
        self._room = room
        self._content = _mapped(content) if len(content) > MAPPED_BYTES else content
        self._unsent_bytes = len(content)
        room.count(len(content))

    def __enter__(self) -> "_Piece":
        return self

    def __exit__(self, *_error: object) -> None:
        # Not when it is collected: the trace of an error may hold it until then.
        self._content = b""
        self._room.count(-self._unsent_bytes)
        self._unsent_bytes = 0

    async def send(self, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + STALL_S
        try:
            for at in range(0, len(self._content), WRITE_BYTES):
                part = self._content[at : at + WRITE_BYTES]
                async with asyncio.timeout_at(deadline):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                # What a fast reader is ahead of the slowest one is no reason to wait for it longer later.
                deadline = min(deadline + len(part) / MIN_BYTES_PER_S, clock() + STALL_S)
                self._sent(at, len(part))
        except TimeoutError:
            raise _StalledError from None

    def _sent(self, at: int, count: int) -> None:
        if isinstance(self._content, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._content.madvise(mmap.MADV_DONTNEED, at, count)
        self._unsent_bytes -= count
        self._room.count(-count)


def _mapped(content: bytes) -> mmap.mmap:
    """Memory of its own, of which each part goes back to the system as soon as it was sent."""
    memory = mmap.mmap(-1, len(content), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(content)
    return memory


class Documents:
    """All documents that this server is sending."""

    def __init__(self) -> None:
        self._small = _Room(MAX_SMALL_UNSENT_BYTES, MAX_MAKING_SMALL)
        self._large = _Room(MAX_LARGE_UNSENT_BYTES, MAX_MAKING_LARGE)

    async def next_of(self, pieces: Pieces, *, is_first: bool) -> _Piece | None:
        """The next piece of a document, None at its end."""
        for room in (self._small, self._large):
            async with room.entered(wait_s=WAIT_S if is_first else None):
                content = await anext(pieces, b"")
                if content is not None:
                    return _Piece(room, content) if content else None
        raise AssertionError("a piece was large twice")


class Document:
    """The response of a route that serves one. Its first piece is made before its head, so that it may be refused."""

    def __init__(self, documents: Documents, pieces: Pieces, media_type: str) -> None:
        self._documents = documents
        self._pieces = pieces
        self._head = [(b"content-type", media_type.encode())]
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self._head}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return
        gone = asyncio.ensure_future(_until_disconnect(receive))
        sending = asyncio.ensure_future(self._send(start, send))
        try:
            await asyncio.wait([gone, sending], return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                return
            await sending
        except Refused as refusal:
            if self._has_begun:
                # It was erased, or found damaged, meanwhile: what was sent is not all of it, and must not look so.
                _disconnect(scope, refusal.detail)
            else:
                await refused(refusal)(scope, receive, send)
        except _StalledError:
            _disconnect(scope, "the client does not read, or too slowly")
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, start: dict[str, object], send: Send) -> None:
        while piece := await self._documents.next_of(self._pieces, is_first=not self._has_begun):
            with piece:
                if not self._has_begun:
                    await _send_in_time(send, start)
                    self._has_begun = True
                await piece.send(send)
            del piece
        if not self._has_begun:
            await _send_in_time(send, start)
        await _send_in_time(send, {"type": "http.response.body", "body": b"", "more_body": False})


async def _send_in_time(send: Send, message: dict[str, object]) -> None:
    """Wait for a reader who has yet to take what was sent before: an earlier answer, or the last piece."""
    try:
        async with asyncio.timeout(STALL_S):
            await send(message)
    except TimeoutError:
        raise _StalledError from None


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _disconnect(scope: Scope, why: str) -> None:
    """What the connection still holds will not be read."""
    logger.info("the document %r is cut off: %s", scope["path"][:200], why)
    taken = (scope.get("extensions") or {}).get(CONNECTION)
    if taken is not None:
        if taken.running is not None:
            taken.running.disconnected = True
        taken.transport.abort()
