"""A session's events for the chat: a thread follows the stream and posts what to show.

Above: conversation.py, whose event loop receives the news. Below: the client's stream and the narrator. A feed follows
one session at a time; the receiver compares `stream` and drops news of a closed stream.
"""

import asyncio
import threading
from collections.abc import Iterator
from typing import NamedTuple

from perdure.surfaces.cli.narration import Line, Narrator, Piece
from perdure.surfaces.cli.reach import sentence_of
from perdure.surfaces.cli.situation import FOLLOWED
from perdure.surfaces.cli.terms import to_copy
from perdure.surfaces.client import Client, Problem, Unreachable
from perdure.surfaces.stream import Event, EventStream

RECOUNTED_TURNS = 3
"""How many turns are shown when a chat reopens a session."""
QUEUE = ("message_queued", "message_unqueued", "queued_message_edited")
"""Events of the queue, which is shown below the stream, not in it."""


class News(NamedTuple):
    """What the thread posts: pieces, the event if the status line needs it, whether the stream is connected, and the
    error that ended it."""

    stream: EventStream
    pieces: list[Piece]
    event: Event | None = None
    is_live: bool = True
    trouble: str = ""


class Feed:
    def __init__(self, client: Client) -> None:
        self._client = client
        self.stream: EventStream | None = None
        self.news: asyncio.Queue[News] = asyncio.Queue()
        self._show_all = ""
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self, session_id: str, position: int | None) -> None:
        """Follow a session from this position, or from a snapshot preceded by its last turns."""
        self.close()
        self._loop = asyncio.get_running_loop()
        stream = self._client.events(
            session_id,
            position,
            on_lost=lambda _: self._post(News(stream, [], is_live=False)),
            on_back=lambda: self._post(News(stream, [])),
        )
        self.stream = stream
        # Computed here, because the thread has no access to the command's options.
        self._show_all = to_copy(f"show {session_id} --markdown")
        threading.Thread(target=self._follow, args=(session_id, stream), name="perdure-events", daemon=True).start()

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def _follow(self, session_id: str, stream: EventStream) -> None:
        narrator = Narrator(lambda turn: list(self._client.transcript(session_id, turn)["turns"]))
        try:
            if stream.position is None:
                self._post(News(stream, list(self._recount(session_id, narrator))))
            for event in stream:
                pieces = [] if event.type in QUEUE else list(narrator.tell(event))
                is_followed = event.type in FOLLOWED or event.type == "system"
                if pieces or is_followed:
                    self._post(News(stream, pieces, event if is_followed else None))
        except (Problem, Unreachable) as error:
            self._post(News(stream, [], trouble=sentence_of(error)))

    def _recount(self, session_id: str, narrator: Narrator) -> Iterator[Piece]:
        """Tell the turns before the last one, and how to see earlier turns."""
        session = self._client.session(session_id)
        narrator.workdir = session.get("workdir") or ""
        turns = [turn["turn"] for turn in session.get("turns", [])]
        shown, earlier = turns[-RECOUNTED_TURNS:-1], turns[:-RECOUNTED_TURNS]
        begun = sum(turn["context"] is not None for turn in session.get("turns", []))
        older = session["turn_count"] - begun if session.get("next_cursor") else 0
        if earlier:
            count = len(earlier) + older
            words = f"{count} earlier turns" if count > 1 else "One earlier turn"
            yield Line(f"{words}: {self._show_all}", "note")
        if shown:
            found = self._client.transcript(session_id, shown[0])["turns"]
            yield from narrator.recount(turn for turn in found if turn["turn"] in shown)

    def _post(self, news: News) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self.news.put_nowait, news)
        except RuntimeError:
            return  # the chat has ended and its loop is closed
