"""A session's log in memory: what is committed, the state that it leads to, and who follows it.

Above: log.py holds the journals of this server; verbs record commands, the owner records facts, followers read.
Below: the store. `record` asks the machine, commits, and only then lets anybody see what happened: state evolves after
the commit, frames are made once and shared, followers are woken and read after their position.

Others may write to the same session, through another log of the same store. So a journal guesses no number, and checks
each append and each read for continuity: what it has not seen yet it reads first, and never skips.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from perdure.core import events as ev
from perdure.core import state as st
from perdure.core.decision import Decision
from perdure.core.errors import NOTHING_KEPT, Conflict, NotOwner, Refused, StoreError
from perdure.core.turn_record import RecordedView
from perdure.core.view import PAGE_TURNS, TurnView, snapshot
from perdure.runtime.log.frames import TAIL_BYTES, Tail
from perdure.runtime.log.quarantine import restored
from perdure.runtime.log.reading import batches
from perdure.runtime.log.records import beside, listed, turns_page
from perdure.stores.base import Append, Checkpoint, Draft, Kept, Receipt, SessionRecord, Stored
from perdure.stores.shared import News

if TYPE_CHECKING:
    from perdure.runtime.log.log import Log

logger = logging.getLogger(__name__)

AT_ONCE_EVENTS = 1_000
"""A step of more than these is made ready in a thread, and read again where it would be shown."""
HUGE_BYTES = 1024 * 1024
CONFLICT_RETRIES = 20
STRICT_ATTEMPTS = 4
"""How often a node tries to end another's turn directly after the last word of it."""
MAX_WAITING_COMMANDS = 500
"""Requests that wait for one session. Each holds its message in memory; more are asked to come again."""
RETRY_AFTER_S = 1
TAKING_OVER = "Waiting for this node to take the session over."
CATCH_UP_EVENTS = 4_096
"""After more than these the journal is read from the store, as when it is opened."""
DECISIVE_KEPT = 128
DECISIVE_BYTES = 128 * 1024
"""How much is kept ready for the runner. What came before is read from the store."""
NOTE_STEP_BYTES = 2_048
"""How much may be added before that is noted: to count it costs more than to keep it."""

DECISIVE = "!"
"""What announces a session in which something decisive has happened begins with this."""

NO_FRAMES = (-1, -1, None)

_json = msgspec.json.Encoder()


class Follower(Protocol):
    """A reader of one session's log. It is woken when there may be more after its position, and reads. `wake` must not
    block and must not raise."""

    @property
    def position(self) -> int: ...

    def wake(self) -> None: ...


