"""Checks whether the stored data can be read: quickly, the data that a start needs; deeply, every page and row.

Above: `perdure doctor`. Below: the database file, opened read-only, with or without a running server; the quarantine
folder. It repairs nothing, and never blocks a server or waits for one.
"""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from perdure.core import events as ev
from perdure.core.jobs import Job, Run
from perdure.drivers import DRIVERS
from perdure.runtime.log.quarantine import read_notes, restored
from perdure.stores.base import MAX_COUNT, SessionRecord
from perdure.stores.sqlite_owners import count, ownership

MAX_FAULTS = 20
"""Maximum faults to report per table."""
MAX_COPY_BYTES = 256 << 20
"""Largest database to copy to memory in order to check its search index."""
CHECKS_SEARCH = (3, 44, 0)
"""From this version of SQLite on, integrity_check covers the search index."""
LOCK_TIMEOUT_S = 5.0

Row = tuple[Any, ...]


class _Text(bytes):
    """A text as stored, not decoded: if it is not UTF-8, only its row is faulty."""


class Fault(NamedTuple):
    about: str
    what: str


class Table(NamedTuple):
    name: str
    columns: str
    check: Callable[[Row], None]
    """Raises if a row can't be read. The last column is the session's id, if the table has one."""
    since: int = 1
    """The first schema version with this table. Older databases get it when a server starts."""


def _session(row: Row) -> None:
    _text(row[0], row[1], row[-1])
    msgspec.json.decode(row[2], type=list[str])
    msgspec.json.decode(row[3], type=dict[str, Any])
    restored(_text(row[-1]), SessionRecord(row[4], row[6] or 0, row[5]))


def _event(row: Row) -> None:
    kind, body, cuts, position = row[:4]
    if position > MAX_COUNT:
        raise ValueError(f"its position {position} is too large")
    if ev.type_of(ev.decode(body)) != _text(kind):
        raise ValueError(f"its body is not of type {_text(kind)}")
    if cuts is not None:
        msgspec.json.decode(cuts, type=list[int])


def _json_object(row: Row) -> None:
    msgspec.json.decode(row[0], type=dict[str, Any])


def _launch(row: Row) -> None:
    driver, pending_input, driver_state = row[:3]
    msgspec.msgpack.decode(pending_input, type=list[bytes])
    DRIVERS[_text(driver)].restore(driver_state)


def _head(row: Row) -> None:
    ownership(*row[:3])


def _receipt(row: Row) -> None:
    if row[0] is not None:
        count(row[0])


def _node(row: Row) -> None:
    name, incarnation, heartbeat, dead, about = row[:5]
    if not _text(name):
        raise ValueError("it has no name")
    for number in (incarnation, heartbeat, dead):
        count(number)
    msgspec.json.decode(about)


def _texts(row: Row) -> None:
    _text(*row)


def _document(row: Row) -> None:
    _text(*row[:2])
    msgspec.json.decode(row[2])


def _job(row: Row) -> None:
    job_id, revision, start_at, body = row[:4]
    count(revision)
    if start_at is not None:
        count(start_at)
    if msgspec.json.decode(body, type=Job).id != _text(job_id):
        raise ValueError("its body belongs to another job")


def _job_run(row: Row) -> None:
    job_id, run_id, due_at, is_open, body = row[:5]
    count(due_at)
    count(is_open)
    run = msgspec.json.decode(body, type=Run)
    if (run.job_id, run.id) != (_text(job_id), _text(run_id)):
        raise ValueError("its body belongs to another run")


def _text(*values: Any) -> str:
    """Check that all values are texts. Returns the last one."""
    for value in values:
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"{value!r} is not text")
    return str(values[-1], "utf-8") if values[-1] is not None else ""


_LAST_SEQ = "(SELECT MAX(seq) FROM events WHERE events.session_key = sessions.session_key)"
_NEEDED = (
    Table("sessions", f"agent, status, labels, public, machine_state, decided_seq, {_LAST_SEQ}", _session),
    Table("launches", "driver, pending_input, driver_state", _launch),
    Table("heads", "owner, incarnation, fencing_token", _head, since=7),
)
_REST = (
    Table("events", "type, body, cuts, position", _event),
    Table("turns", "turns.public", _json_object),
    Table("receipts", "answer", _json_object),
    Table("receipts", "receipts.seq", _receipt, since=7),
    Table("phrases", "role, text", _texts),
    Table("spent", "started_at, spent.agent, context", _texts, since=3),
    Table("natives", "program, native_session_id, natives.agent", _texts, since=4),
)
_OF_NO_SESSION = (
    Table("documents", "kind, key, value", _document),
    Table("nodes", "node, incarnation, heartbeat, dead, about", _node, since=7),
    Table("jobs", "job_id, revision, start_at, body", _job, since=10),
    Table("job_runs", "job_id, run_id, due_at, is_open, body", _job_run, since=10),
)


def look(data: Path) -> Iterator[Fault]:
    """Check what a start needs: the database opens, sessions and launches are readable, nothing is quarantined."""
    yield from _inspect(data, lambda database: _rows(database, _NEEDED))
    for damage in read_notes(data / "quarantine"):
        of_session = f" of session {damage.session_id}" if damage.session_id else ""
        place = data / "quarantine" / damage.id
        what = f"was set aside: {damage.what}. Check {place}, and delete it when you no longer need it."
        yield Fault(f"{damage.kind} {damage.id}{of_session}", what)


def look_deep(data: Path) -> Iterator[Fault]:
    """Check every page and every row."""
    yield from _inspect(data, _everything)


