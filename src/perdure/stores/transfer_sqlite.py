"""The SQLite side of a move: the database in a data directory, and the files next to it.

Above: transfer.py. Below: the tables of stores/sql, and the folder of attachments. The caller must hold the lock of the
data directory. PostgreSQL can't store NUL in text, so text columns are read with NUL replaced; JSON bodies are copied
unchanged.
"""

import asyncio
import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from perdure.stores.postgres_connections import clean
from perdure.stores.sqlite import CACHED_STATEMENTS, SqliteStore
from perdure.stores.sqlite_errors import told
from perdure.stores.sqlite_group import read_generation
from perdure.stores.sqlite_owners import LAST_SEQ
from perdure.stores.sqlite_writer import LOCK_TIMEOUT_S
from perdure.stores.transfer import (
    CREDENTIALS,
    DOCUMENTS,
    EVENTS,
    FILES,
    OF_A_SESSION,
    ORDER,
    RECORD,
    SESSIONS,
    UNSETTLED_KINDS,
    Kind,
    Record,
    Row,
    Table,
    canonical,
)

OWN_KINDS = ("cursor", "upkeep", RECORD[0], "cluster")
"""Documents that are specific to one database."""
OF_NODE = ("agent", "probe")
"""Documents about this server's agents. In PostgreSQL, the kind also names the node."""

_SESSION = f"""
    SELECT {LAST_SEQ}, decided_seq, COALESCE(fencing_token, 0), project, agent, workdir, state, status, title, labels,
        archived, parent, last_active_at, due_at, public, machine_state
    FROM sessions LEFT JOIN heads USING (session_key) WHERE session_id = ?"""  # noqa: S608  no user input
_ADD_SESSION = """
    INSERT INTO sessions (session_id, decided_seq, project, agent, workdir, state, status, title, labels, archived,
        parent, last_active_at, due_at, public, machine_state)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_ORDER = """
    SELECT session_id, seq, type FROM events JOIN sessions USING (session_key) WHERE decisive = 1 ORDER BY position"""
# Uses positions above all existing ones, so that no two rows collide during the update.
_REORDER = """
    UPDATE events SET position = ?1 + (
        SELECT place FROM temp.ordered WHERE ordered.session_key = events.session_key AND ordered.seq = events.seq)
    WHERE decisive = 1"""
_KEY = "SELECT session_key FROM sessions WHERE session_id = ?"
_UNSETTLED = """
    SELECT COUNT(*) FROM sessions WHERE state IN ('processing', 'waiting')
        OR session_key IN (SELECT session_key FROM launches)"""
_LAST = "SELECT MAX(positions, COALESCE((SELECT MAX(position) FROM events), 0)) FROM meta"


class Home(Struct, frozen=True):
    """What the data directory has besides the database, and functions to read and change it."""

    path: Path
    node: str
    """The id of this data directory. With PostgreSQL, it is the id of the node."""
    token: Callable[[], str | None]
    set_token: Callable[[str], object]
    epoch: Callable[[int], int]
    """Takes the store's generation."""
    set_epoch: Callable[[int, int], object]
    """Takes the new epoch and the store's generation."""


