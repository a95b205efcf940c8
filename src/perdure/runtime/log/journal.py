"""A session's log in memory: the committed events, the resulting state, and the followers.

Above: log.py holds the journals of this server; verbs record commands, the owner records facts, followers read.
Below: the store. `record` makes a decision, commits it, and only then publishes it: the state changes after the commit,
frames are encoded once and shared, and followers are woken and read after their position.

Other logs on the same store can write to the same session. So a journal never predicts a sequence number, and checks
each append and each read for gaps. If it has missed events, it reads them first.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.core import events as ev
from perdure.core import state as st
from perdure.core.decision import Decision
from perdure.core.errors import NOTHING_KEPT, Conflict, NotOwner, Refused, StoreError
from perdure.core.turn_record import RecordedView
from perdure.core.view import PAGE_TURNS, TurnView, snapshot
from perdure.runtime.log.followers import Follower
from perdure.runtime.log.frames import TAIL_BYTES, Tail
from perdure.runtime.log.quarantine import restored
from perdure.runtime.log.reading import batches
from perdure.runtime.log.records import derived_rows, listed, turns_page
from perdure.stores.base import Append, Draft, Kept, LaunchProgress, Receipt, SessionRecord, Stored
from perdure.stores.shared import News

if TYPE_CHECKING:
    from perdure.runtime.log.log import Log

logger = logging.getLogger(__name__)

AT_ONCE_EVENTS = 1_000
"""A first step with more events than this is encoded in a thread, and viewers read it from the store."""
HUGE_BYTES = 1024 * 1024
CONFLICT_RETRIES = 20
STRICT_ATTEMPTS = 4
"""How many times a node tries to end another node's turn with no event in between."""
MAX_WAITING_COMMANDS = 500
"""How many requests may wait for one session. Each holds its message in memory; more are told to retry later."""
RETRY_AFTER_S = 1
TAKING_OVER = "Waiting for this node to take the session over."
CATCH_UP_EVENTS = 4_096
"""A journal that has missed more events than this is reloaded from the store."""
DECISIVE_KEPT = 128
DECISIVE_BYTES = 128 * 1024
"""How much to cache for the runner. It reads older events from the store."""
NOTE_STEP_BYTES = 2_048
"""Report the cached size only after this many new bytes: measuring costs more than it saves."""

DECISIVE = "!"
"""Prefix of a session's wake-up if one of the new events is decisive."""

NO_FRAMES = (-1, -1, None)

_json = msgspec.json.Encoder()


