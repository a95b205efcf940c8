"""Notes on this node's disk about open turns: those that have their first snapshot and not yet the second one.

Above: the recorder. Below: the data directory. After a kill, the next server reads them and takes the missing
snapshots. They are not in the store, because only this node can do that.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from perdure.core.errors import UNREADABLE
from perdure.runtime.data.filesystem import make_private


class Open(msgspec.Struct, frozen=True):
    session_id: str
    turn: int


class OpenTurns:
    """Everything here blocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, session_id: str, turn: int) -> None:
        make_private(self._folder)
        part = self._folder / f".{session_id}"
        part.write_bytes(msgspec.json.encode(Open(session_id, turn)))
        part.replace(self._folder / session_id)

    def all(self) -> dict[str, int]:
        """The open turn of each session."""
        found = {}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                if name.startswith("."):  # a killed server has not completed it
                    continue
                with contextlib.suppress(OSError, *UNREADABLE):
                    note = msgspec.json.decode((self._folder / name).read_bytes(), type=Open)
                    found[note.session_id] = note.turn
        return found

    def drop(self, session_id: str) -> None:
        (self._folder / session_id).unlink(missing_ok=True)
