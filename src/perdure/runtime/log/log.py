"""The logs of all sessions: the only channel between surfaces, runners and viewers.

Above: the verbs, runners and streams. Below: a store, and the journals (journal.py) of sessions that somebody needs.
Everything that follows a session is woken and reads. A wake-up may be lost, so a poll looks now and then whether there
is more: one query for all sessions that somebody follows.
"""

import asyncio
import logging
import random
import time
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from perdure.core import events as ev
from perdure.core import state as st
from perdure.core.clock import stamp
from perdure.core.decision import Decision
from perdure.core.errors import UNREADABLE, NotOwner, Refused, StoreError
from perdure.core.transcript import History
from perdure.core.view import TurnView
from perdure.runtime.log.erased import Erased
from perdure.runtime.log.frames import Recent
from perdure.runtime.log.journal import Journal
from perdure.runtime.log.quarantine import Quarantine, refusal, restored
from perdure.runtime.log.reading import batches, of_turns, said_in_turns
from perdure.stores.base import Found, Given, Kept, Owner, Query, Receipt, Store, Stored
from perdure.stores.wakeups import LocalWakeups, Wakeups

logger = logging.getLogger(__name__)

POLL_S = 5.0
"""How long a follower may miss something if a wake-up is lost."""
POLL_JITTER = 0.2
_jitter = random.Random()  # noqa: S311  no secret; of its own, as a test may have seeded the one of the module
LIST_BATCH = 500

T = TypeVar("T")


