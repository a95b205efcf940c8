"""Move all data from one store to another: which rows, in which order, and how to compare both sides.

Above: `perdure migrate`. Below: a `Side` for each engine (transfer_sqlite.py, transfer_postgres.py), which reads and
writes rows as canonical values. Each session is one transaction of the target, which also reads back what it wrote. So
every session in the target is complete and verified, and a killed move continues with the next one. The source is only
read. Running things are not moved, on purpose: agents, nodes and owners.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from perdure.core.errors import UNREADABLE, StoreDamaged, StoreError
from perdure.stores.base import Store

MAX_DIFFERENCES = 20
"""A comparison stops after this many."""
REPORT_EVENTS = 1_000
"""Within a session, report progress after this many events."""
CHECK_EVERY_S = 1.0
"""How often, between sessions, to check that no server was started."""
RECORD = ("migration", "record")
"""The document in the target that says what was moved into it."""
MARKER = "migrated.json"
"""This file marks a data directory whose database was moved to another one."""
UNSETTLED_KINDS = ("erasing", "ending")
"""Documents of unfinished work. A server completes it when it starts."""

Kind = Literal["number", "small", "flag", "text", "texts", "data", "real"]
Row = tuple[Any, ...]


class Table(Struct, frozen=True):
    """A table, independent of the engine. Any column may be None."""

    name: str
    columns: dict[str, Kind]
    key: tuple[str, ...]
    """The columns that sort the rows, and that identify a row in messages."""
    sorts: bool = False
    """Whether the key has text. Such rows are sorted here, because databases sort text differently."""


_SPENT: dict[str, Kind] = {
    "turn": "small",
    **dict.fromkeys(("started_at", "agent", "model", "context"), "text"),
    **dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"), "number"),
    "cost_usd": "real",
    **dict.fromkeys(("input_bytes", "duration_ms", "said_bytes"), "number"),
}

SESSIONS = Table(
    "sessions",
    {
        **dict.fromkeys(("last_seq", "decided_seq", "fencing_token"), "number"),
        **dict.fromkeys(("project", "agent", "workdir", "state", "status", "title"), "text"),
        "labels": "texts",
        "archived": "flag",
        **dict.fromkeys(("parent", "last_active_at", "due_at"), "text"),
        **dict.fromkeys(("public", "machine_state"), "data"),
    },
    (),
)
EVENTS = Table(
    "events",
    {
        **dict.fromkeys(("seq", "first_seq"), "number"),
        "type": "text",
        "turn": "small",
        "decisive": "flag",
        **dict.fromkeys(("body", "cuts"), "data"),
    },
    ("seq",),
)
TURNS = Table("turns", {"turn": "small", "visible": "flag", "public": "data"}, ("turn",))
RECORDS = Table("turn_records", {"turn": "small", "seq": "number", "size": "number", "record": "data"}, ("turn",))
SPENT = Table("spent", _SPENT, ("turn",))
RECEIPTS = Table(
    "receipts",
    {"message_id": "text", "digest": "text", "answer": "data", "seq": "number"},
    ("message_id",),
    sorts=True,
)
PHRASES = Table("phrases", {"turn": "small", "role": "text", "text": "text"}, ())
NATIVES = Table(
    "natives",
    {**dict.fromkeys(("program", "native_session_id", "agent"), "text"), "twice": "flag"},
    ("program", "native_session_id", "agent"),
    sorts=True,
)
FILES = Table("files", {"name": "text", "data": "data"}, ("name",), sorts=True)
OF_A_SESSION = (SESSIONS, EVENTS, TURNS, RECORDS, SPENT, RECEIPTS, PHRASES, NATIVES, FILES)
"""The session's own row comes first: the others need its key."""

JOBS = Table(
    "jobs", {"job_id": "text", "revision": "number", "start_at": "number", "body": "data"}, ("job_id",), sorts=True
)
RUNS = Table(
    "job_runs",
    {
        **dict.fromkeys(("job_id", "run_id"), "text"),
        "due_at": "number",
        "is_open": "flag",
        "session_id": "text",
        **dict.fromkeys(("body", "detail", "message", "result"), "data"),
    },
    ("job_id", "run_id"),
    sorts=True,
)
DOCUMENTS = Table("documents", {"kind": "text", "key": "text", "value": "data"}, ("kind", "key"), sorts=True)
CREDENTIALS = Table("credentials", {"name": "text", "value": "text"}, ("name",), sorts=True)
"""The token: a file in the data directory, or a document that all nodes share."""
ORDER = Table("order", {"session_id": "text", "seq": "number", "type": "text"}, ("session_id", "seq"))
"""The decisive events of all sessions, in the order in which they happened."""
OF_ALL = (JOBS, RUNS, DOCUMENTS, CREDENTIALS, ORDER)
"""ORDER comes last, because it refers to events."""


