"""The two kinds of mistake, kept apart.

Refused               a person or program asked for something that can't be done now; it names a code and says what
                      to do instead. Surfaces turn it into a problem document, an exit code or a sentence.
  NotFound ...        the same, with the code already chosen
StoreError            the store can't keep a fact
  Conflict            somebody else decided first: read again and decide again
  Fenced              this server no longer owns what it tries to write: stop
  NotOwner            another node owns the session: stop working on it
  StoreLocked         another process holds the store's lock: nothing was kept, try again in a moment
  StoreUnavailable    the database can't be reached or is read-only: nothing was kept, try again in a moment
  StoreBusy           too much waits to be written: nothing was kept, try again in a moment
  StoreFull           the disk is full: nothing was written, try again when there is room
  StoreDamaged        what is stored can't be read: restore a backup, or go on without that session

An agent's mistake is neither: it becomes an event. Anything else that is raised is a bug.
"""

from typing import Any

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeError, TypeError)
"""What is raised when something stored is decoded that is no longer as it was written."""

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
    "too_large": 413,
    "rate_limited": 429,
    "agent_unavailable": 503,
    "unavailable": 503,
    "damaged": 410,
    "internal": 500,
}


class Refused(Exception):
    """A command that can't be carried out: a code, a sentence that says what to do, and facts that help."""

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
    """The store could not keep a fact. Nothing of the append was written."""


class Conflict(StoreError):
    """Somebody else decided first. Read the session again and decide again."""


class Fenced(StoreError):
    """A newer owner has taken over. This one must stop writing."""


class NotOwner(StoreError):
    """Another node owns the session. Stop working on it; nothing of the append was written."""


class StoreLocked(StoreError):
    """Another process holds the store's lock for longer than is waited for. Nothing of the append was kept."""


class StoreUnavailable(StoreError):
    """The database can't be reached, or is read-only. Nothing of the append was kept."""


class StoreBusy(StoreError):
    """Too much waits to be written already, as on a disk that stalls. Nothing of the append was kept."""


class StoreFull(StoreError):
    """There is no room on the disk. Nothing of the append was written."""


class StoreDamaged(StoreError):
    """What is stored can't be read. To try again is of no use."""


NOTHING_KEPT = (Conflict, Fenced, StoreBusy, StoreFull, StoreLocked, StoreUnavailable)
"""After these it is sure that nothing was kept. After another StoreError nobody knows."""
