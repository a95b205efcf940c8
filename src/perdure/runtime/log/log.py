"""The log of each session: the only channel between surfaces, runners and viewers.

Above: the verbs (sessions.py), runners and streams. Below: a store. `record` asks the machine, commits, and only then
lets anybody see what happened: state evolves after the commit, frames are made once and shared, viewers and the
runner are woken. A journal is the part of a session that is in memory while somebody needs it.
"""

import asyncio
import hashlib
import logging
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from perdure.core import events as ev
from perdure.core import state as st
from perdure.core.clock import stamp
from perdure.core.decision import Decision
from perdure.core.errors import Conflict, Refused, StoreError
from perdure.core.view import SNAPSHOT_TURNS, TurnView, public_turn, snapshot
from perdure.runtime.log.erased import Erased
from perdure.runtime.log.frames import TAIL_BYTES, Recent, Tail
from perdure.runtime.log.quarantine import Quarantine, restored
from perdure.runtime.log.reading import batches, of_turns
from perdure.runtime.log.records import beside, listed
from perdure.stores.base import Append, Checkpoint, Draft, Given, Receipt, Store, Stored
from perdure.stores.wakeups import LocalWakeups, Wakeups

logger = logging.getLogger(__name__)

AT_ONCE_EVENTS = 1_000
"""A step of more than these is made ready in a thread, and read again where it would be shown."""
HUGE_BYTES = 1024 * 1024
CONFLICT_RETRIES = 5

_json = msgspec.json.Encoder()
T = TypeVar("T")


