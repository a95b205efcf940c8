"""The logs of all sessions: the only channel between surfaces, runners and viewers.

Above: the verbs, runners and streams. Below: a store, and the journals (journal.py) of sessions that somebody needs.
Everything that follows a session is woken and reads. A wake-up may be lost, so a poll looks now and then whether there
is more: one query for all sessions that somebody follows. Where other nodes write too (`shared`), a journal in memory
may lag: `open` asks the store first, and news.py reads what the others have written.
"""

import asyncio
import logging
import random
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from perdure.core import events as ev
from perdure.core import state as st
from perdure.core.clock import stamp
from perdure.core.decision import Decision
from perdure.core.errors import UNREADABLE, NotOwner, Refused, StoreError
from perdure.core.transcript import History
from perdure.core.view import TurnView
from perdure.runtime.log.erased import Erased, SessionGone
from perdure.runtime.log.frames import Recent
from perdure.runtime.log.journal import DECISIVE, Journal
from perdure.runtime.log.news import Newsreader
from perdure.runtime.log.quarantine import Quarantine, refusal, restored
from perdure.runtime.log.reading import batches, of_turns, said_in_turns
from perdure.stores.base import Found, Given, Kept, Owner, Query, Receipt, Store, Stored
from perdure.stores.shared import SharedStore
from perdure.stores.wakeups import LocalWakeups, Wakeups

logger = logging.getLogger(__name__)

POLL_S = 5.0
"""How long a follower may miss something if a wake-up is lost."""
POLL_JITTER = 0.2
_jitter = random.Random()  # noqa: S311  no secret; of its own, as a test may have seeded the one of the module
LIST_BATCH = 500
ERASED = "-"
"""What announces that a session was erased begins so."""
DOCUMENTS = "document:"
"""What announces that documents of a kind have changed begins so."""

T = TypeVar("T")


