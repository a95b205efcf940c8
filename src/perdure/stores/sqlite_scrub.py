"""Removal of deleted data from the database files.

Above: SqliteStore.scrub, through the writer. Below: SQLite. A deleted row leaves traces in four places: the search
index keeps its words until segments are merged; rebalanced pages keep copies of rows that moved elsewhere; free pages
stay in the file; and the write-ahead log has earlier versions of pages. Merging runs in steps of some milliseconds.
Only VACUUM reliably removes the copies in rebalanced pages, and it blocks commits while it copies the file.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

MERGE_PAGES = 64
"""Pages of the search index to merge in one transaction."""
MERGES_MAX = 100_000
VACUUM_MAX_BYTES = 1 << 30
"""A larger database is not vacuumed automatically, because that would block commits for more than a few seconds."""
SPARE_BYTES = 64 * 1024 * 1024
"""Disk space to leave free in addition."""
CHECKPOINT_WAIT_MS = 250
"""How long a checkpoint may wait for readers, and so delay commits. If that is not enough, `scrub` is retried later."""

_MERGE = "INSERT INTO phrases_index (phrases_index, rank) VALUES ('merge', ?)"


def merge_index(connection: sqlite3.Connection, *, first: bool) -> bool:
    """Do one step of merging all segments of the search index into one, which drops deleted words. Returns whether
    there is more to do. The first step passes FTS5 a negative number, which merges segments of all levels."""
    before = connection.total_changes
    connection.execute(_MERGE, (-MERGE_PAGES if first else MERGE_PAGES,))
    # According to SQLite's documentation, fewer than two changes mean that nothing was left to merge.
    return connection.total_changes - before >= 2


def vacuum(connection: sqlite3.Connection) -> bool:
    """Rewrite the file, which also shrinks it. Returns False if it is too large. The copy and the write-ahead log each
    need as much space as the file; raises an error, without trying, if the disk has less."""
    size = _number(connection, "page_count") * _number(connection, "page_size")
    folder = os.path.dirname(connection.execute("PRAGMA database_list").fetchone()[2]) or "."
    if size > VACUUM_MAX_BYTES:
        return False
    room = min(shutil.disk_usage(place).free for place in (folder, tempfile.gettempdir()))
    if room < 2 * size + SPARE_BYTES:
        raise sqlite3.OperationalError(f"not enough disk space to rewrite {size} bytes")
    connection.execute("VACUUM")
    return True


def empty_log(connection: sqlite3.Connection) -> bool:
    """Copy the write-ahead log into the database and truncate it. Returns False if a reader prevented that."""
    with _hurried(connection):
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


@contextmanager
def _hurried(connection: sqlite3.Connection) -> Iterator[None]:
    patience_ms = _number(connection, "busy_timeout")
    connection.execute(f"PRAGMA busy_timeout = {CHECKPOINT_WAIT_MS}").fetchall()
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience_ms}").fetchall()


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
