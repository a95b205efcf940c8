"""Documents of any length, sent a little at a time: transcripts and logs.

Above: handlers, which say what a document is made of. Below: the connection. What was made and not yet sent is counted
over all documents, so that readers who are slow, or don't read at all, cost a bounded amount of memory; the next piece
of a document is made only while there is room. A small answer is not a document: `reply` sends it in one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

from starlette.types import Receive, Scope, Send

from perdure.core.errors import Refused
from perdure.surfaces.http.connections import CONNECTION
from perdure.surfaces.http.problems import refused

logger = logging.getLogger(__name__)

MAX_UNSENT_BYTES = 32 * 1024 * 1024
"""Of all documents together. Pieces that are being made when it is reached come on top."""
MAX_MAKING = 2
"""Pieces that are made at the same time."""
WAIT_S = 10.0
"""How long a new document waits for room before it is refused."""
RETRY_AFTER_S = 5
STALL_S = 30.0
"""A reader who takes nothing for this long is disconnected."""
WRITE_BYTES = 64 * 1024


class _StalledError(Exception):
    """The reader takes nothing."""


class Documents:
    """All documents that this server is sending."""

    def __init__(self) -> None:
        self.unsent_bytes = 0
        self._making = asyncio.Semaphore(MAX_MAKING)
        self._room = asyncio.Event()
        self._room.set()

    async def next_of(self, pieces: AsyncIterator[bytes], *, is_first: bool) -> bytes:
        """The next piece of a document, empty at its end. It counts as unsent until `sent` says otherwise."""
        try:
            async with asyncio.timeout(WAIT_S if is_first else None):
                await self._turn()
        except TimeoutError:
            raise Refused(
                "unavailable",
                f"Too many long documents are being read. Try again in {RETRY_AFTER_S} seconds.",
                retry_after_s=RETRY_AFTER_S,
            ) from None
        try:
            piece = await anext(pieces, b"")
        finally:
            self._making.release()
        self._count(len(piece))
        return piece

    async def _turn(self) -> None:
        await self._making.acquire()
        try:
            await self._room.wait()
        except BaseException:
            self._making.release()
            raise

    def sent(self, count: int) -> None:
        self._count(-count)

    def _count(self, change: int) -> None:
        self.unsent_bytes += change
        if self.unsent_bytes < MAX_UNSENT_BYTES:
            self._room.set()
        else:
            self._room.clear()


class Document:
    """The response of a route that serves one. Its first piece is made before its head, so that it may be refused."""

    def __init__(self, documents: Documents, pieces: AsyncIterator[bytes], media_type: str) -> None:
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
            _disconnect(scope, "the client stopped reading")
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, start: dict[str, object], send: Send) -> None:
        is_first = True
        while piece := await self._documents.next_of(self._pieces, is_first=is_first):
            unsent = len(piece)
            try:
                if is_first:
                    await send(start)
                    self._has_begun = True
                is_first = False
                for begin in range(0, len(piece), WRITE_BYTES):
                    part = piece[begin : begin + WRITE_BYTES]
                    try:
                        async with asyncio.timeout(STALL_S):
                            await send({"type": "http.response.body", "body": part, "more_body": True})
                    except TimeoutError:
                        raise _StalledError from None
            finally:
                self._documents.sent(unsent)
                del piece
        if is_first:
            await send(start)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


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
