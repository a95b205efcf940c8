"""Group commit: steps are checked one by one and written together.

Above: the writer (sqlite_writer.py) opens the transaction and commits it. Below: SQLite. A step is rejected before any
part of it is added to the group, so it does not affect the others. Nothing here commits.

Each call into SQLite releases the GIL and has to wait for it again; while the event loop is busy, that is most of the
cost. So rows are written with few statements of many rows, not with one statement per row.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.errors import Conflict, Fenced, NotOwner, StoreDamaged, StoreError
from perdure.stores.base import Append, Draft, IssuedNativeSession, Kept, LaunchProgress, Listed, Owner, Phrase, Receipt
from perdure.stores.launch_rows import only_offset_differs
from perdure.stores.sqlite_owners import (
    DECIDED_SEQ,
    LAST_SEQ,
    OWNERSHIP,
    count,
    is_count,
    may_be_taken,
    number,
    ownership,
)

ROWS_MAX = 256
"""Rows per statement. Statements have powers of two rows, so that a few cached statements cover any number of rows."""
HEADS_MAX = 10_000
POSITIONS_AT_ONCE = 10_000

Row = tuple[Any, ...]


class CachedHead(Struct):
    """The writer's cached copy of a session's head, to check deltas without a query."""

    key: int
    last_seq: int
    decided_seq: int
    owner: Owner | None = None
    token: int = 0
    launch: LaunchProgress | None = None
    """The launch row of this session that was written last; None if unknown."""
    launch_offset: int = 0
    """Current offset of that launch. Its row may be behind, but its last event has the offset. All other launch rows
    are up to date."""


class Known:
    """The writer's cache, valid while no other server writes: the heads of sessions, and the next free position. A
    failed commit invalidates it."""

    def __init__(self) -> None:
        self.heads: dict[str, CachedHead] = {}
        self.generation = -1
        self._next = self._reserved = 0

    def forget(self) -> None:
        self.heads.clear()
        self.generation = -1

    def refresh(self, connection: sqlite3.Connection) -> None:
        """Call at the start of each transaction: another server may have written since."""
        generation = read_generation(connection)
        if generation != self.generation:
            self.forget()
            reserved, last = connection.execute(_POSITIONS).fetchone()
            if not is_count(reserved):
                # Damaged. Skip any positions that may have been reserved, used and erased.
                reserved = (last or 0) + POSITIONS_AT_ONCE
            self._next = self._reserved = max(reserved, last or 0) + 1
            self.generation = generation
        elif len(self.heads) > HEADS_MAX:
            self.heads.clear()

    def has_positions(self, wanted: int) -> bool:
        """Return whether this many positions are already reserved."""
        return self._next + wanted <= self._reserved

    def positions(self, connection: sqlite3.Connection, wanted: int) -> range:
        """Return the next positions. None is ever reused: not after an erasure, and not after a restart, which skips
        positions that were reserved but not used."""
        first, self._next = self._next, self._next + wanted
        if self._next > self._reserved:
            self._reserved = self._next + POSITIONS_AT_ONCE
            connection.execute(_RESERVE, (self._reserved,))
        return range(first, self._next)


_NOWHERE = CachedHead(0, 0, 0)
"""The head of a session that does not exist. Never modified; no row has the key 0."""


class Table(Struct, frozen=True):
    """A multi-row insert."""

    begin: str
    width: int
    end: str = ""

    def write(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
        done = 0
        while done < len(rows):
            count = min(ROWS_MAX, 1 << ((len(rows) - done).bit_length() - 1))
            connection.execute(_statement(self, count), list(chain.from_iterable(rows[done : done + count])))
            done += count


@cache
def _statement(table: Table, count: int) -> str:
    row = f"({','.join('?' * table.width)})"
    return f"{table.begin} VALUES {','.join([row] * count)} {table.end}"


# A failure ends the transaction anyway. The default, ABORT, makes SQLite copy each page it touches to a file first.
EVENTS = Table(
    "INSERT OR ROLLBACK INTO events (position, session_key, seq, type, turn, decisive, body, output_offset)", 8
)
_TURNS = Table(
    "INSERT INTO turns (session_key, turn, visible, public)",
    4,
    "ON CONFLICT (session_key, turn) DO UPDATE SET visible = excluded.visible, public = excluded.public",
)
_SPENT = Table("INSERT OR REPLACE INTO spent", 14)
_RECORDS = Table("INSERT OR REPLACE INTO turn_records (session_key, turn, seq, size, record)", 5)
_RECEIPTS = Table("INSERT INTO receipts (session_key, message_id, digest, answer, seq)", 5)
_HEADS = Table("INSERT OR REPLACE INTO heads (session_key, owner, incarnation, fencing_token)", 4)
_LAUNCHES = Table(
    "INSERT INTO launches (launch_id, session_key, agent, driver, phase, performed_seq, input_total, pending_input,"
    " driver_state, offset, written_seq)",
    11,
    "ON CONFLICT (launch_id, session_key) DO UPDATE SET phase = excluded.phase, offset = excluded.offset,"
    " performed_seq = excluded.performed_seq, input_total = excluded.input_total,"
    " pending_input = excluded.pending_input, driver_state = excluded.driver_state,"
    " written_seq = excluded.written_seq",
)

_GENERATION = "SELECT generation FROM meta"
_POSITIONS = f"SELECT {number('positions')}, (SELECT MAX(position) FROM events) FROM meta"  # noqa: S608  no user input
_RESERVE = "UPDATE meta SET positions = ?"
_OUTDATE = "UPDATE launches SET written_seq = ? WHERE session_key = ?"
# Updates the row of the launch that was written last, unless it is this one.
_COMPLETE = """
    UPDATE launches SET offset = COALESCE((
        SELECT output_offset FROM events WHERE events.session_key = launches.session_key
            AND events.seq > written_seq AND output_offset IS NOT NULL
        ORDER BY seq DESC LIMIT 1), offset)
    WHERE session_key = ?1 AND launch_id <> ?2
        AND written_seq = (SELECT MAX(written_seq) FROM launches WHERE session_key = ?1)"""
_HEAD = f"""
    SELECT session_key, {LAST_SEQ}, {DECIDED_SEQ}, {OWNERSHIP}
    FROM sessions LEFT JOIN heads USING (session_key) WHERE session_id = ?"""  # noqa: S608  no user input
_RECEIPT = "SELECT 1 FROM receipts WHERE session_key = ? AND message_id = ?"
_CREATE = """
    INSERT INTO sessions (project, agent, workdir, state, status, title, labels, archived, parent, last_active_at,
        public, due_at, session_id, machine_state, decided_seq)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)"""
_LIST = """
    UPDATE sessions SET project = ?, agent = ?, workdir = ?, state = ?, status = ?, title = ?, labels = ?,
        archived = ?, parent = ?, last_active_at = ?, public = ?, due_at = ?
    WHERE session_key = ?"""
_HIDE = "UPDATE turns SET visible = 0 WHERE session_key = ? AND turn BETWEEN ? AND ?"
# Issuing an id again sets `twice`, even for the same session, and for every earlier holder of the id.
_ISSUE = """
    INSERT INTO natives (program, native_session_id, session_key, agent, twice) VALUES (?, ?, ?, ?, 0)
    ON CONFLICT DO UPDATE SET twice = 1"""
_TWICE = """
    UPDATE natives SET twice = 1 WHERE program = ?1 AND native_session_id = ?2 AND twice = 0
        AND EXISTS (SELECT 1 FROM natives WHERE program = ?1 AND native_session_id = ?2 LIMIT 1 OFFSET 1)"""
_DECIDE = "UPDATE sessions SET machine_state = COALESCE(?, machine_state), decided_seq = ? WHERE session_key = ?"

_pack = msgspec.msgpack.Encoder().encode


def read_generation(connection: sqlite3.Connection) -> int:
    row = connection.execute(_GENERATION).fetchone()
    if row is None or not isinstance(row[0], int):
        raise StoreDamaged("the table meta has no valid generation")
    return row[0]


def check_generation(given: int, current: int) -> None:
    if given != current:
        raise Fenced(f"generation {given} no longer owns this store; generation {current} does")


def find_head(connection: sqlite3.Connection, session_id: str) -> CachedHead | None:
    """Raises StoreDamaged if the head is unreadable."""
    row = connection.execute(_HEAD, (session_id,)).fetchone()
    return None if row is None else CachedHead(row[0], count(row[1]), count(row[2]), *ownership(*row[3:]))


def write_owner(connection: sqlite3.Connection, key: int, owner: Owner | None, token: int) -> None:
    _HEADS.write(connection, [_owner_row(key, owner, token)])


class Group:
    """Checked steps to be written. Taking a step updates `known`: after a failed commit, call its `forget`."""

    def __init__(self, connection: sqlite3.Connection, known: Known) -> None:
        self._connection = connection
        self._known = known
        self._heads = known.heads
        self._events: list[Row] = []
        self._decided: dict[int, tuple[bytes | None, int]] = {}
        self._listed: dict[int, Listed] = {}
        self._turns: dict[tuple[int, int], Row] = {}
        self._spent: dict[tuple[int, int], Row] = {}
        self._records: dict[tuple[int, int], Row | None] = {}
        self._hidden: list[tuple[int, int, int]] = []
        self._receipts: dict[tuple[int, str], Row] = {}
        self._launches: dict[tuple[str, int], Row] = {}
        self._gone: set[tuple[str, int]] = set()
        self._phrases: list[tuple[int, Phrase]] = []
        self._issued: list[tuple[int, IssuedNativeSession]] = []
        self._owners: dict[int, Row] = {}

    def take(self, step: Append) -> Kept:
        """Check a step and add it to the group. If this raises Conflict, Fenced, NotOwner or StoreError, nothing of the
        step was added."""
        check_generation(step.generation, self._known.generation)
        head = self._heads.get(step.session_id) or self._find(step.session_id)
        self._check(step, head)
        if head is _NOWHERE:
            head = self._create(step)
        if step.claim is not None and step.claim != head.owner:
            self._claim(step.claim, head)
        first = head.last_seq + 1 if step.events else head.last_seq
        decided = head.decided_seq
        offset = self._store_progress(head, step.progress, len(step.events)) if step.progress is not None else None
        self._add_events(head, step.events, offset)
        if step.state is not None or head.decided_seq != decided:
            state = step.state if step.state is not None else self._decided.get(head.key, (None, 0))[0]
            self._decided[head.key] = (state, head.decided_seq)
        if step.listed is not None:
            self._listed[head.key] = step.listed
        for turn in step.turns:
            self._turns[head.key, turn.turn] = (head.key, turn.turn, turn.visible, turn.public)
            if turn.spent is not None:
                self._spent[head.key, turn.turn] = (head.key, turn.turn, *msgspec.structs.astuple(turn.spent))
        is_whole = step.records_after == (first - 1 if step.events else first)
        for record in step.records:
            kept = (head.key, record.turn, head.last_seq, record.size, record.body)
            self._records[head.key, record.turn] = kept if is_whole and record.body is not None else None
        if step.hidden is not None:
            self._hidden.append((head.key, *step.hidden))
        if (receipt := step.receipt) is not None:
            seq = None if receipt.event is None else first + receipt.event
            row = (head.key, receipt.message_id, receipt.digest, receipt.answer, seq)
            self._receipts[head.key, receipt.message_id] = row
        for phrase in step.phrases:
            self._phrases.append((head.key, phrase))
        for native in step.issued:
            self._issued.append((head.key, native))
        return Kept(first, head.token, head.owner)

    def write(self) -> None:
        """Write everything in the open transaction."""
        connection = self._connection
        if self._events:
            EVENTS.write(connection, self._events)
        if self._launches:
            _LAUNCHES.write(connection, list(self._launches.values()))
        if self._gone:
            connection.executemany("DELETE FROM launches WHERE launch_id = ? AND session_key = ?", list(self._gone))
        if self._decided:
            connection.executemany(_DECIDE, [(*decided, key) for key, decided in self._decided.items()])
        if self._owners:
            _HEADS.write(connection, list(self._owners.values()))
        if self._listed:
            connection.executemany(_LIST, [(*_columns(listed), key) for key, listed in self._listed.items()])
        if self._turns:
            _TURNS.write(connection, list(self._turns.values()))
        if self._spent:
            _SPENT.write(connection, list(self._spent.values()))
        if self._records:
            if gone := [key for key, row in self._records.items() if row is None]:
                connection.executemany("DELETE FROM turn_records WHERE session_key = ? AND turn = ?", gone)
            _RECORDS.write(connection, [row for row in self._records.values() if row is not None])
        if self._hidden:
            # After the turns: hiding a turn overrides a write of it in the same group.
            connection.executemany(_HIDE, self._hidden)
        if self._receipts:
            _RECEIPTS.write(connection, list(self._receipts.values()))
        if self._phrases:
            _write_phrases(connection, self._phrases)
        for key, native in self._issued:
            native_id = (native.program, native.native_session_id)
            connection.execute(_ISSUE, (*native_id, key, native.agent))
            connection.execute(_TWICE, native_id)

    def _find(self, session_id: str) -> CachedHead:
        head = find_head(self._connection, session_id)
        if head is None:
            return _NOWHERE
        self._heads[session_id] = head
        return head

    def _claim(self, claimer: Owner, head: CachedHead) -> None:
        if may_be_taken(self._connection, head.owner, claimer):
            head.owner, head.token = claimer, head.token + 1
            self._owners[head.key] = _owner_row(head.key, head.owner, head.token)

    def _check_claim(self, step: Append, head: CachedHead) -> None:
        """Reject a step with both a token and a claim if the claim fails."""
        assert step.claim is not None
        if step.token is not None and not may_be_taken(self._connection, head.owner, step.claim):
            assert head.owner is not None
            raise NotOwner(f"session {step.session_id} belongs to {head.owner.node}, which is alive")

    def _check(self, step: Append, head: CachedHead) -> None:
        # Check this first: a replaced owner must stop, not read and retry.
        if step.token is not None and step.token != head.token:
            if head is _NOWHERE:
                raise Conflict(f"there is no session {step.session_id}")
            raise NotOwner(f"session {step.session_id}: the fencing token is {head.token}, not {step.token}")
        if step.expect is not None and step.expect != head.decided_seq:
            raise Conflict(f"session {step.session_id}: last decisive event is {head.decided_seq}, not {step.expect}")
        if step.expect_last is not None and step.expect_last != head.last_seq:
            raise Conflict(f"session {step.session_id}: last event is {head.last_seq}, not {step.expect_last}")
        if step.claim is not None:
            self._check_claim(step, head)
        if step.receipt is not None:
            self._check_receipt(step.receipt, head, len(step.events))
        if head is _NOWHERE:
            if step.expect is None:
                raise Conflict(f"there is no session {step.session_id}")
            if step.state is None or step.listed is None:
                raise StoreError("the first step of a session needs `state` and `listed`")

    def _check_receipt(self, receipt: Receipt, head: CachedHead, events: int) -> None:
        if receipt.event is not None and not 0 <= receipt.event < events:
            raise StoreError(f"the receipt refers to event {receipt.event}, but the step has {events} events")
        key = (head.key, receipt.message_id)
        if key in self._receipts or self._connection.execute(_RECEIPT, key).fetchone() is not None:
            raise Conflict(f"message {receipt.message_id} was already accepted")

    def _create(self, step: Append) -> CachedHead:
        assert step.listed is not None
        cursor = self._connection.execute(_CREATE, (*_columns(step.listed), step.session_id, step.state))
        assert cursor.lastrowid is not None
        head = self._heads[step.session_id] = CachedHead(cursor.lastrowid, 0, 0)
        return head

    def _add_events(self, head: CachedHead, drafts: Sequence[Draft], offset: int | None) -> None:
        if not drafts:
            return
        last = head.last_seq + len(drafts)
        positions = self._known.positions(self._connection, len(drafts))
        for position, seq, draft in zip(positions, range(head.last_seq + 1, last + 1), drafts, strict=True):
            if draft.decisive:
                head.decided_seq = seq
            self._events.append(
                (
                    position,
                    head.key,
                    seq,
                    draft.type,
                    draft.turn,
                    draft.decisive,
                    draft.body,
                    offset if seq == last else None,
                )
            )
        head.last_seq = last

    def _store_progress(self, head: CachedHead, progress: LaunchProgress, events: int) -> int | None:
        """Add a launch row to the group. If only its offset changed, return the offset instead: it is written with the
        events."""
        launch = (progress.launch_id, head.key)
        if progress.phase == "gone":
            self._complete_others(head, progress.launch_id)
            self._launches.pop(launch, None)
            self._gone.add(launch)
            self._outdate_offsets(head)
            return None
        if events and head.launch is not None and only_offset_differs(progress, head.launch):
            head.launch_offset = progress.offset
            return progress.offset
        self._complete_others(head, progress.launch_id)
        self._gone.discard(launch)
        self._launches[launch] = _launch_row(head.key, progress, progress.offset, head.last_seq + events)
        # Without events, another launch row may have the same `written_seq` and would receive this launch's offsets.
        head.launch, head.launch_offset = progress if events else None, progress.offset
        return None

    def _outdate_offsets(self, head: CachedHead) -> None:
        """After a launch is gone, ignore the offsets it stored with events. All other launch rows are up to date."""
        head.launch = None
        self._connection.execute(_OUTDATE, (head.last_seq, head.key))
        for launch, row in self._launches.items():
            if launch[1] == head.key:
                self._launches[launch] = (*row[:-1], head.last_seq)

    def _complete_others(self, head: CachedHead, launch_id: str) -> None:
        """Bring the previously written launch row up to date, because another launch is written next."""
        if head.launch is None:
            self._connection.execute(_COMPLETE, (head.key, launch_id))
        elif (other := head.launch).launch_id != launch_id:
            row = _launch_row(head.key, other, head.launch_offset, head.last_seq)
            self._launches[other.launch_id, head.key] = row


def _launch_row(key: int, progress: LaunchProgress, offset: int, written_seq: int) -> Row:
    return (
        progress.launch_id,
        key,
        progress.agent,
        progress.driver,
        progress.phase,
        progress.performed_seq,
        progress.input_total,
        _pack(progress.pending_input),
        progress.driver_state,
        offset,
        written_seq,
    )


def _owner_row(key: int, owner: Owner | None, token: int) -> Row:
    return (key, None, None, token) if owner is None else (key, owner.node, owner.incarnation, token)


def _columns(listed: Listed) -> Row:
    return (
        listed.project,
        listed.agent,
        listed.workdir,
        listed.state,
        listed.status,
        listed.title,
        msgspec.json.encode(listed.labels).decode(),
        listed.archived,
        listed.parent,
        listed.last_active_at,
        listed.public,
        listed.due_at,
    )


def _write_phrases(connection: sqlite3.Connection, phrases: Iterable[tuple[int, Phrase]]) -> None:
    for key, phrase in phrases:
        if phrase.role != "assistant":
            connection.execute(
                "DELETE FROM phrases WHERE session_key = ? AND turn = ? AND role = ?", (key, phrase.turn, phrase.role)
            )
        connection.execute(
            "INSERT INTO phrases (session_key, turn, role, text) VALUES (?, ?, ?, ?)",
            (key, phrase.turn, phrase.role, phrase.text),
        )
