"""The two kinds of errors: refused requests, and failures of the store.

Refused               a person or program requested something that is not possible now. It has a code, and says what to
                      do instead. Surfaces turn it into a problem document, an exit code or a sentence.
StoreError            the store could not write or read
  Conflict            another writer was faster: read again and decide again
  Fenced              this server no longer owns what it tries to write: stop
  NotOwner            another node owns the session: stop working on it
  StoreLocked         another process holds the store's lock: nothing was written, retry shortly
  StoreUnavailable    the database can't be reached or is read-only: nothing was written, retry shortly
  StoreBusy           too many writes are waiting: nothing was written, retry shortly
  StoreFull           the disk is full: nothing was written, retry when there is room
  StoreDamaged        the stored data can't be read: restore a backup, or continue without that session

An agent's mistake is neither: it becomes an event. Any other exception is a bug.
"""

from typing import Any

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeError, TypeError)
"""Raised when damaged stored data is decoded."""

STATUS_OF_CODE = {
    "invalid": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "turn_active": 409,
    "no_turn_active": 409,
    "session_ended": 409,
    "slots_full": 409,
    "queue_full": 409,
    "prompt_resolved": 409,
    "conflict": 409,
    "files_changed": 409,
    "merge_conflict": 409,
    "no_repository": 409,
    "too_large": 413,
    "rate_limited": 429,
    "agent_unavailable": 503,
    "unavailable": 503,
    "damaged": 410,
    "internal": 500,
}


class Refused(Exception):
    """A request that can't be fulfilled: a code, a sentence that says what to do, and further facts."""

    def __init__(self, code: str, detail: str, **facts: Any) -> None:
        assert code in STATUS_OF_CODE, code
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.facts = facts

    @property
    def status(self) -> int:
        return STATUS_OF_CODE[self.code]


class StoreError(Exception):
    """The store could not write or read. See NOTHING_KEPT for when it is certain that nothing was written."""


class Conflict(StoreError):
    """Another writer was faster. Read the session again and decide again."""


class Fenced(StoreError):
    """A newer owner has taken over. The old owner must stop writing."""


class NotOwner(StoreError):
    """Another node owns the session. Stop working on it. Nothing was written."""


class StoreLocked(StoreError):
    """Timed out waiting for the store's lock, which another process holds. Nothing was written."""


class StoreUnavailable(StoreError):
    """The database can't be reached, or is read-only. Nothing was written."""


class StoreBusy(StoreError):
    """Too many writes are waiting, for example because the disk stalls. Nothing was written."""


class StoreFull(StoreError):
    """The disk is full. Nothing was written."""


class StoreDamaged(StoreError):
    """The stored data can't be read. Retrying doesn't help."""


NOTHING_KEPT = (Conflict, Fenced, StoreBusy, StoreFull, StoreLocked, StoreUnavailable)
"""After these, nothing was written; nor after NotOwner, which callers handle separately. After any other StoreError,
the outcome of the append is unknown."""
