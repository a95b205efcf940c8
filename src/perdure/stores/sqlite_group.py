"""A group of steps that share one commit: checked one by one, written together.

Above: the writer thread (sqlite_writer.py) opens the transaction and commits it. Below: SQLite. A step that must not
be kept is refused before anything of it is taken in, so it does not hurt the others. Nothing here commits.

Each call into SQLite gives the interpreter lock away and has to wait for it again; while the event loop is busy that
is most of the cost. So rows are written with few statements of many rows, not with one statement per row.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

from perdure.core.errors import Conflict, Fenced, NotOwner, StoreDamaged, StoreError
from perdure.stores.base import Append, Checkpoint, Given, Kept, Listed, Owner, Phrase, Receipt
from perdure.stores.sqlite_owners import DECIDED_SEQ, LAST_SEQ, OWNERSHIP, count, is_living, ownership

ROWS_MAX = 256
"""Rows of one statement; a power of two, so that few statements serve every number of rows."""

Row = tuple[Any, ...]


class CachedHead(Struct):
    """A session's head as the writer remembers it, so that a delta is checked without asking the database."""

    key: int
    last_seq: int
    decided_seq: int
    owner: Owner | None = None
    token: int = 0


_NOWHERE = CachedHead(0, 0, 0)
"""Of a session that does not exist. Never changed; no row has the key 0."""


class Table(Struct, frozen=True):
    """An insert of any number of rows."""

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


_EVENTS = Table("INSERT INTO events (session_key, seq, type, turn, decisive, body)", 6)
_TURNS = Table(
    "INSERT INTO turns (session_key, turn, visible, public)",
    4,
    "ON CONFLICT (session_key, turn) DO UPDATE SET visible = excluded.visible, public = excluded.public",
)
_SPENT = Table("INSERT OR REPLACE INTO spent", 14)
_RECEIPTS = Table("INSERT INTO receipts (session_key, message_id, digest, answer, seq)", 5)
_HEADS = Table("INSERT OR REPLACE INTO heads (session_key, owner, incarnation, fencing_token)", 4)
_LAUNCHES = Table(
    "INSERT INTO launches (launch_id, session_key, agent, driver, phase, offset, performed_seq, input_total,"
    " pending_input, driver_state)",
    10,
    "ON CONFLICT (launch_id, session_key) DO UPDATE SET phase = excluded.phase, offset = excluded.offset,"
    " performed_seq = excluded.performed_seq, input_total = excluded.input_total,"
    " pending_input = excluded.pending_input, driver_state = excluded.driver_state",
)

_GENERATION = "SELECT generation FROM meta"
_HEAD = f"""
    SELECT session_key, {LAST_SEQ}, {DECIDED_SEQ}, {OWNERSHIP}
    FROM sessions LEFT JOIN heads USING (session_key) WHERE session_id = ?"""  # noqa: S608  our own words
_RECEIPT = "SELECT 1 FROM receipts WHERE session_key = ? AND message_id = ?"
_CREATE = """
    INSERT INTO sessions (project, agent, workdir, state, status, title, labels, archived, parent, last_active_at,
        public, session_id, machine_state, decided_seq)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)"""
_LIST = """
    UPDATE sessions SET project = ?, agent = ?, workdir = ?, state = ?, status = ?, title = ?, labels = ?,
        archived = ?, parent = ?, last_active_at = ?, public = ?
    WHERE session_key = ?"""
_HIDE = "UPDATE turns SET visible = 0 WHERE session_key = ? AND turn BETWEEN ? AND ?"
# The same id once more is given twice, whoever it is given to; whoever had it before has it with others from now on.
_GIVE = """
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
        raise StoreDamaged("the table meta has lost who owns the database")
    return row[0]


def check_generation(given: int, current: int) -> None:
    if given != current:
        raise Fenced(f"generation {given} no longer owns this store; generation {current} does")


def find_head(connection: sqlite3.Connection, session_id: str) -> CachedHead | None:
    """Raises StoreDamaged if it can't be read."""
    row = connection.execute(_HEAD, (session_id,)).fetchone()
    return None if row is None else CachedHead(row[0], count(row[1]), count(row[2]), *ownership(*row[3:]))


def write_owner(connection: sqlite3.Connection, key: int, owner: Owner | None, token: int) -> None:
    _HEADS.write(connection, [_owner_row(key, owner, token)])