class Viewer(Protocol):
    """Somebody who watches a journal. `wake` must not block and must not raise."""

    def wake(self) -> None: ...


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Journal:
    """One session in memory: its state, its view, the tail of its frames, and who watches."""

    def __init__(self, log: "Log", state: st.Session, last_seq: int, decided_seq: int) -> None:
        self.log = log
        self.state = state
        self.last_seq = last_seq
        self.decided_seq = decided_seq
        self.view = TurnView(state.turn.turn if state.turn else None)
        self.viewers: set[Viewer] = set()
        self.follower: Callable[[list[tuple[int, ev.Event]]], None] | None = None
        """The runner, told of decisive events after they are committed."""
        self.last_event_s = log.steady()
        """When something happened here, by the steady clock; of a session from the store, when it was read."""
        self.happened_at = max(state.last_active_at, state.ended_at or "")
        """When the last event happened, wherever that was."""
        self.touched = log.steady()
        self._lock = asyncio.Lock()
        self._tail = Tail()
        self.huge_seq = 0
        """The last event that is too large to be read again for each viewer: those before it get a snapshot."""
        self._snapshot: tuple[int, bytes] | None = None

    # Writing -----------------------------------------------------------------------------------------------------

    async def record(
        self,
        make: Callable[[st.Session], Decision],
        *,
        checkpoint: Checkpoint | None = None,
        receipt: Callable[[Decision, int], Receipt] | None = None,
    ) -> tuple[Decision, int]:
        """Decide on the state as it is, commit, then let it be seen: the decision and its first event's number.

        Not to be cancelled half-way: callers that may be cancelled shield it."""
        async with self._lock:
            for attempt in range(CONFLICT_RETRIES):
                decision = make(self.state)
                if not decision.events and checkpoint is None:
                    return decision, self.last_seq
                slip = receipt(decision, self.last_seq + 1) if receipt else None
                try:
                    first = await self._commit(decision, checkpoint, slip)
                except Conflict:
                    if attempt + 1 == CONFLICT_RETRIES:
                        raise
                    await self._reload()
                    continue
                return decision, first
        raise AssertionError("unreachable")

    async def record_deltas(
        self, deltas: list[Any], checkpoint: Checkpoint, fitting: Callable[[st.Session], bool]
    ) -> bool:
        """The fast path of a streaming answer: no decision, no state, only numbers. False, and nothing is done, if
        they do not fit the state any more: the turn may have ended while this waited for its place."""
        async with self._lock:
            if not fitting(self.state):
                return False
            now = self.log.stamp()
            for event in deltas:
                event.at = now
                event.session_id = self.state.id
            drafts = [Draft(ev.type_of(event), event.turn, ev.encode(event), False) for event in deltas]
            step = Append(
                session_id=self.state.id,
                generation=self.log.generation,
                expect=None,
                events=drafts,
                checkpoint=checkpoint,
            )
            first = await self.log.store.append(step)
            self._publish(deltas, drafts, first)
            return True

    async def _commit(self, decision: Decision, checkpoint: Checkpoint | None, receipt: Receipt | None) -> int:
        events = decision.events
        # A history that was taken over: others need not wait until it is written down.
        is_long = self.last_seq == 0 and len(events) > AT_ONCE_EVENTS
        made = (decision, checkpoint, receipt)
        step = await asyncio.to_thread(self._step, *made) if is_long else self._step(*made)
        first = await self.log.store.append(step)
        if decision.given:
            # Before anybody sees it: from then on nothing is waited for, so that whoever recorded it comes next.
            await self.log.note_given(decision.given)
        began_after = self.state.turn_after_seq
        if step.state is not None:
            self.state = decision.state
        if is_long:
            self._begin_with(events)
        else:
            self._publish(events, step.events, first)
        for event in events:
            if isinstance(event, ev.TurnEnd) and first > 1:
                self.log.on_turn_ended(self.state.id, began_after)
        return first

    def _step(self, decision: Decision, checkpoint: Checkpoint | None, receipt: Receipt | None) -> Append:
        events = decision.events
        drafts = [Draft(ev.type_of(event), event.turn, ev.encode(event), event.decisive) for event in events]
        decisive = any(event.decisive for event in events)
        for index, event in enumerate(events):
            if isinstance(event, ev.UserMessage):
                # Not where the step begins: that may be the end of the turn before, which is not this turn's.
                decision.state.turn_after_seq = self.last_seq + index
        count = self.last_seq + len(events)
        records = beside(decision, self.view, self.state.last_turn)
        return Append(
            session_id=self.state.id,
            generation=self.log.generation,
            expect=self.decided_seq if decisive else None,
            events=drafts,
            state=st.dump(decision.state) if decisive else None,
            listed=listed(decision, count, self.view) if decisive else None,
            turns=records.turns,
            hidden=records.hidden,
            receipt=receipt,
            checkpoint=checkpoint,
            phrases=records.phrases,
            given=decision.given,
        )

    def _begin_with(self, events: list[Any]) -> None:
        """The first step, without the frames of its events: whoever wants these reads them."""
        self.last_seq = len(events)
        self.decided_seq = max(seq for seq, event in enumerate(events, 1) if event.decisive)
        self.view = TurnView(self.state.turn.turn if self.state.turn else None)
        for event in events[self.state.turn_after_seq :]:
            self.view.fold(event)
        self.touched = self.last_event_s = self.log.steady()
        self.happened_at = max(self.state.last_active_at, events[-1].at)
        self._note_size()
        self._tell([(seq, event) for seq, event in enumerate(events, 1) if event.decisive])

    def _publish(self, events: list[Any], drafts: list[Draft], first: int) -> None:
        """After the commit, and only then."""
        self.touched = self.log.steady()
        if not events:
            return
        self.log.hold(self)
        self.last_event_s = self.touched
        self.happened_at = events[-1].at
        decisive: list[tuple[int, ev.Event]] = []
        for index, (event, draft) in enumerate(zip(events, drafts, strict=True)):
            seq = first + index
            if len(draft.body) < TAIL_BYTES:
                self._tail.add(seq, self.log.frame(seq, draft.type, ev.with_seq(seq, draft.body)))
            else:
                # It would fill the tail alone. Whoever wants it reads it.
                self._tail.clear()
                self.huge_seq = seq if len(draft.body) > HUGE_BYTES else self.huge_seq
            if isinstance(event, ev.UserMessage) and event.turn != self.view.turn:
                self.view = TurnView(event.turn)
            elif isinstance(event, ev.HistoryChanged) and self.state.turn is None:
                self.view = TurnView(None)
            self.view.fold(event)
            if event.decisive:
                self.decided_seq = seq
                decisive.append((seq, event))
        self.last_seq = first + len(events) - 1
        self._tell(decisive)
        self._note_size()

    def _tell(self, decisive: list[tuple[int, ev.Event]]) -> None:
        """There is more for everybody who watches, and these for who carries them out."""
        for viewer in list(self.viewers):
            viewer.wake()
        if decisive and self.follower is not None:
            self.follower(decisive)
        if decisive:
            self.log.wakeups.announce(self.state.id)

    async def _reload(self) -> None:
        fresh = await self.log.load(self.state.id)
        if fresh is None:
            raise self.log.erased.missing(self.state.id)
        self.state, self.last_seq, self.decided_seq = fresh.state, fresh.last_seq, fresh.decided_seq
        self.view = fresh.view
        self.happened_at = fresh.happened_at
        self.drop_frames()

    def drop_frames(self) -> None:
        """Whoever wants these reads them."""
        self._tail.clear()
        self._snapshot = None

    # Reading -----------------------------------------------------------------------------------------------------

    def holds(self, position: int) -> bool:
        """Whether everything after `position` is in the tail."""
        return self._tail.holds(position, self.last_seq)

    def frames_after(self, position: int) -> bytes | None:
        """Everything after `position` as one piece shared by all who are there; None if the tail no longer has it."""
        if not self.holds(position):
            return None
        before, joined = self._tail.size, self._tail.after(position)
        if self._tail.size != before:
            self._note_size()
        return joined

    def frames_since(self, position: int) -> list[tuple[int, bytes]] | None:
        """The same as single frames with their numbers."""
        return self._tail.since(position) if position >= 0 and self.holds(position) else None

    def _note_size(self) -> None:
        """How much is kept for viewers; not of a journal that was let go of, and that only its holders keep."""
        if self.log.journals.get(self.state.id) is self:
            snapshot_bytes = len(self._snapshot[1]) if self._snapshot is not None else 0
            self.log.recent.note(self.state.id, self._tail.size + self.view.size + snapshot_bytes)

    async def snapshot_frame(self) -> tuple[int, bytes]:
        """(seq, frame): everything that a viewer needs to begin. Made once per position."""
        if self._snapshot is None or self._snapshot[0] != self.last_seq:
            rows = await self.log.store.read_turns(self.state.id, last=SNAPSHOT_TURNS)
            turns = [msgspec.json.decode(row.public) for row in rows]
            current = self.state.turn
            if current is not None and (self.state.working or (turns and turns[-1]["turn"] == current.turn)):
                # The running turn is newer in memory, and may have begun while the rows were read.
                running = public_turn(current)
                turns = [turn for turn in turns if turn["turn"] != running["turn"]] + [running]
            view, seq = self.view, self.last_seq
            if current is None and turns:
                # The last turn was rewound: the one before it is read again.
                view = await self.log.view_of(self.state.id, turns[-1]["turn"], seq)
            if seq != self.last_seq:
                return await self.snapshot_frame()
            body = _json.encode(snapshot(self.state, view, seq, turns, self.log.stamp(), self.happened_at))
            self._snapshot = (seq, self.log.frame(seq, "snapshot", body))
            self._note_size()
        return self._snapshot

    @property
    def idle(self) -> bool:
        return not self.viewers and self.follower is None and not self._lock.locked()