class TransferError(Exception):
    """The move is not possible. The message says why and what to do."""


class Difference(TransferError):
    """The two sides differ."""


class Record(Struct, frozen=True):
    """Describes a move into a store."""

    source: str
    life: str
    """`Side.life` of the source when it was copied."""
    started_at: str
    finished_at: str | None = None


class Progress(Struct):
    sessions: int = 0
    sessions_total: int = 0
    events: int = 0
    events_total: int = 0
    skipped: int = 0
    """Sessions that an earlier attempt has already moved."""
    jobs: int = 0


class Side(Protocol):
    """One of the two stores. Nothing else writes to it during the move."""

    identity: str
    """Identifies this store across attempts."""
    make_room: str
    """Advice for people if this is the target and has other content."""

    def life(self) -> str:
        """Return a value that changes with every start of a server on this store. After a change, earlier copies may be
        out of date."""
        ...

    def check_alone(self) -> None:
        """Raise TransferError if a server was started in the meantime."""
        ...

    def unsettled(self) -> int:
        """Return the number of sessions with a running turn, or with an agent that a keeper still holds."""
        ...

    def half_erased(self) -> int: ...

    def record(self) -> Record | None: ...

    def keep_record(self, record: Record) -> None:
        """Store the record durably, together with everything written before."""
        ...

    def sessions(self) -> list[str]:
        """Return the ids of all sessions, oldest first."""
        ...

    def count_events(self, session_id: str | None = None) -> int:
        """Return the number of event rows, of one session or of all."""
        ...

    def rows(self, table: Table, session_id: str | None = None) -> Iterator[Row]:
        """Return canonical values, sorted by the table's key. Raises StoreError."""
        ...

    def transaction(self) -> AbstractContextManager[None]: ...

    def write(self, table: Table, rows: Iterable[Row], session_id: str | None = None) -> None:
        """Write the rows of a session that does not exist yet. Without `session_id`: replace all rows of a table that
        is not part of a session."""
        ...

    def drop(self, session_id: str) -> None: ...

    def epoch(self) -> int: ...

    def raise_epoch(self, above: int) -> None:
        """Set an epoch above this one. Positions in the other store are invalid here, so viewers get a snapshot."""
        ...