def documents(data: Path, kind: str) -> dict[str, bytes]:
    """The documents of one kind, as far as the database is readable. `look` reports if it is not."""
    found: dict[str, bytes] = {}

    def gather(database: sqlite3.Connection) -> Iterator[Fault]:
        rows = database.execute("SELECT key, value FROM documents WHERE kind = ?", (kind,))
        found.update((key.decode("utf-8", "replace"), value) for key, value in rows)
        return iter(())

    list(_inspect(data, gather))
    return found


def _inspect(data: Path, work: Callable[[sqlite3.Connection], Iterator[Fault]]) -> Iterator[Fault]:
    path = data / "perdure.db"
    if not path.exists():
        return
    try:
        database = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=LOCK_TIMEOUT_S, isolation_level=None)
    except sqlite3.Error as error:
        yield Fault("database", f"can't open {path}: {error}")
        return
    try:
        database.text_factory = _Text
        database.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()
        if database.execute("PRAGMA user_version").fetchone()[0] == 0:
            yield Fault("database", f"{path} has no schema version: it is damaged or was never used")
            return
        generation = database.execute("SELECT MAX(generation) FROM meta").fetchone()[0]
        if not isinstance(generation, int) or generation > MAX_COUNT:
            yield Fault("database", f"{path} has no valid generation in the table meta")
        yield from work(database)
    except (sqlite3.Error, OverflowError) as error:
        yield Fault("database", f"can't read {path}: {error}")
    finally:
        database.close()


def _everything(database: sqlite3.Connection) -> Iterator[Fault]:
    # Read one consistent snapshot, even while a server writes.
    database.execute("BEGIN")
    for (found,) in database.execute(f"PRAGMA integrity_check({MAX_FAULTS})"):
        words = found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
        if words != "ok":
            yield Fault("integrity_check", words)
    yield from _search(database)
    yield from _rows(database, (*_NEEDED, *_REST))
    yield from _rows_of_no_session(database)
    yield from _holes(database)


def _search(database: sqlite3.Connection) -> Iterator[Fault]:
    """Check the search index against the texts. Older versions of SQLite need write access: use a copy in memory."""
    if sqlite3.sqlite_version_info >= CHECKS_SEARCH:
        return
    pages, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    if pages * size > MAX_COPY_BYTES:
        return
    copy = sqlite3.connect(":memory:", isolation_level=None)
    try:
        database.backup(copy)
        copy.execute("INSERT INTO phrases_index (phrases_index) VALUES ('integrity-check')")
    except sqlite3.Error as error:
        yield Fault("search index", f"{error}. Only search is affected. To rebuild it, see docs/operations.md")
    finally:
        copy.close()


def _rows(database: sqlite3.Connection, tables: tuple[Table, ...]) -> Iterator[Fault]:
    for table in _present(database, tables):
        joined = "" if table.name == "sessions" else "LEFT JOIN sessions USING (session_key)"
        # Include all other columns: text that is not UTF-8 is a fault in any of them.
        columns = f"{table.columns}, {table.name}.*, session_id"
        statement = f"SELECT {columns} FROM {table.name} {joined}"  # noqa: S608  no user input
        yield from _each(database, table, statement)


def _rows_of_no_session(database: sqlite3.Connection) -> Iterator[Fault]:
    for table in _present(database, _OF_NO_SESSION):
        statement = f"SELECT {table.columns}, NULL FROM {table.name}"  # noqa: S608  no user input
        yield from _each(database, table, statement)


def _present(database: sqlite3.Connection, tables: tuple[Table, ...]) -> list[Table]:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    return [table for table in tables if table.since <= version]


def _each(database: sqlite3.Connection, table: Table, statement: str) -> Iterator[Fault]:
    faults = 0
    try:
        for row in database.execute(statement):
            problem = _problem(table, row)
            if problem is not None:
                faults += 1
                yield problem
            if faults == MAX_FAULTS:
                yield Fault(f"table {table.name}", "has more unreadable rows, which are not listed")
                return
    except sqlite3.Error as error:
        yield Fault(f"table {table.name}", f"can't be read to its end: {error}")


def _problem(table: Table, row: Row) -> Fault | None:
    session_id = row[-1].decode("utf-8", "replace") if isinstance(row[-1], bytes) else None
    try:
        if session_id is None and table not in _OF_NO_SESSION:
            return Fault(f"table {table.name}", "has a row of a session that doesn't exist")
        for value in row:
            if isinstance(value, _Text):
                value.decode("utf-8")
        named = table.columns.count(",") + 1
        table.check((*row[:named], row[-1]))
    except Exception as error:  # noqa: BLE001  a damaged row can cause any error, which is the finding
        names = {"documents": f"document {row[1]!r}", "nodes": f"node {row[0]!r}"}
        names |= dict.fromkeys(("jobs", "job_runs"), f"job {row[0]!r}")
        about = names.get(table.name, f"session {session_id}")
        return Fault(about, f"a row of table {table.name} can't be read ({type(error).__name__}: {error})"[:300])
    return None


def _holes(database: sqlite3.Connection) -> Iterator[Fault]:
    """Find gaps in the sequence numbers of logs."""
    statement = """
        SELECT session_id, COUNT(*), MIN(COALESCE(first_seq, seq)), MAX(seq), SUM(seq - COALESCE(first_seq, seq) + 1)
        FROM events JOIN sessions USING (session_key) GROUP BY session_key"""
    faults = 0
    for session_id, _, first, last, numbers in database.execute(statement):
        if (first, numbers) != (1, last) and faults < MAX_FAULTS:
            faults += 1
            missing = f"its log should have events 1 to {last}, but has {numbers} events, starting at {first}"
            yield Fault(f"session {bytes(session_id).decode('utf-8', 'replace')}", missing)