class Group:
    """Steps that were taken in and wait to be written. `heads` are the writer's and move as steps are taken: after a
    failed commit they have to be forgotten."""

    def __init__(self, connection: sqlite3.Connection, heads: dict[str, CachedHead], generation: int) -> None:
        self._connection = connection
        self._heads = heads
        self._generation = generation
        self._events: list[Row] = []
        self._decided: dict[int, tuple[bytes | None, int]] = {}
        self._listed: dict[int, Listed] = {}
        self._turns: dict[tuple[int, int], Row] = {}
        self._spent: dict[tuple[int, int], Row] = {}
        self._hidden: list[tuple[int, int, int]] = []
        self._receipts: dict[tuple[int, str], Row] = {}
        self._launches: dict[tuple[str, int], Row] = {}
        self._gone: set[tuple[str, int]] = set()
        self._phrases: list[tuple[int, Phrase]] = []
        self._given: list[tuple[int, Given]] = []
        self._owners: dict[int, Row] = {}

    def take(self, step: Append) -> Kept:
        """Check a step and take it in. Raises Conflict, Fenced, NotOwner or StoreError, and then nothing of it was
        taken."""
        check_generation(step.generation, self._generation)
        head = self._heads.get(step.session_id) or self._find(step.session_id)
        self._check(step, head)
        if head is _NOWHERE:
            head = self._create(step)
        if step.claim is not None and step.claim != head.owner:
            self._claim(step.claim, head)
        first = head.last_seq + 1 if step.events else head.last_seq
        decided = head.decided_seq
        for draft in step.events:
            head.last_seq += 1
            if draft.decisive:
                head.decided_seq = head.last_seq
            self._events.append((head.key, head.last_seq, draft.type, draft.turn, draft.decisive, draft.body))
        if step.state is not None or head.decided_seq != decided:
            state = step.state if step.state is not None else self._decided.get(head.key, (None, 0))[0]
            self._decided[head.key] = (state, head.decided_seq)
        if step.listed is not None:
            self._listed[head.key] = step.listed
        for turn in step.turns:
            self._turns[head.key, turn.turn] = (head.key, turn.turn, turn.visible, turn.public)
            if turn.spent is not None:
                self._spent[head.key, turn.turn] = (head.key, turn.turn, *msgspec.structs.astuple(turn.spent))
        if step.hidden is not None:
            self._hidden.append((head.key, *step.hidden))
        if (receipt := step.receipt) is not None:
            seq = None if receipt.event is None else first + receipt.event
            row = (head.key, receipt.message_id, receipt.digest, receipt.answer, seq)
            self._receipts[head.key, receipt.message_id] = row
        if step.checkpoint is not None:
            self._checkpoint(head.key, step.checkpoint)
        for phrase in step.phrases:
            self._phrases.append((head.key, phrase))
        for given in step.given:
            self._given.append((head.key, given))
        return Kept(first, head.token, head.owner)

    def write(self) -> None:
        """Put everything into the open transaction."""
        connection = self._connection
        if self._events:
            _EVENTS.write(connection, self._events)
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
        if self._hidden:
            # After the rows: a turn that is hidden is never written again, whatever is in the same group.
            connection.executemany(_HIDE, self._hidden)
        if self._receipts:
            _RECEIPTS.write(connection, list(self._receipts.values()))
        if self._phrases:
            _write_phrases(connection, self._phrases)
        for key, given in self._given:
            native = (given.program, given.native_session_id)
            connection.execute(_GIVE, (*native, key, given.agent))
            connection.execute(_TWICE, native)

    def _find(self, session_id: str) -> CachedHead:
        head = find_head(self._connection, session_id)
        if head is None:
            return _NOWHERE
        self._heads[session_id] = head
        return head

    def _claim(self, claimer: Owner, head: CachedHead) -> None:
        if head.owner is None or not is_living(self._connection, head.owner):
            head.owner, head.token = claimer, head.token + 1
            self._owners[head.key] = _owner_row(head.key, head.owner, head.token)

    def _check_claim(self, step: Append, head: CachedHead) -> None:
        """A step that gives the token too stands or falls with its claim."""
        owner = head.owner
        if step.token is not None and owner is not None and owner != step.claim and is_living(self._connection, owner):
            raise NotOwner(f"session {step.session_id} belongs to {owner.node}, which is alive")

    def _check(self, step: Append, head: CachedHead) -> None:
        # First: an owner that was replaced must stop, not read and try again.
        if step.token is not None and step.token != head.token:
            if head is _NOWHERE:
                raise Conflict(f"there is no session {step.session_id}")
            raise NotOwner(f"session {step.session_id} has the fencing token {head.token}, not {step.token}")
        if step.expect is not None and step.expect != head.decided_seq:
            raise Conflict(f"session {step.session_id} was decided up to {head.decided_seq}, not {step.expect}")
        if step.expect_last is not None and step.expect_last != head.last_seq:
            raise Conflict(f"the log of session {step.session_id} ends with {head.last_seq}, not {step.expect_last}")
        if step.claim is not None:
            self._check_claim(step, head)
        if step.receipt is not None:
            self._check_receipt(step.receipt, head, len(step.events))
        if head is _NOWHERE:
            if step.expect is None:
                raise Conflict(f"there is no session {step.session_id}")
            if step.state is None or step.listed is None:
                raise StoreError("a session's first step needs its state and what lists show of it")

    def _check_receipt(self, receipt: Receipt, head: CachedHead, events: int) -> None:
        if receipt.event is not None and not 0 <= receipt.event < events:
            raise StoreError(f"the step has no event {receipt.event} that could have taken the message")
        key = (head.key, receipt.message_id)
        if key in self._receipts or self._connection.execute(_RECEIPT, key).fetchone() is not None:
            raise Conflict(f"message {receipt.message_id} was already taken")

    def _create(self, step: Append) -> CachedHead:
        assert step.listed is not None
        cursor = self._connection.execute(_CREATE, (*_columns(step.listed), step.session_id, step.state))
        assert cursor.lastrowid is not None
        head = self._heads[step.session_id] = CachedHead(cursor.lastrowid, 0, 0)
        return head

    def _checkpoint(self, key: int, checkpoint: Checkpoint) -> None:
        launch = (checkpoint.launch_id, key)
        if checkpoint.phase == "gone":
            self._launches.pop(launch, None)
            self._gone.add(launch)
            return
        self._gone.discard(launch)
        self._launches[launch] = (
            checkpoint.launch_id,
            key,
            checkpoint.agent,
            checkpoint.driver,
            checkpoint.phase,
            checkpoint.offset,
            checkpoint.performed_seq,
            checkpoint.input_total,
            _pack(checkpoint.pending_input),
            checkpoint.driver_state,
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