class Log:
    """All journals of this server."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time, wakeups: Wakeups | None = None) -> None:
        self.store = store
        self.shared = cast(SharedStore, store) if store.is_shared else None
        """The same store, where other nodes use it too."""
        self.now, self.steady = clock, time.monotonic
        self.generation = 0
        self.epoch = 0
        self.node: Owner | None = None
        """This server as an owner of sessions; None: it only writes commands."""
        self.living: set[str] = set()
        """Other nodes that nobody has marked dead, as of the last heartbeat. They keep their sessions."""
        self.may_run: Callable[[st.Session], bool] = lambda _: True
        """Whether this node may run a session that has no owner."""
        self.due_at: Callable[[st.Session], str | None] = lambda _: None
        """When a clock of this session fires if nobody does anything."""
        self._epoch_watchers: list[Callable[[], None]] = []
        self.is_draining: Callable[[], bool] = lambda: False
        """Whether a person wants this node to begin nothing new."""
        self.is_responsive: Callable[[str], bool] = lambda _: False
        """Whether another node has just shown that it lives."""
        self.name_of_node: Callable[[str], str] = str
        self.waits_for_directory = False
        """Whether a session stays with its node because that has its directory."""
        self.given_twice: set[tuple[str, str]] = set()
        """(program, native session id) that several have: nobody may open these again. As few as agents reuse ids."""
        self._stamped_second, self._stamped = -1, ""
        self.journals: dict[str, Journal] = {}
        self._evicted: weakref.WeakValueDictionary[str, Journal] = weakref.WeakValueDictionary()
        """Evicted journals that are still referenced elsewhere. Reuse them, or two copies of a session diverge."""
        self.recent = Recent(self._shrink)
        self.erased = Erased(by_others=store.is_shared)
        self.quarantine = Quarantine()
        self.wakeups = wakeups or LocalWakeups()
        self._stop_listening: Callable[[], None] | None = self.wakeups.listen(self, self._woken)
        self._watchers: list[Callable[[str], None]] = []
        self._loading: dict[str, asyncio.Task[Journal | None]] = {}
        self._newsreader = Newsreader(self, self.shared) if self.shared is not None else None
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

    def watch_epoch(self, begin: Callable[[], None]) -> None:
        """Call this when event ids begin a new epoch while the server runs."""
        self._epoch_watchers.append(begin)

    def renew_epoch(self, epoch: int) -> None:
        """Numbers may have been given twice, as after a failover: nothing in memory is trusted, and whoever watches
        begins with a snapshot."""
        if epoch == self.epoch:
            return
        logger.warning("the database was restored or has failed over: event ids begin a new epoch, %d", epoch)
        self.epoch = epoch
        for journal in list(self.journals.values()):
            journal.distrust()
            self.catch_up_soon(journal)
        for begin in self._epoch_watchers:
            begin()

    # Wake-ups ----------------------------------------------------------------------------------------------------

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher` with the id of each session in which something decisive has happened. It must not block."""
        self._watchers.append(watcher)

    def changed(self, session_id: str) -> None:
        for watcher in self._watchers:
            watcher(session_id)

    def watch_documents(self, kind: str, reload: Callable[[], Awaitable[None]]) -> None:
        """Call `reload` when another node has changed documents of this kind."""
        if self._newsreader is not None:
            self._newsreader.watch_documents(kind, reload)

    async def freshen_documents(self) -> None:
        """Before a request: what another node has acknowledged is known here too."""
        if self._newsreader is not None:
            await self._newsreader.freshen_documents()

    def announce_documents(self, kind: str) -> None:
        """This node has changed some."""
        self.wakeups.announce(f"{DOCUMENTS}{kind}", self)

    def _woken(self, name: str) -> None:
        """Another log has written to this session; or, without a name, to any."""
        if not name:
            self.keep(self._look_everywhere())
            return
        if name.startswith(DOCUMENTS):
            self.keep(self._look_at_documents())
            return
        if name.startswith(ERASED):
            self.learn_erased(name.removeprefix(ERASED))
            return
        is_decisive, session_id = name.startswith(DECISIVE), name.removeprefix(DECISIVE)
        journal = self.journals.get(session_id)
        if journal is None:
            if is_decisive:
                self.changed(session_id)
        elif self._newsreader is None:
            self.catch_up_soon(journal)
        elif is_decisive or journal.followers:
            self._newsreader.behind(journal)

    def keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something in a task of its own, which the log awaits when it stops."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _look_everywhere(self) -> None:
        """Notifications were lost: anything may have changed."""
        try:
            await self.poll()
        except StoreError as error:
            logger.warning("could not look for what other nodes have written; the next poll does: %s", error)
        self.changed("")

    async def _look_at_documents(self) -> None:
        try:
            await self.freshen_documents()
        except StoreError as error:
            logger.warning("could not read documents that another node has changed; the next poll does: %s", error)

    def catch_up_soon(self, journal: Journal) -> None:
        if journal.state.id not in self._catching_up:
            self._catching_up.add(journal.state.id)
            self.keep(self._catch_up(journal))

    async def _catch_up(self, journal: Journal) -> None:
        self._catching_up.discard(journal.state.id)
        try:
            await journal.catch_up()
        except SessionGone:
            self.learn_erased(journal.state.id)
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
            except Exception:
                logger.exception("could not look for lost wake-ups; trying again")

    async def poll(self) -> None:
        """Find what a lost wake-up would have said: one query for all sessions that somebody follows, or of which it is
        not known whether the last step was kept."""
        followed = {key: journal for key, journal in self.journals.items() if journal.followers or journal.is_stale}
        heads = await self.store.heads(list(followed)) if followed else {}
        for session_id, journal in followed.items():
            head = heads.get(session_id)
            # A journal that is being written checks continuity without our help.
            is_moved = head is not None and (head.token, head.owner) != (journal.token, journal.owner)
            is_behind = head is not None and (journal.is_stale or is_moved or head.last_seq > journal.last_seq)
            if is_behind and not journal.is_writing:
                await self._catch_up(journal)
            journal.wake_those_behind()
        await self.freshen_documents()

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

    def may_claim(self, owner: Owner | None, state: st.Session) -> bool:
        """Whether this node may take a session that has this owner."""
        if self.node is None or (owner is not None and owner.node in self.living):
            return False
        return (owner is not None and owner.node == self.node.node) or self.may_run(state)

    async def claim(self, journal: Journal) -> None:
        """Become the session's owner, or raise NotOwner."""
        if journal.is_ours:
            return
        token = None
        if self.node is not None:
            token = await self.store.claim_session(journal.state.id, self.node, self.generation)
        if token is None:
            await journal.catch_up()
            if journal.owner is not None and not journal.is_ours:
                # It was not known to be alive. The next heartbeat corrects this if it is not.
                self.living.add(journal.owner.node)
            raise NotOwner(f"session {journal.state.id} belongs to another node")
        await journal.catch_up()
        if self.shared is not None:
            await self.recall_given()
        # Whatever it needs from its owner, it needs from this node now.
        self.changed(journal.state.id)

    async def confirm(self, journal: Journal) -> None:
        """Make sure that this node still owns the session, after all that it has sent to the store. Raises NotOwner."""
        if self.node is None or await self.store.claim_session(journal.state.id, self.node, self.generation) is None:
            raise NotOwner(f"session {journal.state.id} belongs to another node")

    async def open(self, session_id: str) -> Journal:
        """The session's journal, read from the store if it is not in memory."""
        if session_id in self.erased.under_way:
            raise Refused("not_found", f"Session {session_id} is being erased.")
        journal = self.journals.get(session_id)
        if journal is None and (journal := self._evicted.get(session_id)) is not None:
            self.hold(journal)
        if journal is not None:
            journal.touched = self.steady()
            if self._newsreader is not None:
                await self._newsreader.freshen(journal)
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
        """The session was erased."""
        self.learn_erased(session_id)
        self.wakeups.announce(f"{ERASED}{session_id}", self)

    def learn_erased(self, session_id: str) -> None:
        """The same, where another node has erased it."""
        journal = self.journals.pop(session_id, None) or self._evicted.pop(session_id, None)
        if journal is None and self.erased.knows(session_id):
            return
        self.recent.forget(session_id)
        self.erased.add(session_id)
        if journal is not None:
            journal.is_erased = True
            for follower in list(journal.followers):
                follower.wake()
        self.changed(session_id)

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
