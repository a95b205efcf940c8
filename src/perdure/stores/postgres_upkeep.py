"""Changes other than steps: compact, erase, documents, files and database maintenance.

Above: PostgresStore. Below: PostgreSQL. Each is one statement, or several that are safe to repeat.
"""

import logging
import secrets

import msgspec
import psycopg

from perdure.stores.base import Joined
from perdure.stores.postgres_connections import Connection, ask
from perdure.stores.postgres_errors import AGAIN, code_of
from perdure.stores.postgres_migrate import NEWEST_SERVER, OLDEST_SERVER

logger = logging.getLogger(__name__)

ERASE_EVENTS = 1_000
ERASE_OTHERS = 100
"""How many rows one step of erasing deletes. Small, so that other commits don't wait long."""
PARTITIONS_AHEAD = 2
"""Number of months to create partitions for in advance."""
OLD_TRANSACTION_S = 60
"""A transaction that is open for longer delays the change feed noticeably."""
SCRUB_DUE = ("upkeep", "scrub")
SCRUBBED = ("events", "sessions", "turns", "turn_records", "phrases", "receipts", "launches", "job_runs", "files")
"""The tables with content of conversations."""

# Every change of a document also changes the mark of its kind.
_MARK = """
    INSERT INTO document_marks (kind, mark) SELECT kind, 1 FROM changed GROUP BY kind
    ON CONFLICT (kind) DO UPDATE SET mark = document_marks.mark + 1"""
_PUT_DOCUMENT = f"""
    WITH changed AS (
        INSERT INTO documents (kind, key, value) VALUES (%s, %s, %s)
        ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value RETURNING kind)
    {_MARK}"""  # noqa: S608  no user input
_DROP_DOCUMENT = f"""
    WITH changed AS (DELETE FROM documents WHERE kind = %s AND key = %s RETURNING kind)
    {_MARK}"""  # noqa: S608  no user input
_ADD_DOCUMENT = f"""
    WITH changed AS (
        INSERT INTO documents (kind, key, value) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING RETURNING kind),
        marked AS ({_MARK})
    SELECT count(*) FROM changed"""  # noqa: S608  no user input
_TAKE_DOCUMENT = f"""
    WITH changed AS (DELETE FROM documents WHERE kind = %s AND key = %s RETURNING kind, value), marked AS ({_MARK})
    SELECT value FROM changed"""  # noqa: S608  no user input
_FORGET_SCRUB = "DELETE FROM documents WHERE kind = %s AND key = %s AND value = %s"
_PUT_FILE = """
    INSERT INTO files VALUES (%s, %s, %s)
    ON CONFLICT (session_id, name) DO UPDATE SET data = excluded.data"""
# An erase locks the head before it deletes the files.
_PUT_FILE_LATE = """
    INSERT INTO files
    SELECT %s, %s, %s FROM (SELECT 1 FROM heads WHERE session_id = %s FOR KEY SHARE) AS living
    ON CONFLICT (session_id, name) DO UPDATE SET data = excluded.data RETURNING 1"""
_COMPACT = "SELECT perdure_compact_v1(%s, %s::bigint[], %s::bigint[], %s::bytea[], %s::bytea[])"
_OLD_TRANSACTIONS = """
    SELECT pid, coalesce(usename, '?'), coalesce(application_name, ''),
        extract(epoch FROM clock_timestamp() - xact_start)::bigint
    FROM pg_stat_activity
    WHERE backend_xid IS NOT NULL AND xact_start < clock_timestamp() - make_interval(secs => %s)
    ORDER BY xact_start LIMIT 5"""
_PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - make_interval(secs => %s) LIMIT 5"


async def compact(connection: Connection, session_id: str, runs: list[Joined]) -> None:
    for run in runs:
        assert len(run.cuts) == run.seq - run.first_seq + 1, "a run has one cut per event number"
    await ask(
        connection,
        _COMPACT,
        session_id,
        [run.first_seq for run in runs],
        [run.seq for run in runs],
        [run.body for run in runs],
        [msgspec.json.encode(run.cuts) for run in runs],
    )


async def erase_some(connection: Connection, session_id: str) -> bool:
    """Do one step of erasing a session. Returns whether there is more to do."""
    # A unique value: a scrub that started earlier must not clear this mark.
    mark = secrets.token_hex(8).encode()
    ((more,),) = await ask(
        connection, "SELECT perdure_erase_v1(%s, %s, %s, %s)", session_id, ERASE_EVENTS, ERASE_OTHERS, mark
    )
    return bool(more)


async def drop_partitions(connection: Connection) -> int:
    """Drop empty partitions of past months, and return how many. If the log is busy, a later scrub retries."""
    try:
        ((dropped,),) = await ask(connection, "SELECT perdure_drop_partitions_v1()")
    except psycopg.Error as error:
        if code_of(error) not in AGAIN:
            raise
        logger.info("could not drop empty partitions of the log, because it was in use; the next scrub will retry")
        return 0
    return int(dropped)


