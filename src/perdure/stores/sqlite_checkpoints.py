"""Checkpoints: what was committed to the write-ahead log is carried into the database, beside the writer.

Above: the writer (sqlite_writer.py) says now and then that it is time. Below: SQLite's passive checkpoint, through a
connection and a thread of its own, since it waits for the disk: done by the writer, as SQLite does by itself, it held
commits up for milliseconds, several times a second under load. It never blocks a commit and is never needed for one: if
it fails, or can't keep up, the writer's own automatic checkpoint (a much larger limit) does what is left.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

DUE_PAGES = 5_000
BEHIND_PAGES = 12_000
"""As many pages may wait before a commit is thought to have to checkpoint itself."""


class Checkpoints:
    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._due = threading.Event()
        self._closing = False
        self._pages = self._asked = self._carried = 0
        self._is_under_way = False
        self._thread = threading.Thread(target=self._run, name="perdure-store-checkpoints", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def written(self, pages: int) -> None:
        """By a commit, about. Called by whoever writes."""
        self._pages += pages
        if self._pages - self._asked >= DUE_PAGES:
            self._asked = self._pages
            self._due.set()

    def hold_up(self) -> bool:
        """Whether a commit may take long now: one is under way, which waits for the disk with the file locked, or the
        write-ahead log has grown to where a commit may have to checkpoint itself."""
        return self._is_under_way or self._pages - self._carried > BEHIND_PAGES

    def close(self) -> None:
        """Waits for a checkpoint that is under way. Without a start before, nothing happens."""
        self._closing = True
        self._due.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            while True:
                self._due.wait()
                self._due.clear()
                if self._closing:
                    return
                pages = self._pages
                try:
                    # Only when it is first needed: a server at rest has no use for it.
                    connection = connection or self._connect()
                    self._is_under_way = True
                    _, logged, carried = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                    # What a reader still needs stays in the log.
                    self._carried = pages - (logged - carried)
                except sqlite3.Error as error:
                    logger.warning("the write-ahead log was not checkpointed: %s", error)
                finally:
                    self._is_under_way = False
        finally:
            if connection is not None:
                connection.close()
