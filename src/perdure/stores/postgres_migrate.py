"""Migrations of PostgreSQL: numbered SQL files, applied before or after a rollout.

Above: PostgresStore.open() applies `NNNN_name.sql` before this server joins. `finish_rollout` applies
`NNNN_name.after.sql`, which would break older servers, once every node writes at least that format. Below: the files in
stores/sql/postgres. Each file is one transaction under one lock, so several nodes may start at the same time. Never
edit a released file. Functions are versioned by name, so older and newer servers can run side by side.
"""

import logging
import re
from importlib import resources

import psycopg
from msgspec import Struct

from perdure.core.errors import StoreError
from perdure.stores.postgres_connections import Connection, ask

logger = logging.getLogger(__name__)

OLDEST_SERVER = 14
NEWEST_SERVER = 18
"""The range of PostgreSQL versions that the tests cover."""
LOCK_TIMEOUT = "60s"
"""How long a starting server waits while another one migrates."""

_NAME = re.compile(r"(\d{4})_\w+?(\.after)?\.sql")
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('perdure'), hashtext('migrate'))"
_APPLIED = """
    CREATE TABLE IF NOT EXISTS migrations (
        version integer NOT NULL,
        after_rollout boolean NOT NULL,
        name text NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (version, after_rollout)
    )"""


class Migration(Struct, frozen=True):
    version: int
    after_rollout: bool
    name: str
    script: str


def shipped() -> list[Migration]:
    """Return the migrations in this package, in order."""
    found = []
    for entry in (resources.files("perdure.stores") / "sql" / "postgres").iterdir():
        match = _NAME.fullmatch(entry.name)
        if match:
            found.append(Migration(int(match[1]), match[2] is not None, entry.name, entry.read_text("utf-8")))
    found.sort(key=lambda migration: (migration.version, migration.after_rollout))
    before = [migration.version for migration in found if not migration.after_rollout]
    assert before == list(range(1, len(before) + 1)), "a migration is missing"
    return found


async def check_server(connection: Connection) -> None:
    """Raise StoreError if this database server is not usable."""
    major = connection.info.server_version // 10_000
    if major < OLDEST_SERVER:
        raise StoreError(
            f"This is PostgreSQL {major}; Perdure needs version {OLDEST_SERVER} or newer. Upgrade the database server."
        )
    if major > NEWEST_SERVER:
        logger.warning("PostgreSQL %d is newer than the newest version tested with Perdure (%d)", major, NEWEST_SERVER)
    ((encoding,),) = await ask(connection, "SELECT current_setting('server_encoding')")
    if encoding != "UTF8":
        raise StoreError(
            f"The database has the encoding {encoding}; Perdure needs UTF8. Create one with: CREATE DATABASE perdure "
            "ENCODING 'UTF8' TEMPLATE template0"
        )


async def migrate(connection: Connection, migrations: list[Migration]) -> None:
    """Apply the missing migrations that run before a rollout."""
    newest = max(migration.version for migration in migrations)
    version = await _version(connection)
    if version > newest:
        raise StoreError(
            f"The database has schema version {version}, written by a newer Perdure; this one supports up to {newest}. "
            "Install the newer Perdure on this machine too."
        )
    for migration in migrations:
        if migration.version > version and not migration.after_rollout:
            await _apply(connection, migration)


async def finish(connection: Connection, migrations: list[Migration], format_version: int) -> None:
    """Apply the migrations that wait until every node writes this format. Their number is the format they need."""
    for migration in migrations:
        if migration.after_rollout and migration.version <= format_version:
            await _apply(connection, migration)
    await ask(connection, "UPDATE meta SET format_version = greatest(format_version, %s)", format_version)


async def _apply(connection: Connection, migration: Migration) -> None:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        await connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{LOCK_TIMEOUT}'")
        await connection.execute(_LOCK)
        await connection.execute("SET LOCAL client_min_messages = warning")
        await connection.execute(_APPLIED)
        if migration.after_rollout in await _applied(connection, migration.version):
            return
        # Several statements in one call, which is possible without parameters.
        await connection.execute(migration.script.encode())
        await connection.execute(
            "INSERT INTO migrations (version, after_rollout, name) VALUES (%s, %s, %s)",
            (migration.version, migration.after_rollout, migration.name),
        )
    logger.info("applied migration %s", migration.name)


async def _applied(connection: Connection, version: int) -> set[bool]:
    rows = await ask(connection, "SELECT after_rollout FROM migrations WHERE version = %s", version)
    return {after_rollout for (after_rollout,) in rows}


async def _version(connection: Connection) -> int:
    try:
        rows = await ask(connection, "SELECT max(version) FROM migrations WHERE NOT after_rollout")
    except psycopg.errors.UndefinedTable:
        return 0
    return rows[0][0] or 0