class Log:
    """All journals of this server."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time, wakeups: Wakeups | None = None) -> None:
        self.store = store
        self.now, self.steady = clock, time.monotonic
        self.generation = 0
        self.epoch = 0
        self.given_twice: set[tuple[str, str]] = set()
        """(program, native session id) that several have: nobody may open these again."""
        self._stamped_second, self._stamped = -1, ""
        self.journals: dict[str, Journal] = {}
        self._let_go: weakref.WeakValueDictionary[str, Journal] = weakref.WeakValueDictionary()
        """Those that somebody may still hold: two of one session would not hear of each other."""
        self.recent = Recent(self._shrink)
        self.change_watchers: set[Viewer] = set()
        self.erased = Erased()
        self.quarantine = Quarantine()
        self.wakeups = wakeups or LocalWakeups()
        self.wakeups.listen(self._changed)
        self.on_turn_ended: Callable[[str, int], None] = lambda session_id, began_after: None
        self._loading: dict[str, asyncio.Task[Journal | None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def stamp(self) -> str:
        """The time as it is written. Only its milliseconds are new each time: making all of it costs ten times more."""
        second = int(now := self.now())
        if second != self._stamped_second:
            self._stamped_second, self._stamped = second, stamp(second)[:-4]
        return f"{self._stamped}{int((now - second) * 1000):03d}Z"

    def event_id(self, seq: int) -> bytes:
        return b"%d-%d" % (seq, self.epoch) if self.epoch else b"%d" % seq

    def frame(self, seq: int, event_type: str, body: bytes) -> bytes:
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (self.event_id(seq), event_type.encode(), body)

    def stored_frame(self, row: Stored) -> bytes:
        return self.frame(row.seq, row.type, ev.with_seq(row.seq, row.body, row.first_seq))

    async def create(self, decision: Decision, *, receipt: Callable[[Decision, int], Receipt] | None = None) -> Journal:
        """A new session: its first events, committed."""
        journal = Journal(self, decision.state, 0, 0)

        def first(_: st.Session) -> Decision:
            if journal.last_seq:
                raise Refused("conflict", f"There is a session {journal.state.id} already.")
            return decision

        known = self.journals.setdefault(journal.state.id, journal)
        try:
            await self.shielded(journal.record(first, receipt=receipt))
        except BaseException:
            if known is journal and not journal.last_seq:
                self.journals.pop(journal.state.id, None)
            raise
        return journal

    async def open(self, session_id: str) -> Journal:
        """The session's journal, read from the store if it is not in memory."""
        if session_id in self.erased.under_way:
            raise Refused("not_found", f"Session {session_id} is being erased.")
        journal = self.journals.get(session_id) or self._let_go.get(session_id)
        if journal is not None:
            self.hold(journal)
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
        self._let_go.pop(journal.state.id, None)

    def forget(self, session_id: str) -> None:
        self.journals.pop(session_id, None)
        self._let_go.pop(session_id, None)
        self.recent.forget(session_id)
        self.erased.add(session_id)
        self.wakeups.announce(session_id)

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
        journal = Journal(self, restored(session_id, record), record.last_seq, record.decided_seq)
        if journal.view.turn is None:
            return journal
        async for batch in batches(self.store, session_id, journal.state.turn_after_seq, record.last_seq):
            for event in (ev.decode(row.body) for row in batch if row.turn == journal.view.turn):
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
            # Not known is taken for yes: their agents are told the conversation, which is never wrong.
            logger.warning("native sessions could not be compared: %s", error)
            self.given_twice |= {(native.program, native.native_session_id) for native in given}

    def _changed(self, _: str) -> None:
        for watcher in list(self.change_watchers):
            watcher.wake()

    def evict(self, idle_for_s: float) -> None:
        """Let go of journals that nobody needs: an idle session costs no memory."""
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
                self._let_go[session_id] = self.journals.pop(session_id)

    async def settle(self) -> None:
        """Wait for the records that are under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
