"""Whether agents wait for room on the disk; logged at most once a minute.

Above: runners report it, `explain` and health ask. Below: the folder of the launches.
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
        """Something could not be stored."""
        now = self._steady()
        if self._reported_at is None or now - self._reported_at >= REPORT_S:
            logger.error("the disk is full: agents wait, and nothing is lost; make room to go on")
            self._reported_at = now
        self._full_at = now

    @property
    def is_full(self) -> bool:
        """Whether agents wait for room: something could not be stored a moment ago (a retry follows each second), or
        the disk has less room than the floor below which keepers stop reading."""
        if self._full_at is not None and self._steady() - self._full_at < FULL_FOR_S:
            return True
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize < self._floor_bytes
