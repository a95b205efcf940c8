"""A process shared by several sessions: its members, the input it was sent in total, and when it may end.

Above: the runners of its sessions, each with its own position in the shared output; the launcher, which ends the
process after its last session. Below: launch.py. The store has one row per launch and session; together the rows of a
launch tell what was sent. Lines are numbered across all rows. One writer at a time stores its lines and then writes
them, so after a crash the next server can tell which lines are missing.
"""

import asyncio
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from perdure.drivers.base import SharedConversation
from perdure.runtime.keeping.launch import Launch
from perdure.stores.base import LaunchProgress

if TYPE_CHECKING:
    from perdure.runtime.running.agent_link import AgentLink

Key = tuple[str, str, str | None, str]
"""(agent, directory, project, program)"""

MEMBERS_MAX = 12
"""Below the keeper's limit of connections (MAX_PEERS)."""


class Input:
    """The number of lines that a process was sent, by all its sessions. Hold `lock` from storing lines until they are
    written."""

    def __init__(self, total: int = 0) -> None:
        self.total = total
        self.lock = asyncio.Lock()
        self.torn = False
        """Whether lines were stored but not written. The next writer must write them first."""

    def repair(self, launch: Launch | None, rows: Sequence[LaunchProgress]) -> None:
        """Append the lines that were stored but not written. `rows` may belong to several sessions."""
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
        self.members: dict[str, AgentLink] = {}
        self.settled = asyncio.Event()
        """Set once it is known whether others may join: the process has introduced itself, or has ended."""
        self.over = False
        self._number = 0
        self._keeper: subprocess.Popen[bytes] | None = None
        self._asking: set[str] = set()

    def next_number(self) -> int:
        """A unique number for each session that joins, which keeps their request ids apart."""
        # Sessions that left before this server started have no entry here, but each sent at least one line: the total
        # is therefore above their numbers.
        self._number = max([self._number, self.input.total, *(each.member for each in self._conversations())]) + 1
        return self._number

    def join(self, link: "AgentLink") -> None:
        self.members[link.session_id] = link

    def asks(self, session_id: str, waits: bool) -> bool:
        """Note whether this session waits for a person. Returns whether any session of the process does."""
        self._asking = self._asking | {session_id} if waits else self._asking - {session_id}
        return bool(self._asking)

    def elect(self) -> None:
        """Make sure that one session handles what concerns the whole process."""
        if self.members and not any(each.speaks for each in self._conversations()):
            self._conversations()[0].speaks = True

    def introduced(self) -> None:
        if any(each.joinable for each in self._conversations()):
            self.settled.set()

    def model(self) -> SharedConversation | None:
        """A session from which a new one can copy what the process can do."""
        return next((each for each in self._conversations() if each.joinable), None)

    def part(self, link: "AgentLink") -> None:
        """Call before reading. Tells the session which native session ids the others use: only these ids tell the
        sessions apart, so no two may have the same."""
        others = [each for each in self.members.values() if each is not link]
        open_ids = (cast("SharedConversation", other.conversation).native_session_id for other in others)
        cast("SharedConversation", link.conversation).taken = {each for each in open_ids if each is not None}

    def _conversations(self) -> list[SharedConversation]:
        return [cast("SharedConversation", member.conversation) for member in self.members.values()]

    async def settled_or(self, woken: asyncio.Event) -> None:
        """Wait until others may join, or until `woken` is set."""
        waits = [asyncio.create_task(event.wait()) for event in (self.settled, woken)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    @property
    def freeable(self) -> int:
        """The position up to which every session has stored the output."""
        return min(member.stored for member in self.members.values())

    @property
    def offset(self) -> int:
        """Where a new session begins to read: the end of a complete line near the end of the output."""
        return max(member.offset for member in self.members.values())

    def leave(self, link: "AgentLink") -> bool:
        """Remove a session. Returns whether it was the last one; if so, the caller must end the process."""
        self.members.pop(link.session_id, None)
        launch = link.launch
        self.elect()
        self.asks(link.session_id, False)
        if launch is not None and self.members:
            # The remaining sessions must reap the keeper.
            self._keeper, launch.keeper = launch.keeper or self._keeper, None
        elif launch is not None and self._keeper is not None:
            launch.keeper, self._keeper = self._keeper, None
        return not self.members


class Sharing:
    """The processes that other sessions may join."""

    def __init__(self) -> None:
        self._open: dict[Key, Shared] = {}
        self.ending: set[str] = set()
        """Launches whose files contain data of an erased session: their sessions leave as soon as possible."""

    def find(self, key: Key) -> Shared | None:
        shared = self._open.get(key)
        if shared is None or len(shared.members) >= MEMBERS_MAX or shared.launch_id in self.ending:
            return None
        return shared

    def open(self, key: Key, launch_id: str) -> Shared:
        shared = self._open[key] = Shared(key, launch_id)
        return shared

    def leave(self, link: "AgentLink", *, over: bool = False) -> bool:
        """The session leaves the process, or the process is over. Returns whether no session is left in it."""
        shared = link.shared
        if shared is None:
            return True
        last = shared.leave(link)
        if last or over:
            self.end(shared)
        return last

    def end(self, shared: Shared) -> None:
        """Let no further session join."""
        shared.over = True
        shared.settled.set()
        if self._open.get(shared.key) is shared:
            del self._open[shared.key]
