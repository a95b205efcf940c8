"""SQLite's errors in the store's words.

Above: the writer and the readers. Below: SQLite's codes. A row that does not have its shape is damage, as a page is:
our own code wrote every row, so a value of another type or JSON that ends early was changed by something else.
"""

import os
import sqlite3
from pathlib import Path

import msgspec

from perdure.core.errors import StoreDamaged, StoreError, StoreFull, StoreLocked

DISK_FULL_BYTES = 1 << 20
"""With less room than this, an input/output error means that the disk is full."""

# What our own code raises when it reads a row that is not as it was written.
MISSHAPEN = (msgspec.MsgspecError, TypeError, ValueError, LookupError)
_NOT_TEXT = "Could not decode to UTF-8"


def told(error: Exception, path: Path) -> Exception:
    """The error in the store's words; one that is not about what is stored stays as it is."""
    if not isinstance(error, sqlite3.Error):
        return error
    if is_full(error, path):
        made: StoreError = StoreFull(f"There is no room left for {path}; nothing was written. Free some space.")
    elif code_of(error) == sqlite3.SQLITE_BUSY:
        made = StoreLocked(f"{path}: {error}")
    elif code_of(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or _NOT_TEXT in str(error):
        made = StoreDamaged(f"{path} is damaged ({error})")
    else:
        made = StoreError(f"{path}: {error}")
    made.__cause__ = error
    return made


def misread(error: Exception, path: Path) -> Exception:
    """The same for what was read: there, a value that does not fit is damage too."""
    if isinstance(error, MISSHAPEN):
        return StoreDamaged(f"{path} has a row that can't be read ({type(error).__name__}: {error})")
    return told(error, path)


def is_full(error: sqlite3.Error, path: Path) -> bool:
    code = code_of(error)
    return code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _disk_is_full(path))


def code_of(error: sqlite3.Error) -> int:
    """Without the details in the upper bits. Errors of the Python layer have none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _disk_is_full(path: Path) -> bool:
    room = os.statvfs(path.parent)
    return room.f_bavail * room.f_frsize < DISK_FULL_BYTES
