"""Checkpoints: copy commits from the write-ahead log into the database, in parallel to the writer.

Above: the writer (sqlite_writer.py) reports how much it writes. Below: SQLite's passive checkpoint, with its own
connection and thread, because it waits for the disk. SQLite's default, a checkpoint by the writer, delayed commits by
milliseconds several times a second under load. Commits never wait for this thread or depend on it: if it fails or can't
keep up, the writer's automatic checkpoint (with a much higher limit) does the rest.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

DUE_PAGES = 5_000
BEHIND_PAGES = 12_000
"""With more pages than this in the log, assume that the next commit may have to checkpoint."""


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
        """Count the pages of a commit, approximately. Called by the writer."""
        self._pages += pages
        if self._pages - self._asked >= DUE_PAGES:
            self._asked = self._pages
            self._due.set()

    def hold_up(self) -> bool:
        """Return whether a commit may take long now: either a checkpoint is running, which locks the file while it
        waits for the disk, or the log is so long that the commit may have to checkpoint."""
        return self._is_under_way or self._pages - self._carried > BEHIND_PAGES

    def close(self) -> None:
        """Wait for a running checkpoint. No-op if never started."""
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
                    # Connect lazily: an idle server never needs it.
                    connection = connection or self._connect()
                    self._is_under_way = True
                    _, logged, carried = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                    # Pages that a reader still needs stay in the log.
                    self._carried = pages - (logged - carried)
                except sqlite3.Error as error:
                    logger.warning("could not checkpoint the write-ahead log; will retry: %s", error)
                finally:
                    self._is_under_way = False
        finally:
            if connection is not None:
                connection.close()
