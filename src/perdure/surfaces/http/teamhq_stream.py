"""A session's events in TeamHQ's terms, as server-sent events: all events from a position on, then live ones.

Above: teamhq.py. Below: the session's frames, or the store for events that are no longer in memory. TeamHQ has no
snapshots, so there are none here. An event's id is its position in the log, counted from 0. Deltas that compaction has
joined are sent as the original events, so that an id always belongs to the same text. A client that reconnects in the
middle of them may get some again, and recognizes them by their ids.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.core.events import DELTA_TYPES
from perdure.core.view import public_session
from perdure.runtime.verbs.sessions import Sessions
from perdure.runtime.verbs.streams import FollowedSession, Stored
from perdure.surfaces.http.viewers import Hub, Viewer
from perdure.surfaces.teamhq import Teller, number_of

READ_BATCH = 1_000
DATA, FRAME_END = b"\ndata: ", b"\n\n"

Json = dict[str, Any]


class TeamViewer(Viewer):
    """Streams one session from a position on."""

    __slots__ = ("_cursor", "_has_tool_names", "_journal", "_sessions", "_teller")

    def __init__(self, hub: Hub, sessions: Sessions, journal: FollowedSession, position: int) -> None:
        super().__init__(hub)
        self._sessions = sessions
        self._journal = journal
        self._cursor = min(position, journal.last_seq)
        self._teller = Teller()
        self._has_tool_names = self._cursor == 0

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
        frames = self._journal.frames_after(self._cursor) if self._has_tool_names else None
        if frames is None:
            self.catch_up(self._replay())
            return
        for frame in frames.split(FRAME_END)[:-1]:
            event: Json = msgspec.json.decode(frame[frame.index(DATA) + len(DATA) :])
            self._tell(event["seq"], event)
            if self._paused:
                return
        if self._journal.state.phase == "ended":
            self._tell_end()

    async def _replay(self) -> None:
        """Write a batch of events that are no longer in memory. The viewer is woken afterwards and continues."""
        if not self._has_tool_names:
            await self._read_tool_names()
        for row in await self._sessions.read(self._journal.state.id, self._cursor, READ_BATCH):
            for seq, event in _parts(row):
                self._tell(seq, event)
                if self._paused:
                    return

    async def _read_tool_names(self) -> None:
        """Read the names of the tools whose results may come after the start position, because TeamHQ's tool results
        contain the name. The tools of the last turn are in memory."""
        self._has_tool_names = True
        if self._cursor >= self._journal.turn_after_seq and not self._journal.view.parts_offset:
            self._teller.tools = {key: tool["name"] for key, tool in self._journal.view.tools.items()}
            return
        after = self._journal.turn_after_seq
        position = after if self._cursor >= after else 0
        while rows := await self._sessions.read(self._journal.state.id, position, READ_BATCH):
            for row in rows:
                if row.seq > self._cursor:
                    return
                if row.type in ("turn_start", "tool_use"):
                    self._teller.note(msgspec.json.decode(row.body))
            position = rows[-1].seq

    def _tell(self, seq: int, event: Json) -> None:
        self._cursor = seq
        told = self._teller.tell(seq, event)
        if told is not None:
            self.write(self._frame(seq, b"session_event", told))

    def _tell_end(self) -> None:
        state = self._journal.state
        shown = {"status": state.status, "durationMs": public_session(state, 0)["duration_ms"]}
        self.write(self._frame(self._cursor, b"session_done", shown))
        self.finish()

    def _frame(self, seq: int, name: bytes, data: Json) -> bytes:
        number = self._hub.streams.event_id(number_of(seq))
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (number, name, msgspec.json.encode(data))


def _parts(row: Stored) -> Iterator[tuple[int, Json]]:
    """The stored event, or the original events if compaction has joined them."""
    event: Json = msgspec.json.decode(row.body)
    if row.type not in DELTA_TYPES or not row.cuts:
        yield row.seq, event
        return
    begin = 0
    for number, length in enumerate(row.cuts, row.first_seq):
        yield number, {**event, "delta": event["delta"][begin : begin + length]}
        begin += length