class Journal:
    """One session in memory: its state, its view, the tail of its frames, and who follows it."""

    def __init__(self, log: "Log", state: st.Session, record: SessionRecord | None = None) -> None:
        self.log = log
        self.state = state
        self.last_seq = record.last_seq if record is not None else 0
        self.decided_seq = record.decided_seq if record is not None else 0
        self.owner = record.owner if record is not None else None
        self.token = record.token if record is not None else 0
        self.view = RecordedView(state.turn.turn if state.turn else None)
        self.turn_after_seq = 0
        """A position before the first event of the turn that the view shows."""
        self.followers: set[Follower] = set()
        self.has_runner = False
        self.is_erased = False
        self.last_event_s = log.steady()
        """When something happened here, by the steady clock; of a session from the store, when it was read."""
        self.happened_at = max(state.last_active_at, state.ended_at or "")
        """When the last event happened, wherever that was."""
        self.touched = log.steady()
        self._lock = asyncio.Lock()
        self._writers = 0
        """Who has the lock, and who waits for it."""
        self._waiting = 0
        self._stale = False
        """An append failed in a way that does not say whether it was kept."""
        self._is_distrusted = False
        """Nothing of it is kept when it is read again."""
        self._tail = Tail()
        self.newest_frames: tuple[int, int, bytes | None] = NO_FRAMES
        """What `frames_after` answered last: after which position, up to which, and the frames. Most viewers are at the
        same place, and take it from here."""
        self._decisive: deque[tuple[int, ev.Event, int]] = deque()
        self._decisive_bytes = 0
        self._decisive_after = self.last_seq
        """All decisive events after this position are in `_decisive`."""
        self._is_publishing = False
        self._unnoted = NOTE_STEP_BYTES
        """How many bytes were added since the log was told how much is kept here."""
        self.huge_seq = 0
        """The last event that is too large to be read again for each viewer: those before it get a snapshot."""
        self._snapshot: tuple[int, bytes] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this node owns the session, as far as it knows."""
        return self.owner is not None and self.owner == self.log.node

    @property
    def has_foreign_agent(self) -> bool:
        """Whether its agent's process is on another node, so that this one must go on without it."""
        attached, node = self.state.attached, self.log.node
        if self.log.shared is None or attached is None or node is None:
            return False
        return not attached.launch_id.startswith(f"{node.node}-")

    @property
    def waits_for_owner(self) -> st.WaitsFor | None:
        """Why a turn can't begin here; None if this node owns the session, or takes it with its next step. Without
        words if another node begins it in a moment."""
        reason = self.owner_reason
        is_quick = reason is not None and self.owner is not None and self.log.is_responsive(self.owner.node)
        return st.WaitsFor("owner", "") if is_quick else reason

    @property
    def owner_reason(self) -> st.WaitsFor | None:
        """The same, always in words."""
        if self.is_ours or self.log.may_claim(self.owner, self.state):
            # Of a process that is elsewhere it has to let go first, in a step of its own.
            return st.WaitsFor("owner", TAKING_OVER) if self.has_foreign_agent else None
        if self.owner is None or self.owner.node not in self.log.living:
            return st.WaitsFor("owner", "Waiting for a node that can run this session.")
        why = "which has its directory" if self.log.waits_for_directory else "which runs this session"
        return st.WaitsFor("owner", f"Waiting for node {self.log.name_of_node(self.owner.node)}, {why}.")

    @property
    def is_writing(self) -> bool:
        return self._writers > 0

    @property
    def takes_deltas(self) -> bool:
        """Whether they can be kept at once: nobody else writes, and this node owns what it knows to be complete."""
        return not self._writers and not self._stale and self.owner is not None and self.owner == self.log.node

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Nobody else writes to the session from here to the end."""
        await self.acquire()
        try:
            yield
        finally:
            self.release()

    async def acquire(self) -> None:
        self._writers += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._writers -= 1
            raise

    def release(self) -> None:
        self._lock.release()
        self._writers -= 1

    @property
    def is_stale(self) -> bool:
        """Whether an append failed in a way that does not say whether it was kept."""
        return self._stale

    # Writing -----------------------------------------------------------------------------------------------------

    async def record(
        self,
        make: Callable[[st.Session], Decision],
        *,
        checkpoint: Checkpoint | None = None,
        receipt: Callable[[Decision], Receipt] | None = None,
        by_owner: bool = False,
    ) -> tuple[Decision, Kept]:
        """Decide on the state as it is, commit, then let it be seen: the decision, and what the store made of it.

        With `by_owner` the step is kept only while this node owns the session. Not to be cancelled half-way: callers
        that may be cancelled shield it."""
        if self._waiting >= MAX_WAITING_COMMANDS and not by_owner:
            words = "Too many requests wait for this session. Try again in a moment."
            raise Refused("unavailable", words, retry_after_s=RETRY_AFTER_S)
        self._waiting += 1
        try:
            async with self.alone():
                is_complete = by_owner
                for attempt in range(CONFLICT_RETRIES):
                    if self._stale:
                        await self._catch_up()
                    if by_owner and not self.is_ours:
                        raise self._not_owner()
                    decision = make(self.state)
                    if not decision.events and checkpoint is None:
                        return decision, Kept(self.last_seq, self.token, self.owner)
                    # What comes in between is not lost, only not part of the turn's record: a flood stops nobody.
                    is_strict = not self.is_ours and self.last_seq > 0 and attempt < STRICT_ATTEMPTS
                    ends_anothers = is_strict and any(isinstance(each, ev.TurnEnd) for each in decision.events)
                    if ends_anothers and not is_complete:
                        # What the agent said until now is part of what is kept of the turn.
                        await self._catch_up()
                        is_complete = True
                        continue
                    taken = receipt(decision) if receipt is not None else None
                    # A long history that a new session takes over: others need not wait until it is encoded.
                    is_long = self.last_seq == 0 and len(decision.events) > AT_ONCE_EVENTS
                    given = (decision, checkpoint, taken, by_owner, ends_anothers)
                    step = await asyncio.to_thread(self._step, *given) if is_long else self._step(*given)
                    try:
                        kept = await self.log.store.append(step)
                    except StoreError as error:
                        await self._retry_after(error, by_owner)
                        continue
                    self.owner, self.token = kept.owner, kept.token
                    if decision.given:
                        # Before anybody sees it: from then on nothing is waited for, so that who recorded it is next.
                        await self.log.note_given(decision.given)
                    if step.events and not await self._close_gap(kept.first - 1):
                        return decision, kept
                    if step.state is not None:
                        self.state = decision.state
                    if is_long:
                        self._begin_with(decision.events)
                    elif decision.events:
                        numbers = range(kept.first, kept.first + len(step.events))
                        self._publish(decision.events, step.events, numbers, wrote=True)
                    return decision, kept
                raise Conflict(f"session {self.state.id} changed faster than a decision could be made")
        finally:
            self._waiting -= 1

    def _not_owner(self) -> NotOwner:
        return NotOwner(f"session {self.state.id} belongs to {self.owner.node if self.owner else 'nobody'}")

    async def _retry_after(self, error: StoreError, by_owner: bool) -> None:
        """Read what is new after an append that was not kept, or raise its error where to try again is of no use."""
        if not isinstance(error, Conflict | NotOwner) or (by_owner and isinstance(error, NotOwner)):
            self.not_kept(error)
            raise error
        if isinstance(error, NotOwner):
            self.owner = None
        # For a command, NotOwner says that another node has claimed the session since it was read.
        seen = (self.last_seq, self.decided_seq, self.token)
        await self._catch_up()
        if isinstance(error, NotOwner) and self.owner is not None and not self.is_ours:
            # It was not known to be alive. The next heartbeat corrects this if it is not.
            self.log.living.add(self.owner.node)
        if seen == (self.last_seq, self.decided_seq, self.token) and isinstance(error, Conflict):
            raise error  # nothing was new: it is not the state that it conflicts with, but a receipt

    async def record_deltas(
        self, deltas: list[Any], checkpoint: Checkpoint, fitting: Callable[[st.Session], bool]
    ) -> bool:
        """The fast path of a streaming answer: no decision, no state, only numbers. False, and nothing is done, if
        they do not fit the state any more: the turn may have ended while this waited for its place."""
        async with self.alone():
            if self._stale:
                await self._catch_up()
            while True:
                if not self.is_ours:
                    raise self._not_owner()
                if not fitting(self.state):
                    return False
                step = self.delta_step(deltas, checkpoint, self.log.stamp())
                try:
                    kept = await self.log.store.append(step)
                except StoreError as error:
                    await self._retry_after(error, True)
                    continue
                if deltas:
                    await self._close_gap(kept.first - 1)
                self.show_deltas(deltas, step, kept)
                return True

    def delta_step(self, deltas: Sequence[Any], checkpoint: Checkpoint, at: str) -> Append:
        """The step that keeps these, with how far the launch has come; without any, only that."""
        session_id, at = self.state.id, max(at, self.happened_at)
        drafts = []
        for event in deltas:
            event.at = at
            event.session_id = session_id
            drafts.append(Draft(ev.TYPES[type(event)], event.turn, ev.encode(event), False))
        return Append(
            session_id=session_id,
            generation=self.log.generation,
            expect=self.decided_seq,
            token=self.token,
            events=drafts,
            checkpoint=checkpoint,
        )

    def show_deltas(self, deltas: Sequence[Any], step: Append, kept: Kept) -> None:
        """After their commit. If others wrote in between, what came before is read first."""
        if not deltas:
            return
        if kept.first > self.last_seq + 1:
            self._stale = True
            self.log.catch_up_soon(self)
        else:
            self._publish(deltas, step.events, range(kept.first, kept.first + len(deltas)), wrote=True)

    def not_kept(self, error: Exception) -> None:
        """An append of the owner's failed. Unless it is sure that nothing was kept, the next one reads first."""
        if isinstance(error, NotOwner):
            self.owner = None
        if not isinstance(error, NOTHING_KEPT):
            self._stale = True

    def _step(
        self,
        decision: Decision,
        checkpoint: Checkpoint | None,
        receipt: Receipt | None,
        by_owner: bool,
        ends_anothers: bool,
    ) -> Append:
        events = decision.events
        drafts = [Draft(ev.type_of(event), event.turn, ev.encode(event), event.decisive) for event in events]
        decisive = any(event.decisive for event in events)
        records = beside(decision, self.view, self.state.last_turn)
        may_claim = not self.is_ours and self.log.may_claim(self.owner, decision.state)
        claims = may_claim and not self.has_foreign_agent
        return Append(
            session_id=self.state.id,
            generation=self.log.generation,
            expect=self.decided_seq if events else None,
            expect_last=self.last_seq if ends_anothers else None,
            token=self.token if by_owner or (claims and self.last_seq) else None,
            claim=self.log.node if claims else None,
            events=drafts,
            state=st.dump(decision.state) if decisive else None,
            listed=listed(decision, self.view, self.log.due_at(decision.state)) if decisive else None,
            turns=records.turns,
            hidden=records.hidden,
            records=records.records,
            records_after=self.last_seq,
            receipt=receipt,
            checkpoint=checkpoint,
            phrases=records.phrases,
            given=decision.given,
        )

    def _begin_with(self, events: list[Any]) -> None:
        """The first step, without the frames of its events: whoever wants these reads them."""
        self.last_seq = self._decisive_after = len(events)
        self.decided_seq = max(seq for seq, event in enumerate(events, 1) if event.decisive)
        turn = self.state.turn.turn if self.state.turn else None
        self.view = RecordedView(turn)
        first = next((seq for seq, event in enumerate(events, 1) if turn is not None and event.turn == turn), 1)
        self.turn_after_seq = first - 1
        for event in events[self.turn_after_seq :]:
            self.view.fold(event)
        self.touched = self.last_event_s = self.log.steady()
        self.happened_at = max(self.state.last_active_at, events[-1].at)
        self._note_size()
        self._wake_all(decisive=True, wrote=True)

    def _publish(
        self,
        events: Sequence[Any],
        kept: Sequence[Draft | Stored],
        seqs: Sequence[int],
        *,
        wrote: bool,
        joined: bool = False,
    ) -> None:
        """Show what was kept, here or elsewhere. After the commit, and only then. `joined`: some numbers are of runs
        that were joined since, so that the store alone can serve a position inside of them."""
        decided = self.decided_seq
        for seq, event, draft in zip(seqs, events, kept, strict=True):
            size = len(draft.body)
            self._unnoted += size
            if size < TAIL_BYTES and not joined:
                self._tail.add(seq, self.log.event_frame(seq, draft.type, draft.body))
            else:
                # It would fill the tail alone. Whoever wants it reads it.
                self._tail.clear()
                self.huge_seq = seq if size > HUGE_BYTES else self.huge_seq
            if event.decisive:
                self._follow(seq, event, size)
            self.view.fold(event)
        if self.decided_seq != decided:
            self._forget_decisive()
        self.last_seq = seqs[-1]
        self.happened_at = events[-1].at
        self.touched = self.last_event_s = self.log.steady()
        if self.state.id not in self.log.journals:
            self.log.hold(self)
        self.newest_frames = NO_FRAMES  # what it holds may be a long piece that nobody wants any more
        self._is_publishing = True
        self._wake_all(decisive=self.decided_seq != decided, wrote=wrote)
        self._is_publishing = False
        if self._unnoted >= NOTE_STEP_BYTES or self.decided_seq != decided:
            self._note_size()

    def _follow(self, seq: int, event: ev.Event, size: int) -> None:
        """A decisive event, which may also begin another view."""
        if isinstance(event, ev.UserMessage) and event.turn != self.view.turn:
            self.view, self.turn_after_seq = RecordedView(event.turn), seq - 1
        elif isinstance(event, ev.HistoryChanged) and self.state.turn is None:
            self.view = RecordedView(None)
        self.decided_seq = seq
        self._decisive.append((seq, event, size))
        self._decisive_bytes += size

    def _forget_decisive(self) -> None:
        """Only a runner reads them."""
        most, most_bytes = (DECISIVE_KEPT, DECISIVE_BYTES) if self.has_runner else (0, 0)
        while len(self._decisive) > most or self._decisive_bytes > most_bytes:
            self._decisive_after, _, dropped = self._decisive.popleft()
            self._decisive_bytes -= dropped

    def _wake_all(self, *, decisive: bool, wrote: bool = False) -> None:
        for follower in list(self.followers):
            follower.wake()
        if wrote:
            self.log.wakeups.announce(f"{DECISIVE}{self.state.id}" if decisive else self.state.id, self.log)
        if decisive:
            self.log.changed(self.state.id)

    # What others wrote -------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Read what others have written since."""
        async with self.alone():
            await self._catch_up()

    async def take_news(self, news: News) -> bool:
        """Show what others have written, as it was read for many sessions at once; False if there is more."""
        async with self.alone():
            rows = [row for row in news.events if row.seq > self.last_seq]
            known = (self.decided_seq, self.token, self.owner)
            is_plain = (news.head.decided_seq, news.head.token, news.head.owner) == known
            if self._stale or not is_plain or (rows and rows[0].first_seq != self.last_seq + 1):
                await self._catch_up()
            else:
                self._publish_rows(rows, [ev.decode(row.body) for row in rows])
            return self.last_seq >= news.head.last_seq

    async def _catch_up(self) -> None:
        record = await self.log.store.load(self.state.id)
        if record is None:
            raise self.log.erased.missing(self.state.id)
        missed = record.last_seq - self.last_seq
        if 0 <= missed <= CATCH_UP_EVENTS and not self._is_distrusted:
            rows = [row async for batch in self._after(record.last_seq) for row in batch]
            events, state = [ev.decode(row.body) for row in rows], restored(self.state.id, record)
            self._stale = True
            is_moved = self.owner != record.owner
            self._take(state, record)
            self._publish_rows(rows, events)
            if is_moved and not rows:
                # No event says so, and whoever runs the session must know.
                self._wake_all(decisive=True)
        else:
            fresh = await self.log.load(self.state.id)
            if fresh is None:
                raise self.log.erased.missing(self.state.id)
            self._is_distrusted = False
            self._replace_by(fresh)
        self._stale = False

    def _after(self, upto: int) -> Any:
        return batches(self.log.store, self.state.id, self.last_seq, upto)

    def _take(self, state: st.Session, record: SessionRecord) -> None:
        self.state, self.owner, self.token = state, record.owner, record.token
        self.decided_seq = record.decided_seq

    def _replace_by(self, fresh: "Journal") -> None:
        self.state, self.last_seq, self.decided_seq = fresh.state, fresh.last_seq, fresh.decided_seq
        self.owner, self.token = fresh.owner, fresh.token
        self.view, self.turn_after_seq = fresh.view, fresh.turn_after_seq
        self.happened_at = fresh.happened_at
        self.drop_frames()
        self._wake_all(decisive=True)

    async def _close_gap(self, upto: int) -> bool:
        """Read the events between what was seen and the step that was just kept: somebody else's deltas. False if they
        can't be read now: the step was kept all the same, and is shown with them later."""
        if upto > self.last_seq:
            self._stale = True
            try:
                rows = [row async for batch in self._after(upto) for row in batch]
            except StoreError:
                self.log.catch_up_soon(self)
                return False
            self._publish_rows(rows, [ev.decode(row.body) for row in rows])
            self._stale = False
        return True

    def _publish_rows(self, rows: Sequence[Stored], events: Sequence[ev.Event]) -> None:
        """Show what was read from the store, as if it had been written here."""
        if rows:
            # What decides is known from the record that was read first.
            decided, self.decided_seq = self.decided_seq, min(self.decided_seq, self.last_seq)
            joined = any(row.first_seq < row.seq for row in rows)
            self._publish(events, rows, [row.seq for row in rows], wrote=False, joined=joined)
            self.decided_seq = max(decided, self.decided_seq)

    def distrust(self) -> None:
        """What is in memory may not be what is stored."""
        self._stale = self._is_distrusted = True
        self.drop_frames()

    def drop_frames(self) -> None:
        """Whoever wants these reads them."""
        self._tail.clear()
        self.newest_frames = NO_FRAMES
        self._unnoted = NOTE_STEP_BYTES
        self._snapshot = None
        self._decisive.clear()
        self._decisive_bytes, self._decisive_after = 0, self.last_seq

    # Reading -----------------------------------------------------------------------------------------------------

    async def decisive_after(self, position: int) -> list[tuple[int, ev.Event]]:
        """The decisive events after this position, or the first of them: at least one, if there is any."""
        if position >= self._decisive_after:
            return [(seq, event) for seq, event, _ in self._decisive if seq > position]
        async for batch in batches(self.log.store, self.state.id, position, self.last_seq):
            rows = [row for row in batch if row.type not in ev.DELTA_TYPES]
            found: list[tuple[int, ev.Event]] = [(row.seq, ev.decode(row.body)) for row in rows]
            if decisive := [(seq, event) for seq, event in found if event.decisive]:
                return decisive
        return []

    async def read(self, position: int, limit: int, max_bytes: int) -> list[Stored]:
        """Some events after this position, as they are stored."""
        return await self.log.store.read(self.state.id, position, limit=limit, max_bytes=max_bytes)

    def holds(self, position: int) -> bool:
        """Whether everything after `position` is in the tail."""
        return self._tail.holds(position, self.last_seq)

    def frames_after(self, position: int) -> bytes | None:
        """Everything after `position` as one piece shared by all who are there; None if the tail no longer has it."""
        joined = self._tail.after(position, self.last_seq)
        self.newest_frames = (position, self.last_seq, joined)
        if not self._is_publishing:
            self._note_size()
        return joined

    def frames_since(self, position: int) -> list[tuple[int, bytes]] | None:
        """The same as single frames with their numbers."""
        return self._tail.since(position) if position >= 0 and self.holds(position) else None

    def wake_those_behind(self) -> None:
        """A wake-up may have been lost."""
        for follower in list(self.followers):
            if follower.position < self.last_seq:
                follower.wake()

    def _note_size(self) -> None:
        """How much is kept for viewers; not of a journal that was let go of, and that only its holders keep."""
        self._unnoted = 0
        if self.log.journals.get(self.state.id) is self:
            snapshot_bytes = len(self._snapshot[1]) if self._snapshot is not None else 0
            kept = self._tail.size + self.view.size + self._decisive_bytes + snapshot_bytes
            self.log.recent.note(self.state.id, kept)

    async def snapshot_frame(self) -> tuple[int, bytes]:
        """(seq, frame): everything that a viewer needs to begin. Made once per position."""
        if self._snapshot is None or self._snapshot[0] != self.last_seq:
            rows = await self.log.store.read_turns(self.state.id, last=PAGE_TURNS)
            view: TurnView = self.view
            seq = self.last_seq
            if self.state.turn is None and rows:
                # The last turn was rewound: the one before it is read again.
                view = await self.log.view_of(self.state.id, rows[-1].turn, seq)
            if seq != self.last_seq:
                return await self.snapshot_frame()
            turns, older = turns_page(self.state, rows, PAGE_TURNS)
            now = self.log.stamp()
            body = _json.encode(snapshot(self.state, view, seq, turns, now, self.happened_at, next_cursor=older))
            self._snapshot = (seq, self.log.frame(seq, "snapshot", body))
            self._note_size()
        return self._snapshot

    @property
    def idle(self) -> bool:
        return not (self.followers or self.has_runner or self.is_writing or self._stale)