class Log:
    """All journals of this server."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time, wakeups: Wakeups | None = None) -> None:
        self.store = store
        self.now, self.steady = clock, time.monotonic
        self.generation = 0
        self.epoch = 0
        self.node: Owner | None = None
        """This server as an owner of sessions; None: it only writes commands."""
        self.living: set[Owner] = set()
        """Other nodes that are alive, as of the last heartbeat."""
        self.given_twice: set[tuple[str, str]] = set()
        """(program, native session id) that several have: nobody may open these again. As few as agents reuse ids."""
        self._stamped_second, self._stamped = -1, ""
        self.journals: dict[str, Journal] = {}
        self._evicted: weakref.WeakValueDictionary[str, Journal] = weakref.WeakValueDictionary()
        """Evicted journals that are still referenced elsewhere. Reuse them, or two copies of a session diverge."""
        self.recent = Recent(self._shrink)
        self.erased = Erased()
        self.quarantine = Quarantine()
        self.wakeups = wakeups or LocalWakeups()
        self._stop_listening: Callable[[], None] | None = self.wakeups.listen(self, self._woken)
        self._watchers: list[Callable[[str], None]] = []
        self._loading: dict[str, asyncio.Task[Journal | None]] = {}
        self._catching_up: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._polling: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._polling = asyncio.create_task(self._poll_on(), name="fallback poll")

    async def stop(self) -> None:
        """Wait for what is being recorded."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def stamp(self) -> str:
        """The time as it is written. Only its milliseconds are new each time: making all of it costs ten times more."""
        second = int(now := self.now())
        if second != self._stamped_second:
            self._stamped_second, self._stamped = second, stamp(second)[:-4]
        return f"{self._stamped}{int((now - second) * 1000):03d}Z"

    def event_id(self, seq: int) -> bytes:
        return b"%d-%d" % (seq, self.epoch) if self.epoch else b"%d" % seq

    def frame(self, seq: int, event_type: str, body: bytes) -> bytes:
        if self.epoch:
            return b"id: %d-%d\nevent: %b\ndata: %b\n\n" % (seq, self.epoch, event_type.encode(), body)
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (seq, event_type.encode(), body)

    def event_frame(self, seq: int, event_type: str, body: bytes) -> bytes:
        """The frame of an event as it is stored, which is without its number. As `frame` of `with_seq`, in one go."""
        if self.epoch:
            return b'id: %d-%d\nevent: %b\ndata: {"seq":%d,%b\n\n' % (
                *(seq, self.epoch, event_type.encode(), seq, body[1:]),
            )
        return b'id: %d\nevent: %b\ndata: {"seq":%d,%b\n\n' % (seq, event_type.encode(), seq, body[1:])

    def stored_frame(self, row: Stored) -> bytes:
        return self.frame(row.seq, row.type, ev.with_seq(row.seq, row.body, row.first_seq))

    # Wake-ups ----------------------------------------------------------------------------------------------------

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher` with the id of each session in which something decisive has happened. It must not block."""
        self._watchers.append(watcher)

    def changed(self, session_id: str) -> None:
        for watcher in self._watchers:
            watcher(session_id)

    def _woken(self, session_id: str) -> None:
        """Another log has written to this session."""
        journal = self.journals.get(session_id)
        if journal is None:
            self.changed(session_id)
        else:
            self.catch_up_soon(journal)

    def catch_up_soon(self, journal: Journal) -> None:
        if journal.state.id not in self._catching_up:
            self._catching_up.add(journal.state.id)
            task = asyncio.ensure_future(self._catch_up(journal))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _catch_up(self, journal: Journal) -> None:
        self._catching_up.discard(journal.state.id)
        try:
            await journal.catch_up()
        except (Refused, StoreError, *UNREADABLE) as error:
            logger.warning(
                "session %s: could not read what is new; the next poll tries again: %s", journal.state.id, error
            )

    @staticmethod
    def poll_s() -> float:
        """How long until the next poll: with jitter, so that servers do not poll at once."""
        return POLL_S * _jitter.uniform(1 - POLL_JITTER, 1 + POLL_JITTER)

    async def _poll_on(self) -> None:
        while True:
            await asyncio.sleep(self.poll_s())
            try:
                await self.poll()
            except StoreError as error:
                logger.warning("could not look for lost wake-ups; trying again: %s", error)

    async def poll(self) -> None:
        """Find what a lost wake-up would have said: one query for all sessions that somebody follows, or of which it is
        not known whether the last step was kept."""
        followed = {key: journal for key, journal in self.journals.items() if journal.followers or journal.is_stale}
        heads = await self.store.heads(list(followed)) if followed else {}
        for session_id, journal in followed.items():
            head = heads.get(session_id)
            # A journal that is being written checks continuity without our help.
            is_behind = head is not None and (journal.is_stale or head.last_seq > journal.last_seq)
            if is_behind and not journal.is_writing:
                await self._catch_up(journal)
            journal.wake_those_behind()

    # Journals ----------------------------------------------------------------------------------------------------

    async def create(
        self, decision: Decision, *, receipt: Callable[[Decision], Receipt] | None = None
    ) -> tuple[Journal, Kept]:
        """A new session: its first events, committed."""
        journal = Journal(self, decision.state)

        def first(_: st.Session) -> Decision:
            if journal.last_seq:
                raise Refused("conflict", f"There is a session {journal.state.id} already.")
            return decision

        known = self.journals.setdefault(journal.state.id, journal)
        try:
            _, kept = await self.shielded(journal.record(first, receipt=receipt))
        except BaseException:
            if known is journal and not journal.last_seq:
                self.journals.pop(journal.state.id, None)
            raise
        return journal, kept

    def may_claim(self, owner: Owner | None) -> bool:
        """Whether this node may take a session that has this owner."""
        return self.node is not None and owner not in self.living

    async def claim(self, journal: Journal) -> None:
        """Become the session's owner, or raise NotOwner."""
        if journal.is_ours:
            return
        token = None
        if self.node is not None:
            token = await self.store.claim_session(journal.state.id, self.node, self.generation)
        if token is None:
            raise NotOwner(f"session {journal.state.id} belongs to another node")
        await journal.catch_up()
        # Whatever it needs from its owner, it needs from this node now.
        self.changed(journal.state.id)

    async def open(self, session_id: str) -> Journal:
        """The session's journal, read from the store if it is not in memory."""
        if session_id in self.erased.under_way:
            raise Refused("not_found", f"Session {session_id} is being erased.")
        journal = self.journals.get(session_id)
        if journal is None and (journal := self._evicted.get(session_id)) is not None:
            self.hold(journal)
        if journal is not None:
            journal.touched = self.steady()
            return journal
        task = self._loading.get(session_id)
        if task is None:
            task = asyncio.ensure_future(self._load_into_memory(session_id))
            self._loading[session_id] = task
        loaded = await asyncio.shield(task)
        if loaded is None:
            raise Refused("not_found", f"There is no session {session_id}.")
        return loaded

    def hold(self, journal: Journal) -> None:
        self.journals.setdefault(journal.state.id, journal)
        self._evicted.pop(journal.state.id, None)

    def forget(self, session_id: str) -> None:
        self.journals.pop(session_id, None)
        self._evicted.pop(session_id, None)
        self.recent.forget(session_id)
        self.erased.add(session_id)
        self.changed(session_id)
        self.wakeups.announce(session_id, self)

    async def _load_into_memory(self, session_id: str) -> Journal | None:
        try:
            if (journal := await self.quarantine.guard(session_id, self.load(session_id))) is not None:
                self.journals[session_id] = journal
                journal._note_size()
            return journal
        finally:
            del self._loading[session_id]

    async def load(self, session_id: str) -> Journal | None:
        record = await self.store.load(session_id)
        if record is None:
            return None
        journal = Journal(self, restored(session_id, record), record)
        if (turn := journal.view.turn) is None:
            return journal
        place = await self.store.find_turns(session_id, turn, turn)
        journal.turn_after_seq = min(place.after, record.last_seq)
        async for batch in batches(self.store, session_id, journal.turn_after_seq, record.last_seq):
            for event in (ev.decode(row.body) for row in batch if row.turn == turn):
                journal.view.fold(event)
                journal.happened_at = max(journal.happened_at, event.at)
        return journal

    async def view_of(self, session_id: str, turn: int, upto: int) -> TurnView:
        """A turn as it looked at this position."""
        view = TurnView(turn)
        async for batch in of_turns(self.store, session_id, turn, turn, upto):
            for row in batch:
                view.fold(ev.decode(row.body))
        return view

    async def history(
        self, session_id: str, from_turn: int = 1, to_turn: int | None = None, upto: int | None = None
    ) -> History:
        """What was said, from this turn to that one, up to a position or to the end that there is now."""
        history = History(pictures=False)
        history.seq = (await self.open(session_id)).last_seq if upto is None else upto
        try:
            async for events in said_in_turns(self.store, session_id, from_turn, to_turn, history.seq):
                for event in events:
                    history.fold(event)
        except UNREADABLE as error:
            raise refusal(session_id, f"an event can't be read ({error})") from error
        return history

    async def found(self, *, status: str, state: str | None) -> AsyncIterator[Found]:
        """All sessions with this status and state."""
        cursor = None
        while True:
            page = await self.store.list_sessions(Query(status=status, state=state, limit=LIST_BATCH, cursor=cursor))
            for found in page.found:
                if isinstance(found.session_id, str):
                    yield found
                else:
                    self.quarantine.add("session", repr(found.session_id), None, "its id is not text")
            cursor = page.next_cursor
            if cursor is None:
                return

    async def readable(self, session_id: str) -> Journal | None:
        """Its journal; None if it is damaged and set aside, or was erased meanwhile."""
        try:
            return await self.open(session_id)
        except Refused as refused:
            logger.warning("session %s is left out: %s", session_id, refused.detail)
            return None

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """On behalf of a caller that may be cancelled at any moment: the work goes on without it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def recall_given(self) -> None:
        """Learn which native sessions were given out twice. Without knowing it, none may be opened."""
        self.given_twice |= await self.store.given_twice()

    async def note_given(self, given: Sequence[Given]) -> None:
        """These have been given out now."""
        try:
            await self.recall_given()
        except StoreError as error:
            # Not known is taken for yes: their agents get the whole conversation, which is never wrong.
            logger.warning("native sessions could not be compared: %s", error)
            self.given_twice |= {(native.program, native.native_session_id) for native in given}

    def evict(self, idle_for_s: float) -> None:
        """Drop journals that nobody needs: an idle session costs no memory."""
        limit = self.steady() - idle_for_s
        for session_id, journal in list(self.journals.items()):
            if journal.idle and journal.touched < limit:
                self._shrink(session_id)
                self.recent.forget(session_id)

    def _shrink(self, session_id: str) -> None:
        """Keep as little of a session as its users need."""
        journal = self.journals.get(session_id)
        if journal is not None:
            journal.drop_frames()
            if journal.idle:
                self._evicted[session_id] = self.journals.pop(session_id)
