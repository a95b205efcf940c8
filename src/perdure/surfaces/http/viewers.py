"""Viewers: connections that watch. They never drive anything, and a slow one costs nobody else anything.

Above: streams.py decides where a viewer begins. Below: a journal's shared frames and a transport. A viewer is a cursor:
woken once per commit, it writes what has gathered since, which is the same bytes for all who are at the same place.
When its transport is full it is left alone; if by then the tail no longer holds what it missed, it gets a snapshot.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from perdure.core.errors import UNREADABLE, Refused, StoreError
from perdure.runtime.log.feed import STREAMED, Change, Feed
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.log import Log

logger = logging.getLogger(__name__)

HEARTBEAT = b": \n\n"
HIGH_WATER_BYTES = 64 * 1024
LONG_REPLAY_BYTES = 64 * 1024
READ_BATCH = 1_000


class Pipe(Protocol):
    """As much of a transport as a viewer needs."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...


class Hub:
    """All viewers of this server: for the heartbeat, and to close them at the end."""

    def __init__(self, log: Log, feed: Feed, replay_limit: int, heartbeat_s: float) -> None:
        self.log = log
        self.feed = feed
        self.replay_limit = replay_limit
        self._heartbeat_s = heartbeat_s
        self.viewers: set[Viewer] = set()
        self.tasks: set[asyncio.Task[Any]] = set()
        self._beating: asyncio.Task[None] | None = None
        log.watch_epoch(self.start_over)
        self.is_signed_in: Callable[[str], bool] = lambda _: True
        """Whether a sign-in still holds: it may end while a request by it is on its way to becoming a viewer."""

    def start(self) -> None:
        self._beating = asyncio.create_task(self._beat(), name="heartbeat")

    async def stop(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        for viewer in list(self.viewers):
            viewer.leave()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, *([self._beating] if self._beating else []), return_exceptions=True)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_s)
            for viewer in list(self.viewers):
                if self.may_watch(viewer):
                    viewer.beat()
                else:
                    viewer.leave()

    def start_over(self) -> None:
        """Positions mean something else from now on: whoever comes back gets a snapshot."""
        for viewer in list(self.viewers):
            viewer.leave()

    def may_watch(self, viewer: "Viewer") -> bool:
        return viewer.login is None or self.is_signed_in(viewer.login)

    def signed_out(self, login: str) -> None:
        """Close the streams of this sign-in."""
        for viewer in list(self.viewers):
            if viewer.login == login:
                viewer.leave()

    def run(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class Viewer(asyncio.Protocol):
    """What all kinds share: a pipe that may be full or gone. Once taken over, it is its connection's protocol."""

    __slots__ = ("_busy", "_hub", "_paused", "_pipe", "login")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.login: str | None = None
        """The browser's sign-in by which it came, if it was one."""
        self._pipe: Pipe | None = None
        self._paused = False
        self._busy = False

    def begin(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._hub.viewers.add(self)
        self.attach()
        if self._hub.may_watch(self):
            self.wake()
        else:
            self.leave()

    # The connection, as asyncio sees it ----------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.wake()

    def data_received(self, data: bytes) -> None:
        """A viewer has nothing to say; what it says is not read."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipe = None
        self._hub.viewers.discard(self)
        self.detach()

    # What kinds do differently ---------------------------------------------------------------------------------------

    def attach(self) -> None:
        raise NotImplementedError

    def detach(self) -> None:
        raise NotImplementedError

    def wake(self) -> None:
        raise NotImplementedError

    # Shared ----------------------------------------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        return self._pipe is not None

    def write(self, data: bytes) -> None:
        if self._pipe is not None and data and not self._pipe.is_closing():
            self._pipe.write(data)

    def beat(self) -> None:
        if not self._paused:
            self.write(HEARTBEAT)

    def finish(self) -> None:
        if self._pipe is not None:
            self._pipe.close()

    def leave(self) -> None:
        """Close without waiting for one who does not read: what it lacks it gets when it comes back."""
        if self._pipe is not None and self._paused:
            self._pipe.abort()
        else:
            self.finish()

    def catch_up(self, work: Any) -> None:
        """Do something slow for this viewer; it is not woken meanwhile, and looks again afterwards."""
        self._busy = True

        async def run() -> None:
            try:
                await work
            except (Refused, StoreError, *UNREADABLE) as error:
                logger.error("a viewer could not be served: %s: %s", type(error).__name__, error)
                self.finish()
            except Exception:
                logger.exception("a viewer could not be served")
                self.finish()
            finally:
                self._busy = False
                self.caught_up()

        self._hub.run(run())

    def caught_up(self) -> None:
        self.wake()


class SessionViewer(Viewer):
    """Watches one session."""

    __slots__ = ("_cursor", "_journal")

    def __init__(self, hub: Hub, journal: Journal, position: int | None) -> None:
        super().__init__(hub)
        self._journal = journal
        self._cursor = -1 if position is None or position > journal.last_seq else position

    @property
    def position(self) -> int:
        return self._cursor

    def attach(self) -> None:
        self._journal.followers.add(self)

    def detach(self) -> None:
        self._journal.followers.discard(self)

    def wake(self) -> None:
        if self._paused or self._busy or self._pipe is None:
            return
        journal = self._journal
        if self._cursor < 0:
            self.catch_up(self._snapshot())
            return
        after, upto, frames = journal.newest_frames
        if after != self._cursor or upto != journal.last_seq:
            frames = journal.frames_after(self._cursor)
        if frames is None:
            self.catch_up(self._replay())
            return
        if frames:
            self._cursor = journal.last_seq
            # As `write`, without the call: there may be thousands of viewers.
            if not self._pipe.is_closing():
                self._pipe.write(frames)
        if journal.state.phase == "ended" or journal.is_erased:
            self.finish()

    async def _snapshot(self) -> None:
        seq, frame = await self._journal.snapshot_frame()
        self._cursor = seq
        self.write(frame)

    async def _replay(self) -> None:
        """What is no longer in memory comes from the store, unless that is more than a snapshot would be."""
        journal, limit = self._journal, self._hub.replay_limit
        if journal.last_seq - self._cursor > limit or self._cursor < journal.huge_seq:
            await self._snapshot()
            return
        pieces: list[bytes] = []
        position, size = self._cursor, 0
        bound = max(LONG_REPLAY_BYTES, len((await journal.snapshot_frame())[1]))
        while not journal.holds(position):
            rows = await journal.read(position, READ_BATCH, bound - size)
            if not rows:
                break
            for row in rows:
                frame = self._hub.log.stored_frame(row)
                pieces.append(frame)
                size += len(frame)
            position = rows[-1].seq
            if size > bound:
                await self._snapshot()
                return
        self._cursor = position
        self.write(b"".join(pieces))


def signature(journals: list[Journal]) -> int:
    """Which sessions a cursor is about, so that it is not taken for one about others."""
    return zlib.crc32(",".join(journal.state.id for journal in journals).encode())


def cursors_of(text: str, journals: list[Journal]) -> list[int] | None:
    """The positions in an id of ManyViewer (-1: nothing was sent yet); None if it is about other sessions."""
    first, *numbers = [int(part) for part in text.split(".")]
    positions = [number - 1 for number in numbers]
    return positions if first == signature(journals) and len(positions) == len(journals) else None


class ManyViewer(Viewer):
    """Watches several sessions at once. Its id is all its positions, in the order in which they were named, each one
    higher than it is: 0 says that nothing of this session was sent yet."""

    __slots__ = ("_cursors", "_journals", "_signature")

    def __init__(self, hub: Hub, journals: list[Journal], positions: list[int] | None) -> None:
        super().__init__(hub)
        self._journals = journals
        self._signature = signature(journals)
        self._cursors = [-1] * len(journals)
        if positions is not None:
            self._cursors = [
                position if position <= journal.last_seq else -1
                for position, journal in zip(positions, journals, strict=True)
            ]

    @property
    def position(self) -> int:
        """It follows several journals, so it always says that there may be more."""
        return -1

    def attach(self) -> None:
        for journal in self._journals:
            journal.followers.add(self)

    def detach(self) -> None:
        for journal in self._journals:
            journal.followers.discard(self)

    def wake(self) -> None:
        if self._paused or self._busy or self._pipe is None:
            return
        for index, journal in enumerate(self._journals):
            if self._cursors[index] == journal.last_seq:
                continue
            frames = journal.frames_since(self._cursors[index])
            if frames is None:
                self.catch_up(self._snapshot(index))
                return
            pieces = []
            for seq, frame in frames:
                self._cursors[index] = seq
                pieces.append(self._renamed(frame))
            self.write(b"".join(pieces))
        if all(journal.state.phase == "ended" or journal.is_erased for journal in self._journals):
            self.finish()

    async def _snapshot(self, index: int) -> None:
        seq, frame = await self._journals[index].snapshot_frame()
        self._cursors[index] = seq
        self.write(self._renamed(frame))

    def _renamed(self, frame: bytes) -> bytes:
        """The same frame with this viewer's own cursor as its id."""
        cursor = ".".join(str(position + 1) for position in self._cursors)
        suffix = f"-{self._hub.log.epoch}" if self._hub.log.epoch else ""
        return f"id: {self._signature}.{cursor}{suffix}\n".encode() + frame[frame.index(b"\n") + 1 :]


class ChangesViewer(Viewer):
    """Follows the state of all sessions. Its positions are those of the whole store."""

    __slots__ = ("_cursor", "_erased")

    def __init__(self, hub: Hub, position: int) -> None:
        super().__init__(hub)
        self._cursor = position
        self._erased = hub.log.erased.count

    @property
    def position(self) -> int:
        return self._cursor

    def attach(self) -> None:
        self._hub.feed.followers.add(self)

    def detach(self) -> None:
        self._hub.feed.followers.discard(self)

    def begin(self, pipe: Pipe) -> None:
        super().begin(pipe)
        self._hub.feed.look()

    def wake(self) -> None:
        if self._paused or self._busy or self._pipe is None:
            return
        changes = self._hub.feed.kept_after(self._cursor)
        if changes is None:
            self.catch_up(self._replay())
            return
        self._show(changes)
        erased, since = self._hub.log.erased, self._erased
        self._erased = erased.count
        for session_id in erased.since(since):
            gone = {"type": "session_erased", "session_id": session_id, "at": self._hub.log.stamp()}
            self.write(b"event: session_erased\ndata: " + msgspec.json.encode(gone) + b"\n\n")

    async def _replay(self) -> None:
        """What is no longer in memory, some at a time: afterwards this viewer is woken and looks again."""
        self._show(await self._hub.feed.after(self._cursor))

    def _show(self, changes: Sequence[Change]) -> None:
        """Write until the connection is full: the rest is read again when there is room."""
        log = self._hub.log
        suffix = f"-{log.epoch}" if log.epoch else ""
        for position, _, event in changes:
            if self._paused:
                return
            self._cursor = position
            if event.type in STREAMED:
                frame = log.stored_frame(event)
                self.write(f"id: {position}{suffix}\n".encode() + frame[frame.index(b"\n") + 1 :])
