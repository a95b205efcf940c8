"""PostgreSQL's errors in the store's words.

Above: the writer and the readers. Below: SQLSTATE codes. What a server answered with a code was rolled back, and
nothing of it was kept; a connection that was lost at the commit has no code, and nobody knows. The writer tells these
two apart.
"""

import msgspec
import psycopg
from psycopg import errors

from perdure.core.errors import StoreDamaged, StoreError, StoreFull, StoreUnavailable

# What our own code raises when it reads a row that is not as it was written.
MISSHAPEN = (msgspec.MsgspecError, TypeError, ValueError, LookupError)

LOCKED = "55P03"
AGAIN = frozenset({"40001", "40P01", LOCKED})
"""Serialization failure, deadlock, lock timeout: the same again may succeed."""
FULL = frozenset({"53100"})
DAMAGED = frozenset({"XX001", "XX002"})
READ_ONLY = frozenset({"25006"})
UNREACHABLE = frozenset({"53300", "57P01", "57P02", "57P03", "57P05", "25006"})
"""Too many connections, shutting down, crashed, starting up, idle too long, read-only."""
LOST_CLASS = "08"
"""What a pooler says when it has lost its server begins so."""

UNKNOWN = "the connection was lost at the commit; whether it was kept is not known"


def code_of(error: BaseException) -> str:
    return (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""


def is_lost(error: BaseException) -> bool:
    """Whether the connection is of no use any more."""
    code = code_of(error)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        not code or code in UNREACHABLE or code.startswith(LOST_CLASS)
    )


def told(error: Exception) -> Exception:
    """The error in the store's words; one that is not PostgreSQL's stays as it is."""
    if not isinstance(error, psycopg.Error):
        return error
    code = code_of(error)
    said = str(error).strip() or type(error).__name__
    if code in FULL:
        made: StoreError = StoreFull(f"The database has no room left on its disk; nothing was written. {said}")
    elif code in READ_ONLY:
        made = StoreUnavailable(f"the database is read-only, so nothing was kept ({said})")
    elif is_lost(error) or code in AGAIN or isinstance(error, errors.QueryCanceled):
        made = StoreUnavailable(f"the database can't be reached or does not answer ({said})")
    elif code in DAMAGED:
        made = StoreDamaged(f"the database is damaged ({said})")
    else:
        made = StoreError(f"the database refused: {said}")
    made.__cause__ = error
    return made


def misread(error: Exception) -> Exception:
    """The same for what was read: there, a value that does not fit is damage too."""
    if isinstance(error, MISSHAPEN):
        return StoreDamaged(f"the database has a row that can't be read ({type(error).__name__}: {error})")
    return told(error)
