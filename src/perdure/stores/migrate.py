"""Migrations: numbered SQL files that upgrade a database to the schema version of this code.

Above: a store's open(). Below: the files in stores/sql, shipped with the package. Never edit a released file; add a new
one. There are no downgrades: an older server refuses to open a newer database, with an error that says why.
"""

import logging
import re
import sqlite3
from collections.abc import Iterator
from importlib import resources

from msgspec import Struct

from perdure.core.errors import StoreError

logger = logging.getLogger(__name__)

_NAME = re.compile(r"(\d{4})_\w+\.sql")


class Migration(Struct, frozen=True):
    version: int
    name: str
    script: str


def shipped() -> list[Migration]:
    """Return the migrations in this package, in order."""
    found = []
    for entry in (resources.files("perdure.stores") / "sql").iterdir():
        match = _NAME.fullmatch(entry.name)
        if match:
            found.append(Migration(int(match[1]), entry.name, entry.read_text("utf-8")))
    found.sort(key=lambda migration: migration.version)
    assert [migration.version for migration in found] == list(range(1, len(found) + 1)), "a migration is missing"
    return found


def migrate(connection: sqlite3.Connection, migrations: list[Migration]) -> None:
    """Apply missing migrations, each file in its own transaction. The connection must be in autocommit mode."""
    newest = migrations[-1].version if migrations else 0
    version = _version(connection)
    if version > newest:
        raise StoreError(
            f"The database has schema version {version}, written by a newer Perdure; this one supports up to {newest}. "
            "Install the newer Perdure again, or choose another data directory with --data."
        )
    if 0 < version < newest:
        logger.warning(
            "upgrading the database from schema version %d to %d; a large database takes some time", version, newest
        )
    for migration in migrations[version:]:
        _apply(connection, migration)


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Re-check under the lock: two servers may start on one database at the same time.
        if _version(connection) < migration.version:
            for statement in _statements(migration.script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {migration.version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _statements(script: str) -> Iterator[str]:
    # Not executescript(): it commits first, and a file must not be half applied.
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        raise ValueError(f"unterminated SQL statement: {statement.strip()[:80]}")
