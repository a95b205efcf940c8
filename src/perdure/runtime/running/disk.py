"""Tracks whether agents are waiting for disk space, and logs that at most once a minute.

Above: runners report a full disk; a session's `explain` reads it. Below: the launches folder.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

REPORT_S = 60.0
FULL_FOR_S = 3.0


class Disk:
    def __init__(self, folder: Path, floor_bytes: int, steady: Callable[[], float]) -> None:
        self._folder = folder
        self._floor_bytes = floor_bytes
        self._steady = steady
        self._full_at: float | None = None
        self._reported_at: float | None = None

    def report_full(self) -> None:
        """Note that a write failed because the disk is full."""
        now = self._steady()
        if self._reported_at is None or now - self._reported_at >= REPORT_S:
            logger.error("the disk is full; agents are paused, and nothing is lost. Free disk space to continue.")
            self._reported_at = now
        self._full_at = now

    @property
    def is_full(self) -> bool:
        """Whether agents are waiting for disk space: a write failed in the last few seconds (each is retried every
        second), or free space is below the floor at which keepers stop reading."""
        if self._full_at is not None and self._steady() - self._full_at < FULL_FOR_S:
            return True
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize < self._floor_bytes