class SqliteSide:
    """See Side."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._path = home.path / "perdure.db"
        self.identity = f"sqlite {home.node}"
        self.make_room = f"Move {self._path} away, with its -wal and -shm files."
        self._database: sqlite3.Connection

    @contextmanager
    def opened(self) -> Iterator["SqliteSide"]:
        """Create or migrate the database. Inside this context, errors of SQLite become StoreError."""
        store = SqliteStore(self._path)

        async def prepare() -> None:
            await store.open()
            await store.close()

        asyncio.run(prepare())
        self._database = sqlite3.connect(
            self._path, timeout=LOCK_TIMEOUT_S, isolation_level=None, cached_statements=CACHED_STATEMENTS
        )
        try:
            yield self
        except sqlite3.Error as error:
            raise told(error, self._path) from error
        finally:
            self._database.close()

    # State -----------------------------------------------------------------------------------------------------------

    def life(self) -> str:
        """Every start increases the generation. A database that was moved back from PostgreSQL counts from 1 again."""
        record = self.record()
        return f"{read_generation(self._database)} {record.started_at if record is not None else ''}".strip()

    def check_alone(self) -> None:
        """No-op: the data directory is locked."""

    def unsettled(self) -> int:
        return self._count(_UNSETTLED)

    def half_erased(self) -> int:
        kinds = ", ".join(f"'{kind}'" for kind in UNSETTLED_KINDS)
        return self._count(f"SELECT COUNT(*) FROM documents WHERE kind IN ({kinds})")  # noqa: S608  no user input

    def record(self) -> Record | None:
        row = self._database.execute("SELECT value FROM documents WHERE kind = ? AND key = ?", RECORD).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=Record)

    def keep_record(self, record: Record) -> None:
        self._database.execute("PRAGMA synchronous = FULL").fetchall()
        self._database.execute(
            "INSERT OR REPLACE INTO documents (kind, key, value) VALUES (?, ?, ?)",
            (*RECORD, msgspec.json.encode(record)),
        )
        self._database.execute("PRAGMA synchronous = NORMAL").fetchall()

    def epoch(self) -> int:
        return self._home.epoch(read_generation(self._database))

    def raise_epoch(self, above: int) -> None:
        self._home.set_epoch(max(self.epoch(), above) + 1, read_generation(self._database))

    def sessions(self) -> list[str]:
        rows = self._database.execute("SELECT session_id FROM sessions ORDER BY session_key")
        return [session_id for (session_id,) in rows]

    def count_events(self, session_id: str | None = None) -> int:
        if session_id is None:
            return self._count("SELECT COUNT(*) FROM events")
        return self._count(f"SELECT COUNT(*) FROM events WHERE session_key = ({_KEY})", session_id)  # noqa: S608

    def _count(self, statement: str, *parameters: Any) -> int:
        return int(self._database.execute(statement, parameters).fetchone()[0])

    # Reading ---------------------------------------------------------------------------------------------------------

    def rows(self, table: Table, session_id: str | None = None) -> Iterator[Row]:
        whose = f"{self._path}, session {session_id}" if session_id is not None else str(self._path)
        return canonical(table, _READ, self._read(table, session_id), whose)

    def _read(self, table: Table, session_id: str | None) -> Iterable[Row]:
        if table is SESSIONS:
            return self._database.execute(_SESSION, (session_id,))
        if table is FILES:
            return self._read_files(str(session_id))
        if table is DOCUMENTS:
            return self._read_documents()
        if table is CREDENTIALS:
            token = self._home.token()
            return [] if token is None else [("token", token)]
        if table is ORDER:
            return self._database.execute(_ORDER)
        statement = f"SELECT {', '.join(table.columns)} FROM {table.name}"  # noqa: S608  no user input
        if table not in OF_A_SESSION:
            return self._database.execute(statement)
        order = ", ".join(table.key) or "phrase_key"
        return self._database.execute(f"{statement} WHERE session_key = ({_KEY}) ORDER BY {order}", (session_id,))

    def _read_documents(self) -> Iterator[Row]:
        for kind, key, value in self._database.execute("SELECT kind, key, value FROM documents"):
            if kind not in OWN_KINDS and kind not in UNSETTLED_KINDS:
                yield (f"{kind}.{self._home.node}" if kind in OF_NODE else kind), key, value

    def _read_files(self, session_id: str) -> Iterator[Row]:
        folder = self._folder(session_id)
        if folder is not None and folder.is_dir():
            for path in folder.iterdir():
                # The others are incomplete files.
                if not path.name.startswith(".") and path.is_file() and not path.is_symlink():
                    yield path.name, path.read_bytes()

    def _folder(self, session_id: str) -> Path | None:
        """Return the session's folder. Never a path outside `attachments`, whatever the session id is."""
        if os.path.basename(session_id) != session_id or session_id in ("", ".", "..") or "\0" in session_id:
            return None
        return self._home.path / "attachments" / session_id

    # Writing ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def write(self, table: Table, rows: Iterable[Row], session_id: str | None = None) -> None:
        if table is SESSIONS:
            self._write_session(str(session_id), *rows)
        elif table is FILES:
            self._write_files(str(session_id), rows)
        elif table is CREDENTIALS:
            for _, token in rows:
                self._home.set_token(token)
        elif table is ORDER:
            self._write_order(rows)
        elif table is EVENTS:
            self._write_events(self._key(session_id), rows)
        elif table in OF_A_SESSION:
            key = self._key(session_id)
            self._insert(table.name, ("session_key", *table.columns), ((key, *row) for row in rows))
        else:
            if table is DOCUMENTS:
                rows = self._own_kinds(rows)
            else:
                self._database.execute(f"DELETE FROM {table.name}")  # noqa: S608  no user input
            self._insert(table.name, tuple(table.columns), rows)

    def _own_kinds(self, rows: Iterable[Row]) -> list[Row]:
        kept = ", ".join(f"'{kind}'" for kind in OWN_KINDS)
        self._database.execute(f"DELETE FROM documents WHERE kind NOT IN ({kept})")  # noqa: S608  no user input
        kinds = {f"{kind}.{self._home.node}": kind for kind in OF_NODE}
        return [(kinds.get(kind, kind), key, value) for kind, key, value in rows]

    def _write_session(self, session_id: str, row: Row) -> None:
        _, decided_seq, token, *listed = row
        labels = SESSIONS_LISTED.index("labels")
        listed[labels] = msgspec.json.encode(listed[labels]).decode()
        key = self._database.execute(_ADD_SESSION, (session_id, decided_seq, *listed)).lastrowid
        if token:
            self._insert("heads", ("session_key", "fencing_token"), [(key, token)])

    def _write_events(self, key: int, rows: Iterable[Row]) -> None:
        """Write events with provisional positions; see _write_order."""
        first = self._count(_LAST) + 1
        columns = ("position", "session_key", *EVENTS.columns)
        self._insert("events", columns, ((place, key, *row) for place, row in enumerate(rows, first)))
        self._reserve()

    def _write_order(self, rows: Iterable[Row]) -> None:
        database = self._database
        database.execute("DROP TABLE IF EXISTS temp.ordered")
        database.execute(
            "CREATE TEMPORARY TABLE ordered (session_key INTEGER, seq INTEGER, place INTEGER NOT NULL, "
            "PRIMARY KEY (session_key, seq)) WITHOUT ROWID"
        )
        keys = dict(database.execute("SELECT session_id, session_key FROM sessions"))
        places = ((keys[session_id], seq, place) for place, (session_id, seq, _) in enumerate(rows, 1))
        self._insert("temp.ordered", ("session_key", "seq", "place"), places)
        database.execute(_REORDER, (self._count(_LAST),))
        database.execute("DROP TABLE temp.ordered")
        self._reserve()

    def _reserve(self) -> None:
        """Reserve positions like a server does, so that the next server starts above them."""
        self._database.execute("UPDATE meta SET positions = ?, erased_position = 0", (self._count(_LAST),))

    def _write_files(self, session_id: str, rows: Iterable[Row]) -> None:
        """Make the folder contain exactly these files. It may already have most of them from before an earlier move."""
        folder = self._folder(session_id)
        kept = set()
        for name, data in rows:
            assert folder is not None and os.path.basename(name) == name, "a file name must not contain a path"
            kept.add(name)
            _put(folder, name, data)
        if folder is not None and folder.is_dir():
            for path in folder.iterdir():
                if path.name not in kept and not path.is_dir():
                    path.unlink()

    def _insert(self, table: str, columns: tuple[str, ...], rows: Iterable[Row]) -> None:
        places = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608  no user input
        self._database.executemany(statement, rows)

    def _key(self, session_id: str | None) -> int:
        return self._count(_KEY, session_id)

    def drop(self, session_id: str) -> None:
        key = self._key(session_id)
        names = [table.name for table in OF_A_SESSION if table is not FILES]
        for name in (*names, "heads", "launches"):
            self._database.execute(f"DELETE FROM {name} WHERE session_key = ?", (key,))  # noqa: S608  no user input
        folder = self._folder(session_id)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


SESSIONS_LISTED = list(SESSIONS.columns)[3:]


def _put(folder: Path, name: str, data: bytes) -> None:
    path = folder / name
    with contextlib.suppress(OSError):
        if path.read_bytes() == data:
            return
    for made in (folder.parent, folder):
        made.mkdir(mode=0o700, exist_ok=True)
    part = folder / f".{name}.part"
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError("not a number")
    return value


def _flag(value: Any) -> bool:
    if value not in (0, 1):
        raise TypeError("not 0 or 1")
    return bool(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return clean(value)


def _texts(value: Any) -> list[str]:
    return [clean(each) for each in msgspec.json.decode(value, type=list[str])]


def _data(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("not bytes")
    return value


def _real(value: Any) -> float:
    return float(value)


_READ: dict[Kind, Callable[[Any], Any]] = {
    "number": _number,
    "small": _number,
    "flag": _flag,
    "text": _text,
    "texts": _texts,
    "data": _data,
    "real": _real,
}
