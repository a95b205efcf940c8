"""Translation of PostgreSQL's errors into the store's.

Above: the writer and the readers. Below: SQLSTATE codes. An error with a code means that the transaction was rolled
back. A connection lost during the commit has no code, and the outcome is unknown. The writer tells the two apart.
"""

import msgspec
import psycopg
from psycopg import errors

from perdure.core.errors import StoreDamaged, StoreError, StoreFull, StoreUnavailable

# What our code raises when it reads a malformed row.
MISSHAPEN = (msgspec.MsgspecError, TypeError, ValueError, LookupError)

LOCKED = "55P03"
AGAIN = frozenset({"40001", "40P01", LOCKED})
"""Serialization failure, deadlock, lock timeout: a retry may succeed."""
FULL = frozenset({"53100"})
DAMAGED = frozenset({"XX001", "XX002"})
READ_ONLY = frozenset({"25006"})
UNREACHABLE = frozenset({"53300", "57P01", "57P02", "57P03", "57P05", "25006"})
"""Too many connections, shutting down, crashed, starting up, idle too long, read-only."""
LOST_CLASS = "08"
"""The class of codes that a pooler reports when it has lost its server."""

UNKNOWN = "the connection was lost during the commit, so it is unknown whether the change was stored"


def code_of(error: BaseException) -> str:
    return (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""


def is_lost(error: BaseException) -> bool:
    """Return whether the connection is no longer usable."""
    code = code_of(error)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        not code or code in UNREACHABLE or code.startswith(LOST_CLASS)
    )


def told(error: Exception) -> Exception:
    """Translate an error of PostgreSQL; return any other error unchanged."""
    if not isinstance(error, psycopg.Error):
        return error
    code = code_of(error)
    said = str(error).strip() or type(error).__name__
    if code in FULL:
        made: StoreError = StoreFull(f"The disk of the database is full; nothing was written. {said}")
    elif code in READ_ONLY:
        made = StoreUnavailable(f"the database is read-only, so nothing was written ({said})")
    elif is_lost(error) or code in AGAIN or isinstance(error, errors.QueryCanceled):
        made = StoreUnavailable(f"the database can't be reached or does not answer ({said})")
    elif code in DAMAGED:
        made = StoreDamaged(f"the database is damaged ({said})")
    else:
        made = StoreError(f"the database reported an error: {said}")
    made.__cause__ = error
    return made


def misread(error: Exception) -> Exception:
    """Translate an error of a read, where a malformed value counts as damage too."""
    if isinstance(error, MISSHAPEN):
        return StoreDamaged(f"the database has an unreadable row ({type(error).__name__}: {error})")
    return told(error)
