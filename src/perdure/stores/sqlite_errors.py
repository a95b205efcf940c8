"""Translation of SQLite's errors into the store's.

Above: the writer and the readers. Below: SQLite's error codes. A malformed row counts as damage, like a malformed page:
Perdure wrote every row correctly, so something else must have changed it.
"""

import os
import sqlite3
from pathlib import Path

import msgspec

from perdure.core.errors import StoreDamaged, StoreError, StoreFull, StoreLocked

DISK_FULL_BYTES = 1 << 20
"""With less free space than this, treat an I/O error as a full disk."""

# What our code raises when it reads a malformed row.
MISSHAPEN = (msgspec.MsgspecError, TypeError, ValueError, LookupError)
_NOT_TEXT = "Could not decode to UTF-8"


def told(error: Exception, path: Path) -> Exception:
    """Translate an error of SQLite; return any other error unchanged."""
    if not isinstance(error, sqlite3.Error):
        return error
    if is_full(error, path):
        made: StoreError = StoreFull(f"The disk is full; nothing was written to {path}. Free some space.")
    elif code_of(error) == sqlite3.SQLITE_BUSY:
        made = StoreLocked(f"{path}: {error}")
    elif code_of(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or _NOT_TEXT in str(error):
        made = StoreDamaged(f"{path} is damaged ({error})")
    else:
        made = StoreError(f"{path}: {error}")
    made.__cause__ = error
    return made


def misread(error: Exception, path: Path) -> Exception:
    """Translate an error of a read, where a malformed value counts as damage too."""
    if isinstance(error, MISSHAPEN):
        return StoreDamaged(f"{path} has an unreadable row ({type(error).__name__}: {error})")
    return told(error, path)


def is_full(error: sqlite3.Error, path: Path) -> bool:
    code = code_of(error)
    return code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _disk_is_full(path))


def code_of(error: sqlite3.Error) -> int:
    """Return the primary error code, without the extended bits. Errors of the Python layer have no code: 0."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _disk_is_full(path: Path) -> bool:
    room = os.statvfs(path.parent)
    return room.f_bavail * room.f_frsize < DISK_FULL_BYTES
