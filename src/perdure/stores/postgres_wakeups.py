"""Wake-ups between servers through PostgreSQL's NOTIFY. Losing one costs time, never data.

Above: the log announces and listens, as with LocalWakeups. Below: two dedicated connections. One listens, outside any
transaction, so it can't go through a pooler in transaction mode. The other sends everything announced within one tick
as one statement. It is separate from appends, because a NOTIFY locks the whole database when it commits. Its commit
does not wait for the disk.

Both connections reconnect forever. Notifications sent in between are lost, so after a reconnect the listeners are
called with "", which means that anything may have changed. The same happens if there are too many sessions to list.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator

import msgspec
import psycopg
from psycopg.sql import SQL, Identifier

from perdure.stores.postgres_connections import PAUSE_MAX_S, PAUSE_MIN_S, Connection, ask, clean, settings
from perdure.stores.wakeups import Listener

logger = logging.getLogger(__name__)

CHANNEL = "perdure"
"""Channels are per database, so one name is enough for one cluster in one database."""
TICK_S = 0.01
PAYLOAD_MAX_BYTES = 7_900
"""PostgreSQL's limit is just below 8,000."""
PAYLOADS_MAX = 16
"""Limit per tick. If more are needed, no sessions are listed, and every server checks everything."""
PENDING_MAX = 10_000
CHECK_EVERY_S = 30.0
CHECK_TIMEOUT_S = 10.0
"""A connection without notifications is checked this often."""
EVERYTHING = "*"

# The setting is for this transaction only, because a pooler may share the connection.
_NOTIFY = """
    SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, payload)
    FROM unnest(%s::text[]) AS payload"""

_decode = msgspec.json.Decoder(list[str]).decode


class PostgresWakeups:
    """See Wakeups. `url` must point to the database itself, not to a pooler."""

    def __init__(self, url: str, node_id: str, *, channel: str = CHANNEL) -> None:
        self._settings = settings(url)
        self._node_id = clean(node_id)
        self._channel = channel
        self._listeners: list[tuple[object, Listener]] = []
        self._pending: dict[str, None] = {}
        self._has_pending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start connecting, without waiting for it. Until it has succeeded, followers poll."""
        for work, name in ((self._receive, "wakeups-receive"), (self._send, "wakeups-send")):
            self._tasks.append(asyncio.create_task(self._forever(work), name=name))

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def announce(self, session_id: str, by: object) -> None:
        for who, listener in list(self._listeners):
            if who is not by:
                listener(session_id)
        if len(self._pending) < PENDING_MAX:
            self._pending[session_id] = None
        else:
            self._pending = {EVERYTHING: None}
        self._has_pending.set()

    def listen(self, who: object, listener: Listener) -> Callable[[], None]:
        entry = (who, listener)
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry)

    async def _forever(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        pause_s = PAUSE_MIN_S
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(
                    self._settings, autocommit=True, prepare_threshold=None
                )
                async with connection:
                    pause_s = PAUSE_MIN_S
                    await work(connection)
            except (psycopg.Error, TimeoutError) as error:
                logger.warning("lost the connection for wake-ups; reconnecting, and polling until then: %s", error)
            # Jitter, so that not all servers reconnect at the same moment.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311  no secret
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _receive(self, connection: Connection) -> None:
        await connection.execute(SQL("LISTEN {}").format(Identifier(self._channel)))
        self._tell([""])
        while True:
            async for notice in connection.notifies(timeout=CHECK_EVERY_S):
                self._received(notice.payload)
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await ask(connection, "SELECT 1")

    def _received(self, payload: str) -> None:
        try:
            node_id, *session_ids = _decode(payload)
        except (msgspec.MsgspecError, ValueError):
            logger.warning("ignored an unreadable notification; does another program use channel %s?", self._channel)
            return
        if node_id != self._node_id:
            self._tell([""] if EVERYTHING in session_ids else session_ids)

    def _tell(self, session_ids: Iterable[str]) -> None:
        for session_id in session_ids:
            for _, listener in list(self._listeners):
                listener(session_id)

    async def _send(self, connection: Connection) -> None:
        while True:
            await self._has_pending.wait()
            await asyncio.sleep(TICK_S)
            pending, self._pending = self._pending, {}
            self._has_pending.clear()
            try:
                async with asyncio.timeout(CHECK_TIMEOUT_S):
                    await ask(connection, _NOTIFY, self._channel, self._payloads(pending))
            except BaseException:
                # Send them through the next connection.
                self._pending = {**pending, **self._pending}
                self._has_pending.set()
                raise

    def _payloads(self, session_ids: Iterable[str]) -> list[str]:
        payloads = []
        for some in _pieces(session_ids, PAYLOAD_MAX_BYTES - len(_encoded(self._node_id).encode()) - 3):
            payloads.append(f"[{_encoded(self._node_id)},{','.join(some)}]")
            if len(payloads) > PAYLOADS_MAX:
                return [f"[{_encoded(self._node_id)},{_encoded(EVERYTHING)}]"]
        return payloads


def _encoded(text: str) -> str:
    return msgspec.json.encode(clean(text)).decode()


def _pieces(session_ids: Iterable[str], room: int) -> Iterator[list[str]]:
    """Split the ids, encoded as JSON, into pieces of at most `room` bytes."""
    piece: list[str] = []
    size = 0
    for session_id in session_ids:
        text = _encoded(session_id)
        length = len(text.encode()) + 1
        if length > room:
            text, length = _encoded(EVERYTHING), 4
        if size + length > room:
            yield piece
            piece, size = [], 0
        piece.append(text)
        size += length
    if piece:
        yield piece
