"""Reads the events and documents that other nodes have written, for many sessions in one query.

Above: the log, which is woken by other nodes and opens journals for requests. Below: the shared store. A request can
reach any node, so the log compares a journal in memory with the store before it uses it. Clients can therefore read
their own writes on every node. Not used with SQLite.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from perdure.core.errors import UNREADABLE, Refused, StoreError
from perdure.runtime.log.journal import Journal
from perdure.stores.shared import SharedStore

if TYPE_CHECKING:
    from perdure.runtime.log.log import Log

logger = logging.getLogger(__name__)

SESSIONS_AT_ONCE = 200
NEWS_EVENTS = 1_000
NEWS_BYTES = 256 * 1024
"""Limits per session and query. If there is more, the journal reads the rest separately."""


Reload = Callable[[], Awaitable[None]]
T = TypeVar("T")


class Together(Generic[T]):
    """Batches concurrent requests into one query, which starts after the last of them was made."""

    def __init__(self, log: "Log", query: Callable[[set[str]], Awaitable[T]]) -> None:
        self._log = log
        self._query = query
        self._asked: set[str] = set()
        self._next: asyncio.Future[T] | None = None
        self._running: asyncio.Task[None] | None = None

    async def ask(self, what: str) -> T:
        self._asked.add(what)
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        answer = self._next
        if self._running is None or self._running.done():
            self._running = self._log.keep(self._run())
        return await asyncio.shield(answer)

    async def _run(self) -> None:
        while self._next is not None:
            answer, asked, self._next, self._asked = self._next, self._asked, None, set()
            try:
                answer.set_result(await self._query(asked))
            except Exception as error:  # noqa: BLE001  the callers get it
                answer.set_exception(error)
                answer.exception()  # mark it as retrieved: all callers may be gone


class Newsreader:
    def __init__(self, log: "Log", store: SharedStore) -> None:
        self._log = log
        self._store = store
        self._behind: dict[str, Journal] = {}
        self._reading: asyncio.Task[None] | None = None
        self._heads = Together(log, lambda asked: store.heads(list(asked)))
        self._documents = Together(log, lambda _: self._look_at_documents())
        self._watchers: dict[str, list[Reload]] = {}
        self._marks: dict[str, int] = {}

    # Wake-ups from other nodes -------------------------------------------------------------------------------------

    def behind(self, journal: Journal) -> None:
        """Read a session soon, because another node has written to it."""
        self._behind[journal.state.id] = journal
        if self._reading is None or self._reading.done():
            self._reading = self._log.keep(self._read())

    async def _read(self) -> None:
        while self._behind:
            chosen = {key: self._behind.pop(key) for key in list(self._behind)[:SESSIONS_AT_ONCE]}
            positions = {key: journal.last_seq for key, journal in chosen.items()}
            try:
                found = await self._store.news(positions, limit=NEWS_EVENTS, max_bytes=NEWS_BYTES)
            except StoreError as error:
                logger.warning("could not read events from other nodes; retrying at the next poll: %s", error)
                return
            for key, journal in chosen.items():
                news = found.get(key)
                if news is None or journal.is_writing:
                    # The session was erased, or has a writer, for which the other sessions must not wait.
                    self._log.catch_up_soon(journal)
                    continue
                try:
                    if not await journal.take_news(news):
                        self._behind[key] = journal
                except (Refused, StoreError, *UNREADABLE) as error:
                    logger.warning("session %s: could not read new events; retrying at the next poll: %s", key, error)

    # Requests ------------------------------------------------------------------------------------------------------

    async def freshen(self, journal: Journal) -> None:
        """Bring a journal up to date with the store. Concurrent requests share one query."""
        session_id = journal.state.id
        head = (await self._heads.ask(session_id)).get(session_id)
        if head is None:
            self._log.learn_erased(session_id)
            raise Refused("not_found", f"There is no session {session_id}.")
        if (head.last_seq, head.token, head.owner) != (journal.last_seq, journal.token, journal.owner):
            await journal.catch_up()

    # Documents -----------------------------------------------------------------------------------------------------

    def watch_documents(self, kind: str, reload: Reload) -> None:
        self._watchers.setdefault(kind, []).append(reload)

    async def freshen_documents(self) -> None:
        """Reload the kinds that other nodes have changed."""
        await self._documents.ask("")

    async def _look_at_documents(self) -> None:
        marks = await self._store.document_marks()
        before, self._marks = self._marks or {}, marks
        try:
            for kind, reloads in list(self._watchers.items()):
                if marks.get(kind) != before.get(kind):
                    for reload in reloads:
                        await reload()
        except BaseException:
            self._marks = before  # retry at the next check
            raise
