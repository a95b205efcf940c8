"""One process that serves several sessions: who is in it, what it was sent in all, and when it may end.

Above: the runners of its sessions, each with a position of its own in the one output; the launcher, which ends it
with its last session. Below: launch.py. A launch is still the unit of storage: its rows, one for each session, together
say what was sent. Lines are numbered across all of them, and one writer at a time stores its lines and writes them, so
that after a crash the lines that are missing are known, whoever they belong to.
"""

import asyncio
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from perdure.drivers.base import SharedConversation
from perdure.runtime.keeping.launch import Launch
from perdure.stores.base import Checkpoint

if TYPE_CHECKING:
    from perdure.runtime.running.attachment import Attachment

Key = tuple[str, str, str | None, str]
"""(agent, directory, project, program)"""

MEMBERS_MAX = 12
"""A keeper has room for a few connections more."""


class Input:
    """How many lines a process was sent, counted by everybody who sends some. `lock` is held from storing lines until
    they are written."""

    def __init__(self, total: int = 0) -> None:
        self.total = total
        self.lock = asyncio.Lock()
        self.torn = False
        """Lines were stored and not written: whoever writes next first writes these."""

    def repair(self, launch: Launch | None, rows: Sequence[Checkpoint]) -> None:
        """Append what was stored and not written. `rows` may be those of several sessions."""
        if launch is None or not launch.is_alive():
            self.total = max((row.input_total for row in rows), default=0)
            return
        written = launch.repair_input()
        stored: dict[int, bytes] = {}
        for row in rows:
            first = row.input_total - len(row.pending_input) + 1
            stored |= {number: line for number, line in enumerate(row.pending_input, first) if number > written}
        launch.write([stored[number] for number in sorted(stored)])
        self.total = written + len(stored)
        self.torn = False


class Shared:
    def __init__(self, key: Key, launch_id: str) -> None:
        self.key = key
        self.launch_id = launch_id
        self.input = Input()
        self.members: dict[str, Attachment] = {}
        self.settled = asyncio.Event()
        """Whether others may join is known: the process has introduced itself, or is over."""
        self.over = False
        self._number = 0
        self._keeper: subprocess.Popen[bytes] | None = None
        self._asking: set[str] = set()

    def next_number(self) -> int:
        """A number for each session that ever joins, so that their requests differ."""
        # Also beyond those of sessions that left before this server began: each of them sent some line.
        self._number = max([self._number, self.input.total, *(each.member for each in self._conversations())]) + 1
        return self._number

    def join(self, attachment: "Attachment") -> None:
        self.members[attachment.session_id] = attachment

    def asks(self, session_id: str, waits: bool) -> bool:
        """Whether a person is waited for, in this session or in any."""
        self._asking = self._asking | {session_id} if waits else self._asking - {session_id}
        return bool(self._asking)

    def elect(self) -> None:
        """One answers and tells what concerns no session in particular."""
        if self.members and not any(each.speaks for each in self._conversations()):
            self._conversations()[0].speaks = True

    def introduced(self) -> None:
        if any(each.joinable for each in self._conversations()):
            self.settled.set()

    def model(self) -> SharedConversation | None:
        """Of whom a new session learns what the process can do."""
        return next((each for each in self._conversations() if each.joinable), None)

    def part(self, attachment: "Attachment") -> None:
        """Before it reads on: no two sessions may have the same native one, as that is all that tells them apart."""
        others = [each for each in self.members.values() if each is not attachment]
        open_ids = (cast("SharedConversation", other.conversation).native_session_id for other in others)
        cast("SharedConversation", attachment.conversation).taken = {each for each in open_ids if each is not None}

    def _conversations(self) -> list[SharedConversation]:
        return [cast("SharedConversation", member.conversation) for member in self.members.values()]

    async def settled_or(self, woken: asyncio.Event) -> None:
        """Until others may join, or something else has to be looked at."""
        waits = [asyncio.create_task(event.wait()) for event in (self.settled, woken)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    @property
    def freeable(self) -> int:
        """Up to where everybody has stored the output."""
        return min(member.stored for member in self.members.values())

    @property
    def offset(self) -> int:
        """The end of a whole line, near the end of the output: where a new session begins to read."""
        return max(member.offset for member in self.members.values())

    def leave(self, attachment: "Attachment") -> bool:
        """Whether that was the last one; then the process is its to end."""
        self.members.pop(attachment.session_id, None)
        launch = attachment.launch
        self.elect()
        self.asks(attachment.session_id, False)
        if launch is not None and self.members:
            # Whoever goes on with the process has to bury its keeper.
            self._keeper, launch.keeper = launch.keeper or self._keeper, None
        elif launch is not None and self._keeper is not None:
            launch.keeper, self._keeper = self._keeper, None
        return not self.members


class Sharing:
    """The processes that other sessions may join."""

    def __init__(self) -> None:
        self._open: dict[Key, Shared] = {}
        self.ending: set[str] = set()
        """Launches in whose files an erased session has left something: their sessions leave as soon as they can."""

    def find(self, key: Key) -> Shared | None:
        shared = self._open.get(key)
        if shared is None or len(shared.members) >= MEMBERS_MAX or shared.launch_id in self.ending:
            return None
        return shared

    def open(self, key: Key, launch_id: str) -> Shared:
        shared = self._open[key] = Shared(key, launch_id)
        return shared

    def leave(self, attachment: "Attachment", *, over: bool = False) -> bool:
        """The session has left the process, or the process is over; whether nobody is in it any more."""
        shared = attachment.shared
        if shared is None:
            return True
        last = shared.leave(attachment)
        if last or over:
            self.end(shared)
        return last

    def end(self, shared: Shared) -> None:
        """Nobody may join any more."""
        shared.over = True
        shared.settled.set()
        if self._open.get(shared.key) is shared:
            del self._open[shared.key]
