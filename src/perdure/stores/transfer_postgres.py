"""The PostgreSQL side of a move.

Above: transfer.py. Below: the tables of stores/sql/postgres, through one connection. It holds a lock during the whole
move, so it must go to the database itself, not to a pooler. The lock does not keep servers out. Instead, the move
checks the heartbeats of the nodes, before and during the copy.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from perdure.core.errors import UNREADABLE
from perdure.stores.postgres import PostgresStore
from perdure.stores.postgres_connections import settings
from perdure.stores.postgres_errors import told
from perdure.stores.postgres_group import indexed_words
from perdure.stores.transfer import (
    CREDENTIALS,
    DOCUMENTS,
    FILES,
    OF_A_SESSION,
    ORDER,
    PHRASES,
    RECORD,
    SESSIONS,
    UNSETTLED_KINDS,
    Kind,
    Record,
    Row,
    Table,
    TransferError,
    canonical,
)

HEARTBEAT_LOOK_S = 11.0
"""How long a heartbeat must stay unchanged before its node counts as stopped: two of the longest intervals."""
LOOK_EVERY_S = 0.2
LOCK_TIMEOUT = "10s"
TOKEN = ("cluster", "token")
IDENTITY = ("cluster", "id")
"""Documents of the cluster; see runtime/data/cluster.py."""
OWN_KINDS = ("cursor", "upkeep", RECORD[0], "cluster")
"""Documents that are specific to one database."""
OF_NODES = ("agent.", "probe.")
"""Prefixes of document kinds that belong to one node and end with its id."""
UNMOVED = ("tombstone.", "warm.")
"""Prefixes of requests between nodes, which are not migrated."""

_SESSION = """
    SELECT last_seq, decided_seq, fencing_token, project, agent, workdir, state, status, title, labels, archived,
        parent, last_active_at, due_at, public, machine_state
    FROM heads JOIN sessions USING (session_key) WHERE session_id = %s"""
# takes_slot is false, because no turn is running.
_ADD_SESSION = """
    WITH made AS (
        INSERT INTO heads (session_key, session_id, last_seq, decided_seq, fencing_token)
        VALUES (perdure_month_v1(now()) << 40 | nextval('session_numbers'), %s, %s, %s, %s) RETURNING session_key),
    owned AS (INSERT INTO former_owners SELECT session_key, %s FROM made)
    INSERT INTO sessions (session_key, takes_slot, project, agent, workdir, state, status, title, labels, archived,
        parent, last_active_at, due_at, public, machine_state)
    SELECT session_key, false, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s FROM made
    RETURNING session_key"""
# Events without a row in `changes` are older than those with one.
_ORDER = """
    SELECT heads.session_id, events.seq, events.type FROM events JOIN heads USING (session_key)
    LEFT JOIN changes ON changes.session_key = events.session_key AND changes.seq = events.seq
    WHERE events.decisive
    ORDER BY changes.xid NULLS FIRST, changes.position, events.session_key, events.seq"""
_KEY = "SELECT session_key FROM heads WHERE session_id = %s"
_UNSETTLED = """
    SELECT count(*) FROM sessions WHERE state IN ('processing', 'waiting')
        OR session_key IN (SELECT session_key FROM launches)"""
_ADD_PHRASE = """
    INSERT INTO phrases (session_key, turn, role, text, words) VALUES (%s, %s, %s, %s, perdure_words_v1(%s))"""
_PUT_DOCUMENT = """
    INSERT INTO documents VALUES (%s, %s, %s) ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value"""
_MARK = """
    INSERT INTO document_marks SELECT DISTINCT kind, 1 FROM documents
    ON CONFLICT (kind) DO UPDATE SET mark = document_marks.mark + 1"""
_TYPES: dict[Kind, str] = {
    "number": "int8",
    "small": "int4",
    "flag": "bool",
    "text": "text",
    "data": "bytea",
    "real": "float8",
}


class Beat(NamedTuple):
    incarnation: int
    heartbeat: int
    dead: bool


class PostgresSide:
    """See Side. `node` is the id of the data directory on the other side of the move."""

    make_room = "Choose an empty database."

    def __init__(self, url: str, node: str, looking: Callable[[float], None] = lambda _: None) -> None:
        self._url = url
        self._node = node
        self._looking = looking
        self._beats: dict[str, Beat] = {}
        self._streaming: Generator[Row, None, None] | None = None
        self._written = ("", 0)
        """The session that was written last, and its key."""
        self.identity = ""
        self._database: psycopg.Connection[Row]

    @contextmanager
    def opened(self) -> Iterator["PostgresSide"]:
        """Migrate the database, lock it against other moves, and check that no server uses it. Inside this context,
        errors of PostgreSQL become StoreError."""
        store = PostgresStore(self._url)

        async def prepare() -> None:
            await store.open()
            await store.close()

        asyncio.run(prepare())
        try:
            with psycopg.connect(settings(self._url), autocommit=True) as self._database:
                for setting in ("statement_timeout = 0", "idle_in_transaction_session_timeout = 0"):
                    self._ask(f"SET {setting}")
                self._ask(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
                # A crash may lose commits of sessions, which are then repeated. The final commit is synchronous.
                self._ask("SET synchronous_commit = off")
                self._lock()
                ((cluster,),) = self._ask("SELECT cluster_id FROM meta")
                self.identity = f"postgresql {cluster}"
                self._wait_for_silence()
                try:
                    yield self
                finally:
                    self._end_stream()
        except psycopg.Error as error:
            raise told(error) from error

    def _lock(self) -> None:
        ((locked,),) = self._ask("SELECT pg_try_advisory_lock(hashtext('perdure'), hashtext('transfer'))")
        if not locked:
            raise TransferError("Another `perdure migrate` is using this database. Wait until it is done.")

    def _ask(self, statement: str, *parameters: Any) -> list[Row]:
        self._end_stream()
        cursor = self._database.execute(statement, parameters or None, binary=True)
        return cursor.fetchall() if cursor.description is not None else []

    def _count(self, statement: str, *parameters: Any) -> int:
        return int(self._ask(statement, *parameters)[0][0])

    # Servers ---------------------------------------------------------------------------------------------------------

    def _wait_for_silence(self) -> None:
        """Wait until every node is dead or its heartbeat has stopped. A killed node may not be marked dead."""
        self._beats = self._read_beats()
        begun = time.monotonic()
        while not all(beat.dead for beat in self._beats.values()):
            left_s = begun + HEARTBEAT_LOOK_S - time.monotonic()
            self._looking(max(0.0, left_s))
            self.check_alone()
            if left_s <= 0:
                return
            time.sleep(min(LOOK_EVERY_S, max(left_s, 0.01)))

    def check_alone(self) -> None:
        changed = [node for node, beat in self._read_beats().items() if self._beats.get(node) != beat]
        if changed:
            raise TransferError(
                f"A server is using this database: {self._about(changed[0])}. Stop all nodes and run the command again."
            )

    def _read_beats(self) -> dict[str, Beat]:
        return {node: Beat(*beat) for node, *beat in self._ask("SELECT node, incarnation, heartbeat, dead FROM nodes")}

    def _about(self, node: str) -> str:
        rows = self._ask("SELECT about FROM nodes WHERE node = %s", node)
        try:
            about = msgspec.json.decode(rows[0][0], type=dict[str, Any])
        except (LookupError, *UNREADABLE):
            about = {}
        return f"node {about.get('name') or node}" + (f", {about['url']}" if about.get("url") else "")

    def life(self) -> str:
        """Every start of a node changes its incarnation."""
        lives = self._ask("SELECT node, incarnation FROM nodes UNION ALL SELECT node, incarnation FROM removed_nodes")
        return blake2b(msgspec.msgpack.encode(sorted(lives)), digest_size=16).hexdigest()

    # State -----------------------------------------------------------------------------------------------------------

    def unsettled(self) -> int:
        return self._count(_UNSETTLED)

    def half_erased(self) -> int:
        kinds = [*UNSETTLED_KINDS, f"tombstone.{self._node}"]
        return self._count("SELECT count(*) FROM documents WHERE kind = ANY (%s)", kinds)

    def record(self) -> Record | None:
        rows = self._ask("SELECT value FROM documents WHERE kind = %s AND key = %s", *RECORD)
        return msgspec.json.decode(rows[0][0], type=Record) if rows else None

    def keep_record(self, record: Record) -> None:
        with self.transaction():
            self._ask("SET LOCAL synchronous_commit = on")
            self._ask(_PUT_DOCUMENT, *RECORD, msgspec.json.encode(record))

    def epoch(self) -> int:
        return self._count("SELECT perdure_epoch_v1()")

    def raise_epoch(self, above: int) -> None:
        self._ask("UPDATE meta SET epoch = %s", max(self.epoch(), above) + 1)

    def sessions(self) -> list[str]:
        return [session_id for (session_id,) in self._ask("SELECT session_id FROM heads ORDER BY session_key")]

    def count_events(self, session_id: str | None = None) -> int:
        if session_id is None:
            return self._count("SELECT count(*) FROM events")
        return self._count(f"SELECT count(*) FROM events WHERE session_key = ({_KEY})", session_id)  # noqa: S608

    # Reading ---------------------------------------------------------------------------------------------------------

    def rows(self, table: Table, session_id: str | None = None) -> Iterator[Row]:
        whose = f"session {session_id}" if session_id is not None else "the database"
        return canonical(table, _READ, self._read(table, session_id), whose)

    def _read(self, table: Table, session_id: str | None) -> Iterable[Row]:
        if table is SESSIONS:
            return self._ask(_SESSION, session_id)
        if table is FILES:
            return self._stream("SELECT name, data FROM files WHERE session_id = %s", session_id)
        if table is DOCUMENTS:
            documents = self._stream("SELECT kind, key, value FROM documents")
            return (row for row in documents if self._moves(row[0]))
        if table is CREDENTIALS:
            rows = self._ask("SELECT value FROM documents WHERE kind = %s AND key = %s", *TOKEN)
            return [("token", bytes(value).decode()) for (value,) in rows]
        if table is ORDER:
            return self._stream(_ORDER)
        statement = f"SELECT {', '.join(table.columns)} FROM {table.name}"  # noqa: S608  no user input
        if table not in OF_A_SESSION:
            return self._stream(statement)
        order = ", ".join(table.key) or "phrase_key"
        return self._stream(f"{statement} WHERE session_key = ({_KEY}) ORDER BY {order}", session_id)

    def _stream(self, statement: str, *parameters: Any) -> Iterator[Row]:
        """Read row by row, because a session may be larger than memory. The next query ends the stream."""
        self._end_stream()
        self._streaming = self._streamed(statement, parameters)
        return self._streaming

    def _streamed(self, statement: str, parameters: Row) -> Generator[Row, None, None]:
        with self._database.cursor() as cursor:
            yield from cursor.stream(statement, parameters or None, binary=True)

    def _end_stream(self) -> None:
        """Close a stream that was not read to its end. It blocks the connection: the next query would wait forever."""
        if self._streaming is not None:
            self._streaming.close()
            self._streaming = None

    def _moves(self, kind: str) -> bool:
        if kind in OWN_KINDS or kind in UNSETTLED_KINDS or kind.startswith(UNMOVED):
            return False
        if f"{kind}." in OF_NODES:
            return False  # found out by some node; this node has its own
        return not kind.startswith(OF_NODES) or kind.endswith(f".{self._node}")

    # Writing ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._end_stream()
        with self._database.transaction():
            try:
                yield
            finally:
                self._end_stream()

    def write(self, table: Table, rows: Iterable[Row], session_id: str | None = None) -> None:
        if table is SESSIONS:
            self._write_session(str(session_id), *rows)
        elif table is FILES:
            for name, data in rows:
                self._ask("INSERT INTO files VALUES (%s, %s, %s)", session_id, name, data)
        elif table is PHRASES:
            self._write_phrases(self._key(session_id), rows)
        elif table is CREDENTIALS:
            # Browsers identify the server by this id. Keep the old one, so that they stay signed in.
            self._ask(_PUT_DOCUMENT, *IDENTITY, self._node.encode())
            for _, token in rows:
                self._ask(_PUT_DOCUMENT, *TOKEN, token.encode())
        elif table is ORDER:
            self._write_order(rows)
        elif table in OF_A_SESSION:
            key = self._key(session_id)
            kinds = [_TYPES[kind] for kind in table.columns.values()]
            self._insert(table.name, ("session_key", *table.columns), ["int8", *kinds], ((key, *row) for row in rows))
        else:
            if table is DOCUMENTS:
                self._drop_documents()
            else:
                self._ask(f"DELETE FROM {table.name}")  # noqa: S608  no user input
            self._insert(table.name, tuple(table.columns), [_TYPES[kind] for kind in table.columns.values()], rows)
            if table is DOCUMENTS:
                self._ask(_MARK)

    def _drop_documents(self) -> None:
        kinds = [kind for (kind,) in self._ask("SELECT DISTINCT kind FROM documents") if self._moves(kind)]
        self._ask("DELETE FROM documents WHERE kind = ANY (%s)", kinds)

    def _write_session(self, session_id: str, row: Row) -> None:
        last_seq, decided_seq, token, *listed = row
        ((key,),) = self._ask(_ADD_SESSION, session_id, last_seq, decided_seq, token, self._node, *listed)
        self._written = (session_id, key)

    def _write_phrases(self, key: int, rows: Iterable[Row]) -> None:
        with self._database.cursor() as cursor:
            # One at a time: each may have a megabyte of text.
            for turn, role, text in rows:
                cursor.execute(_ADD_PHRASE, (key, turn, role, text, indexed_words(text)))

    def _write_order(self, rows: Iterable[Row]) -> None:
        """Write everything in one transaction, so that all rows have the same xid and only `position` orders them."""
        keys = dict(cast(list[tuple[str, int]], self._ask("SELECT session_id, session_key FROM heads")))
        self._ask("DELETE FROM changes")
        columns = ("session_key", "seq", "type")
        changes = ((keys[session_id], seq, kind) for session_id, seq, kind in rows)
        self._insert("changes", columns, ["int8", "int8", "text"], changes)

    def _insert(self, table: str, columns: tuple[str, ...], kinds: list[str], rows: Iterable[Row]) -> None:
        """Insert rows. Makes no round trip if there are none, because most sessions have no rows in some tables."""
        rows = iter(rows)
        first = next(rows, None)
        if first is None:
            return
        self._end_stream()
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
        with self._database.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(kinds)
            copy.write_row(first)
            for row in rows:
                copy.write_row(row)

    def _key(self, session_id: str | None) -> int:
        """Return the key of the session that is being written."""
        assert self._written[0] == session_id
        return self._written[1]

    def drop(self, session_id: str) -> None:
        key = self._count(_KEY, session_id)
        names = [table.name for table in OF_A_SESSION if table is not FILES]
        for name in (*names, "changes", "former_owners", "launches", "heads"):
            self._ask(f"DELETE FROM {name} WHERE session_key = %s", key)  # noqa: S608  no user input
        self._ask("DELETE FROM files WHERE session_id = %s", session_id)


def shown(url: str) -> str:
    """Return an address without its password, to show to people and to store in the data directory."""
    if "://" in url:
        place = urlsplit(url).netloc
        user, at, host = place.rpartition("@")
        if at:
            url = url.replace(place, f"{user.partition(':')[0]}@{host}", 1)
        head, mark, query = url.partition("?")
        kept = "&".join(part for part in query.split("&") if not part.startswith("password="))
        return f"{head}{mark if kept else ''}{kept}"
    given = conninfo_to_dict(url)
    given.pop("password", None)
    return make_conninfo("", **given)


def _same(value: Any) -> Any:
    return value


_READ: dict[Kind, Callable[[Any], Any]] = {
    **dict.fromkeys(("number", "small", "flag", "text", "texts", "real"), _same),
    "data": bytes,
}
