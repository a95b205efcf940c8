"""What a journal and the feed expect of those that follow them.

Above: runners, waiting verbs and viewers implement it. Below: nothing.
"""

from typing import Protocol


class Follower(Protocol):
    """A reader with a position. It is woken when there may be events after its position, and then reads them.
    `wake` must not block and must not raise."""

    @property
    def position(self) -> int: ...

    def wake(self) -> None: ...
