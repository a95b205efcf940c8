"""Responses of any size, sent piece by piece: transcripts and logs.

Above: transcripts.py, which provides the pieces. Below: the connection. Perdure limits the memory of pieces that were
made and not sent yet, over all responses, so that clients that read slowly or not at all use a bounded amount of
memory. It makes the next piece of a response only while there is memory for it. Small pieces never wait for large ones.
Ordinary responses are sent with `reply`.
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
"""For all responses together. Pieces that are being made when the limit is reached come on top."""
MAX_MAKING_SMALL, MAX_MAKING_LARGE = 16, 1
"""Pieces made at the same time. Reading a large one occupies one of the store's two readers."""
WAIT_S = 10.0
"""How long a new response waits for memory before it is refused."""
RETRY_AFTER_S = 5
STALL_S = 30.0
"""A client that reads nothing for this long is disconnected."""
MIN_BYTES_PER_S = 32 * 1024
"""Required after the first `STALL_S`. Otherwise a client could hold a large piece for hours by reading a few bytes now
and then."""
WRITE_BYTES = 64 * 1024
"""A multiple of the memory page size."""
MAPPED_BYTES = 256 * 1024

Pieces = AsyncIterator[bytes | None]
"""None announces a large piece, which is made by the next call."""


class _StalledError(Exception):
    """The client reads too slowly."""


class _Budget:
    """The memory for pieces of one kind."""

    def __init__(self, max_bytes: int, max_making: int) -> None:
        self._max_bytes = max_bytes
        self._unsent_bytes = 0
        self._making = asyncio.Semaphore(max_making)
        self._is_free = asyncio.Event()
        self._is_free.set()

    @asynccontextmanager
    async def reserved(self, *, wait_s: float | None) -> AsyncIterator[None]:
        """Wait until a piece may be made."""
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
                f"Other clients have not read {self._unsent_bytes / 1024**2:.0f} MiB of their responses yet, and there "
                f"is no memory for more. Try again in {RETRY_AFTER_S} seconds.",
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
    """A piece to send. Its unsent part counts against the budget until the `with` block ends."""

    def __init__(self, budget: _Budget, content: bytes) -> None:
        self._budget = budget
        self._content = _mapped(content) if len(content) > MAPPED_BYTES else content
        self._unsent_bytes = len(content)
        budget.count(len(content))

    def __enter__(self) -> "_Piece":
        return self

    def __exit__(self, *_error: object) -> None:
        # Free it here instead of leaving it to the garbage collector: a traceback may still refer to the piece.
        self._content = b""
        self._budget.count(-self._unsent_bytes)
        self._unsent_bytes = 0

    async def send(self, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + STALL_S
        try:
            for at in range(0, len(self._content), WRITE_BYTES):
                part = self._content[at : at + WRITE_BYTES]
                async with asyncio.timeout_at(deadline):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                # A client that reads fast for a while does not earn a longer pause later.
                deadline = min(deadline + len(part) / MIN_BYTES_PER_S, clock() + STALL_S)
                self._sent(at, len(part))
        except TimeoutError:
            raise _StalledError from None

    def _sent(self, at: int, count: int) -> None:
        if isinstance(self._content, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._content.madvise(mmap.MADV_DONTNEED, at, count)
        self._unsent_bytes -= count
        self._budget.count(-count)


def _mapped(content: bytes) -> mmap.mmap:
    """A copy in its own memory mapping. Each part of it returns to the operating system as soon as it was sent."""
    memory = mmap.mmap(-1, len(content), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(content)
    return memory


class LargeResponses:
    """The memory budget of all large responses of this server."""

    def __init__(self) -> None:
        self._small = _Budget(MAX_SMALL_UNSENT_BYTES, MAX_MAKING_SMALL)
        self._large = _Budget(MAX_LARGE_UNSENT_BYTES, MAX_MAKING_LARGE)

    async def next_of(self, pieces: Pieces, *, is_first: bool) -> _Piece | None:
        """The next piece of a response; None at its end."""
        for budget in (self._small, self._large):
            async with budget.reserved(wait_s=WAIT_S if is_first else None):
                content = await anext(pieces, b"")
                if content is not None:
                    return _Piece(budget, content) if content else None
        raise AssertionError("a piece was announced as large twice")


class LargeResponse:
    """One response, as an ASGI app. Its first piece is made before the status is sent, so it can still be refused."""

    def __init__(self, responses: LargeResponses, pieces: Pieces, media_type: str) -> None:
        self._responses = responses
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
                # The session was erased or is damaged. Close the connection, so the client sees that data is missing.
                _disconnect(scope, refusal.detail)
            else:
                await refused(refusal)(scope, receive, send)
        except _StalledError:
            _disconnect(scope, "the client does not read, or reads too slowly")
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, start: dict[str, object], send: Send) -> None:
        while piece := await self._responses.next_of(self._pieces, is_first=not self._has_begun):
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
    """Send, but wait only `STALL_S` for a client that has not read the previous data."""
    try:
        async with asyncio.timeout(STALL_S):
            await send(message)
    except TimeoutError:
        raise _StalledError from None


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _disconnect(scope: Scope, why: str) -> None:
    """Close the connection and discard its unsent data."""
    logger.info("cut off the response to %r: %s", scope["path"][:200], why)
    taken = (scope.get("extensions") or {}).get(CONNECTION)
    if taken is not None:
        if taken.running is not None:
            taken.running.disconnected = True
        taken.transport.abort()