class Journal:
    """One session in memory: its state, its view, the tail of its frames, and its followers."""

    def __init__(self, log: "Log", state: st.Session, record: SessionRecord | None = None) -> None:
        self.log = log
        self.state = state
        self.last_seq = record.last_seq if record is not None else 0
        self.decided_seq = record.decided_seq if record is not None else 0
        self.owner = record.owner if record is not None else None
        self.token = record.token if record is not None else 0
        self.view = RecordedView(state.turn.turn if state.turn else None)
        self.turn_after_seq = 0
        """A position before the first event of the turn in the view."""
        self.followers: set[Follower] = set()
        self.has_runner = False
        self.is_erased = False
        self.last_event_s = log.steady()
        """Monotonic time of the last event seen here, or of loading the session from the store."""
        self.happened_at = max(state.last_active_at, state.ended_at or "")
        """Timestamp of the last event, on whatever node it happened."""
        self.touched = log.steady()
        self._lock = asyncio.Lock()
        self._writers = 0
        """The number of tasks that hold the lock or wait for it."""
        self._waiting = 0
        self._stale = False
        """An append failed and it is not known whether it was stored. Read the store before the next step."""
        self._is_distrusted = False
        """Reload everything from the store, instead of only the newer events."""
        self._tail = Tail()
        self.newest_frames: tuple[int, int, bytes | None] = NO_FRAMES
        """The last result of `frames_after`: (after, up to, frames). Most viewers are at the same position and take the
        frames from here."""
        self._decisive: deque[tuple[int, ev.Event, int]] = deque()
        self._decisive_bytes = 0
        self._decisive_after = self.last_seq
        """All decisive events after this position are in `_decisive`."""
        self._is_publishing = False
        self._unnoted = NOTE_STEP_BYTES
        """Bytes added since the size of this cache was last reported to the log."""
        self.huge_seq = 0
        """The last event that is too large to be read for each viewer. Viewers before it get a snapshot."""
        self._snapshot: tuple[int, bytes] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this node owns the session, as far as it knows."""
        return self.owner is not None and self.owner == self.log.node

    @property
    def has_foreign_agent(self) -> bool:
        """Whether its agent process is on another node, so this node must continue without it."""
        attached, node = self.state.attached, self.log.node
        if self.log.shared is None or attached is None or node is None:
            return False
        return not attached.launch_id.startswith(f"{node.node}-")

    @property
    def waits_for_owner(self) -> st.WaitsFor | None:
        """Why a turn can't start here; None if this node owns the session or can claim it with its next step. The text
        is empty if a responsive node is about to start the turn."""
        reason = self.owner_reason
        is_quick = reason is not None and self.owner is not None and self.log.is_responsive(self.owner.node)
        return st.WaitsFor("owner", "") if is_quick else reason

    @property
    def owner_reason(self) -> st.WaitsFor | None:
        """The same, but never with an empty text."""
        if self.is_ours or self.log.may_claim(self.owner, self.state):
            # A separate step has to detach the process on the other node first.
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
        """Whether deltas can be stored now: nobody else is writing, this node is the owner, and no event is missing."""
        return not self._writers and not self._stale and self.owner is not None and self.owner == self.log.node

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Exclude other writers of this journal while in the block."""
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
        """Whether an append failed and it is not known whether it was stored."""
        return self._stale

    # Writing -----------------------------------------------------------------------------------------------------

    async def record(
        self,
        make: Callable[[st.Session], Decision],
        *,
        progress: LaunchProgress | None = None,
        receipt: Callable[[Decision], Receipt | None] | None = None,
        by_owner: bool = False,
    ) -> tuple[Decision, Kept]:
        """Decide on the current state, commit, then publish. Returns the decision and the store's answer.

        With `by_owner` the step is stored only if this node owns the session. Must not be cancelled: callers that can
        be cancelled must shield it."""
        if self._waiting >= MAX_WAITING_COMMANDS and not by_owner:
            words = "Too many requests are waiting for this session. Try again in a moment."
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
                    if not decision.events and progress is None:
                        return decision, Kept(self.last_seq, self.token, self.owner)
                    # Give up after some attempts: events in between are not lost, only missing from the turn's record.
                    is_strict = not self.is_ours and self.last_seq > 0 and attempt < STRICT_ATTEMPTS
                    ends_anothers = is_strict and any(isinstance(each, ev.TurnEnd) for each in decision.events)
                    if ends_anothers and not is_complete:
                        # The turn's record must include the agent's output so far.
                        await self._catch_up()
                        is_complete = True
                        continue
                    taken = receipt(decision) if receipt is not None else None
                    # A new session with a long history: encode it in a thread, or it would block the event loop.
                    is_long = self.last_seq == 0 and len(decision.events) > AT_ONCE_EVENTS
                    given = (decision, progress, taken, by_owner, ends_anothers)
                    step = await asyncio.to_thread(self._step, *given) if is_long else self._step(*given)
                    try:
                        kept = await self.log.store.append(step)
                    except StoreError as error:
                        await self._retry_after(error, by_owner)
                        continue
                    self.owner, self.token = kept.owner, kept.token
                    if decision.issued:
                        # Before publishing: nothing may await from there on, so that the caller is the next to run.
                        await self.log.note_issued(decision.issued)
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
                raise Conflict(f"session {self.state.id} changed too often to record a step")
        finally:
            self._waiting -= 1

    def _not_owner(self) -> NotOwner:
        return NotOwner(f"session {self.state.id} belongs to {self.owner.node if self.owner else 'no node'}")

    async def _retry_after(self, error: StoreError, by_owner: bool) -> None:
        """After a failed append: read the new events, or raise the error if a retry can't succeed."""
        if not isinstance(error, Conflict | NotOwner) or (by_owner and isinstance(error, NotOwner)):
            self.not_kept(error)
            raise error
        if isinstance(error, NotOwner):
            self.owner = None
        # For a command, NotOwner means that another node has claimed the session in the meantime.
        seen = (self.last_seq, self.decided_seq, self.token)
        await self._catch_up()
        if isinstance(error, NotOwner) and self.owner is not None and not self.is_ours:
            # This node didn't know that the owner is alive. If it is not, the next heartbeat corrects this.
            self.log.living.add(self.owner.node)
        if seen == (self.last_seq, self.decided_seq, self.token) and isinstance(error, Conflict):
            raise error  # there were no new events, so the conflict is about a receipt

    async def record_deltas(
        self, deltas: list[Any], progress: LaunchProgress, fitting: Callable[[st.Session], bool]
    ) -> bool:
        """Store a streaming answer's deltas: the fast path, without a decision or a new state. Returns False and does
        nothing if they no longer fit the state, as the turn can end while this waits for the lock."""
        async with self.alone():
            if self._stale:
                await self._catch_up()
            while True:
                if not self.is_ours:
                    raise self._not_owner()
                if not fitting(self.state):
                    return False
                step = self.delta_step(deltas, progress, self.log.stamp())
                try:
                    kept = await self.log.store.append(step)
                except StoreError as error:
                    await self._retry_after(error, True)
                    continue
                if deltas:
                    await self._close_gap(kept.first - 1)
                self.show_deltas(deltas, step, kept)
                return True

    def delta_step(self, deltas: Sequence[Any], progress: LaunchProgress, at: str) -> Append:
        """The step that stores these deltas (if any) and the launch's progress."""
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
            progress=progress,
        )

    def show_deltas(self, deltas: Sequence[Any], step: Append, kept: Kept) -> None:
        """Publish deltas after their commit. If others wrote in between, catch up instead."""
        if not deltas:
            return
        if kept.first > self.last_seq + 1:
            self._stale = True
            self.log.catch_up_soon(self)
        else:
            self._publish(deltas, step.events, range(kept.first, kept.first + len(deltas)), wrote=True)

    def not_kept(self, error: Exception) -> None:
        """An append by the owner failed. Unless it is certain that nothing was stored, read before the next one."""
        if isinstance(error, NotOwner):
            self.owner = None
        if not isinstance(error, NOTHING_KEPT):
            self._stale = True

    def _step(
        self,
        decision: Decision,
        progress: LaunchProgress | None,
        receipt: Receipt | None,
        by_owner: bool,
        ends_anothers: bool,
    ) -> Append:
        events = decision.events
        drafts = [Draft(ev.type_of(event), event.turn, ev.encode(event), event.decisive) for event in events]
        decisive = any(event.decisive for event in events)
        rows = derived_rows(decision, self.view, self.state.last_turn)
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
            turns=rows.turns,
            hidden=rows.hidden,
            records=rows.records,
            records_after=self.last_seq,
            receipt=receipt,
            progress=progress,
            phrases=rows.phrases,
            issued=decision.issued,
        )

    def _begin_with(self, events: list[Any]) -> None:
        """Publish a long first step without caching frames; viewers read its events from the store."""
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
        """Publish committed events, whichever node wrote them. `joined`: some are compacted runs, so only the store can
        serve the positions inside them."""
        decided = self.decided_seq
        for seq, event, draft in zip(seqs, events, kept, strict=True):
            size = len(draft.body)
            self._unnoted += size
            if size < TAIL_BYTES and not joined:
                self._tail.add(seq, self.log.event_frame(seq, draft.type, draft.body))
            else:
                # It would fill the tail. Viewers read it from the store.
                self._tail.clear()
                self.huge_seq = seq if size > HUGE_BYTES else self.huge_seq
            if event.decisive:
                self._add_decisive(seq, event, size)
            self.view.fold(event)
        if self.decided_seq != decided:
            self._forget_decisive()
        self.last_seq = seqs[-1]
        self.happened_at = events[-1].at
        self.touched = self.last_event_s = self.log.steady()
        if self.state.id not in self.log.journals:
            self.log.hold(self)
        self.newest_frames = NO_FRAMES  # it may be long, and no viewer needs it any more
        self._is_publishing = True
        self._wake_all(decisive=self.decided_seq != decided, wrote=wrote)
        self._is_publishing = False
        if self._unnoted >= NOTE_STEP_BYTES or self.decided_seq != decided:
            self._note_size()

    def _add_decisive(self, seq: int, event: ev.Event, size: int) -> None:
        """Cache a decisive event, which can also start a new view."""
        if isinstance(event, ev.UserMessage) and event.turn != self.view.turn:
            self.view, self.turn_after_seq = RecordedView(event.turn), seq - 1
        elif isinstance(event, ev.HistoryChanged) and self.state.turn is None:
            self.view = RecordedView(None)
        self.decided_seq = seq
        self._decisive.append((seq, event, size))
        self._decisive_bytes += size

    def _forget_decisive(self) -> None:
        """Drop decisive events above the limits, or all of them if there is no runner to read them."""
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

    # Catching up -------------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Read the events that others have written."""
        async with self.alone():
            await self._catch_up()

    async def take_news(self, news: News) -> bool:
        """Publish events of other nodes, read in one query for many sessions. Returns False if there are more."""
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
                # A change of owner has no event, but the runner must notice it.
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
        """Read the missed events before the step that was just stored: another node's deltas. Returns False if they
        can't be read now: the step is stored, and the catch-up publishes it with them later."""
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
        """Publish events read from the store as if they had been written here."""
        if rows:
            # `decided_seq` already comes from the session's row, which was read first.
            decided, self.decided_seq = self.decided_seq, min(self.decided_seq, self.last_seq)
            joined = any(row.first_seq < row.seq for row in rows)
            self._publish(events, rows, [row.seq for row in rows], wrote=False, joined=joined)
            self.decided_seq = max(decided, self.decided_seq)

    def distrust(self) -> None:
        """Reload before the next use: memory may differ from the store."""
        self._stale = self._is_distrusted = True
        self.drop_frames()

    def drop_frames(self) -> None:
        """Clear the caches; readers fall back to the store."""
        self._tail.clear()
        self.newest_frames = NO_FRAMES
        self._unnoted = NOTE_STEP_BYTES
        self._snapshot = None
        self._decisive.clear()
        self._decisive_bytes, self._decisive_after = 0, self.last_seq

    # Reading -----------------------------------------------------------------------------------------------------

    def follow(self, follower: Follower) -> None:
        self.followers.add(follower)

    def unfollow(self, follower: Follower) -> None:
        self.followers.discard(follower)

    async def decisive_after(self, position: int) -> list[tuple[int, ev.Event]]:
        """The next decisive events after this position: at least one, unless there are none."""
        if position >= self._decisive_after:
            return [(seq, event) for seq, event, _ in self._decisive if seq > position]
        async for batch in batches(self.log.store, self.state.id, position, self.last_seq):
            rows = [row for row in batch if row.type not in ev.DELTA_TYPES]
            found: list[tuple[int, ev.Event]] = [(row.seq, ev.decode(row.body)) for row in rows]
            if decisive := [(seq, event) for seq, event in found if event.decisive]:
                return decisive
        return []

    async def read(self, position: int, limit: int, max_bytes: int) -> list[Stored]:
        """The next events after this position, as stored."""
        return await self.log.store.read(self.state.id, position, limit=limit, max_bytes=max_bytes)

    def holds(self, position: int) -> bool:
        """Whether all frames after `position` are in the tail."""
        return self._tail.holds(position, self.last_seq)

    def frames_after(self, position: int) -> bytes | None:
        """All frames after `position`, joined and shared by all viewers at it; None if the tail no longer has them."""
        joined = self._tail.after(position, self.last_seq)
        self.newest_frames = (position, self.last_seq, joined)
        if not self._is_publishing:
            self._note_size()
        return joined

    def frames_since(self, position: int) -> list[tuple[int, bytes]] | None:
        """The same as separate frames with their sequence numbers."""
        return self._tail.since(position) if position >= 0 and self.holds(position) else None

    def wake_those_behind(self) -> None:
        """Wake followers that are behind, in case a wake-up was lost."""
        for follower in list(self.followers):
            if follower.position < self.last_seq:
                follower.wake()

    def _note_size(self) -> None:
        """Report the size of this cache to the log, unless the journal was evicted."""
        self._unnoted = 0
        if self.log.journals.get(self.state.id) is self:
            snapshot_bytes = len(self._snapshot[1]) if self._snapshot is not None else 0
            kept = self._tail.size + self.view.size + self._decisive_bytes + snapshot_bytes
            self.log.recent.note(self.state.id, kept)

    async def snapshot_frame(self) -> tuple[int, bytes]:
        """(seq, frame) of the snapshot with which a viewer starts. Made once per position."""
        if self._snapshot is None or self._snapshot[0] != self.last_seq:
            rows = await self.log.store.read_turns(self.state.id, last=PAGE_TURNS)
            view: TurnView = self.view
            seq = self.last_seq
            if self.state.turn is None and rows:
                # The last turn was rewound: show the one before it.
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
