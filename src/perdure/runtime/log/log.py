"""The logs of all sessions: the only channel between surfaces, runners and viewers.

Above: the verbs, runners and streams. Below: a store, and the journals (journal.py) of the sessions in use. Followers
of a session are woken and then read. A wake-up can be lost, so the log also polls from time to time, with one query for
all followed sessions. If other nodes write too (`shared`), a journal in memory can lag behind the store: `open` checks
the store first, and news.py reads the events of the other nodes.
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
from perdure.stores.base import Found, IssuedNativeSession, Kept, Owner, Query, Receipt, Store, Stored
from perdure.stores.shared import SharedStore
from perdure.stores.wakeups import LocalWakeups, Wakeups

logger = logging.getLogger(__name__)

POLL_S = 5.0
"""How long a follower can lag behind if a wake-up is lost."""
POLL_JITTER = 0.2
_jitter = random.Random()  # noqa: S311  no secret; a separate one, as tests may seed the module's
LIST_BATCH = 500
ERASED = "-"
"""Prefix of the wake-up for an erased session."""
DOCUMENTS = "document:"
"""Prefix of the wake-up for changed documents of a kind."""

T = TypeVar("T")


class Log:
    """All journals of this server."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time, wakeups: Wakeups | None = None) -> None:
        self.store = store
        self.shared = cast(SharedStore, store) if store.is_shared else None
        """The same store, if other nodes use it too."""
        self.now, self.steady = clock, time.monotonic
        self.generation = 0
        self.epoch = 0
        self.node: Owner | None = None
        """This server as an owner of sessions; None if it only writes commands."""
        self.living: set[str] = set()
        """Other nodes that were not marked dead as of the last heartbeat. They keep their sessions."""
        self.may_run: Callable[[st.Session], bool] = lambda _: True
        """Whether this node may run a session that has no owner."""
        self.due_at: Callable[[st.Session], str | None] = lambda _: None
        """When the next timeout of this session fires if nothing happens before."""
        self._epoch_watchers: list[Callable[[], None]] = []
        self.is_draining: Callable[[], bool] = lambda: False
        """Whether this node is draining: it must start nothing new."""
        self.is_responsive: Callable[[str], bool] = lambda _: False
        """Whether another node has sent a heartbeat very recently."""
        self.name_of_node: Callable[[str], str] = str
        self.waits_for_directory = False
        """Whether a session stays with its node because that node has its directory."""
        self.issued_twice: set[tuple[str, str]] = set()
        """(program, native session id) pairs that an agent has reused. Never resume these. Few agents reuse ids."""
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
        """Stop listening and polling, and wait for steps in progress."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def stamp(self) -> str:
        """The current time as events store it. Reuses the formatted second, which makes it ten times faster."""
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
        """The frame of a stored event, whose body lacks `seq`. Same as `frame` of `with_seq`, in one step."""
        if self.epoch:
            return b'id: %d-%d\nevent: %b\ndata: {"seq":%d,%b\n\n' % (
                *(seq, self.epoch, event_type.encode(), seq, body[1:]),
            )
        return b'id: %d\nevent: %b\ndata: {"seq":%d,%b\n\n' % (seq, event_type.encode(), seq, body[1:])

    def stored_frame(self, row: Stored) -> bytes:
        return self.frame(row.seq, row.type, ev.with_seq(row.seq, row.body, row.first_seq))

    def watch_epoch(self, begin: Callable[[], None]) -> None:
        """Call `begin` when event ids start a new epoch while the server runs."""
        self._epoch_watchers.append(begin)

    def renew_epoch(self, epoch: int) -> None:
        """Start a new epoch, as after a failover: sequence numbers may have been assigned twice. Journals reload, and
        viewers start again with a snapshot."""
        if epoch == self.epoch:
            return
        logger.warning("the database was restored or failed over: starting epoch %d; viewers get a new snapshot", epoch)
        self.epoch = epoch
        for journal in list(self.journals.values()):
            journal.distrust()
            self.catch_up_soon(journal)
        for begin in self._epoch_watchers:
            begin()

    # Wake-ups ----------------------------------------------------------------------------------------------------

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call `watcher` with the id of each session that has a new decisive event. It must not block."""
        self._watchers.append(watcher)

    def changed(self, session_id: str) -> None:
        for watcher in self._watchers:
            watcher(session_id)

    def watch_documents(self, kind: str, reload: Callable[[], Awaitable[None]]) -> None:
        """Call `reload` when another node has changed documents of this kind."""
        if self._newsreader is not None:
            self._newsreader.watch_documents(kind, reload)

    async def freshen_documents(self) -> None:
        """Before a request: reload the documents that other nodes have changed."""
        if self._newsreader is not None:
            await self._newsreader.freshen_documents()

    def announce_documents(self, kind: str) -> None:
        """Notify the other nodes that this node has changed documents of this kind."""
        self.wakeups.announce(f"{DOCUMENTS}{kind}", self)

    def _woken(self, name: str) -> None:
        """Handle a wake-up from another log. Without a name, any session may have changed."""
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
        """Run this in a separate task, which the log awaits when it stops."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _look_everywhere(self) -> None:
        """Check all followed sessions, because notifications were lost."""
        try:
            await self.poll()
        except StoreError as error:
            logger.warning("could not check for events from other nodes; retrying at the next poll: %s", error)
        self.changed("")

    async def _look_at_documents(self) -> None:
        try:
            await self.freshen_documents()
        except StoreError as error:
            logger.warning("could not reload documents changed by another node; retrying at the next poll: %s", error)

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
                "session %s: could not read new events; retrying at the next poll: %s", journal.state.id, error
            )

    @staticmethod
    def poll_s() -> float:
        """The time until the next poll, with jitter so that servers don't poll at the same time."""
        return POLL_S * _jitter.uniform(1 - POLL_JITTER, 1 + POLL_JITTER)

    async def _poll_on(self) -> None:
        while True:
            await asyncio.sleep(self.poll_s())
            try:
                await self.poll()
            except StoreError as error:
                logger.warning("could not check for lost wake-ups; retrying: %s", error)
            except Exception:
                logger.exception("could not check for lost wake-ups; retrying")

    async def poll(self) -> None:
        """Make up for lost wake-ups: check, in one query, all sessions that have followers, and those whose last step
        may or may not have been stored."""
        followed = {key: journal for key, journal in self.journals.items() if journal.followers or journal.is_stale}
        heads = await self.store.heads(list(followed)) if followed else {}
        for session_id, journal in followed.items():
            head = heads.get(session_id)
            # A journal that is being written checks for gaps anyway.
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
        """Create a session by committing its first events."""
        journal = Journal(self, decision.state)

        def first(_: st.Session) -> Decision:
            if journal.last_seq:
                raise Refused("conflict", f"Session {journal.state.id} already exists.")
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
        """Whether this node may claim a session with this owner."""
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
                # This node didn't know that the owner is alive. If it is not, the next heartbeat corrects this.
                self.living.add(journal.owner.node)
            raise NotOwner(f"session {journal.state.id} belongs to another node")
        await journal.catch_up()
        if self.shared is not None:
            await self.recall_issued_twice()
        # Any pending work of its owner is now this node's.
        self.changed(journal.state.id)

    async def confirm(self, journal: Journal) -> None:
        """Check, after all its pending writes, that this node still owns the session. Raises NotOwner if it doesn't."""
        if self.node is None or await self.store.claim_session(journal.state.id, self.node, self.generation) is None:
            raise NotOwner(f"session {journal.state.id} belongs to another node")

    async def open(self, session_id: str) -> Journal:
        """The session's journal, loaded from the store if it is not in memory."""
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
        """Drop a session that this node has erased, and notify the other nodes."""
        self.learn_erased(session_id)
        self.wakeups.announce(f"{ERASED}{session_id}", self)

    def learn_erased(self, session_id: str) -> None:
        """Drop an erased session and notify its followers."""
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
        """The conversation from one turn to another, up to a position (default: the current end)."""
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
        """The session's journal; None if the session is damaged, or was erased in the meantime."""
        try:
            return await self.open(session_id)
        except Refused as refused:
            logger.warning("skipping session %s: %s", session_id, refused.detail)
            return None

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this to the end even if the caller is cancelled."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def recall_issued_twice(self) -> None:
        """Read which native session ids were issued twice. Until this has succeeded, don't resume any."""
        self.issued_twice |= await self.store.issued_twice()

    async def note_issued(self, issued: Sequence[IssuedNativeSession]) -> None:
        """After native session ids were issued: check whether an agent has reused one."""
        try:
            await self.recall_issued_twice()
        except StoreError as error:
            # Assume that they were reused: their agents get the full transcript, which is always correct.
            logger.warning("could not check native session ids for reuse; not resuming these sessions: %s", error)
            self.issued_twice |= {(native.program, native.native_session_id) for native in issued}

    def evict(self, idle_for_s: float) -> None:
        """Evict unused journals, so that idle sessions take no memory."""
        limit = self.steady() - idle_for_s
        for session_id, journal in list(self.journals.items()):
            if journal.idle and journal.touched < limit:
                self._shrink(session_id)
                self.recent.forget(session_id)

    def _shrink(self, session_id: str) -> None:
        """Drop a session's cached frames, and evict its journal if it is idle."""
        journal = self.journals.get(session_id)
        if journal is not None:
            journal.drop_frames()
            if journal.idle:
                self._evicted[session_id] = self.journals.pop(session_id)