class Transfer:
    def __init__(self, source: Side, target: Side, report: Callable[[Progress], None] = lambda _: None) -> None:
        self._source = source
        self._target = target
        self._report = report
        self._checked_s = 0.0
        self.progress = Progress()
        self.was_finished = False
        """Whether an earlier run has already moved everything."""

    # Moving ----------------------------------------------------------------------------------------------------------

    def run(self) -> Record:
        """Move everything, or continue an interrupted attempt. Raises TransferError and StoreError."""
        self._check_source()
        record = self._begin()
        self.was_finished = record.finished_at is not None
        if self.was_finished:
            return record
        self._count()
        self._move_sessions(is_current=record.life == self._source.life())
        for table in self._of_all():
            self._move_table(table)
        self._target.raise_epoch(self._source.epoch())
        self._check_alone()
        done = msgspec.structs.replace(record, life=self._source.life(), finished_at=_now())
        self._target.keep_record(done)
        return done

    def _check_source(self) -> None:
        if count := self._source.unsettled():
            turns = "1 turn is still running, or its keeper still holds the agent" if count == 1 else None
            raise TransferError(
                f"{turns or f'{count} turns are still running, or their keepers still hold the agents'}. Start the "
                "server, let them finish or abort them (`perdure abort`), stop it and try again."
            )
        if count := self._source.half_erased():
            raise TransferError(
                f"{count} erasure{' is' if count == 1 else 's are'} not complete. Start the server once to complete "
                "them, stop it and try again."
            )

    def _begin(self) -> Record:
        record = self._target.record()
        if record is None:
            self._check_empty()
            record = Record(self._source.identity, self._source.life(), _now())
            self._target.keep_record(record)
        elif record.source != self._source.identity:
            raise TransferError(f"The target has sessions that were moved from elsewhere. {self._target.make_room}")
        elif record.finished_at is not None and record.life != self._source.life():
            raise TransferError(
                f"Everything was already moved on {record.finished_at[:10]}, but a server has run on the source since. "
                f"Its changes are not in the target. To move everything again: {self._target.make_room}"
            )
        return record

    def _check_empty(self) -> None:
        projects = (row for row in self._target.rows(DOCUMENTS) if row[0] == "project")
        for rows, what in (
            (iter(self._target.sessions()), "sessions"),
            (self._target.rows(JOBS), "jobs"),
            (projects, "projects"),
        ):
            if any(True for _ in rows):
                raise TransferError(
                    f"The target already has {what} that don't come from this source. {self._target.make_room}"
                )

    def _count(self) -> None:
        self.progress.sessions_total = len(self._source.sessions())
        self.progress.events_total = self._source.count_events()

    def _move_sessions(self, *, is_current: bool) -> None:
        wanted = self._source.sessions()
        present = set(self._target.sessions())
        for session_id in sorted(present.difference(wanted)):
            # Erased since an earlier attempt.
            with self._target.transaction():
                self._target.drop(session_id)
        for session_id in wanted:
            if time.monotonic() >= self._checked_s + CHECK_EVERY_S:
                self._check_alone()
            if session_id in present:
                if is_current or self._is_same(session_id):
                    self._skip(session_id)
                    continue
            self._move_session(session_id, is_there=session_id in present)
            self.progress.sessions += 1
            self._report(self.progress)

    def _skip(self, session_id: str) -> None:
        self.progress.skipped += 1
        self._passed(session_id)

    def _passed(self, session_id: str) -> None:
        """Report progress for a session that was not copied."""
        self.progress.sessions += 1
        self.progress.events += self._source.count_events(session_id)
        self._report(self.progress)

    def _move_session(self, session_id: str, *, is_there: bool) -> None:
        with self._target.transaction():
            if is_there:
                self._target.drop(session_id)
            written = [(table, self._write(table, session_id)) for table in OF_A_SESSION]
            for table, digest in written:
                self._read_back(table, session_id, digest)

    def _move_table(self, table: Table) -> None:
        with self._target.transaction():
            written = self._write(table, None)
            self._read_back(table, None, written)
        if table is JOBS:
            self.progress.jobs = written.count

    def _write(self, table: Table, session_id: str | None) -> "Digest":
        digest = Digest()
        rows = digest.over(self._source.rows(table, session_id))
        self._target.write(table, self._counted(rows) if table is EVENTS else rows, session_id)
        return digest

    def _read_back(self, table: Table, session_id: str | None, written: "Digest") -> None:
        """Compare what is in the target with what was written. For a session, do this only after all of its tables are
        written: its own row counts its events."""
        if Digest.of(self._target.rows(table, session_id)).value() != written.value():
            raise Difference(
                f"{self._first_difference(table, session_id)} The target returned something other than what was "
                "written. The transaction was rolled back."
            )

    def _of_all(self) -> list[Table]:
        """Return the tables to move. A store that no server has used has no token; then the target keeps its own."""
        has_token = any(True for _ in self._source.rows(CREDENTIALS))
        return [table for table in OF_ALL if table is not CREDENTIALS or has_token]

    def _counted(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self.progress.events += 1
            if self.progress.events % REPORT_EVENTS == 0:
                self._report(self.progress)
            yield row

    def _check_alone(self) -> None:
        self._checked_s = time.monotonic()
        self._source.check_alone()
        self._target.check_alone()

    # Comparing -------------------------------------------------------------------------------------------------------

    def verify(self) -> list[str]:
        """Compare every row of every table, and return the differences as sentences."""
        found = list(itertools.islice(self._differences(), MAX_DIFFERENCES))
        self._check_alone()
        return found

    def _differences(self) -> Iterator[str]:
        self._count()
        here, there = self._source.sessions(), set(self._target.sessions())
        for session_id in here:
            if session_id not in there:
                yield f"Session {session_id} is missing from the target."
                continue
            for table in OF_A_SESSION:
                if not self._is_equal(table, session_id):
                    yield self._first_difference(table, session_id)
            self._passed(session_id)
        for session_id in sorted(there.difference(here)):
            yield f"Session {session_id} is only in the target."
        for table in self._of_all():
            if not self._is_equal(table, None):
                yield self._first_difference(table, None)

    def _is_same(self, session_id: str) -> bool:
        return all(self._is_equal(table, session_id) for table in OF_A_SESSION)

    def _is_equal(self, table: Table, session_id: str | None) -> bool:
        source, target = (Digest.of(side.rows(table, session_id)) for side in (self._source, self._target))
        return source.value() == target.value()

    def _first_difference(self, table: Table, session_id: str | None) -> str:
        """Describe the first difference by its location, never by its content, which may be private."""
        where = f"Session {session_id}, table {table.name}" if session_id is not None else f"Table {table.name}"
        pairs = itertools.zip_longest(self._source.rows(table, session_id), self._target.rows(table, session_id))
        for number, (one, other) in enumerate(pairs, 1):
            if one == other:
                continue
            alone = _alone(table, one, other)
            if alone is not None:
                row = _named(table, one if alone == "source" else other, number)
                return f"{where}: {row} is only in the {alone}."
            assert one is not None and other is not None
            row = _named(table, one, number)
            columns = [name for name, *values in zip(table.columns, one, other, strict=True) if values[0] != values[1]]
            return f"{where}: {row} differs in {', '.join(columns)}."
        return f"{where}: the rows are the same when read again; the disk may be failing."


class Digest:
    """A running digest of a stream of rows."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=32)
        self.count = 0

    def over(self, rows: Iterable[Row]) -> Iterator[Row]:
        update, pack = self._hash.update, msgspec.msgpack.Encoder().encode
        for row in rows:
            update(pack(row))
            self.count += 1
            yield row

    @classmethod
    def of(cls, rows: Iterable[Row]) -> "Digest":
        made = cls()
        for _ in made.over(rows):
            pass
        return made

    def value(self) -> tuple[int, bytes]:
        return self.count, self._hash.digest()


def canonical(table: Table, value: dict[Kind, Callable[[Any], Any]], rows: Iterable[Row], whose: str) -> Iterator[Row]:
    """Convert the rows of an engine to canonical values. `value` has a reader for each kind, which raises on damage."""
    readers = [value[kind] for kind in table.columns.values()]

    def readable() -> Iterator[Row]:
        for row in rows:
            try:
                made = tuple([None if given is None else read(given) for read, given in zip(readers, row, strict=True)])
            except (ValueError, *UNREADABLE) as error:
                named = _named(table, row, 0)
                raise StoreDamaged(f"{whose}, table {table.name}: {named} can't be read ({error})") from error
            yield made

    return iter(sorted(readable(), key=lambda row: _key(table, row))) if table.sorts else readable()


def _key(table: Table, row: Row) -> list[Any]:
    return [row[list(table.columns).index(name)] for name in table.key]


def _alone(table: Table, one: Row | None, other: Row | None) -> Literal["source", "target"] | None:
    """Return the side with a row that the other side lacks; None if both have the row but with different values."""
    if one is None or other is None:
        return "target" if one is None else "source"
    if table is ORDER or _key(table, one) == _key(table, other):
        return None
    return "source" if _key(table, one) < _key(table, other) else "target"


def _named(table: Table, row: Row | None, number: int) -> str:
    if row is None or not table.key:
        return f"row {number}" if number else "a row"
    values = dict(zip(table.columns, row, strict=True))
    return "the row with " + ", ".join(f"{name} {values[name]}" for name in table.key)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# For a starting server --------------------------------------------------------------------------------------------


class Moved(Struct, frozen=True):
    """The content of MARKER."""

    to: str
    at: str


def moved_away(data: Path) -> str | None:
    """Return a warning if a server starts on SQLite in a data directory whose sessions were moved elsewhere."""
    path = data / MARKER
    try:
        moved = msgspec.json.decode(path.read_bytes(), type=Moved)
    except FileNotFoundError:
        return None
    except (OSError, *UNREADABLE):
        moved = Moved("another database", "an unknown date")
    return (
        f"the sessions of {data} were moved to {moved.to} on {moved.at[:10]}; changes made here don't reach that "
        f"database. To use it, start with --database. To continue here, delete {path}."
    )


async def check_complete(store: Store) -> None:
    """Raise StoreError if a move into this store is not finished: it has only some of the sessions."""
    raw = await store.document(*RECORD)
    if raw is None:
        return
    try:
        record = msgspec.json.decode(raw, type=Record)
    except UNREADABLE as error:
        raise StoreDamaged("the record of the move into this database is unreadable") from error
    if record.finished_at is None:
        raise StoreError(
            f"the move into this database that started on {record.started_at[:10]} is not finished. Run `perdure "
            "migrate` again: it continues where it stopped."
        )
