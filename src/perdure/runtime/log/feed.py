"""The changes of all sessions in one order, read from the store once per server for any number of followers.

Above: the stream of all sessions, and consumers that must miss nothing across restarts (jobs, webhooks, compaction).
Below: the store's order of decisive events, and the log's wake-ups. The feed caches the newest changes in memory, up to
a limit; followers that are further behind read the store. The feed never pushes changes: it wakes its followers, and
each of them reads after its own position. A consumer saves its position in the store and gets each change at least
once, in order.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from perdure.core.errors import StoreError
from perdure.runtime.log.followers import Follower
from perdure.runtime.log.log import Log
from perdure.stores.base import Stored

logger = logging.getLogger(__name__)

STREAMED = (
    "session_created",
    "waiting_to_begin",
    "turn_start",
    "turn_end",
    "waiting_for_input",
    "pending_prompt",
    "prompt_resolved",
    "message_queued",
    "queued_message_edited",
    "message_unqueued",
    "agent_attached",
    "agent_detached",
    "title",
    "session_updated",
    "waiting_until",
    "error",
    "session_end",
)
"""Event types in the stream of all sessions."""
CONSUMED = ("user_message", "history_changed")
"""Further event types that consumers need."""
TYPES = (*STREAMED, *CONSUMED)
"""Event types in the feed."""
NOT_IN_FEED = (
    # Content of a turn: the session's own stream has it.
    "assistant_text",
    "assistant_thinking",
    "tool_use",
    "tool_update",
    "tool_result",
    "image",
    "plan",
    "usage",
    "system",
    "unrecognised",
    # Details of a turn and its process, which lists of sessions don't show.
    "turn_changes",
    "files_requested",
    "files_changed",
    "abort_requested",
    "config",
    "agent_launched",
    "context_fallback",
    "driver_fallback",
    "history_shortened",
)
KEPT_BYTES = 1024 * 1024
KEPT_CHANGES = 4_096
READ_CHANGES = 500
READ_BYTES = 1024 * 1024
TICK_S = 0.25
"""How long to batch changes if only consumers are waiting; they don't need low latency."""
SAVE_S = 1.0
"""How often to save a consumer's position. After a crash it gets the changes since then again."""
LOOKS_AGAIN = 5
LOOK_AGAIN_S = 0.02
RETRY_S = 1.0
FAULT_RETRY_S = 30.0
CURSORS = "cursor"


class Change(NamedTuple):
    position: int
    session_id: str
    event: Stored


