"""Following sessions: what a surface may do to read their events while they happen.

Above: the event streams of surfaces. Below: the log, whose journals hold the sessions in use, and the feed of changes
in all sessions. Nothing here can change a session; the other verbs do that.

A viewer holds the journal itself, typed as `FollowedSession`, because thousands of viewers are woken with each commit.
A wrapper would cost a call per viewer and frame.
"""

from collections.abc import Callable
from typing import Protocol

from perdure.core import state as st
from perdure.core.view import TurnView
from perdure.runtime.log.feed import STREAMED, Change, Feed
from perdure.runtime.log.followers import Follower
from perdure.runtime.log.log import Log
from perdure.stores.base import Stored

__all__ = ["STREAMED", "Change", "FollowedSession", "Follower", "Stored", "Streams"]


class FollowedSession(Protocol):
    """One session: its current state, and its newest events as frames that all viewers share."""

    @property
    def state(self) -> st.Session: ...

    @property
    def view(self) -> TurnView:
        """The current turn, or the last one."""
        ...

    @property
    def last_seq(self) -> int: ...

    @property
    def turn_after_seq(self) -> int:
        """A position before the first event of the turn in the view."""
        ...

    @property
    def huge_seq(self) -> int:
        """The last event that is too large to be read for each viewer. Viewers before it get a snapshot."""
        ...

    @property
    def is_erased(self) -> bool: ...

    @property
    def has_runner(self) -> bool:
        """Whether this server runs the session now: a turn, or an agent that is kept ready."""
        ...

    @property
    def newest_frames(self) -> tuple[int, int, bytes | None]:
        """The last result of `frames_after`: (after, up to, frames). Most viewers are at the same position and take the
        frames from here."""
        ...

    def follow(self, follower: Follower) -> None:
        """Wake this follower after each commit."""
        ...

    def unfollow(self, follower: Follower) -> None: ...

    def holds(self, position: int) -> bool:
        """Whether all frames after this position are in memory."""
        ...

    def frames_after(self, position: int) -> bytes | None:
        """All frames after this position, joined; None if some are no longer in memory."""
        ...

    def frames_since(self, position: int) -> list[tuple[int, bytes]] | None:
        """The same as separate frames with their sequence numbers."""
        ...

    async def read(self, position: int, limit: int, max_bytes: int) -> list[Stored]:
        """The next events after this position, from the store."""
        ...

    async def snapshot_frame(self) -> tuple[int, bytes]:
        """(seq, frame) of the snapshot with which a viewer starts."""
        ...

    async def catch_up(self) -> None:
        """Read the events that other nodes have written."""
        ...


class Streams:
    """Opens sessions to be followed, and reads the changes of all sessions."""

    def __init__(self, log: Log, feed: Feed) -> None:
        self._log = log
        self._feed = feed
        # Bound, not wrapped: they are called for each frame.
        self.stored_frame: Callable[[Stored], bytes] = log.stored_frame
        """Encodes a stored event as a frame."""
        self.event_id: Callable[[int], bytes] = log.event_id
        """The id of an event in a stream: its position, with the epoch if there is one."""

    async def open(self, session_id: str) -> FollowedSession:
        """A session, to be followed. Raises Refused if it doesn't exist."""
        return await self._log.open(session_id)

    def stamp(self) -> str:
        """The current time, formatted as in events."""
        return self._log.stamp()

    # Epochs ------------------------------------------------------------------------------------------------------

    def is_valid(self, epoch: int | None) -> bool:
        """Whether a client's position with this epoch is still valid. A position without an epoch always is."""
        return epoch is None or epoch == self._log.epoch

    @property
    def id_suffix(self) -> str:
        """The epoch as the suffix of an event's id; empty if there is none."""
        return f"-{epoch}" if (epoch := self._log.epoch) else ""

    def watch_epoch(self, begin: Callable[[], None]) -> None:
        """Call `begin` when a new epoch starts while the server runs. All positions are invalid then."""
        self._log.watch_epoch(begin)

    # All sessions ------------------------------------------------------------------------------------------------

    def follow_changes(self, follower: Follower) -> None:
        """Wake this follower when there are new changes, and check soon whether there are any."""
        self._feed.follow(follower)
        self._feed.look()

    def unfollow_changes(self, follower: Follower) -> None:
        self._feed.unfollow(follower)

    async def newest_change(self) -> int:
        """The position of the newest change; 0 if there is none."""
        return await self._feed.newest()

    def changes_after(self, position: int) -> list[Change] | None:
        """The changes after this position; None if some are no longer in memory."""
        return self._feed.kept_after(position)

    async def read_changes(self, position: int) -> list[Change]:
        """The next changes after this position, from memory or the store: at least one, unless there are none."""
        return await self._feed.after(position)

    @property
    def erased_count(self) -> int:
        """How many sessions were erased since the server started."""
        return self._log.erased.count

    def erased_since(self, count: int) -> list[str]:
        """The sessions erased after the first `count`, or the newest of them if there are too many."""
        return self._log.erased.since(count)
