"""What was deleted is made unreadable in the files, not only invisible.

Above: SqliteStore.scrub, through the writer. Below: SQLite. A deleted row leaves traces in four places: the search
index keeps its words until segments are merged; pages that were rebalanced keep copies of rows that moved elsewhere;
free pages stay in the file; and the write-ahead log keeps what pages were before. Merging is done in steps of some
milliseconds. Only VACUUM removes the second kind for certain, and it holds up commits while it copies the file.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

MERGE_PAGES = 64
"""Of the search index, in one transaction."""
MERGES_MAX = 100_000
VACUUM_MAX_BYTES = 1 << 30
"""A larger database is not vacuumed automatically: it would hold up commits for more than a few seconds."""
SPARE_BYTES = 64 * 1024 * 1024
"""What stays free on the disk besides."""
CHECKPOINT_WAIT_MS = 250
"""How long a checkpoint may wait for readers, and commits for it. If that is not enough it is tried again."""

_MERGE = "INSERT INTO phrases_index (phrases_index, rank) VALUES ('merge', ?)"


def merge_index(connection: sqlite3.Connection, *, first: bool) -> bool:
    """One step of merging all segments of the search index into one, which leaves out deleted words; whether there is
    more to do. `first` begins: a negative number takes all segments together, whatever their level."""
    before = connection.total_changes
    connection.execute(_MERGE, (-MERGE_PAGES if first else MERGE_PAGES,))
    # SQLite's documentation: fewer than two changes mean that nothing was left to merge.
    return connection.total_changes - before >= 2


def vacuum(connection: sqlite3.Connection) -> bool:
    """Copy what is there into new pages, and shrink the file; False if it is too large for that. It needs as much room
    again for the copy, and once more for the write-ahead log: without that it is not even tried."""
    size = _number(connection, "page_count") * _number(connection, "page_size")
    folder = os.path.dirname(connection.execute("PRAGMA database_list").fetchone()[2]) or "."
    if size > VACUUM_MAX_BYTES:
        return False
    room = min(shutil.disk_usage(place).free for place in (folder, tempfile.gettempdir()))
    if room < 2 * size + SPARE_BYTES:
        raise sqlite3.OperationalError(f"there is not enough room on the disk to rewrite {size} bytes")
    connection.execute("VACUUM")
    return True


def empty_log(connection: sqlite3.Connection) -> bool:
    """Carry the write-ahead log into the database and cut it to nothing; False if a reader was in the way."""
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
