"""Viewers: connections that read a stream of events. They change nothing, and a slow viewer doesn't delay others.

Above: streams.py chooses the position at which a viewer starts. Below: the frames of a session, which all viewers
share, and a transport. A viewer is a cursor. Each commit wakes it once, and it writes all frames after its cursor;
viewers at the same position write the same bytes.

Backpressure: while its transport is full, a viewer writes nothing. Afterwards it continues at its cursor. If the frames
there are no longer in memory, it reads them from the store, or gets a snapshot if there are too many.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from perdure.core.errors import UNREADABLE, Refused, StoreError
from perdure.runtime.verbs.streams import STREAMED, Change, FollowedSession, Streams

logger = logging.getLogger(__name__)

HEARTBEAT = b": \n\n"
HIGH_WATER_BYTES = 64 * 1024
LONG_REPLAY_BYTES = 64 * 1024
READ_BATCH = 1_000


class Pipe(Protocol):
    """The part of a transport that a viewer uses."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...


class Hub:
    """All viewers of this server. Sends heartbeats, and closes the viewers when the server stops."""

    def __init__(self, streams: Streams, replay_limit: int, heartbeat_s: float) -> None:
        self.streams = streams
        self.replay_limit = replay_limit
        self._heartbeat_s = heartbeat_s
        self.viewers: set[Viewer] = set()
        self.tasks: set[asyncio.Task[Any]] = set()
        self._beating: asyncio.Task[None] | None = None
        streams.watch_epoch(self.start_over)
        self.is_signed_in: Callable[[str], bool] = lambda _: True
        """Whether a sign-in is still valid. It can end while a request is being turned into a viewer."""

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
        """Close all viewers, because their positions are no longer valid. They get a snapshot when they reconnect."""
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
    """A pipe, which may be full or closed. After the takeover, the viewer is the protocol of its connection."""

    __slots__ = ("_busy", "_hub", "_paused", "_pipe", "login")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.login: str | None = None
        """The browser sign-in that opened this stream; None if it was opened with the token."""
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

    # Callbacks of asyncio ------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.wake()

    def data_received(self, data: bytes) -> None:
        """Ignore what the client sends."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipe = None
        self._hub.viewers.discard(self)
        self.detach()

    # Implemented by each kind of viewer ------------------------------------------------------------------------------

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
        """Close. If the client isn't reading, don't wait for it: it gets the rest when it reconnects."""
        if self._pipe is not None and self._paused:
            self._pipe.abort()
        else:
            self.finish()

    def catch_up(self, work: Any) -> None:
        """Run a slow task for this viewer. Until the task is done, the viewer ignores wake-ups; then it wakes."""
        self._busy = True

        async def run() -> None:
            try:
                await work
            except (Refused, StoreError, *UNREADABLE) as error:
                logger.error("could not read events for a viewer; closing it: %s: %s", type(error).__name__, error)
                self.finish()
            except Exception:
                logger.exception("could not read events for a viewer; closing it")
                self.finish()
            finally:
                self._busy = False
                self.caught_up()

        self._hub.run(run())

    def caught_up(self) -> None:
        self.wake()


class SessionViewer(Viewer):
    """Streams one session."""

    __slots__ = ("_cursor", "_journal")

    def __init__(self, hub: Hub, journal: FollowedSession, position: int | None) -> None:
        super().__init__(hub)
        self._journal = journal
        self._cursor = -1 if position is None or position > journal.last_seq else position

    @property
    def position(self) -> int:
        return self._cursor

    def attach(self) -> None:
        self._journal.follow(self)

    def detach(self) -> None:
        self._journal.unfollow(self)

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
            # Like `write`, but inlined: there can be thousands of viewers.
            if not self._pipe.is_closing():
                self._pipe.write(frames)
        if journal.state.phase == "ended" or journal.is_erased:
            self.finish()

    async def _snapshot(self) -> None:
        seq, frame = await self._journal.snapshot_frame()
        self._cursor = seq
        self.write(frame)

    async def _replay(self) -> None:
        """Write frames that are no longer in memory: read them from the store or, if they are too many or larger than a
        snapshot, write a snapshot."""
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
                frame = self._hub.streams.stored_frame(row)
                pieces.append(frame)
                size += len(frame)
            position = rows[-1].seq
            if size > bound:
                await self._snapshot()
                return
        self._cursor = position
        self.write(b"".join(pieces))


def signature(journals: list[FollowedSession]) -> int:
    """A checksum of the session ids. A cursor contains it, so that it is not used for other sessions."""
    return zlib.crc32(",".join(journal.state.id for journal in journals).encode())


def cursors_of(text: str, journals: list[FollowedSession]) -> list[int] | None:
    """The positions in an event id of a ManyViewer (-1: nothing sent yet); None if it belongs to other sessions."""
    first, *numbers = [int(part) for part in text.split(".")]
    positions = [number - 1 for number in numbers]
    return positions if first == signature(journals) and len(positions) == len(journals) else None


class ManyViewer(Viewer):
    """Streams several sessions. An event id contains the positions in all of them, in the order of the request, each
    plus one: 0 means that nothing of this session was sent yet."""

    __slots__ = ("_cursors", "_journals", "_signature")

    def __init__(self, hub: Hub, journals: list[FollowedSession], positions: list[int] | None) -> None:
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
        """Always -1, for "may be behind": there is no single position for several sessions."""
        return -1

    def attach(self) -> None:
        for journal in self._journals:
            journal.follow(self)

    def detach(self) -> None:
        for journal in self._journals:
            journal.unfollow(self)

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
        """The same frame with this viewer's cursor as its id."""
        cursor = ".".join(str(position + 1) for position in self._cursors)
        suffix = self._hub.streams.id_suffix
        return f"id: {self._signature}.{cursor}{suffix}\n".encode() + frame[frame.index(b"\n") + 1 :]


class ChangesViewer(Viewer):
    """Streams the changes of all sessions. Its positions are those of the feed."""

    __slots__ = ("_cursor", "_erased")

    def __init__(self, hub: Hub, position: int) -> None:
        super().__init__(hub)
        self._cursor = position
        self._erased = hub.streams.erased_count

    @property
    def position(self) -> int:
        return self._cursor

    def attach(self) -> None:
        self._hub.streams.follow_changes(self)

    def detach(self) -> None:
        self._hub.streams.unfollow_changes(self)

    def wake(self) -> None:
        if self._paused or self._busy or self._pipe is None:
            return
        streams = self._hub.streams
        changes = streams.changes_after(self._cursor)
        if changes is None:
            self.catch_up(self._replay())
            return
        self._show(changes)
        since, self._erased = self._erased, streams.erased_count
        for session_id in streams.erased_since(since):
            gone = {"type": "session_erased", "session_id": session_id, "at": streams.stamp()}
            self.write(b"event: session_erased\ndata: " + msgspec.json.encode(gone) + b"\n\n")

    async def _replay(self) -> None:
        """Write a batch of changes that are no longer in memory. The viewer is woken afterwards and continues."""
        self._show(await self._hub.streams.read_changes(self._cursor))

    def _show(self, changes: Sequence[Change]) -> None:
        """Write changes until the connection is full. The rest is read again when there is room."""
        streams, suffix = self._hub.streams, self._hub.streams.id_suffix
        for position, _, event in changes:
            if self._paused:
                return
            self._cursor = position
            if event.type in STREAMED:
                frame = streams.stored_frame(event)
                self.write(f"id: {position}{suffix}\n".encode() + frame[frame.index(b"\n") + 1 :])