async def is_in_use(connection: Connection) -> bool:
    """Return whether the tables exist."""
    ((found,),) = await ask(connection, "SELECT to_regclass('nodes') IS NOT NULL")
    return bool(found)


async def make_partitions(connection: Connection) -> None:
    await ask(connection, "SELECT perdure_make_partitions_v1(%s)", PARTITIONS_AHEAD)


async def vacuum(connection: Connection, table: str) -> None:
    """Free the space of deleted rows, so that it gets overwritten."""
    await connection.execute(f"VACUUM {table}".encode())


async def put_document(connection: Connection, kind: str, key: str, value: bytes | None) -> None:
    if value is None:
        await ask(connection, _DROP_DOCUMENT, kind, key)
    else:
        await ask(connection, _PUT_DOCUMENT, kind, key, value)


async def forget_scrub(connection: Connection, value: bytes) -> None:
    """Clear the mark if it still has this value."""
    await ask(connection, _FORGET_SCRUB, *SCRUB_DUE, value)


async def documents(connection: Connection, kind: str) -> dict[str, bytes]:
    rows = await ask(connection, "SELECT key, value FROM documents WHERE kind = %s ORDER BY key", kind)
    return dict(rows)


async def document(connection: Connection, kind: str, key: str) -> bytes | None:
    rows = await ask(connection, "SELECT value FROM documents WHERE kind = %s AND key = %s", kind, key)
    return rows[0][0] if rows else None


async def add_document(connection: Connection, kind: str, key: str, value: bytes) -> bool:
    ((added,),) = await ask(connection, _ADD_DOCUMENT, kind, key, value)
    return bool(added)


async def take_document(connection: Connection, kind: str, key: str) -> bytes | None:
    rows = await ask(connection, _TAKE_DOCUMENT, kind, key)
    return rows[0][0] if rows else None


async def document_marks(connection: Connection) -> dict[str, int]:
    return dict(await ask(connection, "SELECT kind, mark FROM document_marks"))


async def put_file(connection: Connection, session_id: str, name: str, data: bytes, early: bool) -> bool:
    if early:
        await ask(connection, _PUT_FILE, session_id, name, data)
        return True
    return bool(await ask(connection, _PUT_FILE_LATE, session_id, name, data, session_id))


async def file(connection: Connection, session_id: str, name: str) -> bytes | None:
    rows = await ask(connection, "SELECT data FROM files WHERE session_id = %s AND name = %s", session_id, name)
    return rows[0][0] if rows else None


async def file_names(connection: Connection, session_id: str, prefix: str) -> list[str]:
    statement = "SELECT name FROM files WHERE session_id = %s AND starts_with(name, %s) ORDER BY name"
    return [name for (name,) in await ask(connection, statement, session_id, prefix)]


async def drop_file(connection: Connection, session_id: str, name: str) -> None:
    await ask(connection, "DELETE FROM files WHERE session_id = %s AND name = %s", session_id, name)


async def raise_epoch(connection: Connection) -> int:
    """Increase the epoch of event ids if this is a different database cluster or timeline than before. Returns it."""
    ((epoch,),) = await ask(connection, "SELECT perdure_epoch_v1()")
    return int(epoch)


async def time(connection: Connection) -> float:
    ((now,),) = await ask(connection, "SELECT extract(epoch FROM clock_timestamp())::double precision")
    return float(now)


async def inspect(connection: Connection) -> list[str]:
    """Return problems of the database, as sentences for people."""
    found: list[str] = []
    major = connection.info.server_version // 10_000
    if not OLDEST_SERVER <= major <= NEWEST_SERVER:
        found.append(f"PostgreSQL {major} is not supported; versions {OLDEST_SERVER} to {NEWEST_SERVER} are.")
    for pid, user, program, age_s in await ask(connection, _OLD_TRANSACTIONS, OLD_TRANSACTION_S):
        found.append(
            f"A transaction of user {user} ({program or 'unnamed program'}, process {pid}) has been open for "
            f"{age_s} s. It delays the change feed of all sessions. End it, or run: SELECT pg_terminate_backend({pid})"
        )
    for (name,) in await ask(connection, _PREPARED, OLD_TRANSACTION_S):
        found.append(
            f"The prepared transaction {name} delays the change feed of all sessions. Commit it or roll it back "
            f"(ROLLBACK PREPARED '{name}')."
        )
    for name, wanted, why in (
        ("autovacuum", "on", "tables never stop growing"),
        ("fsync", "on", "a power cut may damage the database"),
        ("full_page_writes", "on", "a power cut may damage the database"),
    ):
        ((value,),) = await ask(connection, "SELECT current_setting(%s)", name)
        if value != wanted:
            found.append(f"The setting {name} is {value}: {why}. Set it to {wanted}.")
    ((rows,),) = await ask(connection, "SELECT EXISTS (SELECT 1 FROM events_default)")
    if rows:
        found.append("The log's default partition has rows: the partition of their month is missing. Restart a server.")
    return found