class Feed:
    def __init__(self, log: Log) -> None:
        self._log = log
        self.followers: set[Follower] = set()
        self.consumers: set[Consumer] = set()
        self.position = 0
        self._kept: deque[Change] = deque()
        self._kept_bytes = 0
        self._kept_after = 0
        """All changes after this position are in the cache."""
        self._news = asyncio.Event()
        self._reading = asyncio.Lock()
        self._empty_looks = 0
        self._task: asyncio.Task[None] | None = None
        log.watch(self._changed)

    async def start(self) -> None:
        self.position = self._kept_after = await self.newest()
        self._task = asyncio.create_task(self._run(), name="feed")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def newest(self) -> int:
        rows = await self._log.store.list_changes(-1, (), 1)
        return rows[-1][0] if rows else 0

    def _changed(self, _: str) -> None:
        if self.followers or self.consumers:
            self._empty_looks = 0
            self._news.set()

    def restart(self) -> None:
        """Existing positions are no longer valid: continue from the newest change."""
        self._kept.clear()
        self._kept_bytes = 0
        self.position = self._kept_after = -1
        self._news.set()

    def look(self) -> None:
        """Check for new changes soon."""
        self._news.set()

    def follow(self, follower: Follower) -> None:
        self.followers.add(follower)

    def unfollow(self, follower: Follower) -> None:
        self.followers.discard(follower)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                # A wake-up can be lost, so poll as well.
                async with asyncio.timeout(self._log.poll_s()):
                    await self._news.wait()
            if not self.followers:
                await asyncio.sleep(TICK_S)
            self._news.clear()
            before = self.position
            try:
                await self.refresh()
                self._look_again(before)
            except StoreError as error:
                logger.warning("could not read the changes of all sessions; retrying: %s", error)
                await asyncio.sleep(RETRY_S)
                self._news.set()

    def _look_again(self, before: int) -> None:
        """Poll again if nothing was found. A shared store shows a change only when every transaction that began before
        it has finished, so the change may appear a moment later."""
        if self._log.shared is None or self.position != before:
            self._empty_looks = 0
        elif self._empty_looks < LOOKS_AGAIN:
            self._empty_looks += 1
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S * 2**self._empty_looks, self._news.set)

    async def refresh(self) -> None:
        """Read new changes and wake the followers and consumers."""
        async with self._reading:
            await self._refresh()

    async def _refresh(self) -> None:
        if self.position < 0:
            self.position = self._kept_after = await self.newest()
            for consumer in self.consumers:
                consumer.position = self.position
        if not (self.followers or self.consumers):
            # No readers: don't cache. A later reader reads the store.
            self._kept.clear()
            self._kept_bytes = 0
            self.position = self._kept_after = await self.newest()
            return
        while changes := await self._read(self.position):
            for change in changes:
                self._kept.append(change)
                self._kept_bytes += len(change.event.body)
            self.position = changes[-1].position
            self.trim()
        for follower in list(self.followers):
            follower.wake()
        for consumer in self.consumers:
            consumer.wake()
        self.trim()

    def trim(self) -> None:
        """Drop changes that exceed the cache limits, or that all readers have read."""
        read_by_all = min((each.position for each in (*self.followers, *self.consumers)), default=self.position)
        while self._kept and (
            self._kept[0].position <= read_by_all or len(self._kept) > KEPT_CHANGES or self._kept_bytes > KEPT_BYTES
        ):
            dropped = self._kept.popleft()
            self._kept_after = dropped.position
            self._kept_bytes -= len(dropped.event.body)

    async def _read(self, after: int) -> list[Change]:
        rows = await self._log.store.list_changes(after, TYPES, READ_CHANGES, max_bytes=READ_BYTES)
        return [Change(*row) for row in rows]

    def kept_after(self, position: int) -> list[Change] | None:
        """The changes after this position; None if some are no longer in memory."""
        if position >= self.position:
            return []
        if position < self._kept_after:
            return None
        return [change for change in self._kept if change.position > position]

    async def after(self, position: int) -> list[Change]:
        """The next changes after this position: at least one, unless there are none."""
        kept = self.kept_after(position)
        return await self._read(position) if kept is None else kept[:READ_CHANGES]


Handle = Callable[[Sequence[Change]], Awaitable[None]]
"""Processes changes. Must be idempotent: after a crash it gets some changes again. Raise StoreError to retry."""


class Consumer:
    """Reads the feed from a position saved in the store: every change at least once, in order. A new consumer starts
    at the current end."""

    def __init__(self, feed: Feed, log: Log, name: str, handle: Handle) -> None:
        self._feed = feed
        self._log = log
        self.name = name
        self._handle = handle
        self.position = 0
        self._saved: int | None = None
        self._saved_s = 0.0
        self._news = asyncio.Event()
        self._done = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        newest = await self._feed.newest()
        stored = (await self._log.store.documents(CURSORS)).get(self.name, b"")
        # A position past the end means that an older backup was restored.
        self.position = int(stored) if stored.isdigit() and int(stored) <= newest else newest
        # Save it now: a crash before the first change is handled must not lose changes.
        await self._save()
        self._feed.consumers.add(self)
        self._task = asyncio.create_task(self._run(), name=f"consumer {self.name}")

    def wake(self) -> None:
        if self._feed.position > self.position:
            self._done.clear()
        self._news.set()

    async def stop(self) -> None:
        self._feed.consumers.discard(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            with contextlib.suppress(StoreError):
                await self._save()

    async def settle(self) -> None:
        """Wait until all changes so far are handled."""
        await self._feed.refresh()
        await self._done.wait()

    async def _run(self) -> None:
        while True:
            try:
                while changes := await self._feed.after(self.position):
                    await self._handle(changes)
                    self.position = changes[-1].position
                    if self._log.steady() - self._saved_s >= SAVE_S:
                        await self._save()
            except StoreError as error:
                logger.warning("consumer %s: stopped at position %d; retrying: %s", self.name, self.position, error)
                await asyncio.sleep(RETRY_S)
                continue
            except Exception:
                logger.exception("consumer %s failed after position %d; retrying", self.name, self.position)
                await asyncio.sleep(FAULT_RETRY_S)
                continue
            self._done.set()
            self._feed.trim()
            await self._news.wait()
            self._news.clear()

    async def _save(self) -> None:
        if self._saved != self.position:
            await self._log.store.put_document(CURSORS, self.name, str(self.position).encode())
            self._saved = self.position
        self._saved_s = self._log.steady()
